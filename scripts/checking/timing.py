"""Is the suite honest on this machine? Compare it with torch.utils.benchmark, and separate bias from noise.

    python scripts/check.py timing                 every conversion route at five sizes: about 8 minutes
    python scripts/check.py timing --only from_numpy --sizes 8,4096

Each cell is measured in processes of its own: four unless --processes says otherwise, two where a call takes 0.3 s. A
process makes the source and times the same expression on it in three ways:

    suite/torch  as asv would: the benchmark's whole run() in a fresh process, with its own warm-up, probes and retakes
    block/torch  in short blocks that alternate with torch's: one sample as the suite takes it
    torch/torch  the same blocks timed by two torch.utils.benchmark.Timers: torch against itself, the A/A

A block of torch's is what Timer(expression, num_threads=1) reads of as many calls as the suite makes for a sample. The
first ratio sees whatever the suite does; the second, free of drift, says whether its loop and clock are at fault.

All of it stands between probes, and only what was quiet by all probes of the check counts. Like is compared with like:
each reading is the 10 % quantile, which is the suite's figure (blocked_autorange shows the median of its blocks). A
deviation is the mean over processes of the log ratio within a process. Noise is learnt from the spread over processes
and from torch against itself, in this cell and in all of its size.

Exit code 1 is bias: a cell deviates by more than 5 % beyond its noise, or the median cell, of all or of one size, by
more than 2 % beyond its error. Exit code 2 is too noisy to decide: noise could hide 5 % in more than half of the cells
(they are marked ?), or 2 % in the median cell. Otherwise 0.
"""

import contextlib
import importlib
import io
import itertools
import json
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from analysis.statistics import MAD_TO_SD, Floats, estimate, means, student_quantile
from cli import ONLY, Parser, UserError, matcher
from measuring.engine import ROOT
from measuring.processes import Progress
from numpy.typing import NDArray
from pages import show
from store import quiet
from store.records import Line, name_of

from benchmarks.probes import PATIENCE_VARIABLE, Watch
from benchmarks.sampling_log import LOG_VARIABLE
from benchmarks.timing import UNDISTURBED, Timing

PATIENCE = 120.0  # seconds that all processes wait for quiet together: a busy machine adds as much
BLOCK_SECONDS = 0.6  # that the blocks of one process take at most, unless a single block of each takes longer
SLOW, SLOW_PROCESSES = 0.3, 2  # seconds a call from which so many processes do: routes that go by Python's numbers
SIZES = (8, 2**12, 2**20, 2**24, 2**26)
BENCHMARKS = ("conversion.NumpyToTorch.timeit_convert", "conversion.TorchToNumpy.timeit_convert")
DTYPE = "float32"
WHOLE, SUITE, TORCH, AGAIN = TIMERS = "run", "suite", "torch", "torch again"  # asv's run; whose block it is
EACH, MIDDLE = 0.05, 0.02  # deviations allowed to a cell, and to the median cell
ERROR = 0.05  # chance that noise alone has any cell called biased
CONFIDENCE = 0.99  # of the interval that the median cell lies in
TELLING = 0.5  # share of the cells whose noise must be below EACH
FEW = 10  # cells: of fewer the median is not judged
BIAS, NOISY = "<-- bias", "?"


@dataclass
class Cell:
    """A cell and what was measured of it. processes: timer -> what a process logs of it, see ``measure``."""

    benchmark: Any
    params: tuple
    processes: list[dict[str, Line]] = field(default_factory=list)
    skipped: bool = False


# --- cells measured without asv, each in a forked process that starts as asv's do ------------------------------------


def in_child(work: Callable[[], Any]) -> Any:
    """What ``work`` returns in a forked process: every measurement starts from the same state, as asv's do."""
    fork = multiprocessing.get_context("fork")
    reader, writer = fork.Pipe(duplex=False)
    child = fork.Process(target=lambda: writer.send(work()))
    child.start()
    writer.close()
    try:
        return reader.recv()
    except EOFError:
        raise UserError("a measuring process died: see its message above") from None
    finally:
        child.join()


def benchmark_of(name: str) -> Any:
    """A benchmark of the suite, as asv finds it by its name."""
    from asv_runner.discovery import get_benchmark_from_name

    from benchmarks import statement  # noqa: F401  it registers the suite's types

    return get_benchmark_from_name(str(ROOT / "benchmarks"), name)


def figure(benchmark: Any, cell: tuple) -> Line | None:
    """What the suite logs of a cell when it sets it up and measures it as it always does; None where it skips it."""
    benchmark._current_params = cell
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as file, contextlib.redirect_stdout(io.StringIO()):
        os.environ[LOG_VARIABLE] = file.name  # asv says on stdout what it skips
        try:
            if benchmark.do_setup():
                return None
            benchmark.run(*cell)
        except NotImplementedError:
            return None
        finally:
            del os.environ[LOG_VARIABLE]
        return json.loads(file.readlines()[-1])


def find_cells(only: str, sizes: Sequence[int]) -> list[Cell]:
    """The cells to measure, in order; UserError where there are none."""
    made, matches = [benchmark_of(name) for name in BENCHMARKS], matcher(only)
    unknown = [str(size) for size in sizes if size not in made[0]._params[2]]
    if unknown:
        raise UserError(f"--sizes {','.join(unknown)}: the suite has {', '.join(map(str, made[0]._params[2]))}")
    every = [Cell(one, (route, DTYPE, size)) for one in made for route in one._params[0] for size in sizes]
    named = [name_of({"benchmark": cell.benchmark.name, "params": [*map(repr, cell.params)]}) for cell in every]
    cells = [cell for cell, name in zip(every, named) if matches(name)]
    if not cells:
        raise UserError(f"--only {only!r} matches no cell")
    return cells


def torch_timer(expression: str, namespace: dict[str, Any]) -> Any:
    from torch.utils.benchmark import Timer

    return Timer(expression, globals=namespace, num_threads=1)


def torch_block(timer: Any, number: int) -> tuple[float, bool]:
    """Seconds of ``number`` calls by torch's Timer; whether the process had a processor meanwhile."""
    cpu, wall = time.process_time(), time.perf_counter()
    # either makes calls before it times any: timeit two and more, which is much where one takes a second
    measured = timer.timeit(number) if number > 1 else timer.blocked_autorange(min_run_time=0)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return measured.raw_times[0], cpu >= UNDISTURBED * wall


def blocks(benchmark: Any, params: tuple, whole: Line, turn: int) -> dict[str, Line]:
    """The suite's blocks and torch's, in turns: timer -> a line like the suite's own, as if it waited before each.

    One of each in every order, one order after the other, so that neither drift nor what the block before left in the
    caches favours any. Calls a block: as many as the suite made for a sample of ``whole``, after as many as torch's
    Timer makes before it begins to time.
    """
    number = whole["number"]
    before = max(number // 100, 2) if number > 1 else 1
    expression, namespace = benchmark.func(*params)
    own = timeit.Timer(expression, globals=namespace, timer=benchmark.timer)
    timing = Timing(own, whole["wanted"], single_threaded=benchmark.single_threaded)

    def suite_block() -> tuple[float, bool]:
        own.timeit(before)
        return timing.sample(number)

    theirs = {name: partial(torch_block, torch_timer(expression, namespace), number) for name in (TORCH, AGAIN)}
    take = {SUITE: suite_block, **theirs}
    round_seconds = len(take) * (number + before) * statistics.median(whole["seconds"])  # of a block of each
    wanted = max(1, min(whole["wanted"], int(BLOCK_SECONDS / round_seconds)))
    watch, good = Watch(tuple(whole["probes"])), dict.fromkeys(take, 0)
    about = {"benchmark": whole["benchmark"], "params": whole["params"], "at": time.time(), "number": number}
    lines: dict[str, Any] = {
        name: {**about, "wanted": wanted, "seconds": [], "disturbed": [], "waits": [], "waiting": [], "took": 0.0}
        | {"probes": {kind: [] for kind in watch.probes}}
        for name in take
    }
    for order in itertools.islice(itertools.cycle(itertools.permutations(take)), turn, None):
        for name in order:
            if not watch.quiet and watch.left > 0:
                watch.wait()
            line, taken = lines[name], len(lines[name]["seconds"])
            took, undisturbed, is_quiet = watch.judge(take[name])
            good[name] += is_quiet
            line["seconds"].append(took / number)
            line["took"] += took
            line["waits"] += [taken] if taken else []
            line["disturbed"] += [] if undisturbed else [taken]
            for kind, probes in watch.probes.items():
                line["probes"][kind] += probes[-2:]
        if min(good.values()) >= wanted or (len(line["seconds"]) >= wanted and watch.left <= 0):
            break
    watch.close()
    lines[SUITE]["waiting"] = watch.waiting
    return lines


def measure(cell: Cell, turn: int) -> dict[str, Line] | None:
    """What one process has of a cell, by timer; None where it is skipped.

    The suite's figure comes first, as in asv's processes: a warm-up that is too short shows.
    """
    whole = figure(cell.benchmark, cell.params)
    return None if whole is None else {WHOLE: whole, **blocks(cell.benchmark, cell.params, whole, turn)}


def measure_all(cells: Sequence[Cell], processes: int) -> None:
    """One process of every cell, then the next of every cell: a slow minute meets no cell in all of its processes."""
    turns = list(itertools.product(range(processes), cells))
    progress = Progress("check", len(turns))
    with contextlib.redirect_stdout(sys.stderr):
        for done, (turn, cell) in enumerate(turns):
            progress.at(done)
            slow = any(statistics.median(each[WHOLE]["seconds"]) > SLOW for each in cell.processes)
            if not cell.skipped and not (slow and turn >= SLOW_PROCESSES):
                lines = in_child(partial(measure, cell, turn))
                cell.skipped = lines is None
                cell.processes += [lines] if lines else []


# --- judging: arrays are over cells; readings are (cells, processes) of log seconds, NaN where a process was noisy ----


def logs_of(lines: Sequence[Line], baselines: Mapping[str, float]) -> Floats:
    """Log seconds per call of each process: the suite's figure; NaN of a noisy one."""
    run = quiet.Run(lines, baselines)
    return np.where(run.quiet, np.log(run.figures()), np.nan)


def deviations(suite: Floats, torch: Floats, again: Floats, sizes: NDArray[np.str_], tests: int) -> pd.DataFrame:
    """How far the readings ``suite`` are from torch's two: log ``effect``; ``noise``, what noise alone could make of
    it, infinite if unknown; whether that is ``biased``, or ``noisy``: a bias of EACH could hide there.

    Noise is that of a t test, by Bonferroni's rule for so many ``tests``. Its error is moderated by that of the cells
    of the same size, and never less than what torch differs from itself by: in cells of that size, or in that cell.
    """
    both = (torch + again) / 2
    estimated = estimate(both, suite, sizes, np.full(len(sizes), True))
    itself = np.zeros(len(sizes))
    for size in np.unique(sizes):
        differences = abs(torch - again)[sizes == size]
        if np.isfinite(differences).any():
            # torch - again has two readings' variance, suite - both that of one and a half
            itself[sizes == size] = MAD_TO_SD * np.nanmedian(differences) * math.sqrt(1.5 / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.maximum(estimated.error, itself / np.sqrt(np.isfinite(suite - both).sum(axis=1)))
        noise = student_quantile(1 - ERROR / tests / 2, estimated.df) * error
        noise = np.maximum(noise, abs(means(torch - again)))
    noise, allowed = np.where(np.isfinite(noise), noise, math.inf), math.log1p(EACH)
    biased = np.abs(estimated.effect) - noise > allowed
    return pd.DataFrame({"effect": estimated.effect, "noise": noise, "biased": biased, "noisy": noise > allowed})


def middle(effects: Floats) -> tuple[float, float]:
    """The interval that the median of all such cells lies in, log units; unbounded for few."""
    from scipy.stats import quantile_test  # scipy.stats takes half a second to import

    known = effects[np.isfinite(effects)]
    if len(known) < FEW:
        return -math.inf, math.inf
    low, high = quantile_test(known, p=0.5).confidence_interval(CONFIDENCE)
    return float(low), float(high)


@dataclass(frozen=True)
class Verdict:
    """What the check found.

    rows         a cell each: seconds a call, ratios, and BIAS, NOISY or nothing
    share        of the time that the machine was quiet
    bias, noise  what speaks for bias, and for too much noise, in words; nothing where nothing does
    """

    rows: pd.DataFrame
    share: float
    bias: list[str]
    noise: list[str]

    @property
    def code(self) -> int:
        return 1 if self.bias else 2 if self.noise else 0


def judge(cells: Sequence[Cell]) -> Verdict:
    """What was measured, judged with the speed probes of all of it in sight."""
    taken = [
        (row, turn, timer, line)
        for row, cell in enumerate(cells)
        for turn, process in enumerate(cell.processes)
        for timer, line in process.items()
    ]
    *where, lines = zip(*taken)
    run = quiet.Run(lines)
    readings = pd.Series(logs_of(lines, run.baselines), pd.MultiIndex.from_arrays(where)).unstack(1)
    whole, block, torch, again = (readings.xs(timer, level=1).to_numpy() for timer in TIMERS)
    sizes = np.array([str(cell.params[2]) for cell in cells])
    compared = {"suite/torch": whole, "block/torch": block}
    ratios = {name: deviations(own, torch, again, sizes, 2 * len(cells)) for name, own in compared.items()}
    itself = means(again - torch)
    biased, noisy = (np.any([each[what] for each in ratios.values()], axis=0) for what in ("biased", "noisy"))
    rows = pd.DataFrame(
        {
            "route": [cell.params[0] for cell in cells],
            "bytes": [cell.params[2] for cell in cells],
            "suite": np.exp(means(whole)),
            "torch": np.exp(means((torch + again) / 2)),
            **{name: np.exp(each["effect"]) for name, each in ratios.items()},
            "torch/torch": np.exp(itself),
            "verdict": np.where(biased, BIAS, np.where(noisy, NOISY, "")),
        }
    )
    bias = [f"{biased.sum()} of {len(cells)} cells deviate by more than {EACH:.0%}"] if biased.any() else []
    noise = []
    if (noisy & ~biased).mean() > TELLING:
        noise.append(f"a bias of {EACH:.0%} could hide in {noisy.sum()} of {len(cells)} cells")
    for name, each in ratios.items():
        effects = each["effect"].to_numpy()
        low, high = middle(effects)
        if high - low > 2 * MIDDLE and math.isfinite(high - low):
            noise.append(f"the median {name} is known to ±{(high - low) / 2:.1%} only")
        parts = {"": effects, **{f" at {size} bytes": effects[sizes == size] for size in dict.fromkeys(sizes)}}
        for place, own in parts.items():
            low, high = middle(own)
            if max(low, -high) > math.log1p(MIDDLE):
                bias.append(f"the median {name}{place} is {math.exp(np.nanmedian(own)):.3f}")
                if not place:  # that of all cells says enough
                    break
    apart = abs(itself[np.isfinite(itself)])
    if len(apart) and np.median(apart) > math.log1p(MIDDLE):
        noise.append(f"torch deviates from itself by {np.median(apart):.1%} in the median cell")
    return Verdict(rows, run.quiet_share(), bias, noise)


def summary(verdict: Verdict) -> list[str]:
    """The lines below the table, the verdict last. Deviations are of the cells that noise does not hide."""
    rows, share = verdict.rows, f"the machine was quiet {verdict.share:.0%} of the time"
    clear = rows[rows["verdict"] != NOISY] if (rows["verdict"] != NOISY).any() else rows
    off = (clear[["suite/torch", "block/torch", "torch/torch"]] - 1).abs()
    middle, most = ([show.percent(value, 1) for value in each] for each in (off.median(), off.max()))
    count = rows["verdict"].value_counts()
    lines = [
        f"suite against torch.utils.benchmark, {len(rows)} cells: median deviation {middle[0]} ({middle[1]} in "
        f"blocks), maximum {most[0]}, {count.get(BIAS, 0)} biased, {count.get(NOISY, 0)} too noisy to decide",
        f"torch.utils.benchmark against itself: median deviation {middle[2]}, maximum {most[2]}; {share}",
    ]
    if verdict.bias:
        lines.append(f"bias: {'; '.join(verdict.bias)}")
    elif verdict.noise:
        again = "try again when it has nothing else to do, or with more --processes"
        lines.append(f"too noisy to decide: {'; '.join(verdict.noise)}; {share}: {again}")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--only", metavar="REGEX", default="", help=ONLY)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="sizes in bytes, separated by commas")
    parser.add_argument("--processes", type=int, default=4, help="processes per result (default: 4)")
    chosen = parser.parse_args(argv)
    try:
        sizes = list(dict.fromkeys(map(int, chosen.sizes.split(","))))
    except ValueError:
        raise UserError(f"--sizes {chosen.sizes!r}: takes bytes, separated by commas") from None
    if chosen.processes < 2:
        raise UserError("--processes takes a whole number from 2: noise is what processes differ by")
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # before torch is there
    cells = find_cells(chosen.only, sizes)
    importlib.import_module("torch.utils.benchmark")  # once, and not in each process: a quarter of a second
    os.environ.setdefault(PATIENCE_VARIABLE, str(PATIENCE))
    measure_all(cells, chosen.processes)
    measured = [cell for cell in cells if not cell.skipped]
    if not measured:
        raise UserError("this toolchain skips every one of these cells")
    verdict = judge(measured)
    shown = {**dict.fromkeys(("suite", "torch"), show.seconds), "route": "{:44}".format}
    print(verdict.rows.to_string(index=False, formatters=shown, float_format="{:.3f}".format, na_rep="–"))
    for cell in cells:
        if cell.skipped:
            print(f"{cell.params[0]}, {cell.params[2]} bytes: n/a on this toolchain")
    print("", *summary(verdict), sep="\n")
    return verdict.code
