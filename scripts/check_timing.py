#!/usr/bin/env python3
"""Is the suite honest on this machine? Compare it with torch.utils.benchmark, and stock asv with both.

    python scripts/check_timing.py                 every conversion route at five sizes: about 8 minutes
    python scripts/check_timing.py --only from_numpy --sizes 8,4096

For each cell, forked processes make the source, warm up and time the same expression on it twice: as the suite does,
and by torch.utils.benchmark.Timer(expression).blocked_autorange() on one thread; every second process the other way
round.
What is compared is the median over processes of the ratio within a process, so that where a process's memory happens to
lie does not count. One more process times it as asv's own time_ method with a setup does. Exit code 0 if every cell is
within 5 % and the median cell within 2 %. Run it on a quiet machine.
"""

import json
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from analysis.cli import Parser, UserError, run

WARM_SECONDS = 0.5
EACH, MIDDLE = 0.05, 0.02  # largest deviation of a cell, and of the median cell
SIZES = (8, 4 * 2**10, 2**20, 16 * 2**20, 64 * 2**20)
BENCHMARKS = ("conversion.NumpyToTorch.timeit_convert", "conversion.TorchToNumpy.timeit_convert")
ROOT = Path(__file__).resolve().parent.parent


def in_child(work: Callable[[], Any]) -> Any:
    """What ``work`` returns in a forked process: every measurement starts from the same state, as asv's do."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(reader)
            os.write(writer, json.dumps(work()).encode())
            code = 0
        except Exception as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    if not text:
        raise UserError("a measuring process died: see its message above")
    return json.loads(text)


def by_suite(benchmark: Any, cell: tuple) -> float:
    """Seconds a call as the suite reads them: the 25 % quantile of a process's samples."""
    samples = benchmark.run(*cell)["samples"]
    return statistics.quantiles(samples, n=4, method="inclusive")[0]


def by_torch(benchmark: Any, cell: tuple) -> float:
    """Seconds a call as torch.utils.benchmark reads them: the median of its blocks."""
    from torch.utils.benchmark import Timer

    statement, namespace = benchmark.func(*cell)
    return Timer(statement, globals=namespace, num_threads=1).blocked_autorange().median


def warm_up(statement: str, namespace: dict[str, Any]) -> None:
    """Call until the process is steady: Python's and C's allocators take up to a hundred calls or a second."""
    code, start = compile(statement, "route", "exec"), time.perf_counter()
    for _ in range(100):
        exec(code, namespace)
        if time.perf_counter() - start > WARM_SECONDS:
            break


def both(benchmark: Any, cell: tuple, torch_first: bool) -> tuple[float, float] | None:
    """Suite's and torch's seconds in this process, on one source. None for a cell that the toolchain skips."""
    if benchmark.do_setup():
        return None
    warm_up(*benchmark.func(*cell))
    if torch_first:
        torch = by_torch(benchmark, cell)
        return by_suite(benchmark, cell), torch
    return by_suite(benchmark, cell), by_torch(benchmark, cell)


def by_stock_asv(benchmark: Any, cell: tuple) -> float:
    """Seconds a call as asv's time_ method with a setup reads them: the median of its samples."""
    from asv_runner.benchmarks.time import TimeBenchmark

    benchmark.do_setup()
    statement, namespace = benchmark.func(*cell)
    exec(f"def time_route():\n    {statement}", namespace)
    method = namespace["time_route"]

    def setup() -> None:  # a new source before every call, as a setup method makes it
        benchmark.do_setup()
        namespace.update(benchmark.func(*cell)[1])

    method.setup, method.pretty_source = setup, statement
    stock = TimeBenchmark("time_route", method, [method])
    stock.do_setup()
    return statistics.median(stock.run()["samples"])


def arguments(argv: Sequence[str] | None) -> Any:
    parser = Parser(__doc__)
    parser.add_argument("--only", metavar="REGEX", default="", help="restrict to routes whose expression matches")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes, separated by commas")
    parser.add_argument("--processes", type=int, default=4, help="processes a cell and method (default 4)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there, too")
    chosen = parser.parse_args(argv)
    try:
        chosen.sizes = [int(size) for size in chosen.sizes.split(",")]
        re.compile(chosen.only)
    except (ValueError, re.error) as error:
        raise UserError(str(error)) from None
    if chosen.processes < 1:
        raise UserError("--processes takes a whole number from 1")
    return chosen


def compare(benchmark: Any, cell: tuple, processes: int) -> dict[str, float] | None:
    """The three readings of one cell in seconds, medians over processes, and the suite's ratio to torch's."""
    pairs = []
    for turn in range(processes):
        pair = in_child(partial(both, benchmark, cell, turn % 2 == 1))
        if pair is None:
            return None
        pairs.append(pair)
    suite, torch = zip(*pairs)
    return {
        "suite": statistics.median(suite),
        "torch": statistics.median(torch),
        "ratio": statistics.median(a / b for a, b in pairs),
        "stock": in_child(partial(by_stock_asv, benchmark, cell)),
    }


def show(seconds: float) -> str:
    for unit, scale in (("s ", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:7.3g} {unit}"
    return f"{seconds * 1e9:7.3g} ns"


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    if not hasattr(os, "fork"):
        raise UserError("this check forks processes, which this system cannot")
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    from asv_runner.discovery import get_benchmark_from_name

    rows = []
    print(
        f"{'route':46} {'bytes':>9} {'suite':>10} {'torch':>10} {'stock asv':>10}  suite/torch  stock/torch", flush=True
    )
    for name in BENCHMARKS:
        benchmark = get_benchmark_from_name(str(ROOT / "benchmarks"), name)
        routes, _, known = benchmark._params
        for route in routes:
            if not re.search(chosen.only, route):
                continue
            for nbytes in chosen.sizes:
                if nbytes not in known:
                    raise UserError(f"{nbytes} is not a size of the suite: {', '.join(map(str, known))}")
                benchmark._current_params = cell = (route, "float32", nbytes)
                row = compare(benchmark, cell, chosen.processes)
                if row is None:
                    print(f"{route:46} {nbytes:9} n/a on this toolchain", flush=True)
                    continue
                rows.append({"route": route, "nbytes": nbytes, **row})
                ratio = row["ratio"]
                mark = "  <-- off" if abs(ratio - 1) > EACH else ""
                figures = " ".join(f"{show(row[method]):>10}" for method in ("suite", "torch", "stock"))
                print(
                    f"{route:46} {nbytes:9} {figures}  {ratio:11.3f}  {row['stock'] / row['torch']:11.3g}{mark}",
                    flush=True,
                )
    if not rows:
        raise UserError(f"--only {chosen.only!r} matches no route")
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    off = [abs(row["ratio"] - 1) for row in rows]
    stock = [abs(row["stock"] / row["torch"] - 1) for row in rows]
    middle, largest, outside = statistics.median(off), max(off), sum(value > EACH for value in off)
    print(
        f"\nsuite against torch.utils.benchmark, {len(rows)} cells: median deviation {middle:.1%}, "
        f"largest {largest:.1%}, {outside} beyond {EACH:.0%}"
    )
    print(f"stock asv: median deviation {statistics.median(stock):.0%}, largest {max(stock):.0%}")
    return 0 if middle <= MIDDLE and not outside else 1


if __name__ == "__main__":
    run(main)
