#!/usr/bin/env python3
"""Is the suite honest on this machine? Compare it with torch.utils.benchmark, and tell bias from noise.

    python scripts/check_timing.py                 every conversion route at five sizes: about 8 minutes
    python scripts/check_timing.py --only from_numpy --sizes 8,4096

Each cell is measured in processes of its own: four unless told otherwise, two where a call takes 0.3 s. A process makes
the source and times the same expression on it in three ways:

    suite/torch  as asv would: the benchmark's whole run() in a fresh process, with its own warm-up, pulses and retakes
    block/torch  in short blocks that alternate with torch's: one sample as the suite takes it
    torch/torch  the same blocks timed by two torch.utils.benchmark.Timers: torch against itself, the A/A

A block of torch's is what Timer(expression, num_threads=1) reads of as many calls as the suite makes for a sample. The
first ratio sees whatever the suite does; the second, free of drift, says whether its loop and clock are at fault.

All of it stands between pulses, and only what was calm by all pulses of the check counts. Like is compared with like:
each reading is the 10 % quantile, which is the suite's figure (blocked_autorange shows the median of its blocks). A
deviation is the mean over processes of the log ratio within a process. What noise may make of it is learnt from the
spread over processes and from torch against itself, in this cell and in all of its size.

Exit code 1 is bias: a cell deviates by more than 5 % beyond its noise, or the median cell, of all or of one size, by
more than 2 % beyond its error. Exit code 2 is too noisy to tell: noise could hide 5 % in more than half of the cells
(they are marked ?), or 2 % in the median cell. Otherwise 0.

One more process times each cell as asv's own time_ method with a setup does, for comparison: stock/torch.
"""

import contextlib
import importlib
import io
import itertools
import json
import math
import os
import statistics
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

from cli import ONLY, Parser, UserError, check_writable, matcher, put, run
from measuring.progress import duration
from records import calm

EACH, MIDDLE = 0.05, 0.02  # deviations allowed to a cell, and to the median cell
ERROR = 0.05  # chance that noise alone has any cell called biased
CONFIDENCE = 0.99  # of the interval that the median cell lies in
TELLING = 0.5  # share of the cells whose noise must be below EACH
FEW = 10  # cells: of fewer the median is not judged
BLOCK_SECONDS = 0.6  # that the blocks of one process take at most, unless a single block of each takes longer
SLOW, SLOW_PROCESSES = 0.3, 2  # seconds a call from which so many processes do: routes that go by Python's numbers
PATIENCE = 120.0  # seconds that all processes wait for calm together: so much longer the check takes on a busy machine
SIZES = (8, 4 * 2**10, 2**20, 16 * 2**20, 64 * 2**20)
BENCHMARKS = ("conversion.NumpyToTorch.timeit_convert", "conversion.TorchToNumpy.timeit_convert")
DTYPE = "float32"
SUITE, TORCH, AGAIN = "suite", "torch", "torch again"  # whose block it is
BIAS, NOISY = "bias", "too noisy to tell"
ROOT = Path(__file__).resolve().parent.parent


# --- measuring -------------------------------------------------------------------------------------------------------


def in_child(work: Callable[[], Any]) -> Any:
    """What ``work`` returns in a forked process: every measurement starts from the same state, as asv's do."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(reader)
            with contextlib.redirect_stdout(io.StringIO()):  # asv says there what it skips
                answer = json.dumps(work()).encode()
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(answer)
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


def benchmark_of(name: str) -> Any:
    """A benchmark of the suite, as asv finds it by its name."""
    from asv_runner.discovery import get_benchmark_from_name

    return get_benchmark_from_name(str(ROOT / "benchmarks"), name)


def part_of_suite(name: str) -> Any:
    """A module of benchmarks/, which asv's discovery has put on the path."""
    return importlib.import_module(f"benchmarks.{name}")


def figure(benchmark: Any, cell: tuple) -> calm.Line | None:
    """What the suite logs of a cell when it measures it as it always does; None where it skips it."""
    statement = part_of_suite("statement")
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as file:
        os.environ[statement.LOG_VARIABLE] = file.name
        try:
            benchmark.run(*cell)
        except NotImplementedError:
            return None
        finally:
            del os.environ[statement.LOG_VARIABLE]
        return json.loads(file.readlines()[-1])


def torch_timer(expression: str, namespace: dict[str, Any]) -> Any:
    from torch.utils.benchmark import Timer

    return Timer(expression, globals=namespace, num_threads=1)


def torch_block(timer: Any, number: int, quiet: float) -> tuple[float, bool]:
    """Seconds of ``number`` calls by torch's Timer; whether the process had a processor for ``quiet`` of the time."""
    cpu, wall = time.process_time(), time.perf_counter()
    # either makes calls before it times any: timeit two and more, which is much where one takes a second
    measured = timer.timeit(number) if number > 1 else timer.blocked_autorange(min_run_time=0)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return measured.raw_times[0], cpu >= quiet * wall


def suite_block(own: Any, number: int) -> tuple[float, bool]:
    """A sample as the suite takes it, after as many calls as torch's Timer makes before it begins to time."""
    own.timer.timeit(warm_calls(number))
    return own.sample(number)


def warm_calls(number: int) -> int:
    return max(number // 100, 2) if number > 1 else 1


def blocks(benchmark: Any, cell: tuple, whole: calm.Line, turn: int) -> calm.Line:
    """The suite's blocks and torch's, in turns; a line like the suite's own, with whose block each is in ``by``.

    One of each in every order, one order after the other, so that neither drift nor what the block before left in the
    caches favours any. Calls a block: as many as the suite made for a sample of ``whole``.
    """
    pulses, timing = map(part_of_suite, ("pulses", "timing"))
    began, number = time.perf_counter(), whole["number"]
    expression, namespace = benchmark.func(*cell)
    timer = timeit.Timer(expression, globals=namespace, timer=benchmark.timer)
    own = timing.Timing(timer, whole["wanted"], single_threaded=benchmark.single_threaded)
    take: dict[str, Callable[[], tuple[float, bool]]] = {SUITE: partial(suite_block, own, number)}
    for name in (TORCH, AGAIN):
        take[name] = partial(torch_block, torch_timer(expression, namespace), number, timing.QUIET)
    calls = len(take) * (number + warm_calls(number))  # in a block of each
    affordable = BLOCK_SECONDS / (calls * statistics.median(whole["seconds"]))
    wanted = max(1, min(whole["wanted"], int(affordable)))
    watch = pulses.Watch(tuple(whole["pulses"]))
    by: list[str] = []
    seconds: list[float] = []
    disturbed: list[int] = []
    good = dict.fromkeys(take, 0)
    orders = list(itertools.permutations(take))
    for order in itertools.islice(itertools.cycle(orders), turn, None):
        for name in order:
            if not watch.calm and watch.left > 0:
                watch.wait()
            took, quiet, is_calm = watch.judge(take[name])
            by.append(name)
            seconds.append(took / number)
            good[name] += is_calm
            if not quiet:
                disturbed.append(len(by) - 1)
        if min(good.values()) >= wanted or (len(by) >= wanted * len(take) and watch.left <= 0):
            break
    watch.close()
    return {
        **{name: whole[name] for name in ("benchmark", "params", "number")},
        **{"at": time.time(), "wanted": wanted, "by": by, "seconds": seconds, "disturbed": disturbed},
        **{"pulses": watch.pulses, "waits": watch.waits, "waiting": watch.waiting},
        "took": time.perf_counter() - began,
    }


def measure(benchmark: Any, cell: tuple, turn: int) -> list[calm.Line] | None:
    """What one process has of a cell: the line of the suite's figure, and that of the blocks. None where it is skipped.

    The figure comes first, as in asv's processes: a warm-up that is too short shows.
    """
    benchmark._current_params = cell
    if benchmark.do_setup():
        return None
    whole = figure(benchmark, cell)
    return None if whole is None else [whole, blocks(benchmark, cell, whole, turn)]


def by_stock_asv(benchmark: Any, cell: tuple) -> float:
    """Seconds a call as asv's time_ method with a setup reads them: the median of its samples."""
    from asv_runner.benchmarks.time import TimeBenchmark

    benchmark._current_params = cell
    benchmark.do_setup()
    expression, namespace = benchmark.func(*cell)
    exec(f"def time_route():\n    {expression}", namespace)
    method = namespace["time_route"]

    def setup() -> None:  # a new source before every call, as a setup method makes it
        benchmark.do_setup()
        namespace.update(benchmark.func(*cell)[1])

    method.setup, method.pretty_source = setup, expression
    stock = TimeBenchmark("time_route", method, [method])
    stock.do_setup()
    return statistics.median(stock.run()["samples"])


@dataclass
class Cell:
    """A cell and what was measured of it. processes: the two lines of each, see ``measure``; stock in seconds."""

    benchmark: Any
    params: tuple
    processes: list[list[calm.Line]] = field(default_factory=list)
    stock: float = math.nan
    skipped: bool = False

    @property
    def slow(self) -> bool:
        """Whether one call takes so long that SLOW_PROCESSES must do."""
        return any(statistics.median(whole["seconds"]) > SLOW for whole, _ in self.processes)

    @property
    def name(self) -> str:
        """As asv has it."""
        return f"{self.benchmark.name}({', '.join(map(repr, self.params))})"

    @property
    def route(self) -> str:
        return self.params[0]

    @property
    def nbytes(self) -> int:
        return self.params[2]


def measure_all(cells: Sequence[Cell], processes: int) -> None:
    """One process of every cell, then the next of every cell: a slow minute meets no cell in all of its processes."""
    total = len(cells) * (processes + 1)
    started, shown, done = time.perf_counter(), 0.0, 0
    for turn in range(processes + 1):
        for cell in cells:
            if turn < (min(processes, SLOW_PROCESSES) if cell.slow else processes) and not cell.skipped:
                lines = in_child(partial(measure, cell.benchmark, cell.params, turn))
                cell.skipped = lines is None
                cell.processes += [lines] if lines else []
            elif turn == processes and not cell.skipped:
                cell.stock = in_child(partial(by_stock_asv, cell.benchmark, cell.params))
            done += 1
            spent = time.perf_counter() - started
            shown = progress(done / total, spent, shown)


def progress(share: float, spent: float, shown: float) -> float:
    """Say on stderr how much is done and how long the rest takes, after ``spent`` seconds; when it was last said.

    A terminal has one line that changes, a file a line every 15 seconds.
    """
    terminal = sys.stderr.isatty()
    if spent - shown < (0.5 if terminal else 15) and (share < 1 or not terminal):
        return shown
    text = f"check: {share:.0%}, {duration(spent * (1 - share) / share)} left" if share < 1 else ""
    print(f"\r{text}\033[K" if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True)
    return spent


# --- judging ---------------------------------------------------------------------------------------------------------


def part(line: calm.Line, name: str) -> calm.Line:
    """The blocks of one timer as a line of their own: a pulse before and one behind each, as if after a wait."""
    chosen = [index for index, by in enumerate(line["by"]) if by == name]
    places, disturbed = calm.places(line), set(line["disturbed"])
    return {
        **line,
        "seconds": [line["seconds"][index] for index in chosen],
        "disturbed": [place for place, index in enumerate(chosen) if index in disturbed],
        "pulses": {
            kind: [pulse for index in chosen for pulse in taken[places[index] : places[index] + 2]]
            for kind, taken in line["pulses"].items()
        },
        "waits": list(range(1, len(chosen))),
    }


def reading(line: calm.Line, floors: Mapping[str, float]) -> float:
    """Log seconds a call: the suite's figure of the calm samples; NaN where too few are calm."""
    process = calm.judge(line, floors)
    return math.log(process.seconds) if process.calm else math.nan


@dataclass(frozen=True)
class Deviations:
    """Log ratios to torch, (cells,) each: the effect, and what noise alone could make of it, infinite if unknown."""

    effect: Any
    noise: Any

    @property
    def biased(self) -> Any:
        return abs(self.effect) - self.noise > math.log1p(EACH)

    @property
    def noisy(self) -> Any:
        """A bias could hide there that is EACH larger than what is allowed."""
        return self.noise > math.log1p(EACH)


def deviations(own: Any, torch: Any, again: Any, sizes: Any, tests: int) -> Deviations:
    """How far ``own`` reads from torch's two; all (cells, processes) of log seconds, NaN where not calm.

    Noise is that of a t test, by Bonferroni's rule for so many ``tests``. Its error is moderated by that of the cells
    of the same size, and never less than what torch differs from itself by: in cells of that size, or in that cell.
    """
    import numpy as np
    from analysis.statistics import MAD_TO_SD, estimate, means, student_quantile

    both = (torch + again) / 2
    found = estimate(both, own, sizes, np.full(len(sizes), True))
    itself = np.zeros(len(sizes))
    for size in np.unique(sizes):
        differences = abs(torch - again)[sizes == size]
        if np.isfinite(differences).any():
            # torch - again has two readings' variance, own - both that of one and a half
            itself[sizes == size] = MAD_TO_SD * np.nanmedian(differences) * math.sqrt(1.5 / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.maximum(found.error, itself / np.sqrt(np.isfinite(own - both).sum(axis=1)))
        noise = student_quantile(1 - ERROR / tests / 2, found.df) * error
        noise = np.maximum(noise, abs(means(torch - again)))
    return Deviations(found.effect, np.where(np.isfinite(noise), noise, math.inf))


def middle(effects: Any) -> tuple[float, float]:
    """The interval that the median of all such cells lies in, log units; unbounded for few."""
    import numpy as np
    from scipy.stats import quantile_test

    known = effects[np.isfinite(effects)]
    if len(known) < FEW:
        return -math.inf, math.inf
    low, high = quantile_test(known, p=0.5).confidence_interval(CONFIDENCE)
    return float(low), float(high)


@dataclass(frozen=True)
class Verdict:
    """What the check found.

    rows         a cell each: seconds a call, ratios, log units of noise in suite/torch, and BIAS, NOISY or nothing
    share        of the time that the machine ran at full speed
    bias, noise  what speaks for bias, and for too much noise, in words; nothing where nothing does
    """

    rows: list[dict[str, Any]]
    share: float
    bias: list[str]
    noise: list[str]

    @property
    def code(self) -> int:
        return 1 if self.bias else 2 if self.noise else 0


def judge(cells: Sequence[Cell]) -> Verdict:
    """What was measured, judged with the pulses of all of it in sight."""
    import numpy as np
    from analysis.statistics import means

    lines = [line for cell in cells for process in cell.processes for line in process]
    floors = calm.floors(lines)
    readings = np.full((4, len(cells), max(len(cell.processes) for cell in cells)), np.nan)
    for place, cell in enumerate(cells):
        for turn, (first, rest) in enumerate(cell.processes):
            own = [first, *(part(rest, name) for name in (SUITE, TORCH, AGAIN))]
            readings[:, place, turn] = [reading(line, floors) for line in own]
    whole, block, torch, again = readings
    sizes = np.array([str(cell.nbytes) for cell in cells])
    found = {
        "suite/torch": deviations(whole, torch, again, sizes, 2 * len(cells)),
        "block/torch": deviations(block, torch, again, sizes, 2 * len(cells)),
    }
    itself = means(again - torch)
    biased = np.any([each.biased for each in found.values()], axis=0)
    noisy = np.any([each.noisy for each in found.values()], axis=0)
    columns = {
        "suite": np.exp(means(whole)),
        "torch": np.exp(means((torch + again) / 2)),
        "stock": np.array([cell.stock for cell in cells]),
        **{name: np.exp(each.effect) for name, each in found.items()},
        "torch/torch": np.exp(itself),
        "noise": found["suite/torch"].noise,
        "verdict": np.where(biased, BIAS, np.where(noisy, NOISY, "")),
    }
    rows = [
        {"route": cell.route, "nbytes": cell.nbytes, **dict(zip(columns, values))}
        for cell, values in zip(cells, zip(*(column.tolist() for column in columns.values())))
    ]

    bias = [f"{biased.sum()} of {len(cells)} cells deviate by more than {EACH:.0%}"] if biased.any() else []
    noise = []
    if (noisy & ~biased).mean() > TELLING:
        noise.append(f"a bias of {EACH:.0%} could hide in {noisy.sum()} of {len(cells)} cells")
    for name, each in found.items():
        low, high = middle(each.effect)
        if high - low > 2 * MIDDLE and math.isfinite(high - low):
            noise.append(f"the median {name} is known to ±{(high - low) / 2:.1%} only")
        for size in ("", *dict.fromkeys(sizes)):
            chosen = each.effect[sizes == size] if size else each.effect
            low, high = middle(chosen)
            if max(low, -high) > math.log1p(MIDDLE):
                where = f" at {size} bytes" if size else ""
                bias.append(f"the median {name}{where} is {math.exp(np.nanmedian(chosen)):.3f}")
                if not size:  # which says enough
                    break
    apart = abs(itself[np.isfinite(itself)])
    if len(apart) and np.median(apart) > math.log1p(MIDDLE):
        noise.append(f"torch deviates from itself by {np.median(apart):.1%} in the median cell")
    return Verdict(rows, calm.share(lines, floors), bias, noise)


# --- the command -----------------------------------------------------------------------------------------------------


def show(seconds: float) -> str:
    if math.isnan(seconds):
        return "–"
    for unit, scale in (("s ", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:7.3g} {unit}"
    return f"{seconds * 1e9:7.3g} ns"


def percent(share: float, digits: int = 1) -> str:
    return "unknown" if math.isnan(share) else f"{share:.{digits}%}"


def table(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    ratios = ("suite/torch", "block/torch", "torch/torch")
    yield f"{'route':44} {'bytes':>8} {'suite':>10} {'torch':>10} {'  '.join(ratios)}  stock/torch"
    for row in rows:
        seconds = " ".join(f"{show(row[name]):>10}" for name in ("suite", "torch"))
        figures = " ".join(f"{row[name]:12.3f}" if math.isfinite(row[name]) else f"{'–':>12}" for name in ratios)
        stock = f"{row['stock'] / row['torch']:12.3g}" if math.isfinite(row["torch"]) else f"{'–':>12}"
        mark = {BIAS: "  <-- bias", NOISY: "  ?"}.get(row["verdict"], "")
        yield f"{row['route']:44} {row['nbytes']:8} {seconds}{figures} {stock}{mark}"


def summary(verdict: Verdict) -> Iterator[str]:
    """The lines below the table, the verdict last. Deviations are of the cells that noise does not hide."""

    rows = verdict.rows
    clear = [row for row in rows if row["verdict"] != NOISY] or rows

    def deviations(name: str) -> list[float]:
        return [abs(row[name] - 1) for row in clear if math.isfinite(row[name])] or [math.nan]

    whole, block, itself = map(deviations, ("suite/torch", "block/torch", "torch/torch"))
    stock = [abs(row["stock"] / row["torch"] - 1) for row in rows if math.isfinite(row["torch"])] or [math.nan]
    verdicts = [row["verdict"] for row in rows]
    yield (
        f"suite against torch.utils.benchmark, {len(rows)} cells: median deviation {percent(statistics.median(whole))} "
        f"({percent(statistics.median(block))} in blocks), largest {percent(max(whole))}, {verdicts.count(BIAS)} "
        f"biased, {verdicts.count(NOISY)} too noisy to tell"
    )
    yield (
        f"torch.utils.benchmark against itself: median deviation {percent(statistics.median(itself))}, largest "
        f"{percent(max(itself))}; the machine ran at full speed {verdict.share:.0%} of the time"
    )
    yield f"stock asv: median deviation {percent(statistics.median(stock), 0)}, largest {percent(max(stock), 0)}"
    if verdict.bias:
        yield f"bias: {'; '.join(verdict.bias)}"
    elif verdict.noise:
        yield (
            f"too noisy to tell: {'; '.join(verdict.noise)}. The machine ran at full speed {verdict.share:.0%} of the "
            "time: try again when it has nothing else to do, or with more --processes"
        )


def arguments(argv: Sequence[str] | None) -> Any:
    parser = Parser(__doc__)
    parser.add_argument("--only", metavar="REGEX", default="", help=ONLY)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes, separated by commas")
    parser.add_argument("--processes", type=int, default=4, help="processes a cell (default 4)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write figures, samples and pulses there, too")
    chosen = parser.parse_args(argv)
    try:
        chosen.sizes = list(dict.fromkeys(int(size) for size in chosen.sizes.split(",")))
    except ValueError:
        raise UserError(f"--sizes {chosen.sizes!r}: takes bytes, separated by commas") from None
    matcher(chosen.only)
    if chosen.processes < 2:
        raise UserError("--processes takes a whole number from 2: noise is what processes differ by")
    if chosen.json:
        check_writable("--json", chosen.json)
    return chosen


def find_cells(only: str, sizes: Sequence[int]) -> list[Cell]:
    """The cells to measure, in order; UserError where there are none."""
    cells, matches = [], matcher(only)
    for name in BENCHMARKS:
        benchmark = benchmark_of(name)
        routes, _, known = benchmark._params
        unknown = [str(size) for size in sizes if size not in known]
        if unknown:
            raise UserError(f"--sizes {','.join(unknown)}: the suite has {', '.join(map(str, known))}")
        every = [Cell(benchmark, (route, DTYPE, size)) for route in routes for size in sizes]
        cells += [cell for cell in every if matches(cell.name)]
    if not cells:
        raise UserError(f"--only {only!r} matches no cell")
    return cells


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    if not hasattr(os, "fork"):
        raise UserError("this check forks processes, which this system cannot")
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    cells = find_cells(chosen.only, chosen.sizes)
    importlib.import_module("torch.utils.benchmark")  # once, and not in each process: a quarter of a second
    os.environ.setdefault(part_of_suite("pulses").PATIENCE_VARIABLE, str(PATIENCE))
    measure_all(cells, chosen.processes)
    measured = [cell for cell in cells if not cell.skipped]
    if not measured:
        raise UserError("this toolchain skips every one of these cells")
    verdict = judge(measured)
    print("\n".join(table(verdict.rows)))
    for cell in cells:
        if cell.skipped:
            print(f"{cell.route:44} {cell.nbytes:8} n/a on this toolchain")
    print("\n" + "\n".join(summary(verdict)))
    if chosen.json:
        lines = [line for cell in measured for process in cell.processes for line in process]
        rows = [
            {
                name: None if isinstance(value, float) and not math.isfinite(value) else value
                for name, value in row.items()
            }
            for row in verdict.rows
        ]
        text = json.dumps({**asdict(verdict), "rows": rows, "samples": lines})
        put(chosen.json, text + "\n")
    return verdict.code


if __name__ == "__main__":
    run(main)
