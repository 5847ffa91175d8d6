"""One runner over one journal: it takes jobs, keeps complete jobs, and files complete sessions.

``run.py``, ``track.py``, ``compare.py --run`` and a node of a fleet differ only in their list of
jobs. A history is measured from coarse to fine, several toolchains at a time, and its reference
again at the end.

Two sides are measured in turns, A B B A, so that a machine's drift affects both. Conversions in one
thread even take turns sample by sample (benchmarks/core/turns.py). Each side has a copy of the
checkout's code, so that an edit meanwhile changes neither side, and its own Python, which runs asv
there. The copies are ``.asv/compare/ID/base`` and ``new``, in the second stage ``base-fresh`` and
``new-fresh``. Each holds results as any checkout does. Run records say which results belong
together.
"""

import contextlib
import itertools
import math
import os
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from cli import RESULTS, UserError
from msgspec import structs
from store import files, quiet
from store.schema import Measurement, Reasons, RunRecord, Settings, with_samples
from toolchains import environments, ledger
from toolchains.selection import Target

from . import engine
from .engine import CHECKOUT, FILES, Suite, announce
from .journal import REPEAT, Job, Journal, Plan
from .machine import Awake, check_machine, is_other_build
from .processes import Progress
from .profiles import PROFILES, Names, exact_patterns, select_cells
from .retaking import Context, Round, is_hopeless
from .session import (
    BenchmarksChanged,
    Session,
    Sessions,
    complete_record,
    file_measured,
    summary,
)

# Environments besides the measured ones: for the reference and for the next toolchain
SPARE_ENVIRONMENTS = 2
# Errors of one toolchain, which do not stop the others
TOOLCHAIN_ERRORS = (environments.InstallError, UserError)
SIDES = ("base", "new")
FRESH_ROUNDS = 8  # processes per side for close cells, at least
LOOK_EVERY = 4  # rounds, after which a stage ends if its answers are clear
# Quiet pairs that a verdict needs: statistics.MIN_PROCESSES. The measuring Python may lack packages
# to import it
MIN_QUIET_PAIRS = 4
# Of the rounds' time, in which extra rounds may begin for cells not quiet on both sides
EXTRA_TIME_SHARE = 0.5

# Roots of both sides -> what their results decide so far
Judge = Callable[[Path, Path], "Outlook"]
# Called before each job that continues a session, and during its first job after the first cells:
# why cells take no further process -> these cells
BeforeRound = Callable[["Runner", Job], Reasons]


@dataclass
class Runner(Sessions):
    """Take the jobs of a plan, inside a ``with`` block of ``device``.

    planned  all jobs, in order, for the estimate of the time left
    """

    planned: Sequence[Job] = ()

    def __post_init__(self) -> None:
        self.progress = Progress("measuring", clock=self.clock.monotonic)
        self.device = Awake()

    @property
    def reference(self) -> str:
        """The toolchain that is measured first and again at the end. "" if no toolchain could be
        measured so far."""
        tags = self.plan.tags
        filed = [tag for tag in self.journal.filed() if tag in tags]
        begun = [tag for tag in tags if self.journal.rounds(Job(tag))]
        return self.plan.reference or [*filed, *begun, ""][0]

    @property
    def remaining(self) -> list[str]:
        """The toolchains of the plan that are not filed."""
        filed = self.journal.filed()
        return [tag for tag in self.plan.tags if Job(tag).session not in filed]

    # --- the order of jobs ------------------------------------------------------------------------

    def measure(self, before_round: BeforeRound = lambda runner, job: {}) -> dict[str, str]:
        """Take the remaining jobs in staggered order, and file each session after its last round.
        With several toolchains, measure the reference again at the end. Return tag -> why a
        toolchain could not be measured.

        Toolchains that failed before are tried again: perhaps the network failed.

        before_round  see BeforeRound. It judges the journal alone, so a resumed run takes the same
                      cells
        """
        tags = self.remaining
        self.planned = self.jobs(tags)
        successors = dict(itertools.pairwise(tags))
        failures: dict[str, str] = {}
        ended: set[str] = set()
        with self.device:
            for job in self.planned:
                if job.side == REPEAT:
                    job = replace(job, tag=self.reference)
                    is_latest = self.journal.filed()[-1:] == [job.session]
                    if not job.tag or (is_latest and failures.keys() >= {*tags}):
                        continue  # nothing was measured since its last session
                if job.session in ended:
                    continue
                try:
                    is_over = self.take_round(job, successors.get(job.tag), before_round)
                except TOOLCHAIN_ERRORS as error:
                    if not job.tag or isinstance(error, BenchmarksChanged):
                        raise
                    announce(f"{job.tag} failed: {error}")
                    failures[job.tag] = str(error)
                    is_over = True
                if is_over:
                    ended.add(job.session)
                if self.reference:  # needed again: its environment must be removed last
                    toolchain = ledger.toolchains_by_tag()[self.reference]
                    environments.note_use(self.suite.environment_of(toolchain))
        for tag, reason in failures.items():
            self.file_failure(tag, reason)
        return failures

    def jobs(self, tags: Names) -> list[Job]:
        """Return the jobs of these toolchains in staggered order, and those of the reference at the
        end."""
        sessions = [Job(tag) for tag in tags]
        if len(self.plan.tags) > 1:
            sessions.append(Job(self.reference or tags[0], side=REPEAT))
        abreast = environments.environment_limit() - SPARE_ENVIRONMENTS
        order = staggered(len(sessions), self.plan.rounds, abreast)
        return [replace(sessions[place], round=number) for place, number in order]

    # --- a job ------------------------------------------------------------------------------------

    def take_round(self, job: Job, next_tag: str | None, before_round: BeforeRound) -> bool:
        """Take a job while the next release is installed, and file its session after the last one.
        Return whether the session has ended."""
        if job.side == REPEAT and not self.open(job).cells.timed:
            return True  # instruction counts do not drift
        is_over = job.round + 1 == self.plan.rounds
        if self.should_stop_early(job):
            is_over = True
            announce(
                f"ended after {len(self.journal.rounds(job))} of {self.plan.rounds} rounds: "
                "too noisy for more rounds to help; advise.py --measure decides for one array"
            )
        else:
            if job.round and not self.journal.has(job):
                session = self.open(job)
                session.record = structs.replace(session.record, stopped=before_round(self, job))
            self.take(job, self.suite.install_ahead(next_tag), lambda: before_round(self, job))
        if is_over:
            announce(summary(self.file(job)))
        return is_over

    def should_stop_early(self, job: Job) -> bool:
        """Whether this round would exceed the profile's time limit on a machine that is hardly
        quiet."""
        record = self.journal.record(job)
        if not record or not record.rounds:
            return False
        seconds = record.seconds * (1 + 1 / record.rounds)
        time_limit = PROFILES[self.plan.profile].time_limit
        return seconds > time_limit and is_hopeless(self.journal.lines(job))

    def take(
        self,
        job: Job,
        meanwhile: Context | None = None,
        after_first: Callable[[], object] = lambda: None,
        partner: Session | None = None,
    ) -> None:
        """Take a round, then new processes of noisy cells, as long as the budget allows; nothing if
        the round is complete already.

        meanwhile    context in which instructions are counted, before any timing
        after_first  see ``Round.take``
        partner      other side, whose next job has the same cells: see ``Round``
        """
        if self.journal.has(job):
            return
        session = self.open(job)
        self.check_versions(job)
        if self.planned:  # an estimate: other sessions may have fewer cells
            missing = [each for each in self.planned if not self.journal.has(each)]
            processes = self.count_processes(missing, session)
            self.progress.total = self.progress.done + processes
        cells = self.cells_in(job, session.cells)
        if not cells and job.round:
            return
        run = Round(
            job,
            session,
            self.plan,
            self.journal,
            self.device,
            self.progress,
            self.clock,
            partner,
        )
        run.take(session.racing(cells), meanwhile or contextlib.nullcontext(), after_first)

    # --- filing -----------------------------------------------------------------------------------

    def file(self, job: Job, complete: bool = True) -> RunRecord:
        """File a session's finished jobs: measurements, their export to asv's file, and the record.
        Return the record.

        They are merged with the present files, so that results which asv filed meanwhile are kept.
        Filing twice changes nothing. If no job of the session is finished, what its first job has
        is filed.

        complete  False: the session continues
        """
        session = self.open(job)
        places = [*self.journal.rounds(job).values()] or [self.journal.work]
        lines = [line for place in places for line in engine.read_log(place)]
        record = complete_record(session.record, lines, session.cells.unavailable)
        # counting is complete after one round
        planned = self.plan.rounds if session.cells.timed else record.rounds
        path = session.suite.result_file(record.machine, session.commit, record.settings.python)
        earlier = [line for line in files.read_measurements(path) if line.run != record.started]
        fresh = [
            structs.replace(line, run=record.started)
            for line in lines
            if isinstance(line, Measurement)
        ]
        record = structs.replace(record, planned=max(record.rounds, planned))
        stopped = {*itertools.chain(*record.stopped.values())} if complete else ()
        merged = files.merge(earlier, fresh, self.adds_to_earlier(job), stopped)
        file_measured(record, path, merged, places)
        if complete:
            self.journal.mark_filed(job.session)
            del self.opened[job.session]
        return structs.replace(record, file=files.result_name(path))

    def file_complete_sessions(self) -> None:
        """File the finished sessions of an interrupted run, before another run replaces it."""
        current = self.suite.current_toolchain()
        for job in map(Job, self.remaining):
            record = self.journal.record(job)
            tag = record and record.toolchain.tag
            is_known = job.tag in ledger.toolchains_by_tag() or (current and tag == current.tag)
            if tag and is_known and len(self.journal.rounds(job)) >= self.plan.rounds:
                self.file(job)
                announce(f"{tag}: was complete when the run was interrupted; filed now")

    def file_failure(self, tag: str, reason: str) -> None:
        """Let asv file the cells of a toolchain as failed, unless that would replace earlier
        results."""
        plan = self.plan
        suite = self.suite.of_release(tag)
        path = suite.result_file(plan.machine, suite.commit)
        if path.exists() or not self.benchmarks:
            return
        cells = select_cells(plan.profile, self.benchmarks, plan.only, "not looked for yet").names
        self.journal.begin()
        results = self.journal.work / FILES
        suite.run_asv(suite.asv(plan.machine, exact_patterns(cells)), results)
        if (results / plan.machine / path.name).is_file():
            record = self.new_record(Job(tag), ledger.toolchains_by_tag()[tag], Settings())
            record = structs.replace(record, failed=reason, failures={reason: tuple(cells)})
            file_measured(record, path, [], [self.journal.work])


def staggered(toolchains: int, rounds: int, abreast: int) -> list[tuple[int, int]]:
    """Return ordered jobs, (place of a toolchain, round): ``abreast`` toolchains at a time, each
    behind the last.

    A machine may take some percent longer for minutes, and no probe sees it. In this order it
    affects a round or two of several toolchains, whose rounds then differ. If it affected all
    rounds of one toolchain, it would look like a change.
    """
    part = math.ceil(rounds / max(1, min(abreast, rounds)))
    jobs = itertools.product(range(toolchains), range(rounds))
    return sorted(jobs, key=lambda job: (job[0] + job[1] // part, job[1] % part, job[0]))


# --- beginning a run ------------------------------------------------------------------------------


def choose_plan(
    journal: Journal, options: Namespace, fresh: Plan, toolchain_options: Names = ()
) -> Plan:
    """Return the plan of the interrupted run with --resume, else ``fresh``. A run that is not
    resumed is removed, after its complete sessions are filed.

    Raise UserError if there is nothing to resume, or if --resume comes with other options than that
    run had. Only the number of rounds may differ.

    toolchain_options  the options that choose toolchains
    """
    check_machine(RESULTS / fresh.machine)
    plan = journal.plan()
    if plan and options.resume:
        changed = [
            name for name in toolchain_options if getattr(options, name) and fresh.tags != plan.tags
        ]
        if plan.race and getattr(options, "no_race", False):
            changed.append("no-race")
        for name in ("profile", "only"):
            if getattr(options, name) not in (None, getattr(plan, name)):
                changed.append(name)
        if fresh.additional and not plan.additional:
            changed.append("again")
        if changed:
            raise UserError(
                f"the interrupted run had other options (--{', --'.join(changed)}): "
                "use --resume alone"
            )
        return structs.replace(plan, rounds=options.rounds or plan.rounds)
    if options.resume:
        raise UserError(f"nothing to resume on {fresh.machine}: leave out --resume")
    if plan:
        Runner(journal, plan).file_complete_sessions()
    journal.forget()
    return fresh


def start_runner(journal: Journal, plan: Plan) -> Runner:
    """Save a plan and return its runner. Raise UserError if results of that name come from another
    machine, or if a toolchain is no longer in releases.json."""
    for tag in sorted(plan.tags):
        if tag and tag not in ledger.toolchains_by_tag():
            raise UserError(
                f"{tag} of the interrupted run is not in {ledger.RELEASES.name}: restore it there, "
                f"begin anew without --resume, or remove {journal.directory}"
            )
    check_machine(RESULTS / plan.machine)
    engine.register(plan.machine)
    journal.save(plan)
    return Runner(journal, plan)


# --- two sides ------------------------------------------------------------------------------------


class Outlook(NamedTuple):
    """What the results of both sides decide so far.

    is_clear  whether further rounds of this stage would hardly change an answer
    again     the cells that fresh processes decide: the close ones, and others that show the noise
    close     the number of close ones
    """

    is_clear: bool
    again: Names
    close: int


def measure_sides(
    targets: Sequence[Target],
    plan: Plan,
    judge: Judge,
    suite: Suite = CHECKOUT,
    across_builds: bool = False,
) -> tuple[Path, Path]:
    """Measure both sides in turns, then close cells in fresh processes. Return the sides' roots of
    the first stage.

    judge  is asked after each stage, and within one whether it may end
    suite  the checkout whose code is measured
    """
    directory = suite.root / ".asv" / "compare" / engine.new_id()
    engine.register(plan.machine)
    runner = stage_runner(1, directory, targets, plan, suite)
    for side in SIDES:
        try:
            cells = runner.open(Job("", side=side)).cells
        except TOOLCHAIN_ERRORS as error:
            raise UserError(f"{side}: {error}") from None
    base, new = (session.record.settings for session in runner.opened.values())
    if is_other_build(base, new) and not across_builds:
        raise UserError(
            f"the Pythons are of different builds ({base.build} and {new.build}): "
            "--across-builds compares them all the same"
        )
    if not cells.timed and not cells.counted:
        raise UserError(
            f"--only {plan.only!r} matches no cell of the profile {plan.profile} "
            "that can be compared"
        )
    announce(
        f"{len(cells.timed)} cells x {plan.rounds} processes on both sides, in turns; "
        f"{len(cells.counted)} with instructions"
    )
    roots = runner.sides["base"].root, runner.sides["new"].root
    ask = partial(judge, *roots)
    collect(runner, ask, cells.timed, cells.counted)
    outlook = ask()
    if outlook.again:
        plan = structs.replace(plan, rounds=max(FRESH_ROUNDS, plan.rounds))
        announce(
            f"close cells, which up to {plan.rounds} fresh processes on both sides decide: "
            f"{outlook.close} ({len(outlook.again) - outlook.close} more are measured with them, "
            "to know the noise)"
        )
        collect(stage_runner(2, directory, targets, plan, suite), ask, outlook.again)
    announce(
        f"the data is in {os.path.relpath(directory)}: compare.py compares its base and new again"
    )
    return roots


def stage_runner(
    stage: int, directory: Path, targets: Sequence[Target], plan: Plan, suite: Suite = CHECKOUT
) -> Runner:
    """Return the runner of a stage, with a copy of the code for each side. Releases are installed
    in the checkout's environments."""
    sides = {}
    suffix = files.FRESH_SUFFIX if stage == 2 else ""
    for side, (python, commit) in zip(SIDES, targets):
        root = directory / (side + suffix)
        engine.copy_code(suite.root, root)
        engine.link_environments(root, suite.environments)
        sides[side] = replace(suite, root=root, python=python, commit=commit)
    collection: dict[str, str | int] = {"id": directory.name, "stage": stage}
    return Runner(Journal(directory / f"stage-{stage}"), plan, suite, sides, collection)


def collect(runner: Runner, ask: Callable[[], Outlook], cells: Names, counted: Names = ()) -> None:
    """Take the plan's rounds of these cells on both sides, in turns, and ``counted`` once; fewer if
    all answers are clear before. File a record on each side.

    Each round starts asv anew. Processes that one start forks share where its code and memory lie:
    copies of 1 MiB were 12 % faster on one side in all pairs of one start, and 5 % slower in all
    of another (docs/lab-notes.md).

    A noisy process is not repeated, because its repetition would have no counterpart. Cells with
    fewer than MIN_QUIET_PAIRS quiet pairs get more rounds on both sides. No extra round begins
    after EXTRA_TIME_SHARE of the time that the plan's rounds took.
    """
    rounds = runner.plan.rounds if cells else 1
    runner.progress.total = len(SIDES) * len(cells) * rounds
    with runner.device:
        start = runner.clock.monotonic()
        for number in range(rounds):
            if number and number % LOOK_EVERY == 0 and is_clear_so_far(runner, ask):
                announce(f"all answers are clear after {number} of {rounds} rounds")
                rounds = number
                runner.plan = structs.replace(runner.plan, rounds=rounds)
                break
            take_sides(runner, number, cells if number else [*cells, *counted])
        end = start + (1 + EXTRA_TIME_SHARE) * (runner.clock.monotonic() - start)
        pairs = min(rounds, MIN_QUIET_PAIRS)
        for number in range(rounds, 2 * rounds):
            lacking = lacking_pairs(runner.journal, cells, pairs)
            if not lacking or runner.clock.monotonic() > end:
                break
            announce(
                f"cells that were not quiet on both sides {pairs} times: {len(lacking)}; "
                "another round of them"
            )
            runner.progress.total += len(SIDES) * len(lacking)
            take_sides(runner, number, lacking)
        file_sides(runner)


def file_sides(runner: Runner, complete: bool = True) -> None:
    """File the rounds of both sides. complete: see ``Runner.file``."""
    for side in SIDES:
        runner.file(Job("", side=side), complete)


def is_clear_so_far(runner: Runner, ask: Callable[[], Outlook]) -> bool:
    """File the rounds so far on both sides, and ask whether their answers are clear."""
    file_sides(runner, complete=False)
    return ask().is_clear


def take_sides(runner: Runner, number: int, cells: Names) -> None:
    """Take a round of these cells on both sides, in turns: base new, new base, base new, ..."""
    first, second = (
        Job("", number, side, tuple(cells)) for side in (SIDES if number % 2 == 0 else SIDES[::-1])
    )
    runner.take(first, partner=runner.open(second))
    runner.take(second)


def lacking_pairs(journal: Journal, cells: Names, pairs: int) -> list[str]:
    """Return the cells that were quiet on both sides in fewer than this number of rounds. Cells
    that never were quiet on one of the sides are left out."""
    base, new = (evident_rounds(journal, side) for side in SIDES)
    hopeful = [cell for cell in cells if base[cell] and new[cell]]
    return [cell for cell in hopeful if len(base[cell] & new[cell]) < pairs]


def evident_rounds(journal: Journal, side: str) -> dict[str, set[int]]:
    """Cell -> its rounds on a side that are evidence, see ``quiet.Run``."""
    run = quiet.Run(with_samples(journal.lines(Job("", side=side))))
    rounds: dict[str, set[int]] = defaultdict(set)
    for line in itertools.compress(run.lines, run.is_evidence):
        rounds[line.cell].add(line.round)
    return rounds
