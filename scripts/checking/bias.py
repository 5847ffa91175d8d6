"""Is the suite biased against torch.utils.benchmark? Judged with the noise of each cell and its like, and said.

Arrays are over cells; readings are (cells, processes) of log seconds, NaN where a process was noisy.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from analysis.statistics import MAD_TO_SD, Bools, Floats, estimate, means, student_quantile
from numpy.typing import NDArray
from pages import show
from store import quiet
from store.records import Line

from .timing import AGAIN, SUITE, TORCH, Cell

EACH, MIDDLE = 0.05, 0.02  # deviations allowed to a cell, and to the median cell
ERROR = 0.05  # chance that noise alone has any cell called biased
CONFIDENCE = 0.99  # of the interval that the median cell lies in
TELLING = 0.5  # share of the cells whose noise must be below EACH
FEW = 10  # cells: of fewer the median is not judged
BIAS, NOISY = "bias", "too noisy to decide"


def part(line: Line, name: str) -> Line:
    """The blocks of one timer as a line of their own: a probe before and one behind each, as if after a wait."""
    chosen = [index for index, by in enumerate(line["by"]) if by == name]
    places, disturbed = quiet.Run([line], {}).place.tolist(), set(line["disturbed"])
    return {
        **line,
        "seconds": [line["seconds"][index] for index in chosen],
        "disturbed": [place for place, index in enumerate(chosen) if index in disturbed],
        "probes": {
            name: [probe for index in chosen for probe in taken[places[index] : places[index] + 2]]
            for name, taken in line["probes"].items()
        },
        "waits": list(range(1, len(chosen))),
    }


def logs_of(lines: Sequence[Line], baselines: Mapping[str, float]) -> Floats:
    """Log seconds per call of each process: the suite's figure; NaN of a noisy one."""
    run = quiet.Run(lines, baselines)
    return np.where(run.quiet, np.log(run.figures()), np.nan)


@dataclass(frozen=True)
class Deviations:
    """Log ratios to torch, (cells,) each: the effect, and what noise alone could make of it, infinite if unknown."""

    effect: Floats
    noise: Floats

    @property
    def biased(self) -> Bools:
        return np.abs(self.effect) - self.noise > math.log1p(EACH)

    @property
    def noisy(self) -> Bools:
        """A bias could hide there that is EACH larger than what is allowed."""
        return self.noise > math.log1p(EACH)


def deviations(suite: Floats, torch: Floats, again: Floats, sizes: NDArray[np.str_], tests: int) -> Deviations:
    """How far the readings ``suite`` are from torch's two.

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
    return Deviations(estimated.effect, np.where(np.isfinite(noise), noise, math.inf))


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

    rows         a cell each: seconds a call, ratios, log units of noise in suite/torch, and BIAS, NOISY or nothing
    share        of the time that the machine was quiet
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
    """What was measured, judged with the speed probes of all of it in sight."""
    lines = [line for cell in cells for process in cell.processes for line in process]
    run = quiet.Run(lines)
    readings = np.full((4, len(cells), max(len(cell.processes) for cell in cells)), np.nan)
    for place, cell in enumerate(cells):
        for turn, (first, rest) in enumerate(cell.processes):
            by_timer = [first, *(part(rest, name) for name in (SUITE, TORCH, AGAIN))]
            readings[:, place, turn] = logs_of(by_timer, run.baselines)
    whole, block, torch, again = readings
    sizes = np.array([str(cell.nbytes) for cell in cells])
    ratios = {
        "suite/torch": deviations(whole, torch, again, sizes, 2 * len(cells)),
        "block/torch": deviations(block, torch, again, sizes, 2 * len(cells)),
    }
    itself = means(again - torch)
    biased = np.any([each.biased for each in ratios.values()], axis=0)
    noisy = np.any([each.noisy for each in ratios.values()], axis=0)
    columns = {
        "suite": np.exp(means(whole)),
        "torch": np.exp(means((torch + again) / 2)),
        **{name: np.exp(each.effect) for name, each in ratios.items()},
        "torch/torch": np.exp(itself),
        "noise": ratios["suite/torch"].noise,
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
    for name, each in ratios.items():
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
    return Verdict(rows, run.quiet_share(), bias, noise)


def table(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    ratios = ("suite/torch", "block/torch", "torch/torch")
    yield f"{'route':44} {'bytes':>8} {'suite':>10} {'torch':>10} {'  '.join(ratios)}"
    for row in rows:
        seconds = " ".join(f"{show.seconds(row[name]):>10}" for name in ("suite", "torch"))
        figures = " ".join(f"{row[name]:12.3f}" if math.isfinite(row[name]) else f"{'–':>12}" for name in ratios)
        mark = {BIAS: "  <-- bias", NOISY: "  ?"}.get(row["verdict"], "")
        yield f"{row['route']:44} {row['nbytes']:8} {seconds}{figures}{mark}"


def summary(verdict: Verdict) -> Iterator[str]:
    """The lines below the table, the verdict last. Deviations are of the cells that noise does not hide."""
    rows = verdict.rows
    clear = [row for row in rows if row["verdict"] != NOISY] or rows

    def deviations(name: str) -> tuple[str, str]:
        off = [abs(row[name] - 1) for row in clear if math.isfinite(row[name])] or [math.nan]
        return show.percent(statistics.median(off), 1), show.percent(max(off), 1)

    verdicts = [row["verdict"] for row in rows]
    (whole, largest), (block, _), (itself, most) = map(deviations, ("suite/torch", "block/torch", "torch/torch"))
    quiet_share = f"the machine was quiet {verdict.share:.0%} of the time"
    yield (
        f"suite against torch.utils.benchmark, {len(rows)} cells: median deviation {whole} ({block} in blocks), "
        f"maximum {largest}, {verdicts.count(BIAS)} biased, {verdicts.count(NOISY)} too noisy to decide"
    )
    yield f"torch.utils.benchmark against itself: median deviation {itself}, maximum {most}; {quiet_share}"
    if verdict.bias:
        yield f"bias: {'; '.join(verdict.bias)}"
    elif verdict.noise:
        yield (
            f"too noisy to decide: {'; '.join(verdict.noise)}; {quiet_share}: try again when it has nothing else to "
            "do, or with more --processes"
        )
