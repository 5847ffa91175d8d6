"""Histories of several machines side by side: what changed everywhere, what on one only, and how advice differs."""

import csv
import math
import re
from dataclasses import replace

import pytest
from pages import build, histories_by_machine
from test_history import KIB, ROUTES, SERIES, logs_of, write

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
    return replace(made, machine=name, histories=[own], advised=made.advised.assign(machine=name))


def over(tmp_path, *built):
    """Where the page over these histories is."""
    build.over_machines(built, tmp_path / "over")
    return tmp_path / "over" / "history"


def test_the_page_over_machines(tmp_path):
    one = history(tmp_path, "one", 1, r2=(5, 1.25), r4=(8, 1.5))
    other = history(tmp_path, "other", 2, r2=(5, 1.3))
    output = over(tmp_path, one, other)
    text = (output / "README.md").read_text(encoding="utf-8")
    assert "2 changes were measured on several machines: 1 are the same, 1 differ, 0 are not known" in text
    assert f"| torch {SERIES[8].version} | `route4(a)`" in text
    assert "(one/README.md)" in text and "(other/README.md)" in text
    rows = list(csv.DictReader((output / "changes.csv").open(encoding="utf-8")))
    told = {(row["route"], row["release"], row["machine"], row["said"]) for row in rows}
    five, eight = SERIES[5].version, SERIES[8].version
    assert told == {
        *((ROUTES[2], five, name, "same") for name in ("one", "other")),
        (ROUTES[4], eight, "one", "same"),
        (ROUTES[4], eight, "other", "differs"),
    }
    before = (output / "index.html").read_bytes()
    over(tmp_path, one, other)
    assert (output / "index.html").read_bytes() == before


def test_one_machine_has_nothing_beside_it(tmp_path):
    output = over(tmp_path, history(tmp_path, "one", 1))
    assert not (output / "index.html").exists()
    assert "- [one](one/README.md)" in (output / "README.md").read_text(encoding="utf-8")


QUESTION = "NumPy array to tensor, as a copy"
FIRST, SECOND = {"r0": (0, 0.7)}, {"r1": (0, 0.7)}  # the route that takes least, from the first release on


def test_what_to_take_is_that_of_the_newest_release(tmp_path):
    """A route that was the fastest until the last release is none to take."""
    table = history(tmp_path, "one", 1, r0=(0, 0.7), r1=(11, 0.5)).advised
    assert set(table["release"]) == {f"torch {SERIES[-1].version} with numpy {SERIES[-1].numpy}"}
    assert set(map(tuple, table[histories_by_machine.ASKED].to_numpy())) == {(QUESTION, "float32", 4 * KIB)}
    (best,) = table[table["kind"] == "best"].to_dict("records")
    assert best["route"] == ROUTES[1] and best["seconds"] == pytest.approx(5e-7, rel=0.05)
    slower = dict(zip(table["route"], table["seconds"]))
    assert set(slower) == {*ROUTES} and slower[ROUTES[0]] == pytest.approx(7e-7, rel=0.05)


def test_machines_that_prefer_different_routes(tmp_path):
    one = history(tmp_path, "one", 1, **FIRST)
    other = history(tmp_path, "other", 2, **SECOND)
    page = (over(tmp_path, one, other) / "README.md").read_text(encoding="utf-8")
    assert "Of 1 questions that several machines answer, 1 have significantly different answers" in page
    assert f"{QUESTION}, float32 4 KiB: `{ROUTES[0]}` on one and `{ROUTES[1]}` on other." in page
    (row,) = (line for line in page.splitlines() if line.startswith(f"| {QUESTION}"))
    assert re.search(
        r"one: `route0\(a\)`, [67]\d\d ns; `route1\(a\)` (9\d\d ns|1\.0\d µs)<br>other: `route1\(a\)`, ", row
    )
    assert "may be the releases" not in page


def test_a_tie_is_no_difference(tmp_path):
    """On one machine two routes tie, and the catalogue's first is taken; on the other it is the slower one."""
    one = history(tmp_path, "one", 1, r0=(0, 0.7), r1=(0, 0.7))
    other = history(tmp_path, "other", 2, **SECOND)
    best = {each.machine: each.advised.query("kind == 'best'")["route"].item() for each in (one, other)}
    assert best == {"one": ROUTES[0], "other": ROUTES[1]}
    page = (over(tmp_path, one, other) / "README.md").read_text(encoding="utf-8")
    assert "Of 1 questions that several machines answer, 0 have significantly different answers" in page
    assert "Where machines prefer different routes" not in page


def test_other_releases_are_said(tmp_path):
    one = history(tmp_path, "one", 1, series=SERIES[:8], **FIRST)
    other = history(tmp_path, "other", 2, **SECOND)
    output = over(tmp_path, one, other)
    page = (output / "README.md").read_text(encoding="utf-8")
    assert f"torch {SERIES[7].version} with numpy {SERIES[7].numpy} on one and torch {SERIES[11].version}" in page
    assert "What differs may be the releases'" in page
