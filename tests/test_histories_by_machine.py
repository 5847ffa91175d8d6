"""Histories of several machines side by side: what changed everywhere, and what on one only."""

import math
import re
from dataclasses import replace

import pandas
import pytest
from pages import build
from test_history import SERIES, logs_of, write

pytestmark = pytest.mark.slow  # builds the pages of several histories


def history(tmp_path, name, seed, series=SERIES, **changed):
    """What is built of a machine of this name with a history in which routes are slower from releases on, by place.

    changed  route -> place and ratio, one pair after the other
    """
    logs = logs_of(seed, len(series))
    for route, pairs in changed.items():
        for place, ratio in zip(pairs[::2], pairs[1::2]):
            logs[place:, int(route[1:])] += math.log(ratio)
    write(tmp_path / f"results-{name}", logs, series)
    made = build.build(tmp_path / f"results-{name}", "box", tmp_path / name)
    (own,) = made.histories
    own = replace(own, machine=name, rows=own.rows.assign(machine=name))
    return replace(made, machine=name, histories=[own])


def over(tmp_path, *built):
    """Where the page over these histories is."""
    build.over_machines(built, tmp_path / "over")
    return tmp_path / "over" / "history"


def test_the_page_over_machines(tmp_path, snapshot):
    one = history(tmp_path, "one", 1, r2=(5, 1.25), r4=(8, 1.5))
    other = history(tmp_path, "other", 2, r2=(5, 1.3))
    output = over(tmp_path, one, other)
    text = (output / "README.md").read_text(encoding="utf-8")
    assert re.search(r"^- 2 \D+ 1 \D+ 1 \D+ 0 ", text, re.MULTILINE), "measured, the same, different, not known"
    assert f"| torch {SERIES[8].version} | `route4(a)`" in text
    assert "(one/README.md)" in text and "(other/README.md)" in text
    rows = pandas.read_csv(output / "changes.csv", dtype=str)[["route", "release", "machine", "said"]]
    assert rows.agg(" ".join, axis=1).sort_values().to_list() == snapshot
    before = (output / "index.html").read_bytes()
    over(tmp_path, one, other)
    assert (output / "index.html").read_bytes() == before


def test_one_machine_has_nothing_beside_it(tmp_path):
    one = history(tmp_path, "one", 1)
    over(tmp_path, one, history(tmp_path, "other", 2))
    output = over(tmp_path, one)
    assert [path.name for path in output.iterdir()] == ["README.md"], "what compared the two is gone"
    assert "- [one](one/README.md)" in (output / "README.md").read_text(encoding="utf-8")
