"""Does compare.py --run find a small slowdown?

    python scripts/check.py power                    20 tries each of a call and two copies: hours
    python scripts/check.py power --of call          20 tries of a call: about half an hour
    python scripts/check.py power --slowdown 10%     10 % in place of 3 % (5 % for 16 MiB)
    python scripts/check.py power --by pyperf        the same by pyperf, or by asv as it comes

Each try plants a slowdown in a copy of the suite and compares the copy with itself by the recipe of
README (RECIPE). One side makes 34 calls in place of 33, for 3 %; its copies of 16 MiB have more
bytes. An unchanged result beside it shows false alarms. Do not use the machine meanwhile.

Exit status: 0 as promised. 1 if fewer than 95 % of the slowdowns of a call or a 1 MiB copy are
found, fewer than 90 % of those of a 16 MiB copy, or more than 1 % of the unchanged results are
flagged: what compare.py promises.
"""

import math
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from analysis.verdicts import FASTER, SLOWER
from cli import ROOT, CommandLine, Parser, UserError, size
from measuring.engine import new_id
from pages.show import percent
from pandas import DataFrame, concat

from checking.peers import PEERS, Side
from checking.planted import compare_with_itself, repeat_calls

KIB, MIB = 2**10, 2**20
RECIPE = ("--rounds", "24", "--equivalence", "3%", "--profile", "tracking")
OWN = "compare.py"  # the tool whose power is promised
MAX_FALSE = 0.01  # share of unchanged results that may be flagged


class Question(NamedTuple):
    """What a try asks.

    slowed     route that is slower on one side
    unchanged  route beside it
    nbytes     size of both
    slowdown   smallest that is promised to be found
    found      in at least this share of the tries
    """

    slowed: str
    unchanged: str
    nbytes: int
    slowdown: float
    found: float


COPIES = "torch.from_numpy(a).clone()", "torch.from_numpy(a.copy())"
QUESTIONS = {
    "call": Question("t.numpy()", "t.detach().numpy()", 4 * KIB, 0.03, 0.95),
    "copy": Question(*COPIES, MIB, 0.03, 0.95),
    "large": Question(*COPIES, 16 * MIB, 0.05, 0.9),
}
MORE_BYTES = """
_unchanged_setup = _Conversion.setup


def _setup(self, route, dtype, nbytes):
    if _SIDE == "new" and route == {route!r}:
        nbytes = {nbytes}
    _unchanged_setup(self, route, dtype, nbytes)


_Conversion.setup = _setup
"""


def only_pattern(question: Question) -> str:
    """The pattern of ``--only`` for both results of a try."""
    routes = "|".join(map(re.escape, (question.slowed, question.unchanged)))
    cell = rf"'({routes})', 'float32', {question.nbytes}\)"
    return rf"^conversion\.(NumpyToTorch|TorchToNumpy)\.\w+\({cell}$"


def sides_of(question: Question, slowdown: float) -> tuple[Side, Side]:
    """Both sides of the slowed route. One makes a call more; where that would take tenths of a
    second, as for 16 MiB, it has more bytes."""
    base = Side(question.slowed, question.nbytes, 1)
    if question.nbytes > MIB:
        return base, base._replace(
            nbytes=round(100 * (1 + slowdown)) * question.nbytes // 6400 * 64
        )
    calls = round(1 / slowdown)
    return base._replace(calls=calls), base._replace(calls=calls + 1)


def slowdown_code(question: Question, slowdown: float) -> str:
    """The code to plant in conversion.py."""
    base, new = sides_of(question, slowdown)
    if base.calls == new.calls:
        return MORE_BYTES.format(route=base.route, nbytes=new.nbytes)
    return repeat_calls(base.route, base.calls, new.calls)


def try_once(question: Question, slowdown: float, tool: str, place: Path) -> DataFrame:
    """Plant a slowdown and compare by a tool. Return one row per result: route, verdict, ratio, and
    the minutes that the comparison took. Peers take a comparison for each, and give no ratio."""
    if tool == OWN:
        start = time.monotonic()
        code = slowdown_code(question, slowdown)
        report = compare_with_itself(place, "conversion.py", code, only_pattern(question), *RECIPE)
        rows = DataFrame(report["cells"], columns=["route", "verdict", "ratio"])
        return rows.assign(minutes=(time.monotonic() - start) / 60)
    slowed = sides_of(question, slowdown)
    unchanged = slowed[0]._replace(route=question.unchanged)
    rows = []
    for route, pair in ((question.slowed, slowed), (question.unchanged, [unchanged, unchanged])):
        start = time.monotonic()
        directory = place / f"{len(rows)}"
        directory.mkdir(parents=True)
        verdict = PEERS[tool](directory, pair)
        rows.append((route, verdict, math.nan, (time.monotonic() - start) / 60))
    return DataFrame(rows, columns=["route", "verdict", "ratio", "minutes"])


def findings(question: Question, slowdown: float, cells: DataFrame) -> Iterator[tuple[str, bool]]:
    """Yield a line for each route of a question's tries, and whether its promise is kept."""
    is_slowed = cells["route"] == question.slowed
    for route, rows, flags in (
        (question.slowed, cells[is_slowed], [SLOWER]),
        (question.unchanged, cells[~is_slowed], [SLOWER, FASTER]),
    ):
        flagged = rows["verdict"].isin(flags)
        share = flagged.mean()
        if route == question.slowed:
            planted = f"{percent(slowdown)} slower"
            is_kept = share >= question.found or slowdown < question.slowdown
        else:
            planted = f"unchanged (beside {percent(slowdown)})"
            is_kept = share <= MAX_FALSE
        found = f"{flagged.sum()} of {len(rows)} flagged"
        if rows["ratio"].notna().any():
            found += f", median ratio {rows['ratio'].median():.3f}"
        minutes = f"{rows['minutes'].median():.1f} minutes, at most {rows['minutes'].max():.1f}"
        yield f"{route}, {size(question.nbytes)}, {planted}: {found}, {minutes}", bool(is_kept)


def chosen_questions(names: str) -> Sequence[str]:
    """The names of QUESTIONS in a list separated by commas; all without one."""
    chosen = names.split(",") if names else [*QUESTIONS]
    if unknown := [name for name in chosen if name not in QUESTIONS]:
        raise UserError(f"--of {unknown[0]}: write some of {', '.join(QUESTIONS)}")
    return chosen


def main(argv: CommandLine = None) -> int:
    parser = Parser(__doc__)
    parser.option("--tries N", "comparisons for each question", default=20)
    parser.option("--of NAMES", f"some of {', '.join(QUESTIONS)} (default: all)", default="")
    about = "slowdown to plant (default: what is promised to be found)"
    parser.option("--slowdown SHARE", about)
    parser.option("--by TOOL", "what compares", choices=(OWN, *PEERS), default=OWN)
    args = parser.parse_args(argv)
    status = 0
    for name in chosen_questions(args.of):
        question = QUESTIONS[name]
        slowdown = args.slowdown or question.slowdown
        tries = []
        for number in range(args.tries):
            place = ROOT / ".asv" / "power" / f"{new_id()}-{number}"
            tries.append(try_once(question, slowdown, args.by, place))
            verdicts = " and ".join(tries[-1]["verdict"])
            minutes = tries[-1]["minutes"].max()
            print(f"{name}, try {number + 1}: {verdicts}, {minutes:.1f} minutes", flush=True)
        for line, is_kept in findings(question, slowdown, concat(tries)):
            print(f"{line}{'' if is_kept else ': not kept'}", flush=True)
            status |= not is_kept
    return status
