#!/usr/bin/env python3
"""Did conversion get faster or slower? A verdict for every cell that two runs share.

    python scripts/compare.py torch-2.12.0 torch-2.13.0
    python scripts/compare.py old/results new/results --only "from_numpy" --format markdown
    python scripts/compare.py --run torch-2.12.0 installed

BASE and NEW are toolchains with results in reports/results (tag, release or commit), result files, or directories with
one result file. With --run they are releases (installed if necessary), "installed", or Python interpreters or virtual
environments. Both sides are then measured now, taking turns: four processes per result, and more for close results.
This takes twice as long as a run and finds smaller changes than two runs can show.

Every result gets a verdict: slower, faster, no change (not more than --equivalence) or inconclusive. If fewer than
--min-decided of the comparable results have a verdict, the comparison fails.

Exit status: 0 nothing slower, 1 something slower, 2 cannot compare, or nothing slower but too few verdicts.
"""

import argparse
import contextlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # has benchmarks/
sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
from cli import ONLY, Parser, UserError, check_writable, put, share
from measuring.engine import RESULTS
from measuring.profiles import check_chosen
from toolchains import selection

if TYPE_CHECKING:
    from analysis.verdicts import Settings


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("base", metavar="BASE")
    parser.add_argument("new", metavar="NEW")
    parser.add_argument("--machine", help="machine whose results to compare; with --run, name of this machine")
    parser.add_argument("--only", metavar="REGEX", default="", help=ONLY)
    parser.add_argument("--min-effect", default="1%", help="ignore changes smaller than this (default: 1%%)")
    parser.add_argument(
        "--equivalence", default="5%", help="report 'no change' only if larger changes are ruled out (default: 5%%)"
    )
    parser.add_argument(
        "--fdr",
        default="0.05",
        help="false discovery rate: accepted share of false changes among the reported ones (default: 0.05)",
    )
    decided = "exit with status 2 if less than this share of the results has a verdict (default: 50%%; 0: never)"
    parser.add_argument("--min-decided", default="50%", help=decided)
    parser.add_argument("--across-machines", action="store_true", help="compare results of different machines")
    parser.add_argument("--all", action="store_true", help="show every result, not only changes")
    parser.add_argument("--format", choices=("text", "markdown", "json"), default="text")
    parser.add_argument("--figure", metavar="FILE.svg", type=Path, help="write a forest plot to this file")
    parser.add_argument("--run", action="store_true", help="measure both sides now, taking turns")
    parser.add_argument("--profile", default="standard", help="with --run: profile to measure (default: standard)")
    parser.set_defaults(rounds=None)
    chosen = parser.parse_args(argv)
    for name in ("min_effect", "equivalence", "fdr"):
        setattr(chosen, name, share(getattr(chosen, name)))
    chosen.min_decided = share(chosen.min_decided, ends=True)
    if chosen.equivalence <= chosen.min_effect:
        raise UserError("--equivalence must be larger than --min-effect, or a cell could be both changed and the same")
    check_chosen(chosen)
    if chosen.figure and chosen.figure.suffix.lower() != ".svg":
        raise UserError(f"--figure {chosen.figure}: figures are SVG, so name it {chosen.figure.stem}.svg")
    return chosen


def measure(chosen: argparse.Namespace, settings: "Settings") -> tuple[str, str]:
    """Measure both sides in turns; the two checkouts that hold the results."""
    from analysis.comparison import compare_named, to_measure_again
    from measuring import interleave
    from measuring.engine import register
    from measuring.journal import Plan
    from toolchains import environments

    def again(base: Path, new: Path) -> tuple[list[str], int]:
        comparison = compare_named(str(base), str(new), RESULTS, None, settings)
        return to_measure_again(comparison), int(comparison.cells["close"].sum())

    targets = [selection.target(name) for name in (chosen.base, chosen.new)]
    machine = chosen.machine or environments.machine_name()
    register(machine)
    plan = Plan(machine, chosen.profile, chosen.only, interleave.ROUNDS, command=command(chosen))
    first, second = interleave.measure(targets, plan, again)
    return str(first), str(second)


def command(chosen: argparse.Namespace) -> str:
    """The command that was given, to be printed beside what it gave."""
    return shlex.join(["python", "scripts/compare.py", *chosen.given])


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    chosen.given = list(sys.argv[1:] if argv is None else argv)
    if chosen.figure:
        check_writable("--figure", chosen.figure)
    from analysis.comparison import compare_named
    from analysis.verdicts import Settings

    same = ("only", "min_effect", "equivalence", "fdr", "min_decided", "across_machines")
    settings = Settings(**{name: getattr(chosen, name) for name in same})
    base, new, machine = chosen.base, chosen.new, chosen.machine
    if chosen.run:
        with contextlib.redirect_stdout(sys.stderr):  # progress: the output is the verdict's
            base, new = measure(chosen, settings)
        machine = None
    comparison = compare_named(base, new, RESULTS, machine, settings)

    from pages import comparison_words

    if chosen.format == "json":
        sys.stdout.write(comparison_words.as_json(comparison, command(chosen)))
    elif chosen.format == "markdown":
        sys.stdout.write(comparison_words.markdown(comparison, chosen.all, command(chosen)))
    else:
        comparison_words.terminal(comparison, chosen.all, sys.stdout)
    if chosen.figure:
        from pages import figures

        figure = figures.forest(comparison)
        if figure:
            put(chosen.figure, figure.file)
        else:
            print("no figure: no cell has an effect to draw", file=sys.stderr)
    if comparison.exit_code == 2:
        raise UserError(comparison_words.refusal(comparison))
    return comparison.exit_code


if __name__ == "__main__":
    cli.run(main)
