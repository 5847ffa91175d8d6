"""The site: one folder with all pages and the open data, without broken links."""

import html
import re
import shutil
import sys
from urllib.parse import unquote, urlsplit

import made_up
import pandas
import pytest
import report
from analysis.results import load
from conftest import ROOT, run
from pages import page as page_files
from pages.history_page import read_causes
from store.files import put

pytestmark = pytest.mark.slow  # builds the site of all machines

METHOD = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")


def published(reports, output, *arguments):
    assert report.main(["--output", str(reports), "--site", str(output), "--without-asv", *arguments]) == 0
    return output


@pytest.fixture(scope="module")
def site(committed, tmp_path_factory):
    """The site of the committed pages, without asv's part."""
    return published(committed / "reports", tmp_path_factory.mktemp("published") / ".asv" / "site")


def check_links(site):
    """Check that links but those of causes and documents are relative and lead to targets, and that ids are unique in
    their page."""
    texts = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    causes = {cause.link for cause in read_causes()}
    anchors = {path: re.findall(r'\bid="([^"]+)"', text) for path, text in texts.items()}
    for path, text in texts.items():
        assert len(anchors[path]) == len(set(anchors[path])), path
        for link in set(re.findall(r'\s(?:href|src|srcset|data)="([^"]+)"', text)):
            parts = urlsplit(html.unescape(link))
            if link in causes or (parts.scheme == "https" and path.parent.name == "docs"):
                continue
            target = path.parent.joinpath(unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert not (parts.scheme or parts.netloc or parts.path.startswith("/")), (path, link)
            assert target.is_file(), (path, link)
            script = re.match("at=([a-z-]+)|from=", parts.fragment)  # a choice of a page's script
            anchor = script[1] or "choose" if script else unquote(parts.fragment)
            assert not anchor or anchor in anchors.get(target, [anchor]), (path, link)


def test_links_of_the_committed_pages(site):
    check_links(site)
    texts = {name: (site / name).read_text("utf-8") for name in ("index.html", "docs/method.html")}
    assert 'href="docs/method.html"' in texts["index.html"] and 'href="lab-notes.html#' in texts["docs/method.html"]
    assert {"index.html", "feed.xml", "figures.csv", "figures-columns.csv"} <= {path.name for path in site.iterdir()}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A reports folder, not to be changed: pages, and the results that they show."""
    root = tmp_path_factory.mktemp("built")
    report.main(["--results", str(made_up.rich(root / "results")), "--output", str(root / "reports")])
    return (root / "results").rename(root / "reports" / "results").parent


@pytest.fixture
def reports(built, tmp_path):
    return shutil.copytree(built, tmp_path / "reports")


EVIL = "evil.html .hidden box/evil.html results/evil.html results/box/evil.js other/index.html"


def test_the_site_holds_pages_and_results_and_nothing_else(reports, tmp_path):
    """A symbolic link would publish its target, and a copied folder any other file in it."""
    secret = tmp_path / "secret"
    put(secret / "index.html", "secret")
    earlier = {path.relative_to(reports) for path in reports.rglob("*") if path.is_file()}
    for place in ("sub", "results/box/sub", "history"):
        (reports / place).symlink_to(secret)
    for place in ("a.svg", "box/a.svg", "results/box/00000000-toolchain-py3.11.jsonl.gz", "results/toolchains.jsonl"):
        (reports / place).symlink_to(secret / "index.html")
    for place in EVIL.split():
        put(reports / place, "evil")
    folder = published(reports, tmp_path / "site")
    copies = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file() or path.is_symlink()}
    generated = {"figures.csv", "figures-columns.csv", "results/index.html", "results/box/index.html"}
    generated |= {f"docs/{path.stem}.html" for path in (ROOT / "docs").glob("*.md")}
    assert {path.as_posix() for path in copies - earlier} == generated and copies > earlier
    check_links(folder)


@pytest.mark.parametrize("place", ["sub", "box/node-a", "box/00000000-toolchain-py3.11.json"])
def test_the_loader_takes_no_link(place, rich_results, tmp_path, refusal):
    (rich_results / place).symlink_to(tmp_path)
    assert place.rpartition("/")[2] in refusal(report, "--output", rich_results.parent, "--site", tmp_path / "site")


def test_pages_say_where_they_are_published(reports, tmp_path):
    (reports / "feed.xml").write_text('<link href="history/box/index.html#a"/>&lt;a href="index.html"&gt;')
    folder = published(reports, tmp_path / "site", "--url", "https://example.org/suite/")
    feed = (folder / "feed.xml").read_text()
    assert re.findall('href="(.*?)"', feed) == [
        "https://example.org/suite/history/box/index.html#a",
        "https://example.org/suite/index.html",
    ]
    page = (folder / "box" / "index.html").read_text(encoding="utf-8")
    addresses = re.findall(r'(?:"canonical" href|"og:url" content)="([^"]+)"', page)
    assert addresses == ["https://example.org/suite/box/"] * 2
    assert " https://example.org/suite/box/, results.csv, SHA-256 " in page and "CC BY 4.0" in page
    assert "example.org" not in (reports / "box" / "index.html").read_text(encoding="utf-8")
    assert published(reports, tmp_path / "site"), "again, in place of itself"


def test_a_folder_with_something_else_is_left_alone(tmp_path, refusal):
    (tmp_path / "mine").write_text("mine")
    assert str(tmp_path) in refusal(report, "--site", tmp_path)
    assert "https://" in refusal(report, "--site", tmp_path / "site", "--url", "example.org")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("gone", ["index.html", "box/index.html"])
def test_results_without_a_page_are_no_site(reports, tmp_path, refusal, gone):
    (reports / gone).unlink()
    line = refusal(report, "--output", reports, "--site", tmp_path / "site")
    assert line.endswith("reports/index.html has no page of box: make report builds both")


@pytest.mark.parametrize("place", ["reports", "reports/box", ".", "reports/link"])
def test_a_folder_with_what_is_copied_is_left_alone(reports, tmp_path, refusal, place):
    """Each of these folders has an index.html, so it looks like an older site, which may be replaced."""
    (tmp_path / "index.html").touch()
    (reports / "link").symlink_to(reports / "box")
    earlier = sorted(tmp_path.rglob("*"))
    line = refusal(report, "--output", reports, "--site", tmp_path / place, "--without-asv")
    assert "would delete what it copies" in line and sorted(tmp_path.rglob("*")) == earlier


def test_a_link_to_an_older_site_is_followed(reports, tmp_path):
    published(reports, tmp_path / "older")
    (tmp_path / "older" / "stale.txt").touch()
    (tmp_path / "site").symlink_to(tmp_path / "older")
    folder = published(reports, tmp_path / "site")
    assert (folder / "box" / "index.html").is_file() and not (folder / "stale.txt").exists()


def test_the_data_hold_every_cell_of_every_machine(committed, site):
    results = load(committed / "reports" / "results")
    figures = pandas.read_csv(site / page_files.FIGURES_CSV, low_memory=False)
    assert len(figures) == len(results.cells) and set(figures["machine"]) == set(results.cells["machine"])
    assert figures["seconds"].count() == len(results.timed) and figures["value"].count() == len(results.values)
    columns = pandas.read_csv(site / page_files.FIGURES_COLUMNS_CSV)
    assert list(columns["column"]) == [*figures.columns, "*"] and "CC BY 4.0" in columns["meaning"].iloc[-1]
    assert columns["meaning"].str.len().min() > 10
    assert set(figures["history"].dropna()) == {"torch", "numpy"}
    assert (figures["low"].dropna() <= figures["high"].dropna()).all()


def test_the_lines_of_the_docs_draw_a_figure(site, tmp_path):
    (code,) = re.findall(r"```python\n(import pandas.+?)\n```", METHOD, re.DOTALL)
    assert len(list(filter(None, code.splitlines()))) == 5
    root = site.parent.parent
    done = run(sys.executable, "-c", code, home=tmp_path, cwd=root, MPLBACKEND="svg", MPLCONFIGDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    svg = (root / "clone.svg").read_text(encoding="utf-8")
    assert svg.count("<path") > 20 and "<svg" in svg
