#!/usr/bin/env python3
"""What does noise do to the suite's figures? Makes some on purpose and measures, with it and without.

    python scripts/check_noise.py                         calm and noise, five runs each: about an hour
    python scripts/check_noise.py --before v1.0           the code of that revision beside it, in the same minutes
    python scripts/check_noise.py --condition noise       noise alone
    python scripts/check_noise.py --resume .asv/noise/ID  go on where it stopped; finished runs are kept

Noise is one process on every core that by turns does nothing and either burns CPU or streams memory, 1 to 50 ms each:
half of the time. It is there only while something is measured. In both conditions

    A/A          two quick runs of the same code, four processes a cell, each cell's figure in one against the other
    slowdown     one alias route made 10 % slower: compare.py --run, four processes a side
    comparisons  every pair of the runs by compare.py: whatever it flags is wrong

Exit code: 0 every promise in the table was kept, 1 one was not, 2 could not measure. Leave the machine alone meanwhile.
"""

import argparse
import contextlib
import io
import itertools
import json
import math
import multiprocessing
import os
import random
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

from cli import ONLY, Parser, UserError, check_writable, matcher, put, run
from measuring.interleave import CODE, copy_code
from measuring.session import apart, last_words, own_home

ROOT = Path(__file__).resolve().parent.parent
SCRATCH = ROOT / ".asv" / "noise"
CALM, NOISE = CONDITIONS = "calm", "noise"
NEW, BEFORE = "new", "before"
PLANTED, PAIRS = "planted", "pairs"
MACHINE = "noise"  # the name that results are filed under, in copies of the checkout
PROFILE, ROUNDS = "quick", 4
RUNS, RUNS_BEFORE = 5, 2
SMOKE = r"limits\.Floor"  # with --quick

ALL, WERE_CALM, NEVER_CALM = "all", "calm in both runs", "never calm in one of them"

# What is promised; A/A figures are |log ratio|, 0.02 is 2 %
MEDIAN, NINE_IN_TEN = 0.02, 0.06
TIME, MOVED = 1.15, 0.01  # calm, new against before: seconds a cell, and the median cell's figure

# Seconds of each step of the quick profile on a 2-core machine: the estimate shown before anything is measured
ESTIMATES = {
    CALM: {NEW: 150, BEFORE: 140, PLANTED: 250, PAIRS: 30},
    NOISE: {NEW: 320, BEFORE: 240, PLANTED: 450, PAIRS: 30},
}

KIB, MIB = 2**10, 2**20
SIZES = {  # bytes; the classes that the A/A is shown by
    "≤ 4 KiB": (0, 4 * KIB),
    "1 MiB": (MIB, MIB),
    "≥ 16 MiB": (16 * MIB, math.inf),
}


# --- noise -----------------------------------------------------------------------------------------------------------

SHORTEST, LONGEST = 0.001, 0.050  # seconds, of a burst and of a pause
BURN, STREAM = "burn", "stream"
STREAMED = 64 * MIB  # source and target of one process: beyond the caches
PIECE = MIB  # copied between two looks at the clock: a tenth of the shortest burst


def bursts(rng: random.Random) -> Iterator[tuple[str, float, float]]:
    """What a noisy process does, for ever: (BURN or STREAM, seconds of the burst, seconds of the pause after it)."""
    while True:
        yield rng.choice((BURN, STREAM)), rng.uniform(SHORTEST, LONGEST), rng.uniform(SHORTEST, LONGEST)


def disturb(core: int | None, seed: str) -> None:
    """Make noise until the parent process is gone, on ``core`` where the system can pin a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends this process
    if core is not None:
        os.sched_setaffinity(0, {core})
    parent = multiprocessing.parent_process()
    # ones: pages of zeros that nobody wrote could be one page
    source, target = (memoryview(bytearray(b"\1") * (STREAMED // 2)) for _ in range(2))
    places = itertools.cycle(range(0, STREAMED // 2, PIECE))
    for kind, burst, pause in bursts(random.Random(seed)):
        end = time.perf_counter() + burst
        while time.perf_counter() < end:
            if kind == STREAM:
                place = next(places)
                target[place : place + PIECE] = source[place : place + PIECE]
            else:
                sum(range(1000))
        if parent is not None and not parent.is_alive():
            return  # killed before it could end this process
        time.sleep(pause)


@contextlib.contextmanager
def noise(seed: str) -> Iterator[list[BaseProcess]]:
    """Noise on every core that this process may use, while the block runs; the processes that make it.

    The same ``seed`` gives the same bursts. UserError where a process ended before the block did.
    """
    if hasattr(os, "sched_getaffinity"):
        cores: list[int | None] = [*sorted(os.sched_getaffinity(0))]
    else:
        cores = [None] * (os.cpu_count() or 1)
    context = multiprocessing.get_context("spawn")
    processes: list[BaseProcess] = []
    try:
        for place, core in enumerate(cores):
            process: BaseProcess = context.Process(target=disturb, args=(core, f"{seed} {place}"), daemon=True)
            process.start()
            processes.append(process)
        yield processes
        if not all(process.is_alive() for process in processes):
            raise UserError("a process that makes noise ended early, so this was not measured in noise")
    finally:
        for process in processes:
            process.kill()
            process.join()


# --- code to measure -------------------------------------------------------------------------------------------------


def git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True)


def revision(name: str) -> str:
    """The commit that ``name`` is, as a hash; UserError where this checkout has no such revision."""
    try:
        found = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    except FileNotFoundError:
        raise UserError("--before takes a git revision, and there is no git here") from None
    if found.returncode:
        raise UserError(f"--before {name!r} is no revision of this checkout")
    return found.stdout.decode().strip()


def this_code() -> str:
    """The checkout's commit in short, and whether it has other changes; "" where that cannot be known."""
    with contextlib.suppress(OSError):
        found = git("describe", "--always", "--dirty= with changes", "--exclude=*")
        return found.stdout.decode().strip()
    return ""


def export(commit: str, root: Path) -> None:
    """What a run needs of that commit, into ``root``."""
    archive = git("archive", "--format=zip", commit, "--", *CODE)
    if archive.returncode:
        raise UserError(f"cannot export {commit[:8]}: {archive.stderr.decode().strip().splitlines()[-1]}")
    zipfile.ZipFile(io.BytesIO(archive.stdout)).extractall(root)


# --- a slowdown by construction --------------------------------------------------------------------------------------

ROUTE = "torch.from_numpy(a)"
# that and its like: enough cells for their noise to be known as a family's
ALIASES = (ROUTE, "torch.as_tensor(a)", "torch.asarray(a)", "t.numpy()", "t.detach().numpy()", "np.asarray(t)")
ALIAS_SIZES = (8, 4 * KIB, MIB)
COUNTED, MADE = 10, {"base": 10, "new": 11}  # calls of a statement: those it is divided by, those it makes on a side

PLANT = f"""

# --- appended by scripts/check_noise.py to a copy -------------------------------------------------------------------
# One route takes {MADE["new"]} calls for {COUNTED} on one side. Both sides run these same files, so that measurement
# versions are equal, and tell by the name of their directory which side they are.
import pathlib as _pathlib

_MADE = {MADE}[_pathlib.Path(__file__).resolve().parents[1].name.partition("-")[0]]
_unchanged = _Conversion.timeit_convert


def _timeit_convert(self, route, *params):
    statement, names, *calls = _unchanged(self, route, *params)
    if route != {ROUTE!r}:
        return statement, names, *calls
    return "; ".join([statement] * _MADE), names, {COUNTED} * (calls[0] if calls else 1)


_Conversion.timeit_convert = _timeit_convert
"""


def plant(root: Path) -> None:
    """Make ROUTE slower on one side of the interleaved comparisons that the copy ``root`` will run."""
    with (root / "benchmarks" / "conversion.py").open("a", encoding="utf-8") as file:
        file.write(PLANT)


def alias_cells(sizes: Iterable[int] = ALIAS_SIZES) -> str:
    """Regular expression over asv's names of cells: those the slowdown is looked for among."""
    routes, nbytes = "|".join(map(re.escape, ALIASES)), "|".join(map(str, sizes))
    return rf"^conversion\.(NumpyToTorch|TorchToNumpy)\..*\('({routes})', 'float32', ({nbytes})\)$"


# --- steps -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """what: NEW or BEFORE (a run of that code), PLANTED or PAIRS. number: which run of that code, from 1."""

    condition: str
    what: str
    number: int = 0

    @property
    def name(self) -> str:
        return f"{self.condition}/{self.what}" + (f"-{self.number}" if self.number else "")


def steps(conditions: Iterable[str], runs: int, before: bool) -> list[Step]:
    """What is measured, in order.

    Runs of both codes in turns, new before new before new: both A/A span as much time, and the runs of before lie in
    the middle of those that they are compared with.
    """
    found = []
    for condition in conditions:
        for number in range(1, runs + 1):
            found.append(Step(condition, NEW, number))
            if before and number <= RUNS_BEFORE:
                found.append(Step(condition, BEFORE, number))
        found += [Step(condition, PLANTED), Step(condition, PAIRS)]
    return found


LOADER = """
import json, sys
from pathlib import Path
sys.path.insert(0, "scripts")
from analysis.results import load, summarize
found = load(Path("reports/results"))
table = summarize(found.processes)
print(json.dumps({
    "cells": dict(zip(table["cell"], table["seconds"])),
    "nbytes": {cell: int(n) for cell, n in zip(table["cell"], table["nbytes"]) if n is not None and n == n},
    "calm": list(table["cell"][table["calm"]]) if "calm" in table else list(table["cell"]),
    "record": found.runs[-1],
}, default=vars))
"""  # run in a copy of the code, since each version says itself what a cell's figure is


class Workplace:
    """The directory of one check: ``plan.json``, copies of the code, and a JSON file for each step that is done."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def start(self, plan: Mapping[str, Any]) -> None:
        copy_code(ROOT, self.directory / "code" / NEW)
        if plan["before"]:
            export(plan["before"], self.directory / "code" / BEFORE)
        (self.directory / "home").mkdir()
        self._write("plan", plan)

    def plan(self) -> dict[str, Any]:
        found = self._read("plan")
        if found is None:
            raise UserError(f"--resume {self.directory}: there is nothing to go on with")
        return found

    def result(self, step: Step) -> Any:
        """What a finished step gave; None before."""
        return self._read(step.name)

    def do(self, step: Step) -> None:
        """Measure what the step measures, and keep what it gave."""
        plan = self.plan()
        work: Callable[[Step, Mapping[str, Any]], Any] = {PLANTED: self._planted, PAIRS: self._pairs}.get(
            step.what, self._run
        )
        self._write(step.name, work(step, plan))

    def _run(self, step: Step, plan: Mapping[str, Any]) -> dict[str, Any]:
        """A run: cells and nbytes (cell -> seconds, bytes), calm (cells that ever were), record (run.py's own), seconds
        (of all of it)."""
        root = self.directory / step.name
        copy_code(self.directory / "code" / step.what, root)
        command = ["--profile", PROFILE, "--rounds", str(ROUNDS), "--no-report", "--machine", MACHINE]
        with self._condition(step):
            started = time.monotonic()
            self.call(root, "scripts/run.py", *command, *(["--only", plan["only"]] if plan["only"] else []))
            seconds = time.monotonic() - started
        return {**json.loads(self.call(root, "-c", LOADER)), "seconds": round(seconds, 1)}

    def _planted(self, step: Step, plan: Mapping[str, Any]) -> dict[str, Any]:
        """Both sides in turns by compare.py --run: what it says of four processes a side, and in the end."""
        root = self.directory / step.name
        copy_code(self.directory / "code" / NEW, root)
        plant(root)
        command = ["--run", "installed", "installed", "--profile", PROFILE, "--machine", MACHINE]
        with self._condition(step):
            fresh = self._compare(root, *command, "--only", alias_cells(plan["sizes"]))
        (measured,) = (root / ".asv" / "compare").iterdir()
        for side in MADE:  # away from the second stage's results, which compare.py would find beside them
            shutil.copytree(measured / side / "reports", root / "first" / side / "reports")
        return {"first": self._compare(root, "first/base", "first/new"), "fresh": fresh}

    def _pairs(self, step: Step, plan: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Every two runs of the new code, compared."""
        names = [Step(step.condition, NEW, number).name for number in range(1, plan["runs"] + 1)]
        code = self.directory / "code" / NEW
        return [
            {"pair": pair, **self._compare(code, *(str(self.directory / name) for name in pair))}
            for pair in itertools.combinations(names, 2)
        ]

    def _compare(self, root: Path, *arguments: str) -> dict[str, Any]:
        """compare.py of the code in ``root``: of its JSON, what counts here."""
        said = json.loads(self.call(root, "scripts/compare.py", *arguments, "--format", "json", fine=(0, 1, 2)))
        wanted = ("cell", "route", "nbytes", "verdict", "ratio", "low95", "high95", "base_processes")
        cells = [{name: cell[name] for name in wanted} for cell in said["cells"]]
        return {"exit_code": said["exit_code"], "withheld": said["withheld"], "cells": cells}

    def _condition(self, step: Step) -> contextlib.AbstractContextManager[Any]:
        return noise(step.name) if step.condition == NOISE else contextlib.nullcontext()

    def call(self, root: Path, *arguments: str, fine: Sequence[int] = (0,)) -> str:
        """What this Python printed, run in ``root`` with a home of its own; UserError with its words if it failed."""
        done = apart([sys.executable, *arguments], root, own_home(self.directory / "home"))
        if done.returncode not in fine or not done.stdout:
            raise UserError(f"{arguments[0]} in {root.name}: {last_words(done)}")
        return done.stdout

    def _write(self, name: str, result: Any) -> None:
        path = self.directory / f"{name}.json"
        put(path, json.dumps(result))

    def _read(self, name: str) -> Any:
        try:
            return json.loads((self.directory / f"{name}.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None


# --- figures ---------------------------------------------------------------------------------------------------------


def spread(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """A/A of two runs, for all cells, for those that both runs call calm, for the others, and by class of size: cells
    in both and in either, and of the |log ratio| of their figures the median, the 90 % quantile (nine) and the share
    beyond NINE_IN_TEN."""
    calm = {*one["calm"]} & {*other["calm"]}
    classes: dict[str, Callable[[str, Mapping[str, Any]], bool]] = {
        ALL: lambda cell, side: True,
        WERE_CALM: lambda cell, side: cell in calm,
        NEVER_CALM: lambda cell, side: cell not in calm,
        **{name: partial(_is_of_size, *bounds) for name, bounds in SIZES.items()},
    }
    found = {}
    for name, belongs in classes.items():
        own = [{cell for cell in side["cells"] if belongs(cell, side)} for side in (one, other)]
        off = [abs(math.log(one["cells"][cell] / other["cells"][cell])) for cell in own[0] & own[1]]
        if off:
            found[name] = {
                "cells": len(off),
                "either": len(own[0] | own[1]),
                "median": statistics.median(off),
                "nine": statistics.quantiles(off, n=10, method="inclusive")[8] if len(off) > 1 else off[0],
                "beyond": sum(value > NINE_IN_TEN for value in off) / len(off),
            }
    if not found:
        raise UserError("two runs of one code have no cell in common")
    return found


def _is_of_size(low: float, high: float, cell: str, side: Mapping[str, Any]) -> bool:
    return bool(low <= side["nbytes"].get(cell, math.nan) <= high)


def disturbed(record: Mapping[str, Any]) -> float:
    """Share of samples that the run itself says the machine disturbed."""
    calm = record.get("calm")
    if isinstance(calm, (int, float)):
        return 1.0 - calm
    return (record["retaken"] + record["disturbed"]) / max(1, record["samples"] + record["retaken"])


def of_code(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The A/A of the first two runs of a code; seconds, cells and disturbed samples of a run, on average."""
    return {
        "spread": spread(runs[0], runs[1]),
        "seconds": statistics.mean(result["seconds"] for result in runs),
        "cells": statistics.mean(len(result["cells"]) for result in runs),
        "disturbed": statistics.mean(disturbed(result["record"]) for result in runs),
    }


def against(new: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Two codes in the same minutes, new ÷ before: time (seconds a cell) and figures (of the median cell)."""
    sides = new[: len(before) + 1], before
    time_of = [statistics.mean(one["seconds"] / len(one["cells"]) for one in runs) for runs in sides]
    shared = set.intersection(*(set(one["cells"]) for runs in sides for one in runs))
    if not shared:
        raise UserError("the two codes have no cell in common")
    logs = [{cell: statistics.mean(math.log(one["cells"][cell]) for one in runs) for cell in shared} for runs in sides]
    return {
        "time": time_of[0] / time_of[1],
        "figures": math.exp(statistics.median(logs[0][cell] - logs[1][cell] for cell in shared)),
        "cells": len(shared),
    }


FLAGS = ("slower", "faster")
DECIDED = (*FLAGS, "no change")
COMPARED = (*DECIDED, "inconclusive")


def share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def of_planted(said: Mapping[str, Any]) -> dict[str, Any]:
    """found of cells that have the slowdown, their ratios, and wrong flags among the others that have none."""
    have = [cell for cell in said["cells"] if cell["route"] == ROUTE]
    others = [cell for cell in said["cells"] if cell["route"] != ROUTE]
    return {
        "found": sum(cell["verdict"] == "slower" for cell in have),
        "cells": len(have),
        "ratios": [[cell[name] for name in ("ratio", "low95", "high95")] for cell in have],
        "wrong": sum(cell["verdict"] in FLAGS for cell in others),
        "others": len(others),
        "processes": max((cell["base_processes"] for cell in have), default=0),
        "exit_code": said["exit_code"],
    }


def of_pairs(pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A/A comparisons: how many, how many of them flagged a cell or could not compare; cells flagged and decided."""
    verdicts = [[cell["verdict"] for cell in pair["cells"]] for pair in pairs]
    flags = [sum(verdict in FLAGS for verdict in found) for found in verdicts]
    every = [verdict for found in verdicts for verdict in found]
    return {
        "pairs": len(pairs),
        "alarms": sum(count > 0 for count in flags),
        "flags": sum(flags),
        "could_not": sum(pair["exit_code"] == 2 for pair in pairs),
        "decided": share(sum(verdict in DECIDED for verdict in every), sum(verdict in COMPARED for verdict in every)),
    }


def figures(place: Workplace, plan: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Condition -> all that its finished steps tell; nothing of a condition without any."""
    found: dict[str, dict[str, Any]] = {}
    for condition in CONDITIONS:
        done = {
            step: result
            for step in steps([condition], plan["runs"], bool(plan["before"]))
            if (result := place.result(step)) is not None
        }
        own: dict[str, Any] = {}
        runs = {code: [result for step, result in done.items() if step.what == code] for code in (NEW, BEFORE)}
        for code, results in runs.items():
            if len(results) > 1:
                own[code] = of_code(results)
        if NEW in own and BEFORE in own:
            own["against"] = against(runs[NEW], runs[BEFORE])
        planted, pairs = (done.get(Step(condition, what)) for what in (PLANTED, PAIRS))
        if planted:
            own[PLANTED] = {stage: of_planted(said) for stage, said in planted.items()}
        if pairs:
            own[PAIRS] = of_pairs(pairs)
        if own:
            found[condition] = own
    return found


# --- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A line of the table. values: column -> text. kept: condition -> whether the promise was; none without promise."""

    label: str
    promise: str
    values: Mapping[str, str]
    kept: Mapping[str, bool]


def percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f} %"


def column(condition: str, code: str) -> str:
    return condition if code == NEW else f"{condition}, {code}"


def rows(found: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """The table's lines: all figures, and whether the new code kept what is promised of it."""
    codes = [(condition, code) for condition, own in found.items() for code in (NEW, BEFORE) if code in own]
    sides = {(condition, code): found[condition][code] for condition, code in codes}
    table: list[Row] = []

    def of_sides(
        label: str, promise: str, show: Callable[[Any], str], keeps: Callable[[Any], bool] | None = None
    ) -> None:
        values = {column(*side): show(own) for side, own in sides.items()}
        kept = {condition: keeps(own) for (condition, code), own in sides.items() if keeps and code == NEW}
        table.append(Row(label, promise, values, kept))

    def of_conditions(
        label: str,
        promise: str,
        what: str,
        show: Callable[[Any], str],
        keeps: Callable[[Any], bool] | None = None,
        judged: Sequence[str] = CONDITIONS,
    ) -> None:
        there = {condition: own[what] for condition, own in found.items() if what in own}
        kept = {condition: keeps(own) for condition, own in there.items() if keeps and condition in judged}
        if there:
            table.append(Row(label, promise, {condition: show(own) for condition, own in there.items()}, kept))

    of_sides(
        "A/A of two runs: the median cell differs by",
        f"at most {percent(MEDIAN, 0)}",
        lambda own: percent(own["spread"][ALL]["median"]),
        lambda own: own["spread"][ALL]["median"] <= MEDIAN,
    )
    of_sides(
        "nine cells in ten differ by at most",
        percent(NINE_IN_TEN, 0),
        lambda own: percent(own["spread"][ALL]["nine"]),
        lambda own: own["spread"][ALL]["nine"] <= NINE_IN_TEN,
    )
    of_sides(f"cells beyond {percent(NINE_IN_TEN, 0)}", "", lambda own: percent(own["spread"][ALL]["beyond"]))
    for name in (WERE_CALM, NEVER_CALM, *SIZES):
        if any(name in own["spread"] for own in sides.values()):
            of_sides(f"{name}: cells, median, nine in ten", "", partial(_of_class, name))
    of_sides("cells in both runs", "", lambda own: "{cells} of {either}".format(**own["spread"][ALL]))
    of_sides("seconds a run", "", lambda own: f"{own['seconds']:.0f}")
    of_sides("samples that the run calls disturbed", "", lambda own: percent(own["disturbed"]))
    of_conditions(
        "time, new ÷ before",
        f"calm: at most {TIME}",
        "against",
        lambda own: f"{own['time']:.2f}",
        lambda own: own["time"] <= TIME,
        (CALM,),
    )
    of_conditions(
        "figures, new ÷ before, the median cell",
        f"calm: within {percent(MOVED, 0)}",
        "against",
        lambda own: f"{own['figures']:.3f}",
        lambda own: abs(own["figures"] - 1) <= MOVED,
        (CALM,),
    )
    slower = percent(MADE["new"] / COUNTED - 1, 0)
    of_conditions(
        f"{slower} slowdown of `{ROUTE}`, {ROUNDS} processes a side: found in",
        "every cell",
        PLANTED,
        lambda own: f"{own['first']['found']} of {own['first']['cells']}",
        lambda own: own["first"]["found"] == own["first"]["cells"] > 0,
    )
    of_conditions("the slowdown it reads (95 %)", "", PLANTED, lambda own: _ratios(own["first"]["ratios"]))
    of_conditions(
        "unchanged cells flagged beside it",
        "none",
        PLANTED,
        lambda own: f"{own['first']['wrong'] + own['fresh']['wrong']} of {own['first']['others']}",
        lambda own: own["first"]["wrong"] + own["fresh"]["wrong"] == 0,
    )
    of_conditions(
        "found with the fresh processes that `compare.py --run` takes where it is close",
        "",
        PLANTED,
        lambda own: "{found} of {cells}".format(**own["fresh"]),
    )
    of_conditions(
        "A/A comparisons with a false flag",
        "none",
        PAIRS,
        lambda own: "{alarms} of {pairs}".format(**own),
        lambda own: own["alarms"] == 0,
    )
    of_conditions("cells they decide", "", PAIRS, lambda own: percent(own["decided"]))
    of_conditions(
        "comparisons that could not tell (exit code 2)", "", PAIRS, lambda own: "{could_not} of {pairs}".format(**own)
    )
    return table


def _of_class(name: str, own: Mapping[str, Any]) -> str:
    found = own["spread"].get(name)
    return f"{found['cells']:.0f}: {percent(found['median'])}, {percent(found['nine'])}" if found else "–"


def _ratios(ratios: Iterable[Sequence[float | None]]) -> str:
    known = [[float(value) for value in ratio if value is not None] for ratio in ratios]
    return ", ".join("{:.2f} ({:.2f}–{:.2f})".format(*ratio) for ratio in known if len(ratio) == 3) or "–"


def markdown(table: Sequence[Row]) -> str:
    """The table, to be pasted into a page."""
    used = [
        name
        for condition in CONDITIONS
        for code in (NEW, BEFORE)
        if any((name := column(condition, code)) in row.values for row in table)
    ]
    lines = [["", "promise", *used, "kept"], ["---"] * (len(used) + 3)]
    for row in table:
        broken = [condition for condition, kept in row.kept.items() if not kept]
        kept = f"**no**: {', '.join(broken)}" if broken else "yes" if row.kept else ""
        lines.append([row.label, row.promise, *(row.values.get(name, "") for name in used), kept])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def exit_code(table: Sequence[Row]) -> int:
    """0 where every promise that was tried was kept, and one was tried."""
    tried = [kept for row in table for kept in row.kept.values()]
    return 0 if tried and all(tried) else 1


def describe(place: Workplace, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Machine, toolchain, day and codes, by the run record of the first run that is done."""
    done = (place.result(Step(condition, NEW, 1)) for condition in CONDITIONS)
    record = next(result for result in done if result)["record"]
    return {
        **{name: record["conditions"].get(name) for name in ("cpu", "cores", "cores_allowed", "system")},
        **{name: record["settings"].get(name) for name in ("torch", "numpy", "python")},
        "day": record["started"][:10],
        **{name: plan[name] for name in (NEW, BEFORE, "command")},
    }


def sentence(about: Mapping[str, Any]) -> str:
    """Below the table: on what it was measured, and the command."""
    codes = f"new is {about['new'] or 'this checkout'}" + (f", before {about['before'][:8]}" if about["before"] else "")
    return (
        f"{about['cpu']}, {about['cores_allowed']} of {about['cores']} cores, {about['system']}; Python "
        f"{about['python']}, torch {about['torch']}, numpy {about['numpy']}; {about['day']}; {codes}; "
        f"`{about['command']}`"
    )


# --- the command -----------------------------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--before", metavar="REV", help="a git revision to measure beside this code")
    parser.add_argument("--runs", type=int, help=f"runs of this code in each condition (default: {RUNS})")
    parser.add_argument(
        "--only",
        metavar="REGEX",
        help=f"{ONLY} (the slowdown has cells of its own)",
    )
    parser.add_argument("--condition", choices=(*CONDITIONS, "both"), default="both", help="default: both")
    parser.add_argument("--quick", action="store_true", help="try this script: two small runs, which show nothing")
    parser.add_argument("--resume", metavar="DIR", type=Path, help="go on with a check that was interrupted")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there, too")
    chosen = parser.parse_args(argv)
    if chosen.resume and (chosen.before or chosen.runs or chosen.only or chosen.quick):
        raise UserError("--resume goes on with what was chosen then: only --condition and --json go with it")
    if chosen.runs is not None and chosen.runs < 2:
        raise UserError("--runs takes a whole number from 2: an A/A is two runs")
    matcher(chosen.only)
    if chosen.json:
        check_writable("--json", chosen.json)
    return chosen


def begin(chosen: argparse.Namespace, command: str) -> Workplace:
    """A workplace for what was chosen, or the one to go on with."""
    if chosen.resume:
        return Workplace(chosen.resume.absolute())
    commit = revision(chosen.before) if chosen.before else ""
    started = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S")
    place = Workplace(SCRATCH / f"{started}-{os.getpid()}")
    place.start(
        {
            "before": commit,
            "new": this_code(),
            "runs": chosen.runs or (2 if chosen.quick else RUNS),
            "only": chosen.only or (SMOKE if chosen.quick else ""),
            "sizes": ALIAS_SIZES[:1] if chosen.quick else ALIAS_SIZES,
            "command": command,
        }
    )
    return place


def measure(place: Workplace, planned: Sequence[Step], restricted: bool) -> None:
    """Do the steps that are not done, with the time left after each."""
    left = [step for step in planned if place.result(step) is None]
    expected = {step: ESTIMATES[step.condition][step.what] for step in left}
    about = duration(sum(expected.values()))
    print(
        f"{len(left)} of {len(planned)} steps to do, in {os.path.relpath(place.directory)}: about {about} on a 2-core "
        f"machine{', less with fewer cells' if restricted else ''}",
        flush=True,
    )
    if left and hasattr(os, "getloadavg") and os.getloadavg()[0] > 0.5 * (os.cpu_count() or 1):
        print(
            f"something else runs here (load average {os.getloadavg()[0]:.1f}): what is called calm is not", flush=True
        )
    taken = estimated = 0.0
    for number, step in enumerate(left, 1):
        started = time.monotonic()
        place.do(step)
        seconds = time.monotonic() - started
        taken, estimated = taken + seconds, estimated + expected[step]
        rest = sum(expected[later] for later in left[number:]) * taken / estimated
        print(f"{number}/{len(left)} {step.name}: {seconds:.0f} s; about {duration(rest)} left", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    given = sys.argv[1:] if argv is None else argv
    place = begin(chosen, shlex.join(["python", "scripts/check_noise.py", *given]))
    plan = place.plan()
    conditions = CONDITIONS if chosen.condition == "both" else (chosen.condition,)
    try:
        measure(place, steps(conditions, plan["runs"], bool(plan["before"])), bool(plan["only"]))
    except (KeyboardInterrupt, UserError):
        print(f"--resume {os.path.relpath(place.directory)} goes on with it", file=sys.stderr)
        raise
    found, about = figures(place, plan), describe(place, plan)
    table = rows(found)
    print(f"\n{markdown(table)}\n\n{sentence(about)}")
    if chosen.json:
        kept = {row.label: dict(row.kept) for row in table if row.kept}
        text = json.dumps({"about": about, "figures": found, "kept": kept}, indent=1, ensure_ascii=False)
        put(chosen.json, text + "\n")
    return exit_code(table)


if __name__ == "__main__":
    run(main)
