"""The runner and its journal: what was noisy gets another process, and whatever stops a run costs one job at most."""

import contextlib
import itertools
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import test_kills
from asv.results import Results
from asv.runner import BenchmarkResult
from cli import UserError
from filelock import FileLock
from measuring import runner as measuring
from measuring.engine import ENVIRONMENTS, FILES, LOG, Suite
from measuring.processes import Progress
from measuring.profiles import PROFILES, Profile, Rule
from measuring.runner import AGAIN, PASSES, START, Job, Journal, Plan, budget, drift, held, staggered
from resultfiles import SAMPLES, TAKEN, Bench
from store import files, quiet
from store.records import Record, Settings, Toolchain, name_of
from toolchains import environments, ledger

# A suite of sixty cells whose asv only logs what a test decides: journal, files and filing are real -------------------

BENCH = Bench("toy.Toy.timeit_call", {"number": range(60)}, {})
NAME, TOY = BENCH.name, BENCH.description()
COUNTS = {"toy.Counts": {**TOY, "name": "toy.Counts", "type": "track", "repeated": True}}
CELLS = [*map(BENCH.spelled, BENCH.keys())]
HERE = ledger.Toolchain("2.13.0+cpu", "2.4.6")


def line_of(cell, slow=False, took=0.1):
    """What a process logs of a cell."""
    name, _, params = cell.rstrip(")").partition("(")
    about = {"benchmark": name, "params": [params], "version": "v1", "at": 0.0}
    probes = {"processor": [50_000 if slow else 25_000] * (SAMPLES + 1)}
    return about | TAKEN | {"seconds": [1e-6] * SAMPLES, "probes": probes, "took": took}


class Asv:
    """What asv measures: ``slow(cell, attempt)`` says whether a process is noisy. calls: cells and patience of each."""

    def __init__(self, monkeypatch, slow=lambda cell, attempt: False, took=0.1):
        self.slow, self.took, self.calls, self.cells, self.attempts, self.read = slow, took, [], [], {}, []
        monkeypatch.setattr(measuring.platform, "python_version", lambda: "3.11.7")
        monkeypatch.setattr(Suite, "measure", lambda suite, *arguments, **more: self.measure(suite, *arguments, **more))
        self.benchmarks = {NAME: TOY}
        monkeypatch.setattr(Suite, "discover", lambda suite, machine: self.benchmarks)
        monkeypatch.setattr(Suite, "installed", lambda suite: HERE)
        monkeypatch.setattr(environments, "here", lambda: HERE)
        monkeypatch.setattr(measuring, "settings", lambda python: Settings())
        monkeypatch.setattr(measuring, "read_libraries", self.read.append)
        monkeypatch.setitem(PROFILES, "toy", Profile(1, 1.0, (Rule(r"toy\..*"),)))

    def measure(self, suite, cells, machine, place, advance, patience=(0.0, 0), cores=()):
        self.cells.append(list(cells))
        chosen = [cell for cell in CELLS if cell in cells]
        self.calls.append((len(chosen), patience[0]))
        with (place / LOG).open("a", encoding="utf-8") as log:
            for cell in chosen:
                self.attempts[cell] = self.attempts.get(cell, 0) + 1
                log.write(json.dumps(line_of(cell, self.slow(cell, self.attempts[cell]), took=self.took)) + "\n")
                log.flush()
                advance()
        file_by_asv(place / FILES, machine, dict.fromkeys(chosen, 1e-6))


def file_by_asv(results, machine, cells):
    """asv's own file of a result with these figures, and what it files beside it."""
    made = Results({"machine": machine}, {}, HERE.commit, 0, "3.11", "toolchain-py3.11", {})
    values = [cells.get(cell, float("nan")) for cell in CELLS]
    made.add_result(TOY, BenchmarkResult(values, [None] * 60, [None] * 60, 0, "", None), duration=1.0)
    made.save(str(results))
    (results / files.BENCHMARKS).write_text(json.dumps({NAME: TOY}))
    (results / machine / files.MACHINE).write_text(json.dumps({"machine": machine}))


def runner_in(place, rounds=1, day=25, **more):
    """A runner that keeps its journal in ``place`` and files in a suite there; a session begins on that day.

    What is installed is measured, unless there are ``tags``.
    """
    sides = {} if "tags" in more else {"": Suite(place / "suite")}
    plan = Plan("box", "toy", "", rounds, command="a test", **more)
    made = measuring.Runner(Journal(place / "run"), plan, sides)
    begin = made.new_record
    made.new_record = lambda *given: replace(begin(*given), started=f"2026-11-{day}T00:00:00+00:00")
    return made


def run_in(place, rounds=1, day=25, **more):
    """A run as run.py and track.py have it, or go on with; its runner, and what failed."""
    made = runner_in(place, rounds, day, **more)
    made.journal.save(made.plan)
    return made, made.measure()


@pytest.fixture
def toy_asv(monkeypatch):
    """Have asv be one of ours, none of whose processes is noisy."""
    return Asv(monkeypatch)


# Rounds -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def taken(tmp_path, monkeypatch):
    """A function: rounds of an asv as ``slow(cell, attempt)`` says; that asv, and the runner before it files."""

    def take(slow=lambda cell, attempt: False, rounds=1, took=0.1, seconds=1000.0, named=()):
        shutil.rmtree(tmp_path, ignore_errors=True)
        monkeypatch.setattr(measuring, "PATIENCE", seconds / len(CELLS) / rounds)
        ran, made = Asv(monkeypatch, slow, took), runner_in(tmp_path, rounds)
        made.planned = [Job("", number, cells=tuple(named)) for number in range(rounds)]
        for job in made.planned:
            made.take(job)
        return ran, made

    return take


@pytest.fixture
def still(monkeypatch):
    """The runner's clock stands still: what it may wait for depends on the time that retaking takes."""
    monkeypatch.setattr(measuring, "time", SimpleNamespace(**{**vars(time), "monotonic": lambda: 0.0}))


def lines(runner):
    return runner.journal.lines("installed")


def of(cells, *attempts):
    """Noisy are these cells, in these attempts or in all."""
    return lambda cell, attempt: cell in cells and (not attempts or attempt in attempts)


@pytest.mark.parametrize(
    "slow, how, calls, lacking",
    [
        (of(()), {"rounds": 2}, [60, 60], []),
        (of(CELLS[7], 1), {}, [60, 1], []),
        (of(CELLS[:3]), {}, [60, *[3] * PASSES], CELLS[:3]),
        (of(CELLS[:3]), {"rounds": 2}, [60, 3, 60, *[3] * PASSES], CELLS[:3]),  # what another round judges, once
        # twelve are lost, a process of each takes two seconds: after asv's start there is time for five, or for none
        (of(CELLS[:12]), {"took": 2.0, "seconds": START + 11.0}, [60, 5], CELLS[:12]),
        (of(CELLS[:12]), {"took": 2.0, "seconds": START + 1.0}, [60], CELLS[:12]),
        # a first round wholly in a slow phase looks quiet until the second has shown what the machine can do
        (of(CELLS, 1), {"rounds": 2}, [60, 60, 60], []),
        # the other side's process that ran beside it would be long gone
        (of(CELLS, 1), {"rounds": 2, "named": CELLS}, [60, 60], CELLS),
    ],
)
def test_what_was_noisy_gets_another_process_in_its_round_within_the_budget(taken, slow, how, calls, lacking):
    """lacking: the cells that lack a quiet process in a round all the same"""
    ran, runner = taken(slow, **how)
    assert [count for count, _ in ran.calls][: len(calls)] == calls
    assert list(quiet.Run(lines(runner)).lacking()) == lacking
    assert runner.progress.done == runner.progress.total == sum(count for count, _ in ran.calls)
    record = runner.journal.record("installed")
    assert record.rounds == how.get("rounds", 1)
    assert {each["round"] for each in lines(runner)} == set(range(record.rounds))
    assert ran.read == [Path(sys.executable)] * record.rounds, "libraries are read anew before each round"


def test_how_quiet_a_run_was_is_filed(taken):
    _, runner = taken(of(CELLS[:3]))
    record = runner.file(Job("", 0))
    assert record.noisy_cells == tuple(CELLS[:3])
    assert record.quiet == pytest.approx(0.9, abs=0.06) and record.baselines == {"processor": 25_000.0}


def test_budget_is_kept(still, taken):
    ran, runner = taken(rounds=2, seconds=100.0)
    assert [round(patience, 1) for _, patience in ran.calls] == [33.3, 66.7], "what the first left is the second's"
    assert runner.journal.record("installed").waited == 0
    ran, _ = taken(of(CELLS, 1), rounds=2, seconds=100.0, named=CELLS)
    assert [round(patience) for _, patience in ran.calls] == [50, 100], "all may be waited for the processes"
    assert budget(100, "tracking") == pytest.approx(0.75 * budget(100, "standard"))
    assert budget(1000, "quick") == 60.0 and budget(250, "quick", 1000) == 15.0, "a minute at most, all together"


@pytest.mark.parametrize(
    ("noisy", "longest", "patience"),
    [
        (of(()), 100.0, [8, 16, 24]),
        (of(()), 15.0, [8, 10, 10]),
        (of(()), -1.0, [8, 0, 0]),
        (of(CELLS), 100.0, [8, 0, 0]),
        (of(CELLS), -1.0, [8]),
        (of(CELLS), float("inf"), [8, 16, 24]),
    ],
)
def test_a_quick_run_waits_in_its_time_and_ends_early(noisy, longest, patience, still, toy_asv, tmp_path, monkeypatch):
    """On a machine that is hardly ever quiet. One cell in five is, or a level that all have would be the machine's."""
    toy_asv.slow = lambda cell, attempt: noisy(cell, attempt) and CELLS.index(cell) % 5 > 0
    monkeypatch.setitem(PROFILES, "toy", Profile(3, 1.0, (Rule(r"toy\..*"),), longest=longest))
    made, _ = run_in(tmp_path, 3)
    assert [round(each) for count, each in toy_asv.calls if count == len(CELLS)] == patience
    assert made.journal.filed() == ["installed"]


def test_cells_that_never_were_quiet_come_first(taken):
    lost = CELLS[50:52]
    slow = lambda cell, attempt: cell in lost or (cell in CELLS[:10] and attempt > 1)  # noqa: E731
    _, runner = taken(slow, rounds=2, took=2.0, seconds=START + 5.0)
    assert [name_of(each) for each in lines(runner)[-2:]] == lost


def test_counts_come_first_and_once_and_later_rounds_take_less(toy_asv, tmp_path, monkeypatch):
    """Beside counts something else is done, an installation, say: it would disturb what is timed."""
    rules = Rule(r"toy\..*", number=[8]), Rule(r"toy\..*", rounds=1, number=[9])
    monkeypatch.setitem(PROFILES, "toy", Profile(3, 1.0, rules))
    made, ran = runner_in(tmp_path, 3), toy_asv.cells
    toy_asv.benchmarks |= COUNTS

    @contextlib.contextmanager
    def meanwhile():
        ran.append("begun")
        yield
        ran.append("ended")

    made.planned = [Job("", number) for number in range(3)]
    assert [(made.take(job, meanwhile()), made.progress.done)[1] for job in made.planned] == [2, 3, 4]
    assert made.progress.total == 4
    made.sides[AGAIN] = made.sides[""]
    made.take(Job("", 0, AGAIN), meanwhile())
    both, one, counts = CELLS[8:10], CELLS[8:9], ["toy.Counts(8)", "toy.Counts(9)"]
    assert ran == ["begun", counts, "ended", both, one, one, both], "nothing is counted beside an earlier session"


def test_progress_says_how_long_it_takes_yet(capsys):
    progress = Progress("measuring", 60)
    progress.at(0)
    progress.at(30)
    assert capsys.readouterr().out == "", "not before a quarter of a minute"
    for done, said in ((30, "measuring: 50%, 60 s left\n"), (30, ""), (60, "measuring: 100%\n")):
        progress.start = progress.shown = time.monotonic() - 60
        progress.at(done)
        assert capsys.readouterr().out == said


# A run that is stopped -----------------------------------------------------------------------------------------------

CHANGES = ("open", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.copyfile", "shutil.rmtree")
KILLS = int(os.environ.get("CONVERSION_KILLS", "0"))  # aimed at each change of a file; 0: some of them, once


def stopped_at(event, place):
    """Take a run of two rounds in a child process, which is gone at that change of a file; whether it came so far."""

    def run():
        seen = itertools.count(1)

        def watch(name, arguments):
            change = name in CHANGES and not (name == "open" and arguments[1] in ("r", "rb"))
            if change and next(seen) == event:
                os._exit(9)

        sys.addaudithook(watch)
        run_in(place, 2)

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join()
    assert child.exitcode in (0, 9)
    return child.exitcode == 9


def check_whole(place, rounds=2):
    """Each process once."""
    assert len(test_kills.check_whole(place, rounds)) == len(CELLS) * rounds


@pytest.fixture
def half(toy_asv, tmp_path):
    """A run of two rounds, of which the first is whole."""
    made = runner_in(tmp_path, 2)
    made.journal.save(made.plan)
    made.take(Job("", 0))
    return made


def test_a_new_run_files_what_the_one_before_has_whole(half, tmp_path):
    """Killed after its last round, before that was filed; then begun anew."""
    runner_in(tmp_path, 2).file_whole()
    assert not half.journal.filed(), "half of a run is none"
    half.take(Job("", 1))
    runner_in(tmp_path, 2).file_whole()
    assert half.journal.filed() == ["installed"]
    check_whole(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("disk", [None, "/dev/shm"], ids=["disk", "tmpfs"])
def test_stopped_anywhere_nothing_is_lost_or_measured_twice(toy_asv, disk):
    """At every change that a run makes to a file, and then gone on with."""
    if disk and not os.access(disk, os.W_OK):
        pytest.skip("there is no tmpfs here")
    event, stopped, campaigns = 0, True, 0
    with tempfile.TemporaryDirectory(dir=disk) as base:
        while stopped or campaigns < KILLS / 100:
            if not stopped:
                event, campaigns = 0, campaigns + 1
            event += 1 if KILLS else random.Random(event).randint(1, 5)
            place = Path(base) / str(event)
            stopped = stopped_at(event, place)
            left = Journal(place / "run")
            assert left.plan() is not None or event < 10
            assert list(left.rounds("installed")) in ([], [0], [0, 1])
            run_in(place, 2)
            check_whole(place)
            shutil.rmtree(place)
    assert event > 40


def test_what_asv_filed_meanwhile_stays(toy_asv, tmp_path):
    """`asv run` during a run: its cells are merged with what is filed now, not with what was when the run began."""
    made = runner_in(tmp_path)
    made.take(Job("", 0, cells=tuple(CELLS[:30])))
    file_by_asv(made.sides[""].results, "box", {CELLS[40]: 5.0})
    made.file(Job("", 0))
    (path,) = made.sides[""].results.glob("box/*-toolchain-*.json")
    result = Results.load(str(path)).get_result_value(NAME, TOY["params"])
    assert result[40] == 5.0 and result[0] == pytest.approx(1e-6)


def test_a_quick_look_adds_to_a_whole_run(toy_asv, tmp_path):
    """It has fewer processes a cell, so it replaces none; as many of them do, and the record goes, too.

    Each is filed after every round.
    """
    # day of a run, and its rounds; the days that are filed then, and the rounds of each
    for day, rounds, filed in (("23", 2, {"23": 2}), ("24", 1, {"23": 2, "24": 1}), ("25", 3, {"25": 3})):
        made = runner_in(tmp_path, rounds, day)
        made.measure(between=lambda runner, job: runner.file(job, whole=False))
        made.journal.forget()
        (path,) = tmp_path.rglob("box/*.jsonl")
        assert [record.started[8:10] for record in files.read_records(path)] == [*filed]
        taken = {(line["run"][8:10], line["round"]) for line in files.read_measurements(path)}
        assert taken == {(each, number) for each in filed for number in range(filed[each])}


def test_what_there_is_can_be_filed(half, tmp_path):
    """--resume with as many rounds as are whole."""
    run_in(tmp_path, 1)
    check_whole(tmp_path, rounds=1)


def test_a_full_disk_costs_a_job(half, tmp_path, monkeypatch):
    with monkeypatch.context() as patched, pytest.raises(OSError, match="space"):
        patched.setattr(Path, "write_text", Mock(side_effect=OSError("no space left on device")))
        half.take(Job("", 1))
    assert list(half.journal.rounds("installed")) == [0]
    run_in(tmp_path, 2)
    check_whole(tmp_path)


BROKEN = ["{", "[]", "{}", "[" * 100_000, '{"toolchain": {"tag": "t"}, "skipped": {}, "rounds": "two"}']


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("file", ["run.json", "plan.json"])
def test_what_somebody_broke_is_said(half, broken, file):
    """Not taken for a new run, which would measure all of it again without a word."""
    (path,) = half.journal.directory.rglob(file)
    path.write_text(broken)
    with pytest.raises(UserError, match=rf"^\S+{file} cannot be read: remove \S+run, and begin anew$"):
        half.journal.plan() if file == "plan.json" else half.journal.record("installed")


def test_one_run_of_a_machine_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["scripts/run.py", "--profile", "standard", "\udcfc"])
    monkeypatch.setattr(measuring, "NAMED", 0.5)
    line = rf"^box is being measured already, by process {os.getpid()} \(run\.py --profile standard  \) "
    with held(tmp_path / "box"), held(tmp_path / "another"), pytest.raises(UserError, match=line):
        held(tmp_path / "box").__enter__()
    with held(tmp_path / "box"):
        pass
    assert not list(tmp_path.glob("*.holder"))


def test_who_has_just_begun_has_yet_to_say_so(tmp_path):
    """Between taking the lock and writing the name lies a moment in which another may look."""
    line = r"^box is being measured already, by process 7 \(run\.py\) since 12:00: wait for it, or use --machine$"
    named = threading.Timer(0.3, (tmp_path / "box.holder").write_text, ["process 7 (run.py) since 12:00"])
    with FileLock(tmp_path / "box.lock"), pytest.raises(UserError, match=line):
        named.start()
        held(tmp_path / "box").__enter__()
    named.join()


# Histories -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def history(toy_asv, tmp_path, monkeypatch):
    """A function: a history of these releases measured, or gone on with; what failed, and the sessions in order."""
    monkeypatch.setattr(measuring.Runner, "file_failure", lambda runner, tag, reason: None)
    monkeypatch.setattr(measuring, "ROOT", tmp_path)
    monkeypatch.setattr(Suite, "results", property(lambda suite: tmp_path / "suite" / "reports" / "results"))
    monkeypatch.setattr(environments, "prepare", lambda *arguments: tmp_path)
    monkeypatch.setattr(environments, "installed_in", lambda environment, wanted: wanted)

    def measure(*tags, **more):
        made, failed = run_in(tmp_path, tags=tags, **more)
        return [*failed], made.journal.filed()

    return measure


OLD, MIDDLE, NEW = "torch-2.0.1", "torch-2.6.0", "torch-2.13.0"


def test_the_reference_is_measured_first_and_last(history, tmp_path):
    whole = ([], [OLD, NEW, MIDDLE, f"{OLD}-{AGAIN}"])
    assert history(OLD, NEW, MIDDLE) == whole
    assert history(OLD, NEW, MIDDLE) == whole, "killed while the page is built: not a third time"
    shutil.rmtree(tmp_path / "run" / "filed" / f"3-{OLD}-{AGAIN}")
    assert history(OLD, NEW, MIDDLE) == whole, "killed before it was measured again"


def test_the_first_that_can_be_measured_is_the_reference(history, monkeypatch, tmp_path):
    installed = itertools.chain([environments.InstallError("no wheel")], itertools.repeat(tmp_path))
    monkeypatch.setattr(environments, "prepare", Mock(side_effect=installed))
    assert history(OLD, NEW, MIDDLE) == ([OLD], [NEW, MIDDLE, f"{NEW}-{AGAIN}"])
    failed, filed = history(OLD, NEW, MIDDLE)
    assert not failed and filed[3:] == [OLD, f"{NEW}-{AGAIN}"], "what has come is between two of the reference"


@pytest.mark.parametrize("now", [{NAME: {**TOY, "version": "v2"}}, {"toy.New": TOY}])
def test_rounds_by_other_benchmarks_are_not_gone_on_with(now, history, toy_asv, tmp_path):
    """An edit between an interruption and --resume: two versions would be pooled in one figure."""
    runner_in(tmp_path, tags=(OLD, NEW)).take(Job(OLD, 0))
    toy_asv.benchmarks = now
    line = r"^benchmarks/ changed since the interrupted run: begin anew without --resume, or remove \S+/run$"
    with pytest.raises(UserError, match=line):
        history(OLD, NEW, rounds=2)


def test_a_release_that_is_no_more_is_named(toy_asv, tmp_path):
    """It is gone from releases.json since the run was interrupted; a run that begins anew does without it."""
    made = runner_in(tmp_path, tags=("torch-0.1", NEW))
    made.journal.begin()
    made.journal.keep(Job("torch-0.1", 0), Record(Toolchain("torch-0.1"), {}))
    with pytest.raises(UserError, match=r"^torch-0\.1 of the interrupted run is not in releases\.json: restore "):
        measuring.begun(made.journal, made.plan)
    made.file_whole()
    assert not made.journal.filed()


def test_of_counts_alone_nothing_is_taken_again(history, toy_asv, tmp_path):
    """They do not drift, and one round is all there is."""
    toy_asv.benchmarks = COUNTS
    assert history(OLD, NEW, rounds=2) == ([], [OLD, NEW])
    records = [json.loads(path.read_text()) for path in tmp_path.rglob("box/*.jsonl")]
    assert [(record["rounds"], record["planned"]) for record in records] == [(1, 1), (1, 1)]
    shutil.rmtree(tmp_path / "run")
    assert history(OLD, rounds=2, beside=(OLD,)) == ([], [OLD]), "nor beside an earlier session"


def test_sessions_stand_beside_those_that_are_there_if_asked_for(history, tmp_path):
    assert history(NEW) == ([], [NEW]), "one release has no reference"
    shutil.rmtree(tmp_path / "run")
    assert history(NEW, beside=(NEW,), day=26) == ([], [NEW])
    (path,) = tmp_path.rglob(f"*{files.MEASUREMENTS}")
    assert len({line["run"] for line in files.read_measurements(path)}) == 2


def test_toolchains_of_a_history_are_staggered():
    """As many at a time as environments allow; what one has whole is whole before the next but so many begins."""
    one, two, four = (staggered(4, 4, abreast) for abreast in (0, 2, 4))
    assert one == staggered(4, 4, 1) == [(place, number) for place in range(4) for number in range(4)]
    assert two[:8] == [(0, 0), (0, 1), (0, 2), (1, 0), (0, 3), (1, 1), (1, 2), (2, 0)]
    assert four[:10] == [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (2, 0), (0, 3), (1, 2), (2, 1), (3, 0)]
    assert staggered(4, 4, 9) == four and staggered(2, 1, 4) == [(0, 0), (1, 0)]
    for order in (two, four):
        assert sorted(order) == one and [place for place, number in order if number == 3] == [0, 1, 2, 3]


def test_nothing_is_installed_ahead_where_it_would_take_a_place_that_is_needed(monkeypatch):
    """Two may stay: the toolchain that is measured, and the reference."""
    monkeypatch.setattr(measuring, "session", None)
    coming = ledger.tagged()[MIDDLE]
    for keep, arguments in (("3", (None, None)), ("2", (coming, None)), ("3", (coming, coming))):
        monkeypatch.setenv(environments.KEEP_VARIABLE, keep)
        with measuring.installing(*arguments):
            pass


def test_drift_is_later_over_sooner():
    def taken(**cells):
        about = {"run": "1", "round": 0}
        return [line_of(f"{NAME}({name})") | about | {"seconds": [took] * 4} for name, took in cells.items()]

    before, after = taken(a=1.0, b=2.0, gone=2.0), taken(a=2.0, b=2.0, new=1.0)
    assert drift(before, after) == {"cells": 2, "median": 1.5} and drift([], []) == {"cells": 0}


# Two sides -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cells, noisy, rounds",
    [
        (3, (), 4),
        (0, (), 1),  # counts alone are whole after one
        (3, (1, 3), 6),  # of base, and of new: pairs are rounds that were quiet on both
        (3, (1, 4, 5, 8), 4),  # all of base: what never was quiet on a side is not waited for
        (3, range(1, 99, 2), 7),  # of base in a round, of new in the next: half as long again, and a round at most
    ],
)
def test_sides_take_turns_until_cells_have_pairs(cells, noisy, rounds, toy_asv, tmp_path, monkeypatch):
    """These processes of one cell are noisy, and each job takes as long as the others. Both sides are filed."""
    order = []
    monkeypatch.setattr(measuring, "time", SimpleNamespace(monotonic=lambda: float(len(order))))
    toy_asv.slow = lambda cell, attempt: cell == CELLS[1] and attempt in noisy
    toy_asv.benchmarks |= COUNTS
    made = runner_in(tmp_path, 4)
    made.sides, take = {side: Suite(tmp_path / side) for side in measuring.SIDES}, made.take
    made.take = lambda job: (order.append((job.round, job.side, len(job.cells))), take(job))[1]
    for side in measuring.SIDES:  # as measure_sides does, before anything is planned
        counted = made.open(Job("", 0, side)).cells.counted[:1]
    measuring.collect(made, CELLS[:cells], counted)
    turns = {number: (["base", "new"], ["new", "base"])[number % 2] for number in range(rounds)}
    timed = {number: cells if number < 4 else 1 for number in turns}
    assert order == [(number, side, timed[number] + (number == 0)) for number in turns for side in turns[number]]
    assert made.progress.total == 2 * sum(timed.values())
    filed = [record.rounds for path in tmp_path.rglob("box/*.jsonl") for record in files.read_records(path)]
    assert filed == [rounds, rounds]


def test_the_environments_of_sides_are_the_checkouts(tmp_path):
    python = Path(sys.executable)
    made = measuring.runner_of(2, tmp_path, [(python, ""), (python, HERE.commit)], Plan("box", "toy", "", 8)).sides
    assert made["new"].commit == HERE.commit and made["new"].root == tmp_path / "new-fresh"
    assert (tmp_path / "base-fresh" / ENVIRONMENTS).is_symlink()
