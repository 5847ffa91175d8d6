"""Records of runs: what is written is read again, and what another version wrote, too."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import pytest
import resultfiles
from measuring.record import new_record, summary
from records.kinds import made_of
from records.runs import UNKNOWN, Record, Settings, plain, record_of, visits_of
from toolchains import ledger


@dataclass(frozen=True)
class Inner:
    word: str
    share: float | None = None


@dataclass(frozen=True)
class Outer:
    inner: Inner
    names: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


def test_json_becomes_the_dataclass():
    found = {"inner": {"word": "a", "share": 1}, "names": ["b"], "counts": {"c": 2}, "novel": 3}
    assert made_of(Outer, found) == Outer(Inner("a", 1), ("b",), {"c": 2})


def test_what_is_not_there_or_null_has_its_default():
    assert made_of(Outer, {"inner": {"word": "a"}, "names": None}) == Outer(Inner("a"))


@pytest.mark.parametrize(
    "found",
    [
        *(None, [], "word", {}, {"inner": {}}, {"inner": []}, {"inner": {"word": 1}}, {"inner": {"word": None}}),
        *({"inner": {"word": "a", "share": share}} for share in ("1", [], float("inf"))),
        *({"inner": {"word": "a"}, **more} for more in ({"names": "bc"}, {"names": [1]}, {"counts": {"c": "2"}})),
    ],
    ids=str,
)
def test_what_is_of_another_kind_is_a_type_error(found):
    with pytest.raises(TypeError):
        made_of(Outer, found)


def test_what_is_written_is_read_again():
    found = record_of(resultfiles.record([], interleaved={"id": "1"}))
    assert found.settings.torch == "2.0+cpu" and found.interleaved == {"id": "1"} and not found.drift
    assert record_of(plain(found)) == found
    assert "drift" not in plain(found) and "file" not in plain(found)


def test_nothing_is_filled_in_that_a_record_has_not():
    """Where a run adds a fact, Record must say what it is, or it is lost when the run is filed."""
    begun = new_record("quick", None, "box", ledger.Toolchain("2.0", "1.26"), None, 1)
    assert {*begun, *summary([])} <= {each.name for each in fields(Record)}
    assert record_of({**begun, **summary([])}).settings == Settings()


def test_counts_are_not_negative():
    with pytest.raises(ValueError, match="disturbed_cells"):
        record_of({**plain(UNKNOWN), "disturbed_cells": {"a": -1}})


def test_visits_are_the_last_run_and_what_was_added_to_it():
    first, second, again = (record_of({**plain(UNKNOWN), "started": f"{n}"}) for n in range(3))
    added = record_of({**plain(again), "drift": {"cells": 0}})
    assert list(visits_of([first, second, added])) == [second, added]
    assert list(visits_of([])) == []
