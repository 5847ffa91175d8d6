#!/usr/bin/env python3
"""Gather all pages, the feed, the data and asv's own site in one folder, for any web server.

    python scripts/publish.py                                  write to .asv/site
    python scripts/publish.py --url https://example.org/suite  also put this address into the pages

Links are relative. figures.csv holds every figure of all machines.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out

import cli
import report
from cli import RESULTS, ROOT, Parser, UserError, line


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.option("--reports DIR", "directory of the pages and results", default=RESULTS.parent)
    parser.option("--output DIR", "folder to write; existing content is deleted", default=ROOT / ".asv" / "site")
    parser.option("--url URL", "address at which the folder will be published")
    parser.option("--without-asv", "leave out asv's own site")
    chosen = parser.parse_args(argv)
    if chosen.url and urlsplit(chosen.url).scheme not in ("http", "https"):
        raise UserError(f"--url {chosen.url}: write it with https://")
    kept = chosen.output / "index.html"
    if chosen.output.is_dir() and any(chosen.output.iterdir()) and not kept.is_file():
        raise UserError(f"--output {chosen.output} holds something else: name an empty directory")
    try:
        from analysis.results import load
        from pages import site, spreadsheet
    except ImportError as error:
        raise report.Lacking(f"no site: {report.reason_of(error)}") from None
    results = load(chosen.reports / "results")
    site.gather(chosen.reports, chosen.output)
    spreadsheet.write_figures(results, chosen.output)
    if not chosen.without_asv:
        command = [sys.executable, "-m", "asv", "publish", "--html-dir", str(chosen.output.absolute() / site.ASV)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise UserError(f"asv publish: {line((done.stdout + done.stderr).strip().splitlines()[-1])}")
    if chosen.url:
        site.address(chosen.output, chosen.url)
    print(line(os.path.relpath(chosen.output / "index.html")))
    return 0


if __name__ == "__main__":
    cli.run(main)
