"""Histories of several machines side by side: what changed everywhere, and what on one only."""

import csv
import math

import pytest
import report
from cli import UserError
from pages.history import kinds
from test_history import ROUTES, SERIES, logs_of, write

pytestmark = pytest.mark.slow  # builds the pages of several histories


def history(tmp_path, name, seed, **changed):
    """The page of a history in tmp_path/history/NAME, in which routes are slower from a release on, by place."""
    logs = logs_of(seed, len(SERIES))
    for route, (place, ratio) in changed.items():
        logs[place:, int(route[1:])] += math.log(ratio)
    write(tmp_path / f"results-{name}", logs)
    assert report.main(["--results", str(tmp_path / f"results-{name}"), "--output", str(tmp_path / name)]) == 0
    (tmp_path / "history").mkdir(exist_ok=True)
    (tmp_path / name / "history" / "box").rename(tmp_path / "history" / name)
    return tmp_path / "history"


def test_everywhere_or_only_here(tmp_path):
    history(tmp_path, "one", 1, r2=(5, 1.25), r4=(8, 1.5))
    output = history(tmp_path, "other", 2, r2=(5, 1.3))
    assert kinds.write(output)
    text = (output / "README.md").read_text(encoding="utf-8")
    assert "1 changes are on every machine that measured the cell, 1 on some only; 13 cells" in text
    assert "Confirmed only on one: torch " + SERIES[8].version in text and "other: none confirmed" in text
    assert "(one/README.md)" in text and "(other/README.md)" in text
    rows = list(csv.DictReader((output / "changes.csv").open(encoding="utf-8")))
    told = {(row["cell"].split(",")[0], row["release"], row["on"], row["everywhere"]) for row in rows}
    five, eight = SERIES[5].version, SERIES[8].version
    assert told == {
        *((ROUTES[2], five, name, "True") for name in ("one", "other")),
        (ROUTES[4], eight, "one", "False"),
    }
    before = (output / "index.html").read_bytes()
    kinds.write(output)
    assert (output / "index.html").read_bytes() == before


def test_one_machine_has_nothing_beside_it(tmp_path):
    output = history(tmp_path, "one", 1)
    assert kinds.write(output) is None and not (output / "README.md").exists()


def test_a_broken_csv_is_said(tmp_path):
    output = history(tmp_path, "one", 1)
    (output / "one" / "results.csv").write_text("what\nelse\n")
    with pytest.raises(UserError, match="holds no history"):
        kinds.write(output)
