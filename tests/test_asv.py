"""asv stays asv: its own commands work in the checkout as its users know them, and run what somebody adds to it.

A new route is one entry of the catalogue, a new family one file: what it declares shows up everywhere.
"""

import csv
import json
import math
import re
import shlex
import shutil
import sys
import time
from functools import partialmethod
from itertools import product
from pathlib import Path

import pytest
from asv.results import Results
from cli import put
from conftest import ROOT, Checkout, export, run
from store import files
from tiny import Project
from toolchains import selection

from benchmarks import routes

FLOOR = "limits.Floor.timeit_floor"
CONVERT = "conversion.TorchToNumpy.timeit_convert"
SKIPPED = ("'t.numpy()'", "'bfloat16'", "8")
TAKEN = ("'t.numpy()'", "'float32'", "8")


def succeeded(done):
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout


def cells_in(checkout, name):
    """Cell (its parameters as asv spells them) -> result and samples, of one benchmark."""
    (path,) = files.result_files(checkout.results)
    file = Results.load(str(path))
    params = file.get_result_params(name)
    taken = zip(file.get_result_value(name, params), file.get_result_samples(name, params))
    return dict(zip(product(*params), taken))


# Somebody's own ------------------------------------------------------------------------------------------------------

NEW = "torch.from_numpy(a).view_as(torch.from_numpy(a))"
ENTRY = f'\nROUTES = (\n    _to_torch("{NEW}", ALIAS),\n'
BACK = '''\
"""What does it cost to take a tensor back from a queue?

A paragraph that is nobody's question.
"""

import queue

import torch as _torch

section = "Through a queue"
about = "By one thread."


class Queue:
    title = "a tensor, put and taken"
    params = ([1, 16], [8, 4096])

    def setup(self, depth, nbytes):
        self.names = {"q": queue.Queue(), "t": _torch.zeros(nbytes // 4), "depth": depth}

    def timeit_through(self, depth, nbytes):
        return "for _ in range(depth): q.put(t)\\nfor _ in range(depth): q.get()", self.names, depth

    def track_references(self, depth, nbytes):
        return 3 * depth

    track_references.unit = "references"
'''


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A checkout with a route and a family more, in which plain asv has run a few cells in two rounds."""
    checkout = Checkout(tmp_path_factory.mktemp("asv"))
    catalogue = checkout.root / "benchmarks" / "routes.py"
    text = catalogue.read_text(encoding="utf-8")
    assert text.count("\nROUTES = (\n") == 1
    catalogue.write_text(text.replace("\nROUTES = (\n", ENTRY), encoding="utf-8")
    (checkout.root / "benchmarks" / "back.py").write_text(BACK, encoding="utf-8")
    checkout.log = checkout.root / "sampling.jsonl"
    cells = [r"TorchToNumpy\.timeit_convert\('t.numpy\(\)', '(bfloat16|float32)', 8\)", r"^limits\.Floor", "^back"]
    cells.append(r"^conversion\.NumpyToTorch.*(view_as|'torch.tensor\(a\)').*'float32', (4096|1048576)\)")
    chosen = [part for pattern in cells for part in ("--bench", pattern)]
    command = ("run", "--record-samples", "--show-stderr", "-a", "rounds=2", *chosen)
    succeeded(checkout.asv(*command, CONVERSION_SAMPLING_LOG=str(checkout.log)))
    return checkout


@pytest.fixture(scope="module")
def page(measured):
    """The directory of its page."""
    succeeded(measured.run("scripts/report.py"))
    (page,) = (measured.root / "reports").glob("*/index.html")
    return page.parent


def test_a_new_route_is_one_entry(measured, page):
    """One entry in one file: cells, contract tests, the page and its data, with nothing else touched."""
    contracts = measured.run("-m", "pytest", "tests/test_contracts.py", "-k", "view_as", timeout=240)
    passed = re.search(r"(\d+) passed", contracts.stdout)
    assert contracts.returncode == 0, contracts.stdout
    assert passed and int(passed.group(1)) > 20 and "failed" not in contracts.stdout, contracts.stdout

    name = "conversion.NumpyToTorch.timeit_convert"
    described = json.loads((measured.results / "benchmarks.json").read_text(encoding="utf-8"))
    assert described[name]["contracts"][NEW]["memory"] == routes.ALIAS
    value, samples = cells_in(measured, name)[repr(NEW), "'float32'", "4096"]
    assert value > 0 and len(samples) == 2 * 20
    assert NEW in (page / "index.html").read_text(encoding="utf-8")
    assert any(NEW in path.read_text(encoding="utf-8") for path in page.rglob("*.csv"))


def test_a_family_with_a_new_parameter_is_on_page_table_and_csv(page):
    text = (page / "README.md").read_text(encoding="utf-8")
    section = text[text.index("## Through a queue") :].split("\n## ")[0]
    heads, counted = (re.findall(rf"^\| {first} \| (.+) \| $", section, re.MULTILINE) for first in ("depth", "16"))
    assert heads == ["8 B | 4 KiB"] * 2 and counted[1:] == ["48 references | 48 references"]
    (drawn,) = page.glob("time-back-*.svg")
    assert "1 depth" in drawn.read_text(encoding="utf-8")
    html = (page / "index.html").read_text(encoding="utf-8")
    assert 'id="through-a-queue"' in html and "48 references" in html
    rows = list(csv.DictReader((page / "results.csv").open(encoding="utf-8")))
    rows = [row for row in rows if row["benchmark"].startswith("back.")]
    assert {row["depth"] for row in rows if row["seconds"]} == {"1", "16"}
    assert {(row["depth"], row["value"]) for row in rows if row["unit"]} >= {("1", "3"), ("16", "48")}


# asv's commands -------------------------------------------------------------------------------------------------------


def test_run_files_samples_by_toolchain(measured):
    (path,) = files.result_files(measured.results)
    file = json.loads(path.read_text(encoding="utf-8"))
    assert file["env_name"].startswith("toolchain-py")
    assert path.name == f"{file['commit_hash'][:8]}-{file['env_name']}.json"
    cells = cells_in(measured, FLOOR)
    assert len(cells) == 3
    for value, samples in cells.values():
        assert 0 < value < 1e-3
        assert len(samples) == 2 * 20
    # the number is carried from the first process to the next
    row = dict(zip(file["result_columns"], file["results"][FLOOR]))
    assert all(number > 100 for number in row["stats_number"])
    assert row["stats_repeat"] == [40, 40, 40]


def test_skip_is_nan_and_its_reason_is_logged(measured):
    value, samples = cells_in(measured, CONVERT)[SKIPPED]
    assert math.isnan(value) and samples is None
    assert cells_in(measured, CONVERT)[TAKEN][0] > 0
    lines = [json.loads(line) for line in measured.log.read_text(encoding="utf-8").splitlines()]
    reasons = {line["skipped"] for line in lines if line["params"] == list(SKIPPED)}
    assert reasons == {"bfloat16: raises TypeError"}
    taken = [line for line in lines if line["benchmark"] == FLOOR]
    assert len(taken) == 3 * 2 and all(line["wanted"] == 20 <= len(line["seconds"]) for line in taken)


def test_asv_check(measured):
    """Every benchmark takes the arguments that its parameters are."""
    succeeded(measured.asv("check"))


def test_asv_profile(measured):
    cell = "conversion.NumpyToTorch.timeit_convert('torch.from_numpy(a).clone()', 'float32', 4096)"
    said = succeeded(measured.asv("profile", re.escape(cell)))
    assert re.search(r"^\s+100\s.*'clone'", said, re.MULTILINE), f"it is of the statement alone: {said}"


def test_what_is_not_installed_is_not_measured(checkout):
    """The environment stands for one toolchain: nothing may be filed under another's commit."""
    record = {"toolchain": {"torch": "1.13.0+cpu", "numpy": "1.23.5"}}
    put(checkout.results / "elsewhere" / "x.jsonl", json.dumps(record) + "\n")
    done = checkout.asv("run", "torch-1.13.0+cpu-numpy-1.23.5^!", "--bench", "limits.Floor")
    assert "<torch-1.13.0+cpu-numpy-1.23.5> " in done.stdout + done.stderr
    assert not files.result_files(checkout.results)


@pytest.mark.slow
def test_files_without_samples_give_what_those_with_samples_do(checkout, tracked, monkeypatch):
    """asv show, compare and publish read the committed files as if asv had filed their samples, too."""
    tags = "torch-2.9.1", "torch-2.10.0"
    committed, place = ROOT / "reports" / "results", checkout.results / tracked
    place.mkdir(parents=True)
    shutil.copy(committed / "benchmarks.json", checkout.results)
    shutil.copy(committed / tracked / "machine.json", place)
    copies = [Path(shutil.copy(selection.result_file(tag, committed, tracked), place)) for tag in tags]

    def said():
        commands = ("show", tags[0], "--machine", tracked), ("compare", *tags, "--machine", tracked), ("publish",)
        shown, compared, _ = (succeeded(checkout.asv(*command)) for command in commands)
        html = checkout.root / ".asv" / "html"
        graphs = {path.relative_to(html): path.read_text() for path in html.rglob("graphs/**/*.json")}
        assert graphs and "timeit_convert" in compared
        return compared.splitlines(), (shown, graphs)

    compared, others = said()
    monkeypatch.setattr(Results, "add_result", partialmethod(Results.add_result, record_samples=True))
    for path in copies:
        original = committed / tracked / path.name
        files.export([path], path, files.read_measurements(original), files.read_records(original), ())
        assert "samples" in json.loads(path.read_text())["result_columns"]
    compared_by_samples, others_by_samples = said()
    assert others_by_samples == others
    # asv compares by samples where it has them, by intervals elsewhere: of 1,000 lines one may be marked differently
    both = compared, compared_by_samples
    figures, figures_by_samples = ([re.sub("[-~+x]", "", line).split() for line in lines] for lines in both)
    assert figures_by_samples == figures
    assert sum(line != other for line, other in zip(*both)) <= len(compared) / 1000 + 1


COMMANDS = [
    command.strip()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
    for line in re.findall(r"^\$ (.*asv .*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    for command in line.partition("  #")[0].split("&&")
    if ".venv/bin/asv " in command
]


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone with the committed results, and a suite of tiny packages, in which releases are installed."""
    place = tmp_path_factory.mktemp("clone")
    return export(ROOT, place / "clone"), Project(place / "tiny")


@pytest.mark.slow
@pytest.mark.parametrize("command", [command for command in COMMANDS if "preview" not in command])
def test_documented_commands_work_in_a_clone(clone, command, tmp_path):
    """In seconds, and none of them silent for minutes."""
    root, tiny = clone
    words = shlex.split(command)[1:]
    began = time.monotonic()
    if any("^!" in word for word in words):
        said = tiny.asv(*[word.replace("torch-2.6.0", "torch-2.1.0") for word in words])
        assert "torch-2.1.0" in said
    else:
        said = succeeded(run(sys.executable, "-m", "asv", *words, cwd=root, home=tmp_path))
    assert ("run" not in words or "ailed" not in said) and time.monotonic() - began < 60


def test_documentation_has_commands_of_asv():
    assert len(COMMANDS) >= 6
