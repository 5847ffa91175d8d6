#!/usr/bin/env python3
"""Build the pages of a machine from its results, and print its answers.

    python scripts/report.py                   pages of every machine with results, and one page over all machines
    python scripts/report.py --machine NAME    pages of one machine
    python scripts/report.py --check DIR       check whether reports/results/NAME can be submitted: one line per finding

Writes index.html (one self-contained file), README.md, figures as SVG and results.csv (every figure) to reports/NAME/.
If releases were measured with scripts/track.py, it writes the same for their history to reports/history/NAME/.
reports/feed.xml lists what releases changed, for all machines. The same results give the same bytes.

Exit status of --check: 0 no findings, 1 findings, 2 no results.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
from cli import RESULTS, Parser, UserError, line, put
from toolchains import selection

REPORTS = RESULTS.parent


class Lacking(UserError):
    """This Python has not what a page needs."""


def reason_of(error: ImportError) -> str:
    """Why something cannot be imported, in a few words."""
    return f"needs {error.name}" if isinstance(error, ModuleNotFoundError) else str(error).splitlines()[0]


def after_run(machine: str, python: Path | None = None) -> int:
    """Build the pages of what was measured, with ``python`` where this one lacks what a page needs; the exit code."""
    if python:
        return subprocess.run([str(python), __file__, "--machine", machine]).returncode
    try:
        return main(["--machine", machine])
    except Lacking as why:
        print(f"results saved; {why}")
        return 0


def check(directory: Path, suite: Path, markdown: Path | None) -> int:
    """Say what is wrong with results that somebody submits, by this suite's benchmarks.json; the exit code."""
    from analysis.submission import findings
    from pages import show, submission

    said = submission.said(directory.absolute().name, findings(directory, suite))
    print(*(line(show.to_plain(sentence)) for sentence in said), sep="\n")
    if markdown:
        put(markdown, submission.comment(said))
    return int(len(said) > 1)


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.option("--machine NAME", "build only the page of this machine", type=selection.check_machine)
    parser.option("--results DIR", "directory of results", default=RESULTS)
    parser.option("--output DIR", "directory to write the pages to", default=REPORTS)
    parser.option("--check DIR", "check results before you submit them, and build nothing")
    parser.option("--markdown FILE", "with --check: also write the findings to this file", type=Path)
    chosen = parser.parse_args(argv)
    if chosen.markdown and not chosen.check:
        raise UserError("--markdown goes with --check")
    if chosen.check and (chosen.machine or chosen.output != REPORTS):
        raise UserError("--check builds nothing: it takes no --machine and no --output")
    try:
        if chosen.check:
            return check(chosen.check, chosen.results / "benchmarks.json", chosen.markdown)
        from advise import known_in
        from pages.build import build, over_machines, tell
        from store.files import machines
    except ImportError as error:  # pandas missing, or too new for the numpy that was measured
        message = f"no page: {reason_of(error)}. python scripts/report.py builds it where requirements.txt is installed"
        raise Lacking(message) from None
    built = []
    for machine in machines(chosen.results) if chosen.machine is None else [chosen.machine]:
        built.append(build(chosen.results, machine, chosen.output))
    if chosen.machine is None:  # not after a run: it changes no committed file
        over_machines(built, chosen.output)
    if chosen.results == RESULTS:  # so that advise.py finds it done
        known_in(RESULTS)
    for page, path in chain(*(each.pages for each in built)):  # last: whoever reads this may go, as head does
        tell(page, Path(os.path.relpath(path)))
    return 0


if __name__ == "__main__":
    cli.run(main)
