#!/usr/bin/env python3
"""Build the pages of a machine from its results, and print its answers.

    python scripts/report.py                   pages of every machine, and a page over all machines
    python scripts/report.py --machine NAME    pages of one machine
    python scripts/report.py --check DIR       can reports/results/NAME be submitted? one line per
                                               finding
    python scripts/report.py --site .asv/site  gather pages, feed, data and asv's own site, for any
                                               web server

Writes index.html (one self-contained file), README.md, figures as SVG and results.csv (every
figure) to reports/NAME/. If releases were measured with scripts/track.py, it writes the same for
their history to reports/history/NAME/. Where a page compares releases or machines, the comparison
is in compare.js beside it. reports/feed.xml lists what releases changed, for all
machines. The tables of the project's README.md are written, too. The same results give the same
bytes. Links of the site are relative; its figures.csv holds every figure of all machines.

Exit status of --check: 0 no findings, 1 findings, 2 no results.
"""

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
from cli import RESULTS, CommandLine, Parser, UserError, one_line
from store.files import machines, put
from toolchains import selection

REPORTS = RESULTS.parent
README = REPORTS.parent / "README.md"


class MissingPackage(UserError):
    """This Python lacks packages that a page needs."""


def reason_of(error: ImportError) -> str:
    """The reason for an ImportError, in a few words."""
    is_missing = isinstance(error, ModuleNotFoundError)
    return f"needs {error.name}" if is_missing else str(error).splitlines()[0]


def after_run(machine: str, python: Path | None = None) -> int:
    """Build a machine's pages after a run and return the exit code. ``python``: used instead of
    this one, if given."""
    if python:
        return subprocess.run([str(python), __file__, "--machine", machine]).returncode
    try:
        return main(["--machine", machine])
    except MissingPackage as error:
        print(f"results saved; {error}")
        return 0


def check(directory: Path, suite: Path, markdown: Path | None) -> int:
    """Print the faults of submitted results, by this suite's benchmarks.json, and return the exit
    code."""
    from analysis.submission import findings
    from pages import build, show

    sentences = build.submission(directory.absolute().name, findings(directory, suite))
    print(*(one_line(show.to_plain(sentence)) for sentence in sentences), sep="\n")
    if markdown:
        put(markdown, build.comment(sentences))
    return int(len(sentences) > 1)


def main(argv: CommandLine = None) -> int:
    parser = Parser(__doc__)
    parser.option(
        "--machine NAME", "build only the page of this machine", type=selection.check_machine_name
    )
    parser.option("--results DIR", "directory of results", default=RESULTS)
    parser.option("--output DIR", "directory to write the pages to", default=REPORTS)
    parser.option("--check DIR", "check results before you submit them, and build nothing")
    parser.option(
        "--markdown FILE", "with --check: also write the findings to this file", type=Path
    )
    parser.option(
        "--site DIR",
        "gather the pages of --output in this folder, whose content is deleted; build nothing",
    )
    parser.option("--url URL", "with --site: address at which the folder will be published")
    parser.option("--without-asv", "with --site: leave out asv's own site")
    options = parser.parse_args(argv)
    if options.markdown and not options.check:
        raise UserError("--markdown goes with --check")
    if options.check and (options.machine or options.output != REPORTS):
        raise UserError("--check builds nothing: it takes no --machine and no --output")
    try:
        if options.check:
            return check(options.check, options.results / "benchmarks.json", options.markdown)
        from pages.build import build, over_machines, print_summary, publish
        from pages.readme import update_figures
    except ImportError as error:  # pandas is missing, or too new for the measured numpy
        remedy = "python scripts/report.py builds it where requirements.txt is installed"
        raise MissingPackage(f"no page: {reason_of(error)}. {remedy}") from None
    if options.site:
        print(publish(options.output, options.site, options.url, not options.without_asv))
        if not options.without_asv:
            print("asv's part loads scripts from other hosts: it stays blank without a network")
        return 0
    names = machines(options.results) if options.machine is None else [options.machine]
    built = [build(options.results, name, options.output) for name in names]
    if options.machine is None:  # not after a run: it changes no committed file
        over_machines(built, options.output)
        if options.output == REPORTS and README.is_file():
            put(README, update_figures(README.read_text(encoding="utf-8"), built))
    for each in built:  # last, because the reader may quit early, like head
        for page, path in each.pages:
            print_summary(page, Path(os.path.relpath(path)))
    return 0


if __name__ == "__main__":
    cli.run(main)
