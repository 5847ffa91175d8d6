"""Records of runs: what is written is read again, and what another version wrote, too."""

import json
from dataclasses import asdict

import pytest
import resultfiles
from measuring.runner import summed_up
from store.records import Record, Toolchain, made_of, plain, record_of


@pytest.mark.parametrize(
    "spoilt",
    [
        *({"toolchain": each} for each in (None, [], {}, {"tag": 1}, {"tag": None})),
        *({"seconds": each} for each in ("1", [], float("inf"))),
        *({"noisy_cells": each} for each in ("bc", [1])),
        {"skipped": {"reason": 2}},
    ],
    ids=str,
)
def test_what_is_of_another_kind_is_a_type_error(spoilt):
    with pytest.raises(TypeError):
        record_of(resultfiles.record([]) | spoilt)


def test_what_is_written_is_read_again():
    found = record_of(resultfiles.record([], interleaved={"id": "1"}, only=None, novel=3, drift=None))
    assert found.settings.torch == "2.0+cpu" and found.interleaved == {"id": "1"} and not found.drift
    assert record_of(plain(found)) == found
    assert "drift" not in plain(found) and "file" not in plain(found)


def kept(before, after):
    """Whether what a record says is there as it was; null is what is not said."""
    if isinstance(before, dict):
        return all(name in after and kept(each, after[name]) for name, each in before.items() if each is not None)
    return before == after


def test_committed_records_are_written_back_as_they_were(committed):
    files = [path for path in (committed / "reports" / "results").glob("*/*.jsonl")]
    lines = [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    written = [json.dumps(plain(record_of(json.loads(line))), sort_keys=True) for line in lines]
    assert lines and all(kept(json.loads(before), json.loads(after)) for before, after in zip(lines, written))
    assert set(lines) & set(written), "to the byte, where a record has all fields"


def test_a_run_that_goes_on_is_kept_whole():
    begun = summed_up(Record(Toolchain("2.0"), {}, profile="quick", machine="box"), [])
    assert made_of(Record, json.loads(json.dumps(asdict(begun)))) == begun == record_of(plain(begun))
