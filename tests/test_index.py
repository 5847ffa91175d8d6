"""The page over all machines: where each one's pages are, what is the same on all of them, and what is not."""

import csv
import dataclasses
import re

import report
import resultfiles
from pages import index, show
from pages.advice import Box, Take
from resultfiles import AS_TENSOR, CLONE, FROM_NUMPY, MIB, TENSOR, around, conversion


def machine(results, name, clone):
    """A machine on which sharing is the same everywhere, and ``clone`` is how long one of two copies takes."""
    times = {("torch.from_numpy(a)", n): around(4e-7) for n in (8, MIB)}
    times |= {("torch.as_tensor(a)", n): around(8e-7) for n in (8, MIB)}
    times |= {("torch.from_numpy(a).clone()", n): around(clone) for n in (8, MIB)}
    times |= {("torch.tensor(a)", n): around(2e-5) for n in (8, MIB)}
    bench = conversion(times, [FROM_NUMPY, AS_TENSOR, TENSOR, CLONE])
    resultfiles.write(results, [bench], machine=name, records=[resultfiles.record([bench], machine=name)])


def pages_of(tmp_path, *machines):
    for name, clone in machines:
        machine(tmp_path / "results", name, clone)
    command = ["--results", str(tmp_path / "results"), "--output", str(tmp_path / "out")]
    assert report.main(command) == 0
    return tmp_path / "out"


def test_machines_side_by_side(tmp_path):
    out = pages_of(tmp_path, ("one", 1e-5), ("other", 9e-5))
    text = (out / "README.md").read_text(encoding="utf-8")
    same, _, differs = text.partition("**Not the same everywhere")
    assert "**The same on all 2 machines, or on as many as answer it**" in same
    assert "- NumPy array to tensor, sharing memory: `torch.from_numpy(a)`" in same
    assert "as a copy" in differs.partition("## Side by side")[0] and "as a copy" not in same
    row = next(line for line in text.splitlines() if line.startswith("| NumPy array to tensor, as a copy"))
    assert "different routes" in row
    assert row.index("torch.from_numpy(a).clone()") < row.index("torch.tensor(a)")
    for name in ("one", "other"):
        assert f"({name}/README.md)" in text
        assert f'href="{name}/index.html"' in (out / "index.html").read_text(encoding="utf-8")
    rows = list(csv.DictReader((out / "answers.csv").open(encoding="utf-8")))
    assert {row["machine"] for row in rows} == {"one", "other"}
    assert {row["route"] for row in rows if "as a copy" in row["question"]} == {
        "torch.from_numpy(a).clone()",
        "torch.tensor(a)",
    }


def test_where_some_machines_answer_it_is_said_how_many():
    """One that was asked alone is no agreement."""
    take = Take("", "t.numpy()", "500 ns")
    other = dataclasses.replace(take, route="np.asarray(t)")

    def summary(name, **answers):
        boxes = tuple(Box(question, takes=(made,)) for question, made in answers.items())
        return index.Summary(name, (), boxes)

    machines = [
        summary("one", all=take, two=take, apart=take, alone=take),
        summary("other", all=take, two=take, apart=other),
        summary("third", all=take, apart=take),
    ]
    page = index.page_of(machines)
    assert [tuple(map(show.to_plain, box.lines)) for box in page.boxes] == [
        ("all: `t.numpy()`", "two: `t.numpy()` (2 machines)"),
        ("apart",),
        ("alone: `t.numpy()` (one)",),
    ]
    notes = [row[0][1] for row in page.sections[0].tables[0].rows]
    assert notes == ["the same routes", "the same routes", "different routes", "one machine"]


def test_one_machine_has_its_answers_there(tmp_path):
    out = pages_of(tmp_path, ("a.b_c-1", 1e-5))
    text = (out / "README.md").read_text(encoding="utf-8")
    assert "**NumPy array to tensor, sharing memory**" in text and "The same on" not in text
    assert "(a.b_c-1/README.md)" in text


def test_every_address_leads_somewhere(tmp_path):
    out = pages_of(tmp_path, ("one", 1e-5), ("other", 9e-5))
    page = (out / "index.html").read_text(encoding="utf-8")
    ids = set(re.findall(r'\bid="([^"]+)"', page))
    for address in re.findall(r'href="([^"]+)"', page):
        assert address[1:] in ids if address.startswith("#") else (out / address).is_file(), address


def test_nobodys_own_run_changes_it(tmp_path):
    machine(tmp_path / "results", "mine", 1e-5)
    report.main(["--machine", "mine", "--results", str(tmp_path / "results"), "--output", str(tmp_path / "out")])
    assert not (tmp_path / "out" / "index.html").exists() and (tmp_path / "out" / "mine" / "index.html").is_file()


def test_no_json_lies_beside_a_page(tmp_path):
    """What the page over machines says is made of their results."""
    assert not list(pages_of(tmp_path, ("one", 1e-5), ("other", 9e-5)).rglob("*.json"))
