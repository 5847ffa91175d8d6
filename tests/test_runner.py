"""The runner and its journal: noisy cells get another process, and an interruption of a run costs at most one job."""

import contextlib
import itertools
import json
import math
import multiprocessing
import os
import random
import re
import shutil
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from unittest.mock import Mock, patch

import filed_runs
import pytest
import resultfiles
from cli import UserError
from conftest import run
from filelock import FileLock
from measuring import engine, journal, retaking, runner
from measuring.engine import ENVIRONMENTS, FILES, LOG, Suite
from measuring.journal import REPEAT, Job, Journal, Plan, lock_directory
from measuring.processes import Progress
from measuring.profiles import PROFILES, Profile, Rule
from measuring.retaking import PASSES, budget
from measuring.runner import Runner, staggered, start_runner
from measuring.session import Clock
from resultfiles import Bench, steady
from store import files, quiet
from store.schema import RunRecord, Settings, Toolchain
from toolchains import environments, ledger

# A suite of sixty cells with an asv that logs what a test wants; journal, files and filing are real ------------------

BENCH = Bench("toy.Toy.timeit_call", {"number": range(60)}, {})
NAME, TOY = BENCH.name, BENCH.description()
COUNTS = {"toy.Counts": {**TOY, "name": "toy.Counts", "type": "track", "repeated": True}}
CELLS = [*map(BENCH.spelled, BENCH.keys())]
HERE = ledger.Toolchain("2.13.0+cpu", "2.4.6")
EVER = range(1, 99)  # attempts


@dataclass(frozen=True)
class ToySuite(Suite):
    """The suite, on a Python 3.11 that has HERE, and whose processes are those of ``toy``."""

    toy: object = None
    python_version = "3.11.7"

    def current_toolchain(self):
        return HERE

    def installed(self):
        return HERE

    def prepare(self):
        return self.toy.prepare(self)

    def needs_install(self, toolchain):
        return False

    def settings(self, python):
        return Settings(python="3.11.7")

    def read_libraries(self, python):
        self.toy.read.append(python)

    def discover(self, machine):
        return self.toy.benchmarks

    def measure(self, *arguments, **more):
        self.toy.measure(*arguments, **more)

    def run_asv(self, *arguments, **more):
        """Nothing is exported for a toolchain that failed."""


class Toy:
    """The suite, in ``place``, and its asv. Each of asv's processes reports that it took ``took`` seconds.

    slow      cell -> numbers of its noisy attempts
    now       the runner's clock; it stands still, because the time that a run takes decides how long it may wait
    ran       cells of each run of asv
    patience  seconds that each run of asv may wait
    """

    def __init__(self, place):
        self.place, self.slow, self.took, self.now = place, {}, 0.1, lambda: 0.0
        self.ran, self.patience, self.read, self.attempts, self.benchmarks = [], [], [], Counter(), {NAME: TOY}
        moments = map(datetime.fromtimestamp, itertools.count(), itertools.repeat(timezone.utc))
        self.clock = Clock(lambda: next(moments), lambda: self.now())
        self.prepare = lambda suite: (suite.python, ledger.toolchains_by_commit().get(suite.commit, HERE))

    @property
    def suite(self):
        return ToySuite(self.place / "suite", toy=self)

    def measure(self, cells, machine, place, advance, patience=(0.0, 0), cores=()):
        self.ran.append([*cells])
        self.patience.append(patience[0])
        bench = replace(BENCH, cells={(number,): 1e-6 for number, cell in enumerate(CELLS) if cell in cells})
        self.attempts.update([*bench.cells])
        noisy = [(key, 0) for key in bench.cells if self.attempts[key] in self.slow.get(BENCH.spelled(key), ())]
        with (place / LOG).open("a", encoding="utf-8") as log:
            for line in bench.lines(noisy, steady):
                del line["run"], line["round"]  # the runner adds them; a process does not know them
                log.write(json.dumps(line | {"took": self.took}) + "\n")
                log.flush()
                advance()
        resultfiles.write(place / FILES, [bench], machine, [], HERE.commit)

    def runner(self, rounds=1, **more):
        """Return the runner of a new or resumed run. Without ``tags`` it measures the installed toolchain."""
        plan = Plan("box", "toy", "", rounds, command="a test", **more)
        made = Runner(Journal(self.place / "run"), plan, self.suite, clock=self.clock)
        made.journal.save(plan)
        return made

    def history(self, *tags, **more):
        """Measure a history of these releases, or resume it. Return the failed releases, and the sessions in order."""
        made = self.runner(tags=tags, **more)
        return [*made.measure()], made.journal.filed()

    def check_whole(self, rounds=2, racing=None):
        """Check that each process was filed once. racing: the number of cells that go on after the first round."""
        _, lines = filed_runs.check_whole(self.place, rounds)
        assert len(lines) == (len(CELLS) * rounds if racing is None else len(CELLS) + racing * (rounds - 1))


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.setitem(PROFILES, "toy", Profile(1, 1.0, (Rule(r"toy\..*"),)))
    return Toy(tmp_path)


# Rounds -------------------------------------------------------------------------------------------------------------

THREE, TWELVE, LOST = CELLS[:3], CELLS[:12], CELLS[50:52]
LATER = dict.fromkeys(CELLS[:10], EVER[1:])


@pytest.mark.parametrize(
    "slow, rounds, took, ran, lacking",
    [
        ({}, 2, 0.1, [CELLS, CELLS], []),
        ({CELLS[7]: [1]}, 1, 0.1, [CELLS, CELLS[7:8]], []),
        (dict.fromkeys(THREE, EVER), 1, 0.1, [CELLS, *[THREE] * PASSES], THREE),
        # the first of two rounds gets one more pass: the second round judges its cells, too
        (dict.fromkeys(THREE, EVER), 2, 0.1, [CELLS, THREE, CELLS, *[THREE] * PASSES], THREE),
        # a budget of twelve seconds, of which asv's start takes four: time for five more processes, or for none
        (dict.fromkeys(TWELVE, EVER), 1, 1.5, [CELLS, *[TWELVE[:5]] * PASSES], TWELVE),
        (dict.fromkeys(TWELVE, EVER), 1, 9.0, [CELLS], TWELVE),
        # a first round wholly in a slow phase looks quiet until the second round shows the machine's full speed
        (dict.fromkeys(CELLS, [1]), 2, 0.1, [CELLS, CELLS, CELLS], []),
        # a budget of twenty seconds: time for two processes, for the cells without a quiet process
        (LATER | dict.fromkeys(LOST, EVER), 2, 9.0, [CELLS, CELLS, *[LOST] * PASSES], [*LOST, *LATER]),
    ],
)
def test_noisy_cells_get_new_processes_within_the_budget(slow, rounds, took, ran, lacking, toy):
    """lacking: the cells that still lack a quiet process in a round"""
    toy.slow, toy.took = slow, took
    made = toy.runner(rounds)
    made.measure()
    assert toy.ran == ran
    record, lines = filed_runs.check_whole(toy.place, rounds)
    run = quiet.Run(lines)
    assert list(run.lacking()) == lacking
    assert (record.noisy_cells, record.quiet) == (run.never_quiet(), round(run.quiet_share(), 4))
    assert (record.baselines, record.waited) == ({"processor": 25_000.0}, 0)
    assert made.progress.done == made.progress.total == sum(map(len, ran))
    assert toy.read == [Path(sys.executable)] * rounds, "libraries are read anew before each round"


FIRST = (Rule(r"toy\..*", number=[7, 3]),)


def race(runner, job):
    """Stop most cells after the first round, as its journal shows. File what is measured."""
    assert len(runner.journal.lines(job)) >= len(CELLS) or not job.round
    runner.file(job, complete=False)
    return {"decided": tuple(CELLS[10:])}


def test_what_a_profile_has_first_is_measured_and_filed_before_the_rest(toy, monkeypatch):
    monkeypatch.setitem(PROFILES, "toy", replace(PROFILES["toy"], first=FIRST))
    filed = []

    def judge(runner, job):
        runner.file(job, complete=False)
        (path,) = toy.place.rglob("box/*.jsonl")
        filed.append((job.round, len(files.read_measurements(path)), files.read_records(path)[0].rounds))
        return {}

    toy.runner(2).measure(judge)
    first = [CELLS[3], CELLS[7]]
    assert toy.ran == [first, [cell for cell in CELLS if cell not in first], CELLS]
    assert filed == [(0, 2, 0), (1, 60, 1)]
    assert len(toy.read) == 2, "libraries are read anew once in each round"
    assert sum(toy.patience[:2]) == pytest.approx(toy.patience[2] / 2)


@pytest.mark.parametrize(
    ("reasons", "slow", "later"),
    [
        (race, {}, [CELLS[:10], CELLS[:10]]),
        # noisy ones: 0 goes on; 20 stopped and never was quiet; 30 stopped, and was quiet in the end
        (race, {CELLS[0]: [2], CELLS[20]: EVER, CELLS[30]: [1]}, [CELLS[:10], [CELLS[20], CELLS[0]], CELLS[:10]]),
        (lambda runner, job: {"decided": tuple(CELLS)}, {}, []),
    ],
)
def test_a_race_goes_on_with_the_cells_that_did_not_stop(reasons, slow, later, toy):
    toy.slow = slow
    made = toy.runner(3)
    made.measure(reasons)
    first, *rest = (cells for cells in toy.ran if not {*cells} <= {CELLS[20], CELLS[30]})
    assert (first, rest) == (CELLS, later)
    record, _ = filed_runs.check_whole(toy.place, 3)
    assert (record.rounds, record.planned) == (3, 3), "no round is missing"
    assert made.progress.done == made.progress.total == sum(map(len, toy.ran))


def test_a_race_replaces_an_earlier_run(toy):
    for _ in range(2):
        toy.runner(3).measure(race)
        shutil.rmtree(toy.place / "run")
        toy.check_whole(rounds=3, racing=10)


def test_a_profile_limits_how_long_processes_wait():
    assert budget(100, "tracking") == pytest.approx(0.75 * budget(100, "standard"))
    assert budget(1000, "quick") == 60.0 and budget(250, "quick", 1000) == 15.0


HARDLY_QUIET = {cell: EVER for number, cell in enumerate(CELLS) if number % 5}


@pytest.mark.parametrize(
    ("slow", "longest", "patience"),
    [
        ({}, 100.0, [8, 16, 24]),
        ({}, 15.0, [8, 10, 10]),
        ({}, -1.0, [8, 0, 0]),
        (HARDLY_QUIET, 100.0, [8, 0, 0]),
        (HARDLY_QUIET, -1.0, [8]),
        (HARDLY_QUIET, float("inf"), [8, 16, 24]),
    ],
)
def test_a_quick_run_waits_within_its_time_limit_and_stops_early(slow, longest, patience, toy, monkeypatch):
    """HARDLY_QUIET: one cell in five is quiet. Without any quiet cell the slow level would become the baseline."""
    monkeypatch.setitem(PROFILES, "toy", replace(PROFILES["toy"], time_limit=longest))
    toy.slow = slow
    made = toy.runner(3)
    made.measure()
    assert [round(each) for cells, each in zip(toy.ran, toy.patience) if cells == CELLS] == patience
    assert made.journal.filed() == ["installed"]


def test_counts_come_first_and_once_and_later_rounds_take_less(toy, monkeypatch):
    """While instructions are counted, other work may run, such as an installation. It would disturb timing."""
    rules = Rule(r"toy\..*", number=[8]), Rule(r"toy\..*", rounds=1, number=[9])
    monkeypatch.setitem(PROFILES, "toy", Profile(3, 1.0, rules))
    toy.benchmarks |= COUNTS
    made, order = toy.runner(3), toy.ran

    @contextlib.contextmanager
    def meanwhile():
        order.append("begun")
        yield
        order.append("ended")

    made.planned = [Job("", number) for number in range(3)]
    for job in made.planned:
        made.take(job, meanwhile())
    assert made.progress.done == made.progress.total == 4
    made.take(Job("", 0, REPEAT), meanwhile())
    both, one, counts = CELLS[8:10], CELLS[8:9], ["toy.Counts(8)", "toy.Counts(9)"]
    assert order == ["begun", counts, "ended", both, one, one, both], "nothing is counted beside an earlier session"


def test_progress_prints_the_time_left(capsys):
    """The runner prints at most one line per 15 seconds, and only for another percent."""
    seconds = iter([0, 10, 60, 80, 120])
    progress = Progress("measuring", 60, seconds.__next__)
    for done in (0, 30, 30, 30, 60):
        progress.at(done)
    assert capsys.readouterr().out == "measuring: 50%, 60 s left\nmeasuring: 100%\n"


# A run that is stopped -----------------------------------------------------------------------------------------------

CHANGES = ("open", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.copyfile", "shutil.rmtree")
KILLS = int(os.environ.get("CONVERSION_KILLS", "0"))  # aimed at each change of a file; 0: some of them, once


def stopped_at(event, toy):
    """Start a run of two rounds in a child process that exits at its change number ``event`` of a file. Return whether
    the run got that far."""

    def run():
        seen = itertools.count(1)

        def watch(name, arguments):
            change = name in CHANGES and not (name == "open" and arguments[1] in ("r", "rb"))
            if change and next(seen) == event:
                os._exit(9)

        sys.addaudithook(watch)
        toy.runner(3).measure(race)

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join()
    assert child.exitcode in (0, 9)
    return child.exitcode == 9


@pytest.fixture
def half(toy):
    """A run of two rounds. The first is complete."""
    made = toy.runner(2)
    made.take(Job("", 0))
    return made


def test_a_new_run_files_complete_sessions_of_an_interrupted_run(half, toy):
    """The run was killed after its last round, before filing it. A new run then begins."""
    toy.runner(2).file_complete_sessions()
    assert not half.journal.filed(), "half of a run is none"
    half.take(Job("", 1))
    toy.runner(2).file_complete_sessions()
    assert half.journal.filed() == ["installed"]
    toy.check_whole()


@pytest.mark.slow
def test_a_run_stopped_at_any_change_of_a_file_loses_and_repeats_nothing(toy, monkeypatch):
    """Stop a race at many of the changes that it makes to files (with CONVERSION_KILLS at each), and resume it.

    A file system keeps what a process has written, of whatever type it is: the fastest one will do.
    """
    monkeypatch.setitem(PROFILES, "toy", replace(PROFILES["toy"], first=FIRST))
    disk = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    for _ in range(1 + math.ceil(KILLS / 100)):
        event, stopped = 0, True
        while stopped:
            event += 1 if KILLS else random.Random(event).randint(2, 8)
            with tempfile.TemporaryDirectory(dir=disk) as place:
                toy.place = Path(place)
                stopped = stopped_at(event, toy)
                left = Journal(toy.place / "run")
                assert left.plan() is not None or event < 10
                assert list(left.rounds(Job(""))) in ([], [0], [0, 1], [0, 1, 2])
                toy.runner(3).measure(race)
                toy.check_whole(rounds=3, racing=10)
        assert event > 60


def test_results_that_asv_files_during_a_run_stay(toy):
    """`asv run` filed a cell during a run. The runner must merge with the current file, not with that of its start."""
    made, results = toy.runner(), toy.place / "suite" / "reports" / "results"
    made.take(Job("", 0, cells=tuple(CELLS[:30])))
    resultfiles.write(results, [replace(BENCH, cells={(40,): 5.0})], records=[], commit=HERE.commit)
    next(results.glob(f"box/*{files.MEASUREMENTS}")).unlink()  # asv files none
    made.file(Job("", 0))
    (path,) = files.result_files(results)
    figures, *_ = json.loads(path.read_text())["results"][NAME]
    assert figures[40] == 5.0 and figures[0] == pytest.approx(1e-6)


def test_a_quick_look_adds_to_a_whole_run(toy):
    """A run with fewer rounds than the filed one has fewer processes per cell, so it is added. A run with as many
    rounds or more replaces the earlier runs, and their records.

    Each run is filed after every round.
    """
    # rounds of the run, and rounds of the runs that are filed after it
    for rounds, filed in ((2, [2]), (1, [2, 1]), (3, [3])):
        made = toy.runner(rounds)
        made.measure(lambda runner, job: runner.file(job, complete=False) and {})
        made.journal.forget()
        (path,) = toy.place.rglob("box/*.jsonl")
        records = files.read_records(path)
        assert [record.rounds for record in records] == filed
        taken = {(line.run, line.round) for line in files.read_measurements(path)}
        assert taken == {(record.started, number) for record in records for number in range(record.rounds)}


def test_resume_with_fewer_rounds_files_the_finished_ones(half, toy):
    """With --resume and as many rounds as are complete, the run is filed."""
    toy.runner(1).measure(race)
    toy.check_whole(rounds=1)


def test_a_full_disk_costs_a_job(half, toy):
    full = patch.object(Path, "write_text", side_effect=OSError("no space left on device"))
    with full, pytest.raises(OSError, match="space"):
        half.take(Job("", 1))
    assert list(half.journal.rounds(Job(""))) == [0]
    toy.runner(2).measure()
    toy.check_whole()


BROKEN = ["{", "[]", "{}", "[" * 100_000, '{"toolchain": {"tag": "t"}, "skipped": {}, "rounds": "two"}']


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("file", ["run.json", "plan.json"])
def test_a_broken_journal_is_an_error_that_names_the_file(half, broken, file):
    """A broken journal must not pass for a new run, which would silently measure everything again."""
    (path,) = half.journal.directory.rglob(file)
    path.write_text(broken)
    with pytest.raises(UserError, match=rf"^\S+{file} cannot be read: remove \S+run, and begin anew$"):
        half.journal.plan() if file == "plan.json" else half.journal.record(Job(""))


def test_the_plan_of_a_run_begun_by_an_earlier_version_is_read(tmp_path):
    old = {"machine": "box", "profile": "toy", "only": "", "rounds": 2, "tags": ["a"], "command": "c", "beside": ["a"]}
    files.put(tmp_path / "plan.json", json.dumps({**old, "reference": "", "fleet": {}}))
    journal = Journal(tmp_path)
    assert journal.plan() == Plan("box", "toy", "", 2, ("a",), "c", additional=("a",))
    journal.save(journal.plan())
    assert json.loads((tmp_path / "plan.json").read_text())["beside"] == ["a"]


def test_one_process_at_a_time_measures_a_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["scripts/run.py", "--profile", "standard", "\udcfc"])
    monkeypatch.setattr(journal, "LOCK_SECONDS", 0.5)
    line = rf"^box is being measured already, by process {os.getpid()} \(run\.py --profile standard  \) "
    with lock_directory(tmp_path / "box"), lock_directory(tmp_path / "another"), pytest.raises(UserError, match=line):
        lock_directory(tmp_path / "box").__enter__()
    with lock_directory(tmp_path / "box"):
        pass
    assert not list(tmp_path.glob("*.holder"))


def test_a_lock_waits_for_the_name_of_its_holder(tmp_path):
    """A process takes the lock first and writes its name a moment later. Another process may look in between."""
    line = r"^box is being measured already, by process 7 \(run\.py\) since 12:00: wait for it, or use --machine$"
    with FileLock(tmp_path / "box.lock"), pytest.raises(UserError, match=line):
        threading.Timer(0.3, (tmp_path / "box.holder").write_text, ["process 7 (run.py) since 12:00"]).start()
        lock_directory(tmp_path / "box").__enter__()


# Histories -----------------------------------------------------------------------------------------------------------

OLD, MIDDLE, NEW = "torch-2.0.1", "torch-2.6.0", "torch-2.13.0"


def test_the_reference_is_measured_first_and_last(toy):
    whole = ([], [OLD, NEW, MIDDLE, f"{OLD}-{REPEAT}"])
    assert toy.history(OLD, NEW, MIDDLE) == whole
    assert toy.history(OLD, NEW, MIDDLE) == whole, "killed while the page is built: not a third time"
    shutil.rmtree(toy.place / "run" / "filed" / f"3-{OLD}-{REPEAT}")
    assert toy.history(OLD, NEW, MIDDLE) == whole, "killed before it was measured again"


def test_the_first_that_can_be_measured_is_the_reference(toy, monkeypatch):
    installed = itertools.chain([environments.InstallError("no wheel")], map(toy.prepare, itertools.repeat(toy.suite)))
    toy.prepare = Mock(side_effect=installed)
    assert toy.history(OLD, NEW, MIDDLE) == ([OLD], [NEW, MIDDLE, f"{NEW}-{REPEAT}"])
    failed, filed = toy.history(OLD, NEW, MIDDLE)
    assert not failed and filed[3:] == [OLD, f"{NEW}-{REPEAT}"], "what has come is between two of the reference"


@pytest.mark.parametrize("now", [{NAME: {**TOY, "version": "v2"}}, {"toy.New": TOY}])
def test_resume_refuses_rounds_of_other_versions(now, toy):
    """benchmarks/ was edited between an interruption and --resume. One figure must not pool two versions."""
    toy.runner(tags=(OLD, NEW)).take(Job(OLD, 0))
    toy.benchmarks = now
    line = r"^benchmarks/ changed since the interrupted run: begin anew without --resume, or remove \S+/run$"
    with pytest.raises(UserError, match=line):
        toy.history(OLD, NEW, rounds=2)


def test_resume_refuses_rounds_of_edited_code(toy, monkeypatch):
    """The versions are equal, as after an edit that versions.lock does not know yet."""
    toy.runner(tags=(OLD, NEW)).take(Job(OLD, 0))
    monkeypatch.setattr(ToySuite, "code_hash", lambda suite: "edited")
    with pytest.raises(UserError, match="^benchmarks/ changed since the interrupted run: "):
        toy.history(OLD, NEW, rounds=2)


def test_resume_names_a_release_that_was_removed(toy):
    """A release was removed from releases.json after the run was interrupted. A new run ignores it."""
    made = toy.runner(tags=("torch-0.1", NEW))
    made.journal.begin()
    made.journal.keep(Job("torch-0.1", 0), RunRecord(Toolchain("torch-0.1"), {}))
    with pytest.raises(UserError, match=r"^torch-0\.1 of the interrupted run is not in releases\.json: restore "):
        start_runner(made.journal, made.plan)
    made.file_complete_sessions()
    assert not made.journal.filed()


def test_the_reference_is_not_repeated_for_instruction_counts(toy):
    """Instruction counts do not vary, and have one round, so the reference is not measured again for them."""
    toy.benchmarks = COUNTS
    files.put(toy.suite.root / engine.REVISION, "abc-dirty")
    assert toy.history(OLD, NEW, rounds=2) == ([], [OLD, NEW])
    records = [json.loads(path.read_text()) for path in toy.place.rglob("box/*.jsonl")]
    assert [tuple(map(record.get, ("rounds", "planned", "revision"))) for record in records] == [
        (1, 1, "abc-dirty")
    ] * 2
    shutil.rmtree(toy.place / "run")
    assert toy.history(OLD, rounds=2, additional=(OLD,)) == ([], [OLD]), "nor beside an earlier session"


def test_the_revision_is_that_of_the_code(tmp_path):
    """Results and pages are no code. A copy has the revision of the original; without git, as in a tarball, none."""
    root, copy = tmp_path / "checkout", tmp_path / "copy"
    commit = "git init -q; git add .; git -c user.name=x -c user.email=x@y.z commit -qm x; git rev-parse HEAD"
    changes = ["true", commit, "echo > page", "echo > scripts/new.py", "git add .; rm -r .git"]
    found = []
    for change in changes:
        files.put(root / "scripts" / "run.py", "")
        run("sh", "-c", change, cwd=root, home=tmp_path)
        found.append(engine.revision_of(root))
        engine.copy_code(root, copy)
        assert engine.revision_of(copy) == found[-1]
    hash = found[1]
    assert re.fullmatch("[0-9a-f]{40}", hash) and found == ["", hash, hash, f"{hash}-dirty", ""]


def test_additional_sessions_replace_no_earlier_ones(toy):
    assert toy.history(NEW) == ([], [NEW]), "one release has no reference"
    shutil.rmtree(toy.place / "run")
    assert toy.history(NEW, additional=(NEW,)) == ([], [NEW])
    (path,) = toy.place.rglob(f"*{files.MEASUREMENTS}")
    assert len({line.run for line in files.read_measurements(path)}) == 2


def test_toolchains_of_a_history_are_staggered():
    """The third argument is how many toolchains are in progress at a time, as environments allow. A toolchain is
    complete before the one that many places later begins."""

    def order(*given):
        return " ".join(f"{toolchain}{number}" for toolchain, number in staggered(*given))

    assert order(4, 4, 0) == order(4, 4, 1) == "00 01 02 03 10 11 12 13 20 21 22 23 30 31 32 33"
    assert order(4, 4, 2) == "00 01 02 10 03 11 12 20 13 21 22 30 23 31 32 33"
    assert order(4, 4, 4) == order(4, 4, 9) == "00 01 10 02 11 20 03 12 21 30 13 22 31 23 32 33"
    assert order(2, 1, 4) == "00 10"


def test_no_release_is_installed_ahead_in_a_place_that_is_needed(monkeypatch):
    """With two environments allowed, both are needed: one for the measured toolchain, one for the reference."""
    monkeypatch.setattr(engine, "os_session", None)
    coming = ledger.toolchains_by_tag()[MIDDLE]
    installed = type("Installed", (Suite,), {"current_toolchain": lambda suite: coming})
    for keep, suite, tag in (("3", Suite(), None), ("2", Suite(), MIDDLE), ("3", installed(), MIDDLE)):
        monkeypatch.setenv(environments.LIMIT_VARIABLE, keep)
        with suite.install_ahead(tag):
            pass


# Two sides -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cells, noisy, rounds",
    [
        (3, (), 4),
        (0, (), 1),  # instruction counts alone need one round
        (3, (1, 3), 6),  # one noisy process on each side: a pair is a round that was quiet on both
        (3, (1, 4, 5, 8), 4),  # all processes of base: a cell without a quiet process on a side gets no extra round
        (3, range(1, 99, 2), 7),  # base in one round, new in the next: extra rounds for half the time, and one more
    ],
)
def test_sides_take_turns_until_cells_have_pairs(cells, noisy, rounds, toy, monkeypatch):
    """The processes ``noisy`` of one cell are noisy, and all jobs take equally long. Both sides are filed.

    No process is repeated in its round: the other side has no counterpart measured at the same time.
    """
    monkeypatch.setattr(retaking, "WAIT_SECONDS", 10.0)
    toy.slow, toy.now = {CELLS[1]: noisy}, lambda: float(made.take.call_count)
    toy.benchmarks |= COUNTS
    suites = {side: replace(toy.suite, root=toy.place / side) for side in runner.SIDES}
    made = Runner(Journal(toy.place / "run"), Plan("box", "toy", "", 4), toy.suite, suites, clock=toy.clock)
    made.take = Mock(wraps=made.take)
    runner.collect(made, lambda: runner.Outlook(True, [], 0), CELLS[:cells], ["toy.Counts(0)"])
    turns = {number: (["base", "new"], ["new", "base"])[number % 2] for number in range(rounds)}
    timed = {number: cells if number < 4 else 1 for number in turns}
    taken = [(job.round, job.side, len(job.cells)) for (job,), _ in made.take.call_args_list]
    assert taken == [(number, side, timed[number] + (number == 0)) for number in turns for side in turns[number]]
    assert toy.patience[-1] == 10 * (1 + sum(timed.values())), "all may be waited for the processes"
    assert made.progress.total == 2 * sum(timed.values())
    filed = [record.rounds for path in toy.place.rglob("box/*.jsonl") for record in files.read_records(path)]
    assert filed == [rounds, rounds]


@pytest.mark.parametrize("clear, taken", [((4,), 4), ((8, 12), 8), ((), 14)])
def test_a_stage_ends_early_once_its_answers_are_clear(clear, taken, toy):
    """Of at most 14 rounds. It looks after 4, 8 and 12, with both sides filed up to there."""
    suites = {side: replace(toy.suite, root=toy.place / side) for side in runner.SIDES}
    made = Runner(Journal(toy.place / "run"), Plan("box", "toy", "", 14), toy.suite, suites, clock=toy.clock)
    looked = []

    def records():
        return [files.read_records(path)[-1] for path in toy.place.rglob("box/*.jsonl")]

    def ask():
        looked.append([record.rounds for record in records()])
        return runner.Outlook(looked[-1][0] in clear, [], 0)

    runner.collect(made, ask, CELLS[:2])
    assert looked == [[rounds] * 2 for rounds in (4, 8, 12) if rounds <= taken]
    assert [(record.rounds, record.planned) for record in records()] == [(taken, taken)] * 2


def test_sides_use_the_environments_of_the_checkout(tmp_path):
    python = Path(sys.executable)
    made = runner.stage_runner(2, tmp_path, [(python, ""), (python, HERE.commit)], Plan("box", "toy", "", 8)).sides
    assert made["new"].commit == HERE.commit and made["new"].root == tmp_path / "new-fresh"
    assert (tmp_path / "base-fresh" / ENVIRONMENTS).is_symlink()
