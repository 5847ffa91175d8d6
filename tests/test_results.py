"""The loader returns measurements as they were filed, and names a broken file in one line."""

import gzip
import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import resultfiles
from analysis.results import load
from cli import UserError
from conftest import PATH
from msgspec import structs
from resultfiles import ABSENT, SKIPPED, contract, conversion, edited, every, memcpy, mend, of_suite
from store.files import MEASUREMENTS, machines, measurements_text, merge, put, read_measurements, read_records
from store.quiet import used_samples
from store.schema import RunRecord, from_json, to_json

ROUTE, COPY = "torch.from_numpy(a)", "torch.tensor(a)"


@pytest.fixture
def benches():
    """Benchmarks of two routes: times, instruction counts and aliasing. Some cells failed, or were skipped."""
    promises = [contract(ROUTE, "alias"), contract(COPY, "copy")]
    times = {(ROUTE, 8): [1e-6, 2e-6], (ROUTE, 1024): [1e-6, 1e-6], (COPY, 8): None, (COPY, 1024): SKIPPED}
    alias = of_suite("semantics.NumpyToTorch.track_alias", {(ROUTE, "float32"): 1, (ROUTE, "int8"): ABSENT})
    counts = {(ROUTE, "float32", 8): [5000.0, 5010.0, 4990.0]}
    counted = replace(of_suite("instructions.NumpyToTorch.track_instructions", counts), contracts=promises)
    return [conversion(times, promises), alias, counted, memcpy({8: [1e-7, 1e-7]})]


@pytest.fixture
def results(tmp_path, benches):
    return resultfiles.write(tmp_path, benches)


SAID = ["benchmark", "route", "nbytes", "toolchain", "direction", "contract", "process", "samples", "seconds", "value"]
SAID += ["unit", "low", "high", "processes", "instructions", "status", "reason", "quiet"]


@pytest.mark.parametrize("table", ["processes", "timed", "values", "missing"])
def test_tables_hold_what_was_measured(results, table, snapshot):
    """The tables have a row per process, per timed cell (contract, instructions), per value and per missing figure."""
    held = getattr(load(results), table).filter(items=SAID)
    assert [" | ".join(map(str, row)) for row in (held.columns, *held.itertuples(index=False))] == snapshot


def test_parameters_of_older_descriptions_have_their_new_names(tmp_path):
    older = every("placement.NumpyToTorch.timeit_convert", lambda *_: 1e-6, [], lying=["apart"], nbytes=[4096])
    declared = {"reference": {"lying": "apart", "called": "apart"}}
    loaded = load(resultfiles.write(tmp_path, [replace(older, declared=declared)]))
    assert loaded.timed["placement"].tolist() == ["apart"] and "lying" not in loaded.timed
    assert loaded.benchmarks[older.name].reference == {"placement": "apart", "called": "apart"}


def test_without_a_run_record_the_commit_names_the_toolchain(tmp_path, benches):
    loaded = load(resultfiles.write(tmp_path, benches, records=[]))
    assert loaded.runs == []
    assert set(loaded.processes["toolchain"]) == {"c0ffee00"}


def test_tables_have_their_columns_even_when_empty(tmp_path, results):
    whole, loaded = load(results), load(resultfiles.write(tmp_path / "one", [memcpy({8: [1e-7]})]))
    assert loaded.missing.empty and loaded.values.empty
    assert {*whole.missing} >= {*loaded.missing} >= {"cell", "status", "reason", "file"}
    assert {"cell", "value", "unit", "file"} <= set(loaded.values)


def test_one_machine_of_two(tmp_path, benches):
    resultfiles.write(tmp_path, benches, machine="a")
    resultfiles.write(tmp_path, benches, machine="b")
    assert machines(tmp_path) == ["a", "b"]
    assert set(load(tmp_path, "b").processes["machine"]) == {"b"}
    with pytest.raises(UserError, match=r" c; .* a, b$"):
        load(tmp_path, "c")


RESULT = "box/c0ffee00-toolchain-py3.11.json"
SAMPLES = f"box/c0ffee00-toolchain-py3.11{MEASUREMENTS}"


def bytes_are(change):
    """Return a function that replaces the bytes of a file by ``change(bytes)``."""
    return lambda path: path.write_bytes(change(path.read_bytes()))


def text(said):
    return bytes_are(lambda _: said.encode())


def other(value, *place):
    """Return a function that sets ``value`` at ``place``, a path of keys, in the first JSON text of a file."""

    def spoil(path):
        with edited(path) as held:
            holder = held[0]
            for key in place[:-1]:
                holder = holder[key]
            holder[place[-1]] = value

    return spoil


CONVERSION, MEMCPY = "conversion.NumpyToTorch.timeit_convert", "limits.Memcpy.timeit_copy"
BENCHMARKS, RECORDS = "benchmarks.json", "box/c0ffee00-toolchain-py3.11.jsonl"
FOREIGN, UNREAD = "not a result of this suite", "says of .* what this cannot read"
OTHERS = f"says of {MEMCPY} what this cannot read"
SPOILT = f"{SAMPLES.rpartition('/')[2]} is broken .*restore it from git"
PROBES = resultfiles.SAMPLES + 1
# A file, how it is spoilt, and the error message
SPOILED = {
    "truncated": (RESULT, text('{"version": 2, "commit_h'), "is broken"),
    "null": (RESULT, text("null"), FOREIGN),
    "another version": (RESULT, text('{"version": 1}'), "is of asv's format 1, this reads 2"),
    "no results": (RESULT, text('{"version": 2, "params": {"machine": "box"}}'), FOREIGN),
    "commit": (RESULT, other([], "commit_hash"), FOREIGN),
    "python": (RESULT, other(None, "python"), FOREIGN),
    "params": (RESULT, other([], "params"), FOREIGN),
    "results": (RESULT, other([], "results"), FOREIGN),
    # values of a cell that no run measured
    "infinite": (RESULT, other(float("inf"), "results", CONVERSION, 0, 2), FOREIGN),
    "a word": (RESULT, other("x", "results", CONVERSION, 0, 2), FOREIGN),
    "version of a benchmark": (RESULT, other(None, "results", MEMCPY, 2), FOREIGN),
    "broken benchmarks": (BENCHMARKS, text("{"), "is broken"),
    "no benchmarks": (BENCHMARKS, os.unlink, r"benchmarks\.json: no such file"),
    "benchmarks of another kind": (BENCHMARKS, text("[]"), "is not asv's"),
    "contracts of another kind": (BENCHMARKS, text('{"a.B.c": {"contracts": {"x": 1}}}'), UNREAD),
    "refuses": (BENCHMARKS, other([], CONVERSION, "contracts", COPY, "refuses"), UNREAD),
    "a dict of parameters": (BENCHMARKS, other({}, MEMCPY, "params"), OTHERS),
    "more parameters": (BENCHMARKS, other([["1"], ["2"]], MEMCPY, "params"), OTHERS),
    "name of a column": (BENCHMARKS, other(["process"], MEMCPY, "param_names"), "has a parameter called process"),
    "names of parameters": (BENCHMARKS, other([None], MEMCPY, "param_names"), OTHERS),
    "values": (BENCHMARKS, other([["f(x)"]], MEMCPY, "params"), r"reads \(f\(x\) is no literal\)"),
    "billions of cells": (BENCHMARKS, other([["1"] * 100_001], MEMCPY, "params"), "more than 100000 cells"),
    "broken record": (RECORDS, text("{"), "is broken"),
    "record of another kind": (RECORDS, text("[]\n"), "is broken"),
    "two probes": (SAMPLES, other({"processor": [1, 2]}, "probes"), SPOILT),
    "probes of no time": (SAMPLES, other({"processor": [0] * PROBES}, "probes"), SPOILT),
    "negative": (SAMPLES, other([-1.0] * resultfiles.SAMPLES, "seconds"), SPOILT),
    "no samples": (SAMPLES, other([], "seconds"), SPOILT),
    "a sample that is none": (SAMPLES, other([99], "disturbed"), SPOILT),
    **{f"no {name}": (SAMPLES, other(None, name), SPOILT) for name in ("disturbed", "run", "version", "waits")},
    "no probes": (SAMPLES, other(None, "probes"), SPOILT),
    "a run that no terminal can show": (SAMPLES, other("\x1b[31m", "run"), "run is "),
    "round": (SAMPLES, other("one", "round"), SPOILT),
    "a round before the first": (SAMPLES, other(-1, "round"), SPOILT),
    "a round that no memory holds": (SAMPLES, other(10**9, "round"), SPOILT),
    "number": (SAMPLES, other(0, "number"), SPOILT),
    **{f"{name} beyond floats": (SAMPLES, other(10**400, name), SPOILT) for name in ("wanted", "number", "round")},
    "probes beyond floats": (SAMPLES, other({"processor": [10**400] * PROBES}, "probes"), SPOILT),
    "truncated gzip": (SAMPLES, bytes_are(lambda held: held[:-20]), SPOILT),
    "no gzip": (SAMPLES, bytes_are(gzip.decompress), SPOILT),
    "empty gzip": (SAMPLES, text(""), SPOILT),
    "no text in it": (SAMPLES, bytes_are(lambda _: gzip.compress(b"\xff")), SPOILT),
    "spoilt": (SAMPLES, bytes_are(lambda held: held[:40] + b"x" * 40 + held[80:]), SPOILT),
}


@pytest.mark.parametrize("what", SPOILED)
def test_what_is_broken_is_one_clear_line(results, what):
    name, spoil, said = SPOILED[what]
    spoil(results / name)
    with pytest.raises(UserError, match=said) as caught:
        load(results)
    assert "\n" not in str(caught.value)


def test_a_directory_without_results(tmp_path):
    put(tmp_path / "box" / "machine.json", "{}")
    with pytest.raises(UserError, match=re.escape(str(tmp_path))):
        load(tmp_path)


def test_machine_file_is_not_needed(results):
    (results / "box" / "machine.json").unlink()
    assert len(load(results).processes) == 6


def test_figures_of_cells_that_are_no_more_are_counted(results):
    with edited(results / BENCHMARKS) as (described,):
        del described[CONVERSION]
    mend(results, lambda line: {**line, "params": ["16"]} if line["benchmark"] == MEMCPY else line)
    loaded = load(results)
    assert loaded.unknown == {("c0ffee00-toolchain-py3.11", CONVERSION): 2, ("c0ffee00-toolchain-py3.11", MEMCPY): 1}
    assert set(loaded.timed["nbytes"]) == {8}, "as asv's file has it"


# Samples between speed probes ----------------------------------------------------------------------------------------

SIZES = tuple(range(8, 108))


@pytest.fixture
def busy(tmp_path):
    """A function: results with four processes per cell. The named processes, (nbytes, number), ran at half speed."""

    def make(*slow):
        times = {(ROUTE, n): [2e-6 if (n, k) in slow else 1e-6 for k in range(4)] for n in SIZES}
        bench = conversion(times, [contract(ROUTE, "alias")])
        disturbed = {((ROUTE, "float32", n), k) for n, k in slow}
        return resultfiles.write(tmp_path, [bench], slow=disturbed, clock=resultfiles.steady)

    return make


def of(loaded, nbytes):
    return loaded.processes[loaded.processes["nbytes"] == nbytes]


def test_quiet_is_judged_with_the_whole_run_in_sight(busy):
    """A machine that always runs at half its speed has that speed as its baseline, so all its processes are quiet."""
    loaded = load(busy(*((n, k) for n in SIZES for k in range(4))))
    assert all(loaded.processes["quiet"])


def test_what_later_runs_leave_of_a_run_is_judged_with_all_of_it_in_sight(busy):
    """A later run may replace all but the noisy samples. A baseline from the rest alone would make them quiet."""
    root = busy(*((8, k) for k in range(4)))
    (path, records), lines = (root / SAMPLES, (root / RESULT).with_suffix(".jsonl")), read_measurements(root / SAMPLES)
    later = [structs.replace(line, run="later") for line in lines if line.params[2] != "8"]
    path.write_bytes(measurements_text(merge(lines, later)))
    with edited(records) as runs:
        runs[0]["baselines"] = {"processor": 25_000.0}
        runs.append(runs[0] | {"started": "later"})
    assert list(of(load(root), 8)["quiet"]) == [False] and all(of(load(root), 9)["quiet"])
    assert len(used_samples(read_measurements(path), read_records(records))[of(load(root), 8)["cell"].item()][0]) == 1


def test_a_run_by_hand_is_shown_where_nothing_else_was_measured(busy, tmp_path):
    """A plain `asv run` leaves its figure in asv's file only. Without samples it counts as one process."""
    root = busy()
    mend(root, lambda line: {**line, "params": [*line["params"][:2], "4096"]} if line["params"][2] == "8" else line)
    with edited(root / RESULT) as (file,):
        (entry,) = file["results"].values()
        entry[0][:2] = [3e-6, 5e-6]  # of 8 and of 9 bytes; 9 bytes were measured
    loaded = load(tmp_path)
    assert list(of(loaded, 8)["seconds"]) == [3e-6] and list(of(loaded, 8)["run"]) == [""]
    assert list(of(loaded, 9)["seconds"]) == [1e-6] * 4


def test_figures_are_corrected_for_speed(tmp_path):
    bench = conversion({(ROUTE, n): [1.04e-6, 1e-6, 1e-6, 1e-6] for n in SIZES}, [contract(ROUTE, "alias")])
    root = resultfiles.write(tmp_path, [bench], clock=lambda number: 1.04 if number == 0 else 1.0)
    assert list(of(load(root), 8)["seconds"]) == pytest.approx([1e-6] * 4)
    assert set(of(load(root), 8)["baseline"]) == {25_000.0}


def test_second_session_goes_on_counting(busy, tmp_path):
    with edited(busy() / SAMPLES) as lines:
        lines += [{**line, "run": "again"} for line in lines]
    assert list(of(load(tmp_path), 8)["process"]) == list(range(8))


def test_a_broken_file_among_many_is_one_clear_line(tmp_path, benches):
    """Several processes read many results. An error in one of them must reach the main process."""
    for number in range(10):
        resultfiles.write(tmp_path, benches, commit=f"{number:08x}" * 5)
    assert len(load(tmp_path).processes) == 60
    path = tmp_path / "box" / f"00000007-toolchain-py3.11{MEASUREMENTS}"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match=re.escape(path.name)) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


def test_the_same_measurements_are_the_same_bytes(committed):
    """Old versions, which are hashes, become numbers."""
    for path in sorted((committed / "reports" / "results").glob(f"*/*{MEASUREMENTS}"))[::10]:
        packed = measurements_text(read_measurements(path)), path.read_bytes()
        before, after = (re.sub(rb'"version": "\w+"', b"", gzip.decompress(content)) for content in packed)
        assert before == after


# Entries that are no regular files, invalid names ---------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".json", ".jsonl", MEASUREMENTS])
@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: os.symlink(path, path), os.mkdir], ids=["pipe", "loop", "folder"]
)
def test_what_is_no_file_is_refused(busy, make, suffix):
    """Reading a pipe would hang. A broken link would pass for a missing record and give another toolchain's page."""
    root = busy()
    path = (root / "box" / "c0ffee00-toolchain-py3.11.json").with_suffix(suffix)
    path.unlink(missing_ok=True)
    make(path)
    with pytest.raises(UserError, match=re.escape(path.name)):
        load(root)


@pytest.mark.parametrize("name", [b"box\xff", b"history", b"results", b"a\nb"])
def test_names_of_machines_that_are_none(busy, name):
    root = busy()
    os.rename(root / "box", os.path.join(os.fsencode(root), name))
    with pytest.raises(UserError, match="rename") as caught:
        load(root)
    str(caught.value).encode()


# Records: this version's and older ones are read and written without loss ---------------------------------------------


def test_what_is_written_is_read_again():
    found = from_json(RunRecord, resultfiles.record([], interleaved={"id": "1"}, only=None, drift=None))
    assert found.settings.torch == "2.0+cpu" and found.interleaved == {"id": "1"} and not found.drift
    assert from_json(RunRecord, to_json(found)) == found
    assert "drift" not in to_json(found) and "file" not in to_json(found)


def kept(before, after):
    """Whether ``after`` has all fields of ``before`` with the same values. null is the same as no field."""
    if isinstance(before, dict):
        return all(name in after and kept(each, after[name]) for name, each in before.items() if each is not None)
    return before == after


def fields_of(before, after):
    """Return ``after`` without the fields that ``before`` lacks."""
    if not isinstance(before, dict):
        return after
    return {name: fields_of(before[name], each) for name, each in after.items() if name in before}


def test_committed_records_are_written_back_as_they_were(committed):
    files = [path for path in (committed / "reports" / "results").glob("*/*.jsonl")]
    lines = [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    written = [json.dumps(to_json(from_json(RunRecord, json.loads(line))), sort_keys=True) for line in lines]
    assert lines and all(kept(json.loads(before), json.loads(after)) for before, after in zip(lines, written))
    same = [json.dumps(fields_of(json.loads(old), json.loads(new)), sort_keys=True) for old, new in zip(lines, written)]
    assert set(lines) & set(same), "to the byte, but for fields that are newer than the record"


# Files are written as a whole -----------------------------------------------------------------------------------------


def test_a_file_is_whole_or_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "a.svg"
    put(path, "old\n")

    def full(self, content):
        self.write_text("ne")
        raise OSError("No space left on device")

    monkeypatch.setattr(type(path), "write_bytes", full)
    with pytest.raises(OSError):
        put(path, "new\n")
    assert path.read_text() == "old\n" and list(tmp_path.iterdir()) == [path]


def test_two_may_put_a_file_at_a_time(tmp_path):
    """Two fleets may file benchmarks.json at once. The temporary file of a killed process is removed, too."""
    path, code = tmp_path / "file", "import pathlib, sys; from store import files; path = pathlib.Path(sys.argv[1])\n"
    code += "for number in range(300):\n    files.put(path, sys.argv[2] * 5000)\n"
    (tmp_path / f".file.{2**22 + 1}.new").touch()  # no process has such a number
    env = {**os.environ, "PYTHONPATH": PATH}
    both = [subprocess.Popen([sys.executable, "-c", code, path, word], env=env) for word in "ab"]
    assert [process.wait() for process in both] == [0, 0]
    assert path.read_text() in ("a" * 5000, "b" * 5000) and list(tmp_path.iterdir()) == [path]
