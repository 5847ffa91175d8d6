"""Does compare.py --run find a small slowdown?

    python scripts/check.py power                             20 tries each of 3 % and 5 %: hours
    python scripts/check.py power --tries 4 --slowdown 10%    four tries of 10 %

Each try plants the slowdown in a copy of the suite and compares the copy with itself by the
recipe of README (RECIPE). On one side a call and a copy are made 34 times in place of 33 (21 and 20
for 5 %). The same number of unchanged results beside them shows false alarms. Copies of 16 MiB are
compared from 5 % on. Do not use the machine meanwhile.

Exit status: 0 as promised. 1 if fewer than 95 % of the slowdowns of a call or a 1 MiB copy are
found, fewer than 90 % of those of a 16 MiB copy, or more than 1 % of the unchanged results are
flagged.
"""

import re
import time
from typing import Any

from analysis.verdicts import FASTER, SLOWER
from cli import ROOT, CommandLine, Parser, parse_share, size
from measuring.engine import new_id
from pages.show import percent
from pandas import DataFrame, concat

from checking.planted import compare_with_itself, repeat_calls

KIB, MIB = 2**10, 2**20
RECIPE = ("--rounds", "24", "--equivalence", "3%", "--profile", "tracking")
CALL, COPY = "t.numpy()", "torch.from_numpy(a).clone()"
# Routes with the sizes at which they are compared: slower on one side, and unchanged
SLOWED = {CALL: [4 * KIB], COPY: [MIB, 16 * MIB]}
UNCHANGED = {"t.detach().numpy()": [4 * KIB], "torch.from_numpy(a.copy())": [MIB, 16 * MIB]}
MIN_FOUND, MIN_FOUND_LARGE, MAX_FALSE = 0.95, 0.9, 0.01
MIN_SLOWDOWN_LARGE = 0.05  # that copies of 16 MiB are compared from


def sizes_compared(slowdown: float) -> list[tuple[str, int]]:
    """The routes and sizes of a try, slower on one side and unchanged."""
    return [
        (route, nbytes)
        for routes in (SLOWED, UNCHANGED)
        for route, sizes in routes.items()
        for nbytes in sizes
        if nbytes <= MIB or slowdown >= MIN_SLOWDOWN_LARGE
    ]


def only_pattern(slowdown: float) -> str:
    """The pattern of ``--only`` for all cells of a try."""
    cells = [
        rf"'{re.escape(route)}', 'float32', {nbytes}\)"
        for route, nbytes in sizes_compared(slowdown)
    ]
    return rf"^conversion\.(NumpyToTorch|TorchToNumpy)\.\w+\(({'|'.join(cells)})$"


def slowdown_code(slowdown: float) -> str:
    """The code to plant in conversion.py: one side makes one call more of CALL and COPY in each
    measurement, for 3 % the 34th."""
    calls = round(1 / slowdown)
    return repeat_calls([*SLOWED], calls, calls + 1)


def try_once(slowdown: float, number: int) -> DataFrame:
    """Plant a slowdown and compare. Return one row per cell: route, nbytes, verdict, ratio, and the
    minutes that the comparison took."""
    place = ROOT / ".asv" / "power" / f"{new_id()}-{round(100 * slowdown)}-{number}"
    start = time.monotonic()
    report = compare_with_itself(
        place, "conversion.py", slowdown_code(slowdown), only_pattern(slowdown), *RECIPE
    )
    cells = DataFrame(report["cells"], columns=["route", "nbytes", "verdict", "ratio"])
    minutes = (time.monotonic() - start) / 60
    return cells.assign(slowdown=slowdown, minutes=minutes)


def summarise(cells: DataFrame) -> DataFrame:
    """Return one row per slowdown, route and size: tries, flagged (share), median ratio, the median
    minutes of a comparison, limit of the share, and whether it is kept."""
    is_slowed = cells["route"].isin(list(SLOWED))
    is_faster = cells["verdict"] == FASTER
    is_flagged = (cells["verdict"] == SLOWER) | (is_faster & ~is_slowed)
    cells = cells.assign(is_slowed=is_slowed, is_flagged=is_flagged)
    keys = ["slowdown", "is_slowed", "route", "nbytes"]
    rows = cells.groupby(keys, sort=False, as_index=False).agg(
        tries=("is_flagged", "size"),
        flagged=("is_flagged", "mean"),
        ratio=("ratio", "median"),
        minutes=("minutes", "median"),
    )
    return rows.assign(kept=[is_kept(row) for row in rows.itertuples()])


def is_kept(row: Any) -> bool:
    """Whether the promise for a row of ``summarise`` is kept; True where there is none."""
    if not row.is_slowed:
        return bool(row.flagged <= MAX_FALSE)
    return bool(row.flagged >= (MIN_FOUND_LARGE if row.nbytes > MIB else MIN_FOUND))


def line_of(row: Any) -> str:
    """A row of ``summarise`` in words."""
    planted = f"{percent(row.slowdown)} slower" if row.is_slowed else "unchanged"
    found = f"{round(row.flagged * row.tries)} of {row.tries} flagged"
    ending = "" if row.kept else ": not kept"
    beside = "" if row.is_slowed else f" (beside {percent(row.slowdown)})"
    cell = f"{row.route}, {size(int(row.nbytes))}, {planted}{beside}"
    return f"{cell}: {found}, median ratio {row.ratio:.3f}, {row.minutes:.1f} minutes{ending}"


def main(argv: CommandLine = None) -> int:
    parser = Parser(__doc__)
    parser.option("--tries N", "comparisons for each slowdown", default=20)
    about = "slowdowns to plant, separated by commas"
    parser.option("--slowdown SHARES", about, default="3%,5%")
    args = parser.parse_args(argv)
    slowdowns = [*map(parse_share, args.slowdown.split(","))]
    cells = []
    for number in range(args.tries):
        for slowdown in slowdowns:
            cells.append(try_once(slowdown, number))
            verdicts = ", ".join(cells[-1]["verdict"])
            print(f"try {number + 1}, {percent(slowdown)}: {verdicts}", flush=True)
    rows = summarise(concat(cells))
    for row in rows.itertuples():
        print(line_of(row))
    return int(not rows["kept"].all())
