#!/usr/bin/env python3
"""How long does it take to load many result files, and to build a page of them, and how much memory?

    python scripts/check_report.py                      20 and 200 files
    python scripts/check_report.py --files 200 2000     is the cost of ten times as many ten times as large?
    python scripts/check_report.py --like reports/results/MACHINE/FILE.json

The files are copies of one in reports/results, the largest unless said, one machine's, under as many names, with their
samples or without. Seconds are those of the processor, which a busy machine lengthens less than those of the clock.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
from cli import Parser, UserError
from measuring.engine import RESULTS, ROOT
from store import files
from store.records import name_of, with_samples

LOAD = "import pathlib, sys; from analysis.results import load; load(pathlib.Path(sys.argv[1]))"
PYTHONPATH = os.pathsep.join([str(ROOT / "scripts"), str(ROOT)])


def largest() -> Path:
    """The result with the largest file of measurements and a run record."""
    found = [path for path in files.result_files(RESULTS) if path.with_suffix(files.RECORDS).is_file()]
    found = [path for path in found if path.with_suffix(files.MEASUREMENTS).is_file()]
    if not found:
        raise UserError(f"{RESULTS} holds no results; python scripts/run.py makes some")
    return max(found, key=lambda path: path.with_suffix(files.MEASUREMENTS).stat().st_size)


def copies(source: Path, count: int, results: Path, measurements: bytes) -> int:
    """As many results like one in an empty directory, with these measurements or by asv's file alone; their bytes."""
    machine = results / source.parent.name
    machine.mkdir(parents=True)
    (results / files.BENCHMARKS).write_bytes((RESULTS / files.BENCHMARKS).read_bytes())
    file = json.loads(source.read_text(encoding="utf-8"))
    record = json.loads(source.with_suffix(files.RECORDS).read_text(encoding="utf-8").splitlines()[-1])
    for number in range(count):
        file["commit_hash"] = f"{number:040x}"
        record["toolchain"]["tag"] = f"torch-{number}"
        path = machine / source.name.replace(source.name.partition("-")[0], f"{number:08x}")
        path.write_text(json.dumps(file), encoding="utf-8")
        path.with_suffix(files.RECORDS).write_text(json.dumps(record) + "\n", encoding="utf-8")
        if measurements:
            path.with_suffix(files.MEASUREMENTS).write_bytes(measurements)
    return sum(path.stat().st_size for path in machine.iterdir())


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[20, 200], help="result files (default: 20 200)")
    parser.add_argument("--like", type=Path, metavar="FILE", help="the result file to copy (default: the largest)")
    parser.add_argument("--cells", type=int, help="timed cells of it that are copied (default: all)")
    parser.add_argument(
        "--without-samples", action="store_true", help="asv's files alone, as plain `asv run` leaves them"
    )
    chosen = parser.parse_args(argv)
    if min(chosen.files) < 1 or not hasattr(os, "wait4"):
        raise UserError("--files takes whole numbers from 1, on a system that says what a process used")
    source = chosen.like or largest()
    if not source.with_suffix(files.RECORDS).is_file():
        raise UserError(f"--like {source}: no result file with a run record beside it")
    lines = files.read_measurements(source)
    timed = list(dict.fromkeys(map(name_of, with_samples(lines))))[: chosen.cells]
    kept = [line for line in with_samples(lines) if name_of(line) in set(timed)]
    print(f"copies of {source.name}: {len(timed)} timed cells, {len(kept)} processes")
    measurements = b"" if chosen.without_samples else files.measurements_text(kept)
    print(f"{'':6} {'files':>6} {'MB':>7} {'processor':>10} {'clock':>8} {'memory':>8}")
    for count in chosen.files:
        with tempfile.TemporaryDirectory() as place:
            size = copies(source, count, Path(place, "results"), measurements)
            results, pages = str(Path(place, "results")), str(Path(place, "pages"))
            report = [str(ROOT / "scripts" / "report.py"), "--results", results, "--output", pages]
            # a page reads the results that it shows; whoever compares toolchains loads them all
            for what, command in (("load", ["-c", LOAD, results]), ("report", report)):
                print(f"{what:6} {count:6} {size / 1e6:7.1f} {cost_of([sys.executable, *command])}", flush=True)
    return 0


def cost_of(command: Sequence[str]) -> str:
    """What a command takes: seconds of the processor and of the clock, and memory of its largest process."""
    before = os.times().elapsed
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": PYTHONPATH})
    _, status, used = os.wait4(process.pid, 0)
    took = os.times().elapsed - before
    if status:
        raise UserError(f"it failed: {shlex.join(command)}")
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    seconds, memory = used.ru_utime + used.ru_stime, used.ru_maxrss * unit
    return f"{seconds:8.1f} s {took:6.1f} s {memory / 1e9:5.2f} GB"


if __name__ == "__main__":
    cli.run(main)
