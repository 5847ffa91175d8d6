"""asv stays asv: its own commands work in the checkout as its users know them, and run benchmarks added to it.

A new route is one entry of the catalogue, a new family one file; their declarations show up everywhere.
"""

import csv
import json
import math
import re
import shlex
import sys
import time
from functools import partialmethod
from itertools import product

import pytest
from asv.results import Results
from conftest import ROOT, Checkout, export, run
from store import asv_files, files
from store.files import put
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
    """Cell (its parameters as asv spells them) -> result, samples and statistics, of one benchmark."""
    (path,) = files.result_files(checkout.results)
    file = Results.load(str(path))
    params = file.get_result_params(name)
    held = (get(name, params) for get in (file.get_result_value, file.get_result_samples, file.get_result_stats))
    return dict(zip(product(*params), zip(*held)))


# Added benchmarks ----------------------------------------------------------------------------------------------------

NEW = "torch.from_numpy(a).view_as(torch.from_numpy(a))"
ENTRY = f'\nROUTES = (\n    _to_torch("{NEW}", ALIAS),\n'
BACK = '''\
"""What does it cost to take a tensor back from a queue?"""

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
    """A checkout with an added route and an added family, in which plain asv has run a few cells in two rounds."""
    checkout = Checkout(tmp_path_factory.mktemp("asv"))
    catalogue = checkout.root / "benchmarks" / "routes.py"
    text = catalogue.read_text(encoding="utf-8")
    assert text.count("\nROUTES = (\n") == 1
    catalogue.write_text(text.replace("\nROUTES = (\n", ENTRY), encoding="utf-8")
    (checkout.root / "benchmarks" / "back.py").write_text(BACK, encoding="utf-8")
    checkout.log = checkout.root / "sampling.jsonl"
    cells = [r"TorchToNumpy\.timeit_convert\('t.numpy\(\)', '(bfloat16|float32)', 8\)", r"^limits\.Floor", "^back"]
    cells.append(r"^conversion\.NumpyToTorch.*(view_as|'torch.tensor\(a\)').*'float32', (4096|1048576)\)")
    command = ("run", "--record-samples", "--show-stderr", "-a", "rounds=2", "--bench", "|".join(cells))
    succeeded(checkout.asv(*command, CONVERSION_SAMPLING_LOG=str(checkout.log)))
    return checkout


@pytest.fixture(scope="module")
def page(measured):
    """The directory of the page built from ``measured``."""
    succeeded(measured.run("scripts/report.py"))
    (page,) = (measured.root / "reports").glob("*/index.html")
    return page.parent


def test_a_new_route_is_one_entry(measured, page):
    """One entry in one file gives a route cells, contract tests, a page and data; no other file changes."""
    said = succeeded(measured.run("-m", "pytest", "tests/test_contracts.py", "-k", "view_as", timeout=240))
    assert int(re.search(r"(\d+) passed", said)[1]) > 20, said

    name = "conversion.NumpyToTorch.timeit_convert"
    described = json.loads((measured.results / "benchmarks.json").read_text(encoding="utf-8"))
    assert described[name]["contracts"][NEW]["memory"] == routes.ALIAS
    value, samples, _ = cells_in(measured, name)[repr(NEW), "'float32'", "4096"]
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


def test_run_files_the_samples_of_both_processes(measured):
    """asv files both processes; the second takes over the number of calls per sample from the first."""
    cells = cells_in(measured, FLOOR)
    assert len(cells) == 3
    for value, samples, statistics in cells.values():
        assert 0 < value < 1e-3 and len(samples) == 2 * 20 and statistics["number"] > 100


def test_skip_is_nan_and_its_reason_is_logged(measured):
    cells = cells_in(measured, CONVERT)
    value, samples, _ = cells[SKIPPED]
    assert math.isnan(value) and samples is None and cells[TAKEN][0] > 0
    lines = [json.loads(line) for line in measured.log.read_text(encoding="utf-8").splitlines()]
    reasons = {line["skipped"] for line in lines if line["params"] == list(SKIPPED)}
    assert reasons == {"bfloat16: raises TypeError"}
    taken = [line for line in lines if line["benchmark"] == FLOOR]
    assert len(taken) == 3 * 2 and all(line["wanted"] == 20 <= len(line["seconds"]) for line in taken)


def test_what_is_not_installed_is_not_measured(checkout):
    """The environment has one toolchain: results must not be filed under the commit of another."""
    record = {"toolchain": {"torch": "1.13.0+cpu", "numpy": "1.23.5"}}
    put(checkout.results / "elsewhere" / "x.jsonl", json.dumps(record) + "\n")
    done = checkout.asv("run", "torch-1.13.0+cpu-numpy-1.23.5^!", "--bench", "limits.Floor")
    assert "<torch-1.13.0+cpu-numpy-1.23.5> " in done.stdout + done.stderr
    assert not files.result_files(checkout.results)


@pytest.mark.slow
def test_files_without_samples_give_what_those_with_samples_do(checkout, tracked, monkeypatch):
    """asv show, compare and publish read the committed files as if asv had filed their samples, too."""
    results, tags = ROOT / "reports" / "results", ("torch-2.9.1", "torch-2.10.0")
    originals = [selection.find_result_file(tag, results, tracked) for tag in tags]
    for path in (results / "benchmarks.json", results / tracked / "machine.json", *originals):
        put(checkout.results / path.relative_to(results), path.read_bytes())

    def said():
        commands = ("show", tags[0], "--machine", tracked), ("compare", *tags, "--machine", tracked), ("publish",)
        shown, compared, _ = (succeeded(checkout.asv(*command)) for command in commands)
        graphs = {path: path.read_text() for path in (checkout.root / ".asv" / "html" / "graphs").rglob("*.json")}
        assert graphs and "timeit_convert" in compared
        return compared.splitlines(), (shown, graphs)

    compared, others = said()
    monkeypatch.setattr(Results, "add_result", partialmethod(Results.add_result, record_samples=True))
    for original in originals:
        path = checkout.results / tracked / original.name
        asv_files.export([path], path, files.read_measurements(original), files.read_records(original), ())
        assert "samples" in json.loads(path.read_text())["result_columns"]
    compared_by_samples, others_by_samples = said()
    assert others_by_samples == others
    # asv compares samples if there are any, else intervals: one line in 1,000 may be marked differently
    figures = [[re.sub("[-~+x]", "", line).split() for line in lines] for lines in (compared, compared_by_samples)]
    assert figures[0] == figures[1]
    assert sum(line != other for line, other in zip(compared, compared_by_samples)) <= len(compared) / 1000 + 1


COMMANDS = [
    command.strip()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
    for command in re.findall(r"\.venv/bin/asv ([^`&#\n]+)", path.read_text(encoding="utf-8"))
]


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone with the committed results, and a suite of tiny packages for commands that install releases."""
    place = tmp_path_factory.mktemp("clone")
    return export(ROOT, place / "clone"), Project(place / "tiny")


# The test above publishes committed results, test_histories.py has a preview
ELSEWHERE = ("publish", "preview")


@pytest.mark.slow
@pytest.mark.parametrize("command", [command for command in COMMANDS if command.split()[0] not in ELSEWHERE])
def test_documented_commands_work_in_a_clone(clone, command, tmp_path):
    """Documented commands of asv succeed within 60 s, so that no user waits for minutes without output."""
    root, tiny = clone
    began = time.monotonic()
    if "^!" in command:
        said = tiny.asv(*shlex.split(command.replace("torch-2.6.0", "torch-2.1.0")))
        assert "torch-2.1.0" in said
    else:
        said = succeeded(run(sys.executable, "-m", "asv", *shlex.split(command), cwd=root, home=tmp_path))
    assert not (command.startswith("run ") and "ailed" in said) and time.monotonic() - began < 60


def test_documentation_has_commands_of_asv():
    assert len(COMMANDS) >= 6
