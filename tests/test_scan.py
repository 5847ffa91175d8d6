"""scripts/scan.py: what each rule must and must not match, what to write, and how it is printed."""

import ast
import json
import re
import textwrap

import pytest
import scan
import torch
import yaml
from analysis.patterns import book, diagnose
from conftest import ROOT
from pages import rules
from pandas import DataFrame

README = (ROOT / "README.md").read_text("utf-8")
CODES = frozenset(rule["code"] for rule in book()["rules"])
HEAD = "import numpy as np, torch\nfrom torch.autograd import Variable\ndef f(x, a: np.ndarray, t: torch.Tensor, n):\n"
CASES = yaml.safe_load((ROOT / "tests" / "scan_cases.yaml").read_text("utf-8"))
MATCHES = [(code, *case) for code, cases in CASES["matches"].items() for case in cases.items()]


def found(body, codes=CODES):
    tree = ast.parse(HEAD + textwrap.indent(body, "    "))
    return [(place["rule"]["code"], place["write"]) for _, place in diagnose(tree, codes)]


@pytest.mark.parametrize("code, body, write", MATCHES)
def test_a_rule_matches(code, body, write):
    assert (code, write) in found(body)


@pytest.mark.parametrize("body", CASES["silent"])
def test_no_rule_matches(body):
    assert found(body) == []


def test_every_rule_has_a_case():
    assert CASES["matches"].keys() == CODES
    assert rules.DOCS.read_text("utf-8") == rules.document(), "run PYTHONPATH=scripts python -m pages.rules"


def test_the_users_own_names_and_what_is_open():
    code = "tensor(numpy.array(q)); th.tensor(q.r.tolist())"
    tree = ast.parse(f"import torch as th, numpy\nfrom torch import tensor\n{code}")
    places = [place for _, place in diagnose(tree, CODES)]
    assert [place["write"] for place in places] == ["th.from_numpy(numpy.array(q))", "tensor(q.r)"]
    assert [place["conditions"] for place in places] == [{}, {"q.r": "array"}]


def test_a_gain_is_the_smallest_that_was_measured():
    slow, fast = rules.routes_of(book()["rules"][0]["patterns"][0])
    # size, threads, seconds, whether they are quiet
    cells = {slow: [(8, 1, 2.0, True), (64, 1, 9.0, True), (64, 2, 9.0, True), (512, 1, 9.0, False)]}
    cells[fast] = [(8, 1, 2.0, True), (64, 1, 3.0, True), (64, 2, 2.0, True), (512, 1, 1.0, True)]
    names, same = ("nbytes", "threads", "seconds", "quiet"), dict.fromkeys(rules.SAME, "")
    rows = [same | {"route": route} | dict(zip(names, cell)) for route in cells for cell in cells[route]]
    assert rules.gain((slow, fast), DataFrame(rows)) == {8: 1.0, 64: 3.0}
    assert rules.gain((fast, slow), DataFrame(rows)) == rules.gain((slow, "x"), DataFrame(rows)) == {}


def test_a_variable_requires_no_grad():
    source, variable = torch.ones(2, requires_grad=True), torch.autograd.Variable
    assert not any(variable(each).requires_grad for each in (source, source * 2))


def test_a_rule_that_is_on_was_useful():
    tried = {rule["code"]: rule for rule in book()["rules"] if rule.get("default", True) and "tried" in rule}
    assert len(tried) > 15 and all(rule["useful"] >= 0.8 * rule["tried"] for rule in tried.values())


CELLS = (
    " files = !ls \\\n   -l\n %matplotlib inline\n torch?\n import torch  # why?",
    "%%bash\nls",
    "x = = 1",
    "é = torch.tensor(x.tolist())  # noqa: E501",
)


@pytest.fixture
def code(tmp_path):
    cells = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in CELLS]
    cells.append({"cell_type": "markdown", "source": ["# text"]})
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    lines = ["import torch", *(f"torch.tensor(x.tolist())  # noqa{codes}" for codes in ("", ": E501, CNV101"))]
    (tmp_path / "b.py").write_text("\n".join(lines))
    (tmp_path / "c.py").write_text("import torch\ndef f(:")
    (tmp_path / "d.py").write_bytes(b"import torch\n\0")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "e.py").write_text("import torch\ntorch.tensor(x.tolist())")
    return tmp_path


@pytest.mark.parametrize("form", scan.FORMATS)
def test_a_directory_in_each_format(code, form, capsys):
    assert scan.main([str(code), "--format", form, "--machine", "intel-emerald-rapids-2-core-vm"]) == 1
    said = capsys.readouterr()
    assert re.findall(r"([a-d]\.\w+)", said.err) == ["a.ipynb", "c.py", "d.py"] and "cell 3:1" in said.err
    places = json.loads(said.out) if form in ("json", "sarif") else said.out.splitlines()
    (place,) = places["runs"][0]["results"] if form == "sarif" else places
    message = f"{place['message'] if form in ('json', 'sarif') else place}"
    assert "`torch.tensor(x.tolist())`" in message and "write `torch.tensor(x)`, if `x` is a NumPy array" in message
    assert re.search(r"Up to \d+× as fast at .*measured on [\w-]+\. They differ: the dtype stays, .*masked", message)
    assert form != "text" or place.startswith(f"{code}/a.ipynb:cell 4:1:5: CNV101 ")


def test_what_cannot_be_scanned(tmp_path, refusal, capsys):
    assert "no such file" in refusal(scan, tmp_path / "x").lower()
    assert "holds no .py" in refusal(scan, tmp_path)
    (tmp_path / "a.py").write_text("import numpy as np, torch\ntorch.from_numpy(np.stack(x))")  # of a rule that is off
    assert scan.main([str(tmp_path), "--format", "json"]) == 0 and capsys.readouterr().out == "[]\n"
    assert scan.main([str(tmp_path), "--select", "CNV304"]) == 1


def test_this_repository(capsys):
    """Its routes are strings, which no pattern matches."""
    assert scan.main([f"{ROOT / room}" for room in ("benchmarks", "scripts", "tests")]) == 0
    assert capsys.readouterr() == ("", "")


def test_the_sample_of_the_readme(tmp_path, monkeypatch, capsys):
    """A file that has each expression where the sample says gives the sample, up to …"""
    shown = re.search(r"\$ \S+ scripts/scan\.py train\.py --machine (\S+)\n(.+?)\n```", README, re.DOTALL)
    lines = ["import numpy as np, torch", *[""] * 99]
    for line, column, expression in re.findall(r"^train\.py:(\d+):(\d+): \w+ `([^`]+)`", shown[2], re.MULTILINE):
        lines[int(line) - 1] = "y = ".ljust(int(column) - 1) + expression
    (tmp_path / "train.py").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    assert scan.main(["train.py", "--machine", shown[1]]) == 1
    for line, whole in zip(shown[2].split("\n"), capsys.readouterr().out.splitlines(), strict=True):
        assert whole.startswith(line.removesuffix("…")) if line.endswith("…") else whole == line
