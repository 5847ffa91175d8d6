"""Histories of several machines side by side: what changed everywhere, what on one only, and how advice differs."""

import csv
import math
import re
from dataclasses import replace

import pytest
from pages import build, histories_by_machine, show
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
    return replace(build.build(tmp_path / f"results-{name}", "box", tmp_path / name), machine=name)


def over(tmp_path, *built):
    """Where the page over these histories is."""
    build.over_machines(built, tmp_path / "over")
    return tmp_path / "over" / "history"


def test_everywhere_or_only_here(tmp_path):
    one = history(tmp_path, "one", 1, r2=(5, 1.25), r4=(8, 1.5))
    other = history(tmp_path, "other", 2, r2=(5, 1.3))
    output = over(tmp_path, one, other)
    text = (output / "README.md").read_text(encoding="utf-8")
    head = (
        "Of 2 changes of a route by a release 1 are, in a cell at least, on every machine that measured it, 1 on some"
    )
    assert head in text
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
    over(tmp_path, one, other)
    assert (output / "index.html").read_bytes() == before


def cell(place, one, other=None, without=()):
    ratios = {"one": one} if other is None else {"one": one, "other": other}
    return histories_by_machine.Shared(
        "torch", "2.0", "some.timeit_call", place, "call(a)", place, "slower", ratios, without
    )


def test_times_and_counts_of_a_route_are_one_change():
    timed = cell("8 B, int8", 1.5)
    counted = replace(timed, benchmark="some.track_instructions", place="8 B, bool", verdict="more")
    assert timed.of_route == counted.of_route != replace(timed, verdict="faster").of_route


def test_dtypes_and_sizes_of_a_route_are_one_change():
    shared = [cell("8 B, int8", 1.5, 1.4), cell("4 KiB, int8", 1.4, 1.3), cell("8 B, bool", 1.3, without=("other",))]
    together, alone = histories_by_machine.by_route(shared)
    assert (together, alone) == (shared[:2], shared[2:])
    said = [show.to_plain(histories_by_machine._said(alike)) for alike in (together, alone)]
    assert said == [
        "torch 2.0, `call(a)`: 1.50× the time on one and 1.40× on other (8 B, int8; and 1 other cell)",
        "torch 2.0, `call(a)`: 1.30× the time (8 B, bool)",
    ]


def test_a_release_that_one_machine_did_not_measure_parts_no_change(tmp_path):
    """It shows there at the next that was measured, and is the same change."""
    one = history(tmp_path, "one", 1, series=[*SERIES[:5], *SERIES[6:]], r2=(5, 1.3))
    other = history(tmp_path, "other", 2, r2=(5, 1.3))
    output = over(tmp_path, one, other)
    rows = list(csv.DictReader((output / "changes.csv").open(encoding="utf-8")))
    told = {(row["cell"].split(",")[0], row["release"], row["on"], row["everywhere"]) for row in rows}
    assert told == {(ROUTES[2], SERIES[5].version, name, "True") for name in ("one", "other")}


def test_a_small_change_takes_no_large_one_s_place(tmp_path):
    """One machine sees two changes apart, another both at once: that is the large one; of the small nothing is said."""
    one = history(tmp_path, "one", 1, r2=(5, 1.2, 6, 1.5))
    other = history(tmp_path, "other", 2, series=[*SERIES[:5], *SERIES[6:]], r2=(5, 1.8))
    output = over(tmp_path, one, other)
    rows = list(csv.DictReader((output / "changes.csv").open(encoding="utf-8")))
    told = {(row["release"], row["on"], row["everywhere"]) for row in rows}
    assert told == {(SERIES[6].version, name, "True") for name in ("one", "other")}


def test_one_machine_has_nothing_beside_it(tmp_path):
    output = over(tmp_path, history(tmp_path, "one", 1))
    assert not (output / "index.html").exists()
    assert "- [one](one/README.md)" in (output / "README.md").read_text(encoding="utf-8")


QUESTION = "NumPy array to tensor, as a copy of its own"
FIRST, SECOND = {"r0": (0, 0.7)}, {"r1": (0, 0.7)}  # the route that takes least, from the first release on


def advised(*built):
    return {each.machine: each.advised for each in built}


def test_what_to_take_is_that_of_the_newest_release(tmp_path):
    """A route that was the fastest until the last release is none to take."""
    one = history(tmp_path, "one", 1, r0=(0, 0.7), r1=(11, 0.5)).advised
    assert one.release == "torch " + SERIES[-1].version + " with numpy " + SERIES[-1].numpy and one.node == ""
    (preferred,) = one.preferred
    assert (preferred.question, preferred.dtype, preferred.nbytes) == (QUESTION, "float32", 4 * KIB)
    assert preferred.route == ROUTES[1] and preferred.seconds == pytest.approx(5e-7, rel=0.05)
    assert set(preferred.slower) == {*ROUTES} - {ROUTES[1]}
    assert preferred.slower[ROUTES[0]] == pytest.approx(7e-7, rel=0.05)


def test_machines_that_prefer_different_routes(tmp_path):
    one = history(tmp_path, "one", 1, **FIRST)
    other = history(tmp_path, "other", 2, **SECOND)
    output = over(tmp_path, one, other)
    (found,) = histories_by_machine.differing(advised(one, other))
    assert {name: one.route for name, one in found.items()} == {"one": ROUTES[0], "other": ROUTES[1]}
    assert histories_by_machine.loss(found) == pytest.approx(1 / 0.7, rel=0.05)
    page = (output / "README.md").read_text(encoding="utf-8")
    assert "Of 1 questions that several machines answer, 1 are decided differently" in page
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
    output = over(tmp_path, one, other)
    told = advised(one, other)
    assert {name: one.preferred[0].route for name, one in told.items()} == {"one": ROUTES[0], "other": ROUTES[1]}
    assert len(histories_by_machine.asked(told)) == 1 and not histories_by_machine.differing(told)
    page = (output / "README.md").read_text(encoding="utf-8")
    assert "Of 1 questions that several machines answer, 0 are decided differently" in page
    assert "Where machines prefer different routes" not in page


def test_other_releases_are_said(tmp_path):
    one = history(tmp_path, "one", 1, series=SERIES[:8], **FIRST)
    other = history(tmp_path, "other", 2, **SECOND)
    output = over(tmp_path, one, other)
    page = (output / "README.md").read_text(encoding="utf-8")
    assert f"torch {SERIES[7].version} with numpy {SERIES[7].numpy} on one and torch {SERIES[11].version}" in page
    assert "What differs there may be the releases'" in page
