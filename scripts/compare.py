#!/usr/bin/env python3
"""Did conversion get faster or slower? A verdict for every cell that two runs share.

    python scripts/compare.py torch-2.12.0 torch-2.13.0
    python scripts/compare.py old/results new/results --only "from_numpy" --format markdown
    python scripts/compare.py --run torch-2.12.0 installed

BASE and NEW are toolchain tags or commit hashes with results in reports/results, result files, or results directories
(of a checkout, of asv, or of one machine) that hold one result file. With --run they are releases by tag, which are
installed when they are not yet, "installed", or Pythons (an executable or a virtual environment): both are measured
now, in turns, four processes everywhere and fresh ones where it is close; that takes twice as long as a run and sees
smaller changes than two runs can show.

A cell is decided when it is slower, faster, or not changed by more than --equivalence. Where less than --min-decided
of the cells that could be compared are decided, "nothing slower" would only say that nothing was seen.

Exit code: 0 nothing slower, 1 something slower, 2 could not compare, or nothing slower and too little decided.
"""

import argparse
import contextlib
import math
import os
import re
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

from cli import ONLY, Parser, UserError, check_writable, matcher, run
from measuring.engine import RESULTS, ROOT
from measuring.profiles import check_chosen

if TYPE_CHECKING:
    from analysis.comparison import Comparison, Settings
    from analysis.results import Results

NOT_RESULTS = ("machine.json", "benchmarks.json")
ROUNDS, FRESH_ROUNDS = 4, 8  # processes a side: everywhere, and where it is close
SHORTEST_HASH = 4


def share(text: str, ends: bool = False) -> float:
    """A relative size, "1%", "1 %" or "0.01", as 0.01; above 0 and below 1, or one of them where ``ends`` may be."""
    number = text.strip()
    percent = number.endswith("%")
    try:
        value = float(number.removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if not (0 < value < 1 or (ends and value in (0, 1))):
        raise UserError(f"{text!r} is no share: write 1% or 0.01")
    return value


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("base", metavar="BASE")
    parser.add_argument("new", metavar="NEW")
    parser.add_argument("--machine", help="whose results, where several machines have some; with --run, its name")
    parser.add_argument("--only", metavar="REGEX", default="", help=ONLY)
    parser.add_argument("--min-effect", default="1%", help="smaller changes are no changes (default: 1%%)")
    parser.add_argument("--equivalence", default="5%", help="what 'no change' is to exclude (default: 5%%)")
    parser.add_argument("--fdr", default="0.05", help="share of wrong flags among the flags (default: 0.05)")
    decided = "exit with 2 where less than this share of the comparable cells is decided (default: 50%%; 0: never)"
    parser.add_argument("--min-decided", default="50%", help=decided)
    parser.add_argument("--across-machines", action="store_true", help="compare though the machines differ")
    parser.add_argument("--all", action="store_true", help="show every cell, not only what changed")
    parser.add_argument("--format", choices=("text", "markdown", "json"), default="text")
    parser.add_argument("--figure", metavar="FILE.svg", type=Path, help="write a forest plot")
    parser.add_argument("--run", action="store_true", help="measure both sides now, in turns")
    parser.add_argument("--profile", default="standard", help="with --run: which cells (default: standard)")
    chosen = parser.parse_args(argv)
    for name in ("min_effect", "equivalence", "fdr"):
        setattr(chosen, name, share(getattr(chosen, name)))
    chosen.min_decided = share(chosen.min_decided, ends=True)
    if chosen.equivalence <= chosen.min_effect:
        raise UserError("--equivalence must be larger than --min-effect, or a cell could be both changed and the same")
    matcher(chosen.only)
    check_chosen(None, chosen.machine, None)
    if chosen.figure and chosen.figure.suffix.lower() != ".svg":
        raise UserError(f"--figure {chosen.figure}: figures are SVG, so name it {chosen.figure.stem}.svg")
    return chosen


# --- what BASE and NEW name ------------------------------------------------------------------------------------------


def find(spec: str, machine: str | None) -> Path:
    """The one result file that ``spec`` names; UserError where it names none, or several."""
    path = Path(spec)
    if path.is_file():
        if path.suffix != ".json" or path.name in NOT_RESULTS:
            raise UserError(f"{spec} is not a result file: those lie in reports/results/MACHINE/ and end with .json")
        found = [path]
    elif path.is_dir():
        found = _in_directory(path, machine)
    else:
        found = _of_toolchain(spec, machine)
    if len(found) > 1:
        named = ", ".join(sorted(f"{file.parent.name}/{file.name}" for file in found))
        raise UserError(f"{spec} has {len(found)} result files ({named}): name one, or restrict by --machine")
    return found[0]


def results_of(file: Path) -> Path:
    """The results directory that a result file lies in: asv writes benchmarks.json two directories up."""
    directory = file.absolute().parent.parent
    if not (directory / "benchmarks.json").is_file():
        raise UserError(f"{file}: no benchmarks.json in {directory}, so this is no results directory of asv")
    return directory


def _result_files(results: Path, machine: str | None) -> list[Path]:
    found = sorted(path for path in results.glob(f"{machine or '*'}/*.json") if path.name not in NOT_RESULTS)
    if not found:
        raise UserError(f"{results} holds no results{f' of {machine}' if machine else ''}")
    return found


def _in_directory(path: Path, machine: str | None) -> list[Path]:
    """Result files of a checkout, of asv's results directory, or of one machine in it."""
    for results in (path, path / "reports" / "results"):
        if (results / "benchmarks.json").is_file():
            return _result_files(results, machine)
    if (path.absolute().parent / "benchmarks.json").is_file():
        return _result_files(path.absolute().parent, path.absolute().name)
    raise UserError(f"{path} is no results directory: neither it nor its parent has a benchmarks.json")


def _of_toolchain(spec: str, machine: str | None) -> list[Path]:
    """Result files of a toolchain by its tag or the beginning of its commit hash."""
    from analysis.results import read_json, read_runs
    from toolchains import ledger

    releases = (toolchain for package in ledger.PACKAGES for toolchain in ledger.history(package))
    release = next((toolchain.commit for toolchain in releases if toolchain.tag == spec), "")
    found, tags, broken = [], set(), []
    is_hash = re.fullmatch(rf"[0-9a-f]{{{SHORTEST_HASH},40}}", spec) is not None
    for path in _result_files(RESULTS, machine):
        try:
            tag = next((run.toolchain.tag for run in reversed(read_runs(path.with_suffix(".jsonl")))), "")
            short = path.name.split("-")[0]
            # asv's file name has the first eight letters of the hash
            right = is_hash and (short.startswith(spec) or spec.startswith(short))
            if right and len(spec) > len(short):
                right = str(read_json(path)["commit_hash"]).startswith(spec)
        except (UserError, KeyError, TypeError):
            broken.append(path.name)
            continue
        tags.add(tag or short)
        # a plain asv run leaves no run record and so no tag
        if tag == spec or right or (release and release.startswith(short)):
            found.append(path)
    if not found:
        known = f"there are results of {', '.join(sorted(tags))}" if tags else "none of the results can be read"
        hint = f"; could not read {', '.join(broken)}" if broken else ""
        raise UserError(f"{spec} is no file, no directory and no toolchain with results: {known}{hint}")
    return found


def load_side(spec: str, machine: str | None) -> "tuple[Path, Results]":
    from analysis.results import load_files

    file = find(spec, machine)
    return file, load_files(results_of(file), [file])


def fresh_of(base: Path, new: Path) -> tuple[Path, Path] | None:
    """The second stage of an interleaved collection that these files are the first stage of, by where it lies."""
    from measuring.interleave import FRESH

    checkouts = [results_of(file).parent.parent for file in (base, new)]
    found = [root.with_name(root.name + FRESH) for root in checkouts]
    whole = all(any((root / "reports" / "results").glob("*/*.jsonl")) for root in found)  # the record is filed last
    return (found[0], found[1]) if whole else None


# --- the command -----------------------------------------------------------------------------------------------------


def compare_files(base: str, new: str, machine: str | None, settings: "Settings") -> "Comparison":
    """Load both sides, and fresh processes where --run took some, and compare them."""
    from analysis.comparison import belong_together, compare
    from analysis.history import sessions_in

    (one, first), (other, second) = load_side(base, machine), load_side(new, machine)
    if one.resolve() == other.resolve():
        raise UserError(f"BASE and NEW are the same file, {one}: its A/A needs a second run of that toolchain")
    fresh = None
    places = fresh_of(one, other)
    if places:
        stage = [load_side(str(place), None)[1] for place in places]
        fresh = (stage[0], stage[1]) if belong_together(first, second, *stage) else None
    sessions = None
    if one.absolute().parent == other.absolute().parent:
        # files of neither side: one that is broken is no obstacle, and report.py names it
        with contextlib.suppress(UserError):
            sessions = sessions_in(results_of(one), one.absolute().parent.name)
    return compare(first, second, settings, fresh, sessions)


def measure(chosen: argparse.Namespace, settings: "Settings") -> tuple[Path, Path]:
    """Collect both sides in turns, then fresh processes where it is close; the two checkouts that hold the results."""
    from analysis.comparison import to_measure_again
    from measuring import interleave
    from measuring.progress import progress
    from toolchains import installed

    check_chosen(chosen.profile, chosen.machine, chosen.only)
    machine = chosen.machine or installed.machine_name(os.cpu_count() or 1)
    targets = [interleave.target(spec) for spec in (chosen.base, chosen.new)]
    started = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S")
    directory = ROOT / ".asv" / "compare" / f"{started}-{os.getpid()}"
    about = {"id": directory.name, "machine": machine, "profile": chosen.profile, "only": chosen.only or None}
    about["command"] = command(chosen)

    sides = interleave.prepare(directory, targets)
    cells = interleave.cells_to_measure(sides[0], machine, chosen.profile, chosen.only)
    print(f"{len(cells)} cells x {ROUNDS} processes on both sides, in turns")
    with progress(len(cells) * ROUNDS * 2, "measuring") as show:
        interleave.collect(sides, cells, ROUNDS, {**about, "stage": 1}, show)
    comparison = compare_files(str(sides[0].root), str(sides[1].root), None, settings)
    again, close = to_measure_again(comparison), int(comparison.cells["close"].sum())
    if again:
        print(
            f"{close} cells are close: {FRESH_ROUNDS} fresh processes on both sides decide them"
            f" ({len(again) - close} more are measured with them, to know the noise)"
        )
        fresh = interleave.prepare(directory, targets, interleave.FRESH)
        with progress(len(again) * FRESH_ROUNDS * 2, "measuring again") as show:
            interleave.collect(fresh, again, FRESH_ROUNDS, {**about, "stage": 2}, show)
    print(f"the data is in {directory.relative_to(ROOT)}: compare.py compares its base and new again")
    return sides[0].root, sides[1].root


def command(chosen: argparse.Namespace) -> str:
    """The command that was given, to be printed beside what it gave."""
    return shlex.join(["python", "scripts/compare.py", *chosen.given])


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    chosen.given = list(sys.argv[1:] if argv is None else argv)
    if chosen.figure:
        check_writable("--figure", chosen.figure)
    from analysis.comparison import Settings

    settings = Settings(
        only=chosen.only,
        min_effect=chosen.min_effect,
        equivalence=chosen.equivalence,
        fdr=chosen.fdr,
        min_decided=chosen.min_decided,
        across_machines=chosen.across_machines,
    )
    base, new, machine = chosen.base, chosen.new, chosen.machine
    if chosen.run:
        with contextlib.redirect_stdout(sys.stderr):  # progress: the output is the verdict's
            base, new = (str(path) for path in measure(chosen, settings))
        machine = None
    comparison = compare_files(base, new, machine, settings)

    from pages.comparison import words

    if chosen.format == "json":
        sys.stdout.write(words.as_json(comparison, command(chosen)))
    elif chosen.format == "markdown":
        sys.stdout.write(words.markdown(comparison, chosen.all, command(chosen)))
    else:
        words.terminal(comparison, chosen.all)
    if chosen.figure:
        from pages.comparison import figure as comparison_figure

        if not comparison_figure.save(comparison, chosen.figure):
            print("no figure: no cell has an effect to draw", file=sys.stderr)
    if comparison.exit_code == 2:
        raise UserError(words.refusal(comparison))
    return comparison.exit_code


if __name__ == "__main__":
    run(main)
