"""What is published: what is wrong with submitted results, in words, and the site, all pages in one folder."""

import html
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from analysis.submission import Finding
from cli import line, put
from store import files

from . import show

ASV = "asv"  # where asv's own site is, whose links its scripts make
RESULTS = "results"
PAGE = r"(?:index\.html|README\.md|feed\.xml|(?:results|answers|changes)\.csv|[a-z0-9-]+\.svg)"
MARKER = "<!-- numpy-torch-conversion: submission -->"  # finds the comment of an earlier check on a pull request
LONGEST = 200  # letters of what a file says: a comment on GitHub has 65,536 at most
ADDRESSED = '<meta property="og:type" content="website">\n'  # what goes before an address of the page itself


def said(name: str, findings: Sequence[Finding]) -> list[str]:
    """What was found, a sentence each. What the submission says is code in it: it mentions nobody and links nowhere."""
    count = f"{len(findings)} finding{'s' * (len(findings) > 1)}" if findings else "may be published"
    return [f"{_code(name)}: {count}", *(f"{_code(each.file)}: {_words(each)}" for each in findings)]


def _code(text: str) -> str:
    return show.code(line(text)[:LONGEST])


def _words(finding: Finding) -> str:
    about = _code(finding.about) + (f" and {finding.more} more" if finding.more else "")
    return show.said("submission", finding.what, about=about, values=finding.values)


def comment(sentences: Sequence[str]) -> str:
    """A comment for a pull request."""
    return "\n".join([MARKER, *(f"- {show.to_markdown(sentence)}" for sentence in sentences), ""])


# --- the site ---------------------------------------------------------------------------------------------------------


def gather(reports: Path, site: Path) -> None:
    """Copy the pages, by the names that report.py gives them, and the results that the loader takes: no link, nothing
    else. What was in ``site`` before is gone."""
    shutil.rmtree(site, ignore_errors=True)
    machine = f"(?:{'|'.join(map(re.escape, files.machines(reports / RESULTS)))})"
    result = (
        rf"{RESULTS}/(?:{files.BENCHMARKS}|{machine}/(?:{files.NODE}[\w.-]+/)?(?:{files.MACHINE}|{files.FILE.pattern}))"
    )
    wanted = re.compile(rf"(?:(?:history/)?{machine}/|history/)?{PAGE}|{result}")
    for held, _, names in os.walk(reports):  # enters no link
        for path in (Path(held, name) for name in names):
            place = path.relative_to(reports)
            if wanted.fullmatch(place.as_posix()) and path.is_file() and not path.is_symlink():
                (site / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, site / place)
    for directory in [path for path in (site / RESULTS).glob("**/") if not (path / "index.html").exists()]:
        put(directory / "index.html", _listing(directory, site))


def _listing(directory: Path, site: Path) -> str:
    """A page that lists a directory: a web server may show none by itself."""
    name = html.escape(directory.relative_to(site).as_posix())
    paths = sorted(directory.iterdir())
    places = [(f"{path.name}/index.html" if path.is_dir() else path.name) for path in paths]
    items = "".join(f'<li><a href="{quote(place)}">{html.escape(place)}</a></li>\n' for place in places)
    head = f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{name}</title>\n'
    return f"{head}<ul>\n{items}</ul>\n</html>\n"


def address(site: Path, url: str) -> None:
    """Say in every page where it is published, for those who preview it; a feed's readers know no relative links."""
    feed = site / "feed.xml"
    if feed.is_file():
        put(feed, feed.read_text(encoding="utf-8").replace('href="', f'href="{html.escape(url.rstrip("/"))}/'))
    for path in [path for path in sorted(site.rglob("*.html")) if path.relative_to(site).parts[0] != ASV]:
        place = path.relative_to(site).as_posix().removesuffix("index.html")
        canonical = html.escape(f"{url.rstrip('/')}/{quote(place)}")
        said = f'<link rel="canonical" href="{canonical}">\n<meta property="og:url" content="{canonical}">\n'
        text = path.read_text(encoding="utf-8")
        put(path, text.replace(ADDRESSED, ADDRESSED + said, 1))
