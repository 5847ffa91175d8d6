"""Rows are declared once: files and tables are checked against the declarations, columns and docs printed from them."""

import csv
import re
from pathlib import Path

import compare
import pytest
import resultfiles
import sides
from analysis.results import load
from resultfiles import edited
from store import asv_files, frames, schema
from store.files import MEASUREMENTS
from store.frames import Cell, Process, check_frame
from store.schema import Counts, RunRecord, TimedProcess, columns_of

SAMPLES, RECORD, ASV = (sides.RESULT.replace(".json", suffix) for suffix in (MEASUREMENTS, ".jsonl", ".json"))
PARTS = {SAMPLES: "waits", RECORD: "skipped", ASV: "commit_hash"}  # file -> a field that it needs


def put(name, value):
    return lambda held: held[-1].__setitem__(name, value)


def remove(name):
    return lambda held: held[-1].__delitem__(name)


def spoil_row(held):
    held[-1]["results"] = {name: [*row[:2], 1, *row[3:]] for name, row in held[-1]["results"].items()}


# File, change of its JSON, and what the message says besides the file
FAULTS = {
    **{f"{file} without a field": (file, remove(name), f"field `{name}`") for file, name in PARTS.items()},
    **{
        f"{file} with a wrong type": (file, put(name, 1), rf"got `int` - at `\$.{name}`")
        for file, name in PARTS.items()
    },
    **{f"{file} with another field": (file, put("who", 1), "unknown field `who`") for file in PARTS},
    "a settings field": (RECORD, put("settings", {"who": 1}), r"unknown field `who` - at `\$.settings`"),
    "a sample of text": (SAMPLES, put("seconds", [1e-6, "1"]), r"got `str` - at `\$.seconds\[1\]`"),
    "a probe too few": (SAMPLES, put("probes", {"processor": [25_000]}), "has 1 probes around 4 samples"),
    "a probe of another kind": (SAMPLES, put("probes", {"disk": []}), "has probes of 'disk'"),
    "a version of a row": (ASV, spoil_row, r"conversion.*: Expected `str`, got `int` - at `\$.version`"),
}


@pytest.fixture
def root(tmp_path):
    times = {(route, nbytes): [1e-6] * 4 for route in sides.ROUTES for nbytes in (8, 4096)}
    return [Path(sides.write(tmp_path / name, times, clock=resultfiles.steady)) for name in ("base", "new")][1]


def contents(root):
    return {path: path.read_bytes() for path in root.rglob("*.*") if path.is_file()}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_invalid_file_is_one_line_with_file_line_and_field(fault, root, refusal):
    name, spoil, reason = FAULTS[fault]
    with edited(root / name) as held:
        spoil(held)
    before = contents(root)
    line = "" if name == ASV else f"line {len(held)}: "
    assert re.search(
        rf"{re.escape(str(root / name))} is .*\({re.escape(line)}.*{reason}",
        refusal(compare, root.parent / "base", root),
    )
    assert contents(root) == before


def test_each_field_has_a_meaning():
    for row in (TimedProcess, Counts, RunRecord, Cell, Process, frames.TimedCell, frames.Choice, frames.Change):
        assert all(len(column.meaning) > 4 for column in columns_of(row).values())


def test_a_missing_undeclared_or_wrong_column_is_named(root):
    cells = load(root).cells
    assert check_frame(cells, Cell) is cells
    for wrong, message in (
        (cells.drop(columns="cv"), "no column cv"),
        (cells.assign(who=1), "undeclared column who"),
        (cells.assign(seconds="1"), "column seconds of a table of Cell holds .*, not float"),
        (cells.assign(status=1.0), "column status of a table of Cell holds float64, not str"),
    ):
        with pytest.raises(TypeError, match=message):
            check_frame(wrong, Cell)


PRINT_COLUMN = """
import sys; sys.path[:0] = ["scripts", "."]
from pathlib import Path
from analysis.results import load
from pages.page import results_columns, results_csv
results = load(Path(sys.argv[1]))
print(results_csv(results), results_columns(results)["took",])
"""


def test_a_column_of_results_takes_one_declaration(root, checkout):
    """A field of measurements with the note TABLED is in tables, in the CSV file and in its explanation."""
    declarations = checkout.root / "scripts" / "store" / "schema.py"
    plain, tabled = '"duration of set-up, warm-up and samples", "s"]', 'about("its duration", "s", note=TABLED)]'
    text = declarations.read_text(encoding="utf-8")
    declarations.write_text(text.replace(plain, tabled), encoding="utf-8")
    *table, meaning = checkout.run("-c", PRINT_COLUMN, root).stdout.splitlines()
    assert next(csv.DictReader(table))["took"] == "0.1" and meaning.strip() == "its duration"


def test_fields_that_a_submission_may_have_are_the_declared_ones():
    from analysis.submission import FIELDS

    declared = {name for row in (TimedProcess, Counts, RunRecord, schema.Settings) for name in columns_of(row)}
    assert declared - {"file"} <= FIELDS and asv_files.FIELDS <= FIELDS and not {"file", "who"} & FIELDS
