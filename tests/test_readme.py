"""The README's figures are those of the committed results, and its paths and commands exist."""

import re

import advise
import compare
import pytest
from analysis import results
from cli import UserError
from conftest import ROOT
from pages import show

README = (ROOT / "README.md").read_text(encoding="utf-8")
SIZES = (8, 2**20, 64 * 2**20)
MACHINE = re.search(r"reports/([\w.-]+)/README\.md", README).group(1)
TORCH, NUMPY = re.search(r"reference machine .*?torch ([\w.+]+), numpy ([\w.]+);", README, re.DOTALL).groups()
ROWS = re.findall(r"^\| [^|]+→[^|]+ \| `([^`]+)`[^|]*\|(.+)\|$", README, re.MULTILINE)[1:]


@pytest.fixture(scope="module")
def cells(committed):
    """Of that toolchain alone: among the releases of a history some figure is always right."""
    toolchain = f"torch-{TORCH}-numpy-{NUMPY}"
    try:
        return results.load(committed / "reports" / "results", MACHINE, toolchain).timed
    except UserError as error:
        pytest.fail(f"the README names {MACHINE}, whose results are not there: {error}")


def seconds(cells, route, nbytes, family="conversion", **others):
    """As shown, where the machine was calm: a busy one's figure is an upper bound, and no headline."""
    found = cells[
        (cells.family == family) & (cells.route == route) & (cells.nbytes == nbytes) & cells.quiet.astype(bool)
    ]
    for name, value in ({"dtype": "float32"} if family == "conversion" else others).items():
        found = found[found[name] == value]
    return {show.seconds(value) for value in found.seconds}


def test_the_table_has_rows():
    assert len(ROWS) >= 5


@pytest.mark.parametrize("route, figures", ROWS, ids=[route for route, _ in ROWS])
def test_figures_of_the_table(cells, route, figures):
    shown = [figure.strip() for figure in figures.split("|")]
    assert len(shown) == len(SIZES)
    shares = (cells[cells.route == route].contract == "alias").all()
    for nbytes, figure in zip(SIZES, shown):
        family = "conversion" if shares or nbytes < 256 * 2**10 else "parallel"  # as the text above says
        assert not figure or figure in seconds(cells, route, nbytes, family, threads="all"), (
            f"{route} at {nbytes}: not {figure}"
        )


def test_figures_of_one_thread(cells):
    copied, spread = re.search(
        r"There `torch.from_numpy\(a.copy\(\)\)` takes (\S+ \S+) at 1 MiB, where\s+"
        r"`torch.from_numpy\(a\).clone\(\)` takes (\S+ \S+)\.\s",
        README,
    ).groups()
    assert copied in seconds(cells, "torch.from_numpy(a.copy())", 2**20)
    assert spread in seconds(cells, "torch.from_numpy(a).clone()", 2**20)


def test_figures_of_the_warning(cells):
    by_element, copied, arrays, stack = re.search(
        r"tolist\(\)\)` takes (\S+ \S+) at 64 KiB, where `torch.from_numpy\(a.copy\(\)\)` takes (\S+ \S+), and\s+"
        r"`torch.tensor\(arrays\)` of 64 arrays of 1 MiB together (\S+ \S+), where .*? takes (\S+ \S+)\.\n",
        README,
    ).groups()
    assert by_element in seconds(cells, "torch.tensor(a.tolist())", 2**16)
    assert copied in seconds(cells, "torch.from_numpy(a.copy())", 2**16)
    assert arrays in seconds(cells, "torch.tensor(arrays)", 2**20, "batches")
    assert stack in seconds(cells, "torch.from_numpy(np.array(arrays))", 2**20, "parallel", threads="all")


def test_figures_of_the_setting(cells):
    without, behind, setting = re.search(
        r"`torch.from_numpy\(a\).clone\(\)` takes (\S+ \S+), and (\S+ \S+)\s+behind `([^`]+)`", README
    ).groups()
    for shown, name in ((without, "none"), (behind, setting)):
        assert shown in seconds(cells, "torch.from_numpy(a).clone()", 64 * 2**20, "settings", setting=name)


@pytest.mark.slow
def test_advice(committed, tmp_path, monkeypatch, capsys):
    """Line by line; one that ends with … begins as that of the answer does."""
    shown = re.search(r"scripts/advise\.py ([^\n]+)\n(.+?)\n```", README, re.DOTALL)
    monkeypatch.setattr(advise, "KEPT", tmp_path / "advise.json")
    monkeypatch.setattr(advise, "RESULTS", committed / "reports" / "results")
    assert advise.main([*shown[1].split(), "--machine", MACHINE]) == 0
    said = capsys.readouterr().out.splitlines()
    lines = shown[2].splitlines()
    assert len(said) == len(lines)
    for line, whole in zip(lines, said):
        assert whole.startswith(line.removesuffix(" …")) if line.endswith(" …") else whole == line


def test_comparisons_that_are_offered(committed, monkeypatch, capsys):
    """By README and by the page of every history: of one result file each, wherever else the releases were measured."""
    pages = sorted((committed / "reports" / "history").glob("*/README.md"))
    offered = re.findall(r"scripts/compare\.py ([^`<]+?--machine [\w-]+)`", README)
    assert len(offered) == 1 and len(pages) >= 2
    for page in pages:
        offered += re.findall(r"scripts/compare\.py ([^`]+)`", page.read_text(encoding="utf-8"))
    assert len(offered) == 1 + len(pages)
    monkeypatch.setattr(compare, "RESULTS", committed / "reports" / "results")
    for options in offered:
        assert compare.main(options.split()) in (0, 1), options
        assert " → " in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([^):#]+)\)", README))))
def test_links_lead_somewhere(committed, path):
    assert (committed / path).exists()


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`?make ([a-z-]+)", README)) - {"bench"}:
        if target not in ("it", "one"):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_what_releases_changed(committed):
    page = (committed / "reports" / "history" / MACHINE / "README.md").read_text(encoding="utf-8")
    told = re.findall(r"^- ((?:torch|numpy) \d[^\n]*(?:\n  [^\n]+)*)", README, re.MULTILINE)
    assert len(told) >= 4
    for line in told:
        release, calls, largest = re.fullmatch(r"(.+?\)): (.+?)\. Largest: (.+)", " ".join(line.split())).groups()
        assert f"| {release} | {calls} | {largest} |" in page
    counts = re.search(
        r"(\d+) releases of torch with (numpy [\d.]+), and (\d+) of numpy\s+with (torch [\d.]+):", README
    )
    torch, held, numpy, held_too = counts.groups()
    assert re.search(rf"\b{torch} releases of torch [\d.]+ to [\d.]+ with {held}", page)
    assert re.search(rf"\b{numpy} releases of numpy [\d.]+ to [\d.]+ with {held_too}", page)
