"""The README's figures agree with the committed results, and its paths and commands exist."""

import json
import re
import subprocess
import sys

import advise
import pytest
from analysis import results
from cli import UserError
from conftest import ROOT, run
from measuring.profiles import PROFILES
from pages import readme, show

README = (ROOT / "README.md").read_text(encoding="utf-8")
SIZES = (8, 2**20, 64 * 2**20)
MACHINE = re.search(r"reports/([\w.-]+)/README\.md", README).group(1)
HISTORY = re.search(r"reports/history/([\w.-]+)/README\.md", README).group(1)
METHOD, LAB_NOTES = ((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("method", "lab-notes"))
TORCH, NUMPY, DAY = re.search(r"torch ([\w.+]+) · numpy ([\w.]+) · .+? · (\d{4}-\d\d-\d\d) ·", README).groups()
ROWS = re.findall(r"^\| [^|]+ \| ([^|]*`[^|]+) \| ([^|]*) \| ([^|]*) \| ([^|]*) \| *$", README, re.MULTILINE)


@pytest.fixture(scope="module")
def cells(committed):
    """The timed cells of the README's toolchain. Among all releases of a history some cell would match any figure."""
    timed = results.load(committed / "reports" / "results", MACHINE).timed
    return timed[timed["toolchain"] == f"torch-{TORCH}-numpy-{NUMPY}"]


def seconds(cells, route, nbytes, family="conversion", **others):
    """Return the times of quiet cells as pages show them. A noisy cell's time is an upper bound: not for the README."""
    found = cells[
        (cells.family == family) & (cells.route == route) & (cells.nbytes == nbytes) & cells.quiet.astype(bool)
    ]
    for name, value in ({"dtype": "float32"} if family == "conversion" else others).items():
        found = found[found[name] == value]
    return {show.seconds(value) for value in found.seconds}


def test_the_table_has_rows():
    assert len(ROWS) >= 5


@pytest.mark.parametrize("codes, figures", [(codes, figures) for codes, *figures in ROWS])
def test_figures_of_the_table(cells, codes, figures):
    routes = re.findall(r"`([^`]+)`", codes)
    shares = (cells[cells.route.isin(routes)].contract == "alias").all()
    for nbytes, figure in zip(SIZES, figures, strict=True):
        family = "conversion" if shares or nbytes < 256 * 2**10 else "parallel"  # as the text above says
        measured = set().union(*(seconds(cells, route, nbytes, family, threads="all") for route in routes))
        assert figure == "same at any size" or figure in measured, f"{codes} at {nbytes}: not {figure}"


def test_the_table_gives_the_answers_of_the_machines_page(committed):
    page = (committed / "reports" / MACHINE / "README.md").read_text(encoding="utf-8")
    for row in ROWS:
        assert f"| {' | '.join(row)} |" in page, row
    assert README.index(ROWS[-1][0]) < README.index("No GPU results") < README.index("![")


HUGE, SETTING = "THP_MEM_ALLOC_ENABLE=1", "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=1073741824"
COPIED, CLONED = "torch.from_numpy(a.copy())", "torch.from_numpy(a).clone()"
TIME = r"takes (\S+ \S+)"
# Sentences of the README with figures: a pattern, and for each figure in order the cell that it must come from
SENTENCES = {
    "one thread": (
        rf"There `{re.escape(COPIED)}` {TIME} at 1 MiB, and\s+`{re.escape(CLONED)}` {TIME}\.\s",
        [(COPIED, 2**20), (CLONED, 2**20)],
    ),
    "by element": (
        rf"tolist\(\)\)` {TIME} at 64 KiB, where\s+`{re.escape(COPIED)}` {TIME}\. ",
        [("torch.tensor(a.tolist())", 2**16), (COPIED, 2**16)],
    ),
    "a list of arrays": (
        rf"`torch.tensor\(arrays\)` of 64 arrays, 1 MiB in all, {TIME}, where\s.*? {TIME} \(one thread\)\.\n",
        [("torch.tensor(arrays)", 2**20, "batches"), ("torch.from_numpy(np.array(arrays))", 2**20, "batches")],
    ),
    "settings": (
        rf"`{re.escape(CLONED)}` {TIME}, and\s+(\S+ \S+) if .*?`{HUGE}`.*?takes\s+(\S+ \S+) with `{SETTING}`",
        [(CLONED, 64 * 2**20, "settings", text) for text in ("none", HUGE, SETTING)],
    ),
}


@pytest.mark.parametrize("what", SENTENCES)
def test_figures_of_sentences(cells, what):
    pattern, measured = SENTENCES[what]
    for figure, (route, nbytes, *more) in zip(re.search(pattern, README, re.S).groups(), measured, strict=True):
        assert figure in seconds(cells, route, nbytes, *more[:1], **({"setting": more[1]} if more[1:] else {}))


def test_how_often_advice_kept_its_promises():
    """The README counts the tests in docs/lab-notes.md that kept the limits on mean and largest regret and on shares of
    correct predictions. Only tests that judged at least half of their cases count."""

    def kept_of(begins: str) -> list[bool]:
        rows = re.findall(rf"^\| \d+ \|{begins} [12] \| (\d+) of (\d+) \| (.+) \|$", LAB_NOTES, re.MULTILINE)
        judged = [row for few, asked, row in rows if 2 * int(few) >= int(asked)]
        figures = [[float(each.replace("−", "-")) for each in re.findall(r"(\S+) %", row)] for row in judged]
        return [mean <= 3 and worst <= 20 and min(shares) >= 90 for mean, worst, *shares in figures]

    quiet, noisy = kept_of(""), kept_of(r" (?:\d+) % \|")
    misses = [f"{each.count(False)} of {len(each)}" for each in (quiet, noisy)]
    said = f"{misses[0]} missed a promise on a quiet machine, and {misses[1]} on one"
    assert said in README
    most = max(map(int, re.findall(r"^\| \d+ \| (\d+) % \|", LAB_NOTES, re.MULTILINE)))
    assert f"quiet at most {most} % of the time" in README


def test_durations_are_estimates_or_from_runs(committed):
    """Durations on a quiet machine are the profiles' estimates, others are from runs or docs/lab-notes.md."""
    quick, busy, share = re.search(
        r"about (\d+) minutes on a quiet machine, and took ([\d.]+) minutes on one that was quiet\s+(\d+) %", README
    ).groups()
    assert int(quick) == round(PROFILES["quick"].minutes)
    recorded = re.search(r"a quick run\s+took\s+([\d.]+)\s+minutes\D+(\d+)\s%", LAB_NOTES)
    assert recorded.groups() == (busy, share)
    standard, longest, at = re.search(
        r"about (\d+) minutes on a quiet machine; it took (\d+) on one that was quiet (\d+) %", README
    ).groups()
    assert int(standard) == round(PROFILES["standard"].minutes)
    records = (committed / "reports" / "results" / MACHINE).glob("*.jsonl")
    runs = [json.loads(line) for path in records for line in path.read_text(encoding="utf-8").splitlines()]
    of_page = [
        run for run in runs if run["profile"] == "standard" and run["started"].startswith(DAY) and run["samples"]
    ]
    assert round(sum(run["seconds"] for run in of_page) / 60) == int(longest)
    assert show.percent(max(of_page, key=lambda run: run["seconds"])["quiet"]) == f"{at} %"
    release = re.search(r"about (\d+) minutes per release", README)
    assert int(release[1]) == PROFILES["tracking"].minutes


def test_profiles_of_the_method():
    table = re.findall(r"^\| `([\w-]+)` \|.*\| (\d+)(?: \(estimate\))? \|$", METHOD, re.MULTILINE)
    assert {name: int(minutes) for name, minutes in table} == {
        name: round(profile.minutes, -1 if name == "transfers-full" else None) for name, profile in PROFILES.items()
    }


def test_the_recomputed_figure_is_that_of_the_table(committed):
    """docs/method.md has code that recomputes a figure without the suite. It must print the figure of the table."""
    code = re.search(r"```python\n(import gzip.+?)```", METHOD, re.DOTALL)[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=committed, capture_output=True, text=True)
    (of_one_mib,) = re.findall(rf"^\|[^|]*\|[^|]*`{re.escape(CLONED)}`[^|]*\|[^|]*\| ([^|]*) \|", README, re.MULTILINE)
    assert done.stdout.strip() == of_one_mib, done.stderr


@pytest.mark.slow
def test_the_example_is_what_advise_prints(committed, monkeypatch, capsys):
    """The example equals the answer of advise.py, line by line. A line that ends with … is compared up to there."""
    shown = re.search(r"\$ \S+ scripts/advise\.py ([^\n]+)\n(.+?)\n```", README, re.DOTALL)
    monkeypatch.setattr(advise, "RESULTS", committed / "reports" / "results")
    assert advise.main([*shown[1].split(), "--machine", MACHINE]) == 0
    said = capsys.readouterr().out.splitlines()
    lines = shown[2].splitlines()
    assert len(said) == len(lines)
    for line, whole in zip(lines, said):
        assert whole.startswith(line.removesuffix(" …")) if line.endswith(" …") else whole == line


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*"))]
)
def test_links_lead_somewhere(committed, name):
    """Links lead to files of the repository, and anchors to headings in them."""
    page = ROOT / name
    for path, anchor in re.findall(r"\]\(([^):#]*)(?:#([^)]+))?\)", page.read_text(encoding="utf-8")):
        root = committed if path.startswith(("reports", "../reports")) else ROOT
        target = (root / name).parent / path if path else page
        assert target.exists(), path
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings], anchor


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"(?:`|\$ )make ([a-z-]+)", README + METHOD)):
        assert re.search(rf"^(?:[\w-]+ )*{target}\b.*:", makefile, re.MULTILINE), target


def test_make_begins_anew_where_an_environment_could_not_be_made(tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$2" != venv ] || { mkdir -p $3/bin; ln -s /bin/sh $3/bin/python; exit 1; }\n')
    python.chmod(0o755)
    (tmp_path / "requirements.txt").touch()
    command = ["make", "-f", ROOT / "Makefile", f"PYTHON={python}", ".venv/installed"]
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 2 and f"{python} -m venv .venv" in done.stdout, done.stderr


@pytest.mark.parametrize(("managed", "allowed", "code"), [(True, "", 2), (True, "1", 0), (False, "", 0)])
def test_make_asks_first_whether_pip_may_install(tmp_path, managed, allowed, code):
    """The system Python of a Debian is externally managed. Nothing is made before that is known."""
    (tmp_path / ("EXTERNALLY-MANAGED" if managed else "x")).touch()
    as_system = f"import sys, sysconfig; sys.prefix = sys.base_prefix; sysconfig.get_path = lambda _: {str(tmp_path)!r}"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{as_system}; exec(sys.argv[1])" "$2"\n')
    python.chmod(0o755)
    command = ["make", "-f", ROOT / "Makefile", f"PYTHON={python}", "can-install"]
    done = run(*command, home=tmp_path, cwd=tmp_path, PIP_BREAK_SYSTEM_PACKAGES=allowed)
    assert done.returncode == code
    assert ("-m venv --system-site-packages" in done.stderr) == bool(code) and not (tmp_path / ".venv-report").exists()


def test_a_mark_that_names_an_unmeasured_release_is_refused():
    with pytest.raises(UserError, match=r"^README\.md: no history has torch 0\.1: correct its mark$"):
        readme.releases([], ["torch 0.1"])


def test_what_releases_changed(committed):
    page = (committed / "reports" / "history" / HISTORY / "README.md").read_text(encoding="utf-8")
    told = re.findall(r"^- (\[(?:torch|numpy) \d[^\n]*(?:\n  [^\n]+)*)", README, re.MULTILINE)
    assert len(told) >= 4
    for line in told:
        line = " ".join(line.split()).replace(f"reports/history/{HISTORY}/README.md", "")
        assert f"| {line.replace('): ', ') | ', 1).replace('. Largest: ', ' | ')} |" in page
    counts = r"(\d+) releases of torch with (numpy [\d.]+), and (\d+) of numpy\s+with (torch [\d.]+\d)"
    torch, held, numpy, held_too = re.search(counts, README).groups()
    found = re.findall(r"(\d+) releases of (?:torch|numpy) [\d.]+ to [\d.]+ with (\w+ [\d.]+\d)", page)
    assert {(torch, held), (numpy, held_too)} <= set(found)
