"""A run's steps: whatever stops it, and whenever, what is kept is whole, and is filed all together."""

import errno
import json
import os
import sys
import threading

import pytest
from cli import UserError
from filelock import FileLock
from measuring import state
from measuring.state import State
from store.records import Toolchain, Unfinished

NAMES = ("c0ffee00-x.json", "c0ffee00-x.jsonl", "c0ffee00-x.jsonl.gz")
CHANGES = ("open", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.copyfile", "shutil.rmtree")
ROUNDS = 2


def begun(rounds=0, machine="box"):
    return Unfinished(Toolchain(""), {}, machine=machine, rounds=rounds)


def measure(directory, results):
    """A run of two rounds, as the verbs take it, of results that an earlier run has left."""
    kept = State(directory)
    kept.start(begun())
    for number in range(ROUNDS):
        kept.begin()
        (kept.results / "box").mkdir(exist_ok=True)
        (kept.results / "box" / NAMES[0]).write_text(f"round {number + 1}")
        with kept.log.open("a") as log:
            log.write(json.dumps({"benchmark": "b", "params": [str(number)]}) + "\n")
        kept.mark(lambda cell, number=number: number)
        kept.save(begun(number + 1))
    kept.begin()
    for name in NAMES:
        (kept.results / "box" / name).write_text("new")
    kept.complete()
    kept.publish(results)


def stopped_at(event, directory, results):
    """Take the run in a child process, which is gone at that change of a file; whether it came so far."""
    child = os.fork()
    if not child:
        seen = 0

        def watch(name, arguments):
            nonlocal seen
            if name in CHANGES and not (name == "open" and arguments[1] == "r"):
                seen += 1
                if seen == event:
                    os._exit(9)

        sys.addaudithook(watch)
        code = 1
        try:
            measure(directory, results)
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_stopped_anywhere(tmp_path):
    """At every change that the run makes to a file: its record, its log and asv's results tell of the same rounds."""
    event, seen = 0, set()
    while True:
        event += 1
        directory, results = tmp_path / str(event) / "runs" / "box", tmp_path / str(event) / "results"
        (results / "box").mkdir(parents=True)
        for name in NAMES:
            (results / "box" / name).write_text("old")
        stopped = stopped_at(event, directory, results)

        def filed(results=results):
            return {(results / "box" / name).read_text() for name in NAMES}

        assert filed() <= {"old", "new"}, "a file that is half written"
        kept = State(directory)
        published = kept.publish(results)
        assert filed() in ({"old"}, {"new"}), "filed together or not at all"
        record = kept.load()
        if record is None:
            assert filed() == {"new"} or event < 20, "nothing is lost but what had hardly begun"
        else:
            assert filed() == {"old"}
            kept.begin()
            ran = kept.results / "box" / NAMES[0]
            assert not ran.exists() if record.rounds == 0 else ran.read_text() == f"round {record.rounds}"
            assert [line["round"] for line in kept.lines()] == list(range(record.rounds))
        seen.add((None if record is None else record.rounds, published))
        if not stopped:
            break
    assert event > 50 and seen >= {(0, False), (1, False), (2, False), (None, True), (None, False)}
    assert not kept.directory.exists()


def test_a_run_begun_anew_forgets_the_one_before(tmp_path):
    kept = State(tmp_path / "box")
    kept.start(begun(machine="first"))
    kept.begin()
    kept.log.write_text("{}\n")
    kept.save(begun(1, machine="first"))
    assert kept.lines() == [{}]
    kept.start(begun(machine="second"))
    assert kept.load() == begun(machine="second") and kept.lines() == []


@pytest.mark.parametrize("left", ["nothing", "half a line"])
def test_what_an_interrupted_step_left_is_no_part_of_the_run(tmp_path, left):
    """Interrupted while the step was copied, or while asv wrote: lines may be read before the next step begins."""
    kept = State(tmp_path / "box")
    kept.start(begun())
    kept.begin()
    kept.log.write_text('{"round": 0}\n')
    kept.save(begun(1))
    kept.begin()
    if left == "nothing":
        kept.log.unlink()
    else:
        kept.log.write_text('{"round": 0}\n{"rou')
    assert State(kept.directory).lines() == [{"round": 0}]


def test_a_full_disk_costs_a_step(tmp_path, monkeypatch):
    kept = State(tmp_path / "box")
    kept.start(begun())
    kept.begin()

    def full(path, *arguments, **more):
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr(type(tmp_path), "write_text", full)
        kept.save(begun(1))
    assert kept.load() == begun()


@pytest.mark.parametrize("broken", ["{", "[]", "{}", '{"toolchain": {"tag": "t"}, "skipped": {}, "rounds": "two"}'])
def test_a_record_that_somebody_broke_is_said(tmp_path, broken):
    kept = State(tmp_path / "box")
    kept.start(begun())
    (path,) = kept.directory.glob("*/run.json")
    path.write_text(broken)
    with pytest.raises(UserError, match=r"run\.json cannot be read: remove .*box, and begin anew"):
        kept.load()


def test_what_is_gone_is_said(tmp_path):
    with pytest.raises(UserError, match="what was measured so far is gone"):
        State(tmp_path / "box").begin()


def test_one_run_of_a_machine_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["scripts/run.py", "--profile", "standard"])
    with state.held(tmp_path / "box"):
        with pytest.raises(UserError) as caught, state.held(tmp_path / "box"):
            pytest.fail("two at a time")
        told = str(caught.value)
        assert told.startswith(f"box is being measured already, by process {os.getpid()} (run.py --profile standard) ")
        with state.held(tmp_path / "another"):
            pass
    with state.held(tmp_path / "box"):
        pass
    assert not list(tmp_path.glob("*.holder"))


def test_who_has_just_begun_has_yet_to_say_so(tmp_path):
    """Between taking the lock and writing the name lies a moment in which another may look."""
    lock = FileLock(tmp_path / "box.lock")
    with lock:
        named = threading.Timer(0.3, (tmp_path / "box.holder").write_text, ["process 7 (run.py) since 12:00"])
        named.start()
        with pytest.raises(UserError, match="already, by process 7 "), state.held(tmp_path / "box"):
            pytest.fail("two at a time")
        named.join()


def test_who_has_just_ended_is_not_in_the_way(tmp_path):
    lock = FileLock(tmp_path / "box.lock", thread_local=False)
    lock.acquire()
    ended = threading.Timer(0.3, lock.release)
    ended.start()
    with state.held(tmp_path / "box"):
        ended.join()
