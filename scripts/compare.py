#!/usr/bin/env python3
"""Did conversion get faster or slower? A verdict for every result that two runs share.

    python scripts/compare.py torch-2.9.1 torch-2.10.0 --machine amd-epyc-turin-2-core-vm
    python scripts/compare.py old/results new/results --only "from_numpy" --format markdown
    python scripts/compare.py --run torch-2.9.1 installed

BASE and NEW are toolchains with results in reports/results (tag, release or commit), result files,
or directories with one result file. With --run they are releases (installed if necessary),
"installed", or Python interpreters or virtual environments. Both sides are then measured now,
taking turns: four processes per result, and more for close results. This takes twice as long as a
run and finds smaller changes than two runs can show.

Every result gets a verdict: slower, faster, no change (not more than --equivalence) or
inconclusive. If fewer than --min-decided of the comparable results have a verdict, the comparison
fails.

Exit status: 0 nothing slower, 1 something slower, 2 cannot compare, or nothing slower but too few
verdicts.
"""

import argparse
import contextlib
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
from cli import ONLY, RESULTS, ROOT, CommandLine, Parser, UserError, check_writable, parse_share
from measuring.profiles import PROFILES
from store.files import put
from toolchains import selection

if TYPE_CHECKING:
    from analysis.comparison import Comparison


def arguments(argv: CommandLine) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("base", metavar="BASE")
    parser.add_argument("new", metavar="NEW")
    about = "machine whose results to compare; with --run, name of this machine"
    parser.option("--machine NAME", about, type=selection.check_machine_name)
    parser.option("--only NAME", ONLY, default="")
    parser.option("--min-effect SHARE", "ignore changes smaller than this", default="1%")
    parser.option(
        "--equivalence SHARE",
        "report 'no change' only if larger changes are ruled out",
        default="5%",
    )
    parser.option(
        "--fdr SHARE", "false discovery rate: share of false among reported changes", default="0.05"
    )
    about = "exit with status 2 if less than this share of the results has a verdict; 0: never"
    parser.option("--min-decided SHARE", about, default="50%", type=partial(parse_share, ends=True))
    parser.option("--across-machines", "compare results of different machines")
    parser.option("--across-builds", "compare results of different builds of Python or C libraries")
    parser.option("--all", "show every result, not only changes")
    parser.option(
        "--format", "format of the output", choices=("text", "markdown", "json"), default="text"
    )
    parser.option("--figure FILE.svg", "write a forest plot to this file", type=Path)
    parser.option("--run", "measure both sides now, taking turns")
    about = "with --run: at most so many processes per result and side; as many more if it is close"
    parser.option("--rounds N", about, default=4)
    parser.option(
        "--profile NAME", "with --run: profile to measure", choices=PROFILES, default="standard"
    )
    options = parser.parse_args(argv)
    if not (options.base.strip() and options.new.strip()):
        raise UserError(
            "BASE or NEW is empty: name two toolchains, files or directories of results"
        )
    if options.equivalence <= options.min_effect:
        raise UserError(
            "--equivalence must be larger than --min-effect, "
            "or a cell could be both changed and the same"
        )
    if options.figure and options.figure.suffix.lower() != ".svg":
        raise UserError(
            f"--figure {options.figure}: figures are SVG, so name it {options.figure.stem}.svg"
        )
    return options


def measure(options: argparse.Namespace, compare: Callable[..., "Comparison"]) -> tuple[str, str]:
    """Measure both sides in turns, and return the two checkouts with the results."""
    from analysis.comparison import cells_to_remeasure, has_clear_answers
    from measuring import engine, runner
    from measuring.journal import Plan, lock_directory
    from toolchains import environments

    def judge(base: Path, new: Path) -> runner.Outlook:
        comparison = compare(str(base), str(new), machine=None)
        again = cells_to_remeasure(comparison)
        close = int(comparison.cells["close"].sum())
        return runner.Outlook(has_clear_answers(comparison), again, close)

    targets = [selection.find_target(name) for name in (options.base, options.new)]
    if any(commit for _, commit in targets):  # a release, measured by this Python's asv
        engine.check_asv()
        engine.set_environment_limit(None)
    machine = options.machine or environments.machine_name()
    plan = Plan(machine, options.profile, options.only, options.rounds, command=options.command)
    with lock_directory(ROOT / ".asv" / "runs" / machine):
        first, second = runner.measure_sides(
            targets, plan, judge, across_builds=options.across_builds
        )
    return str(first), str(second)


def main(argv: CommandLine = None) -> int:
    options = arguments(argv)
    # The command as given, to be printed with its results
    options.command = shlex.join(
        ["python", "scripts/compare.py", *(sys.argv[1:] if argv is None else argv)]
    )
    if options.figure:
        check_writable("--figure", options.figure)
    from analysis.comparison import compare_by_name
    from analysis.verdicts import Settings

    settings = Settings(**{name: getattr(options, name) for name in Settings.__dataclass_fields__})
    compare = partial(compare_by_name, results=RESULTS, settings=settings)
    base, new, machine = options.base, options.new, options.machine
    if options.run:
        with contextlib.redirect_stdout(sys.stderr):  # progress; stdout is for the verdicts
            base, new = measure(options, compare)
        machine = None
    comparison = compare(base, new, machine=machine)

    from pages import comparison_words

    if options.format == "json":
        sys.stdout.write(comparison_words.as_json(comparison, options.command))
    elif options.format == "markdown":
        sys.stdout.write(comparison_words.markdown(comparison, options.all, options.command))
    else:
        comparison_words.terminal(comparison, options.all, sys.stdout)
    if options.figure:
        from pages import change_pictures
        from pages.page import figure_file

        figure = change_pictures.forest(comparison)
        if figure:
            sides = f"{comparison.new['toolchain']} / {comparison.base['toolchain']}"
            put(options.figure, figure_file(figure, sides))
        elif comparison.exit_code != 2:  # then the error says more
            print("no figure: no cell has an effect to draw", file=sys.stderr)
    if comparison.exit_code == 2:
        raise UserError(comparison_words.summarise(comparison)["refusal"])
    return comparison.exit_code


if __name__ == "__main__":
    cli.run(main)
