"""Is the suite honest on this machine? Compare it with torch.utils.benchmark, and separate bias from noise.

    python scripts/check.py timing                     every conversion of float32, at up to five sizes
    python scripts/check.py timing --only from_numpy   those of some routes, in any dtype and size

compare.py --run measures two copies of the suite in turns, four processes a side and more where it is close. In one of
them a torch.utils.benchmark.Timer takes the samples, after a warm-up that is longer by as many samples as a process
takes. Sources, processes, probes and the choice of quiet samples are the same on both sides. So a difference is one of
the suite's loop, its clock, its setup or its warm-up. Noise is known as in every comparison, by A/A, too.

Exit code 1 is bias: a cell differs by more than 5 % beyond its noise, or the median cell, of all or of one size, by
more than 2 % beyond its error. Exit code 2 is too noisy to decide: a bias of 5 % could hide in more than half of the
cells, or one of 2 % in the median cell. Otherwise 0.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from analysis.statistics import Floats
from analysis.verdicts import FASTER, INCONCLUSIVE, SLOWER
from cli import ONLY, ROOT, Parser, UserError, regex
from measuring.engine import new_id
from pages import show

from .noise import in_turns

CELLS = r"^conversion\.(NumpyToTorch|TorchToNumpy)\..*'float32', (8|4096|1048576|16777216|67108864)\)$"
EACH, MIDDLE = 0.05, 0.02  # deviations allowed to a cell, and to the median cell
CONFIDENCE = 0.99  # of the interval that the median cell lies in
TELLING = 0.5  # share of the cells whose deviation must be known to EACH
FEW = 10  # cells: of fewer the median is not judged

# torch's Timer makes calls before it times any: two and more, which is much where one takes a second
TORCH = """
if _SIDE == "base":
    from types import SimpleNamespace as _Names

    from torch.utils import benchmark as _benchmark

    class _Timer:
        def __init__(self, statement, globals, timer):
            self.timer = _benchmark.Timer(statement, globals=globals, num_threads=1)

        def timeit(self, number):
            few = number == 1
            taken = self.timer.blocked_autorange(min_run_time=0) if few else self.timer.timeit(number)
            return taken.raw_times[0] / taken.number_per_run * number

    def _longer(self, warm_up=timing.Timing.warm_up):
        number = warm_up(self)
        for _ in range(self.count):
            self.timer.timeit(number)
        return number

    timeit, timing.Timing.warm_up = _Names(Timer=_Timer), _longer
"""


def middle(effects: Floats) -> tuple[float, float]:
    """The interval that the median of all such cells lies in, log units; unbounded for few."""
    from scipy.stats import quantile_test  # scipy.stats takes half a second to import

    if len(effects) < FEW:
        return -math.inf, math.inf
    low, high = quantile_test(effects, p=0.5).confidence_interval(CONFIDENCE)
    return float(low), float(high)


def judged(said: Mapping[str, Any]) -> tuple[pd.DataFrame, list[str], list[str]]:
    """The cells of a comparison, the suite's time over torch's; what speaks for bias, and what for too much noise."""
    cells = pd.DataFrame(said["cells"]).dropna(subset=["ratio"])
    if cells.empty:
        raise UserError("no cell was timed on both sides")
    biased, noisy = cells["verdict"].isin((SLOWER, FASTER)), cells["verdict"] == INCONCLUSIVE
    bias = [f"{biased.sum()} of {len(cells)} cells deviate by more than {EACH:.0%}"] if biased.any() else []
    hidden = f"a bias of {EACH:.0%} could hide in {noisy.sum()} of {len(cells)} cells"
    noise = [hidden] if noisy.mean() > TELLING else []
    effects = np.log(cells["ratio"].astype(float))
    low, high = middle(effects)
    if high - low > 2 * MIDDLE and math.isfinite(high - low):
        noise.append(f"the median is known to ±{(high - low) / 2:.1%} only")
    for place, own in {"": effects, **{f" at {n} bytes": own for n, own in effects.groupby(cells["nbytes"])}}.items():
        low, high = middle(own)
        if max(low, -high) > math.log1p(MIDDLE):
            bias.append(f"the median{place} is {math.exp(own.median()):.3f}")
    return cells, bias, noise


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--only", metavar="REGEX", type=regex, default=CELLS, help=ONLY)
    chosen = parser.parse_args(argv)
    place = ROOT / ".asv" / "timing" / new_id()
    # "no change" is what differs by less than a bias; a comparison wants the larger of the two to be larger
    margins = ["--min-effect", f"{EACH:.1%}", "--equivalence", f"{EACH + 0.001:.1%}", "--profile", "standard"]
    cells, bias, noise = judged(in_turns(place, "statement.py", TORCH, chosen.only, *margins))
    shown = cells[["route", "nbytes", "new_seconds", "base_seconds", "ratio", "low95", "high95", "verdict"]]
    shown = shown.rename(columns={"new_seconds": "suite", "base_seconds": "torch", "ratio": "suite/torch"})
    formats = {"suite": show.seconds, "torch": show.seconds, "route": "{:44}".format}
    print(shown.to_string(index=False, formatters=formats, float_format="{:.3f}".format, na_rep="–"))
    off = (cells.loc[cells["verdict"] != INCONCLUSIVE, "ratio"].astype(float) - 1).abs()
    print(f"\nsuite against torch.utils.benchmark: {len(off)} of {len(cells)} cells decided", end="")
    if len(off):
        print(f"; median deviation {show.percent(off.median(), 1)}, maximum {show.percent(off.max(), 1)}", end="")
    print()
    if bias:
        print(f"bias: {'; '.join(bias)}")
    elif noise:
        print(f"too noisy to decide: {'; '.join(noise)}: try again when the machine has nothing else to do")
    return 1 if bias else 2 if noise else 0
