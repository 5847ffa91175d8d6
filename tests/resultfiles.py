"""Small results directories, written as the suite writes them, for tests of the code that reads them."""

import contextlib
import gzip
import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from store import files
from store.schema import TimedProcess, decode_log, from_json

from benchmarks.contracts import DECLARED, Route

KIB, MIB = 2**10, 2**20
COLUMNS = ["result", "params", "version", "started_at", "duration"]
RUN = "2026-01-02T03:04:05+00:00"
COMMIT = "c0ffee00" * 5
SAMPLES = 4  # per process
# A process's record of its samples, except their seconds and probes
TAKEN = {"wanted": SAMPLES, "number": 10**6, "disturbed": [], "waits": [], "waiting": [], "waited": 0.0, "took": 0.1}
ROOT = Path(__file__).resolve().parent.parent
DESCRIBED = json.loads((ROOT / "reports" / "results" / "benchmarks.json").read_text(encoding="utf-8"))
# Name -> description of each of the suite's benchmarks, and name -> its declarations
SUITE = {name: made for name, made in DESCRIBED.items() if isinstance(made, dict)}
DECLARED = {name: {key: made[key] for key in (*DECLARED, "question")} for name, made in SUITE.items()}
SKIPPED = "skipped"  # in place of figures: the cell is part of the run and its setup skipped it
ABSENT = "absent"  # in place of figures: the cell is not part of the run


def contract(expression, memory, direction="numpy→torch", **promises):
    return Route(expression, memory, direction, families=(), **promises).contract()


FROM_NUMPY = contract("torch.from_numpy(a)", "alias")
AS_TENSOR = contract("torch.as_tensor(a)", "alias")
CLONE = contract("torch.from_numpy(a).clone()", "copy")
TENSOR = contract("torch.tensor(a)", "copy")


def steady(number):
    """The clock of a machine whose speed does not change."""
    return 1.0


@dataclass
class Bench:
    """A benchmark.

    cells  parameters -> seconds of each process, repeats of a count, one value, None (failed) or SKIPPED
    parts  parameters -> part -> seconds of each process, timed in turns with the cell and without probes
    """

    name: str
    params: dict
    cells: dict
    contracts: list = field(default_factory=list)
    unit: str = "seconds"
    declared: dict = field(default_factory=dict)
    parts: dict = field(default_factory=dict)

    def keys(self):
        return list(itertools.product(*self.params.values()))

    def spelled(self, key):
        return f"{self.name}({', '.join(map(repr, key))})" if key else self.name

    def description(self):
        return {
            "name": self.name,
            "type": "time" if self.unit == "seconds" else "track",
            "unit": self.unit,
            "version": "v1",
            "param_names": list(self.params),
            "params": [[repr(value) for value in values] for values in self.params.values()],
            "contracts": {promise["expression"]: promise for promise in self.contracts},
            **DECLARED.get(self.name, {}),
            **self.declared,
        }

    def entries(self):
        """asv's row of results: bare NaN where a cell is not part of the run or skipped, null where it failed."""
        found = [self.cells.get(key, SKIPPED) for key in self.keys()]
        result = [
            float("nan") if value == SKIPPED else median(value) if isinstance(value, list) else value for value in found
        ]
        return [result, self.description()["params"], "v1", 1, 1.0]

    def lines(self, slow, clock):
        """The measurements: a line per process, or per counted cell; slow and clock as in ``write``."""
        lines = []
        there = {key: value for key, value in self.cells.items() if value is not None and value != SKIPPED}
        for key, value in there.items():
            about = {"run": RUN, "benchmark": self.name, "params": list(map(repr, key)), "version": "v1"}
            values = value if isinstance(value, list) else [value]
            if self.unit != "seconds":
                lines.append({**about, "round": 0, "values": values})
                continue
            for number, seconds in enumerate(values):
                parts = {part: [each[number]] * SAMPLES for part, each in self.parts.get(key, {}).items()}
                probe = round((50_000 if (key, number) in slow else 25_000) * (clock(number) if clock else 1))
                probes = {} if parts or not clock else {"processor": [probe] * (SAMPLES + 1)}
                taken = {**about, **TAKEN, "round": number, "seconds": [seconds] * SAMPLES, "probes": probes}
                lines.append({**taken, "parts": parts} if parts else taken)
        lines.sort(key=lambda line: line["round"])
        return [{**line, "at": 1000.0 + place} for place, line in enumerate(lines)]


def record(benches, skipped="the reason", **changes):
    """A run record like those of scripts/run.py."""
    cells = [bench.spelled(key) for bench in benches for key, value in bench.cells.items() if value == SKIPPED]
    return {
        "profile": "quick",
        "only": None,
        "command": "python scripts/run.py",
        "machine": "box",
        "toolchain": {"tag": "torch-2.0-numpy-1.26", "torch": "2.0", "numpy": "1.26"},
        "settings": {"torch": "2.0+cpu", "numpy": "1.26.1", "python": "3.11.7", "torch_threads": 1, "cuda": None},
        "conditions": {"cpu": "A CPU", "cores": 4, "cores_allowed": 2, "caches": {"L2": "1024K"}, "load_average": 0.5},
        "asv": "0.6.6",
        "asv_runner": "0.3.2",
        "launch": "forkserver",
        "started": RUN,
        "rounds": 2,
        "seconds": 12.0,
        "samples": 990,
        "retaken": 10,
        "noisy_cells": ["a.cell(1)"],
        "skipped": {skipped: cells} if cells else {},
        **changes,
    }


def write(root: Path, benches, machine="box", records=None, commit=COMMIT, slow=(), clock=None, node=""):
    """Write a results directory with one result file, of a machine or of one of its nodes; return its path.

    records  run records, by default one
    slow     (cell's parameters, process) at half the machine's speed, as the probes show
    clock    process -> factor by which its speed probes took longer; without a clock there are no probes
    """
    directory = root / machine / node
    directory.mkdir(parents=True, exist_ok=True)
    described = {bench.name: bench.description() for bench in benches} | {"version": 2}
    (root / "benchmarks.json").write_text(json.dumps(described))
    (directory / "machine.json").write_text(json.dumps({"machine": machine, "version": 1}))
    file = {
        "version": 2,
        "commit_hash": commit,
        "date": 0,
        "env_name": "toolchain-py3.11",
        "params": {"machine": machine, "python": "3.11"},
        "requirements": {},
        "python": "3.11",
        "result_columns": COLUMNS,
        "results": {bench.name: bench.entries() for bench in benches},
    }
    stem = f"{commit[:8]}-toolchain-py3.11"
    (directory / f"{stem}.json").write_text(json.dumps(file))
    lines = [record(benches, machine=machine)] if records is None else records
    rounds = _taken_by(lines)
    measured = [line | rounds[line["round"]] for bench in benches for line in bench.lines(slow, clock)]
    if measured:
        (directory / f"{stem}{files.MEASUREMENTS}").write_bytes(compressed(measured))
    if lines:
        (directory / f"{stem}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return root


def process(seconds=(1e-6,), **more):
    """Return a timed process without probes, as the store reads it; more: other values of its fields."""
    about = {"run": "one", "round": 0, "benchmark": "toy.Toy.timeit_call", "params": [], "version": "", "at": 0.0}
    fields = {**about, **TAKEN, "wanted": len(seconds), "seconds": seconds, "probes": {}, **more}
    return from_json(TimedProcess, json.loads(json.dumps(fields, default=lambda array: array.tolist())))


def decoded(lines):
    """Return lines of JSON as the store reads them."""
    return decode_log("\n".join(map(json.dumps, lines)))


def compressed(lines):
    """Return the bytes of a file of measurements with these lines, as store/files.py writes them."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return gzip.compress(text.encode(), files.COMPRESSION_LEVEL, mtime=0)


@contextlib.contextmanager
def edited(path):
    """Yield the JSON values of a file of results as a list; after the block, write the changed list to the file."""
    held = [json.loads(text) for text in files.read_texts(path)]
    yield held
    lines = "".join(json.dumps(value) + "\n" for value in held).encode()
    path.write_bytes(compressed(held) if path.suffix == ".gz" else lines)


def mend(root, change, commit=""):
    """Apply ``change`` to each line of measurements in a results directory, or only to those of a commit."""
    for path in Path(root).rglob(f"{commit[:8]}*{files.MEASUREMENTS}"):
        with edited(path) as lines:
            lines[:] = map(change, lines)


def _taken_by(records):
    """Return the run that took each round, and its number in that run; the last run took all remaining rounds."""
    *earlier, last = [each for each in records if not each.get("failed")] or [{"started": RUN}]
    rounds = [{"run": each["started"], "round": number} for each in earlier for number in range(each["rounds"])]
    return rounds + [{"run": last["started"], "round": number} for number in range(100)]


def every(name, value, contracts=(), unit="seconds", declared=None, **params):
    """Return a benchmark of all combinations of parameters; the first parameter is the contracts' routes.

    value  a function of these parameters: the cell as ``Bench`` holds it, or its approximate seconds
    """
    if contracts:
        params = {"route": [promise["expression"] for promise in contracts], **params}
    cells = _cells({key: value(*key) for key in itertools.product(*params.values())}, unit)
    return Bench(name, params, cells, list(contracts), unit, declared or {})


def of_suite(name, found, parts=None):
    """Return a benchmark of the suite with these cells only. found: parameters -> value, as in ``every``."""
    described = SUITE[name]
    params = {each: list(dict.fromkeys(values)) for each, values in zip(described["param_names"], zip(*found))}
    cells = _cells(found, described["unit"])
    return Bench(name, params, cells, [*described.get("contracts", {}).values()], described["unit"], parts=parts or {})


def _cells(found, unit):
    """Return the cells of a ``Bench`` from values as in ``every``; absent cells are left out."""
    timed = {key: around(value) for key, value in found.items() if isinstance(value, float) and unit == "seconds"}
    return {key: timed.get(key, value) for key, value in found.items() if value != ABSENT}


def conversion(times, contracts, group="NumpyToTorch", dtypes=("float32",)):
    """Return a conversion benchmark. times: (route, nbytes) or (route, dtype, nbytes) -> seconds of each process."""
    cells = {key if len(key) == 3 else (key[0], dtypes[0], key[1]): value for key, value in times.items()}
    routes = [promise["expression"] for promise in contracts]
    sizes = sorted({key[2] for key in cells})
    params = {"route": routes, "dtype": list(dtypes), "nbytes": sizes}
    return Bench(f"conversion.{group}.timeit_convert", params, cells, contracts)


def memcpy(times):
    return every("limits.Memcpy.timeit_copy", times.get, nbytes=list(times))


def around(seconds, spread=0.001, count=4):
    """Processes evenly spread around ``seconds``."""
    return [seconds * (1 + spread * (2 * k / (count - 1) - 1)) for k in range(count)]
