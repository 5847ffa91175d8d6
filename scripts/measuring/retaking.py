"""Take a job: count instructions, time cells, and measure noisy cells again, as long as it may.

A session waits for a quiet machine in proportion to its processes. What it has not waited is left
for new processes of noisy cells.
"""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace
from store import quiet
from store.schema import LogLine, encode_lines, with_samples

from .engine import COUNTING, LOG, announce, measure_in_turns, read_log
from .journal import Job, Journal, Plan, make_place
from .machine import Awake
from .processes import Progress, read_text
from .profiles import ASV_START_SECONDS, PROFILES, Names
from .session import Clock, Session

Context = contextlib.AbstractContextManager[None]
# To wait per planned process: about what one takes, so a busy machine takes about twice as long
WAIT_SECONDS = 0.2
# Of a round's waiting time for its first processes; the rest is for new processes of noisy cells
FIRST_WAIT_SHARE = 2 / 3
# Least share of cells with a quiet process; below it a profile with a time limit stops waiting
MIN_QUIET_SHARE = 0.25
# Over the noisy cells of all rounds after the last round; after each earlier round there is one
# pass
PASSES = 2


def budget(processes: int, profile: str, planned: int = 0) -> float:
    """Return the seconds that ``processes`` of the ``planned`` processes may wait for the machine
    to be quiet."""
    definition = PROFILES[profile]
    seconds = WAIT_SECONDS * processes * definition.patience
    return min(seconds, definition.wait_limit * processes / max(planned, processes, 1))


def total_patience(job: Job, plan: Plan, journal: Journal, session: Session) -> float:
    """Return the seconds that a session may wait up to the end of a job, which has not begun.

    A round may also use the remaining budget of earlier rounds. A profile with a time limit waits
    for the time that processes leave, at their speed so far.
    """
    record, cells = session.record, session.cells
    processes = len(job.cells or session.round(job.round))
    patience = record.patience + budget(processes, plan.profile, cells.total(plan.rounds))
    time_limit = PROFILES[plan.profile].time_limit
    lines = with_samples(journal.lines(job))
    if not lines or time_limit == math.inf:
        return patience
    spare = 0.0
    if not is_hopeless(lines):
        finished = len({(line.cell, line.round) for line in lines})
        left = sum(len(session.round(number)) for number in range(job.round, plan.rounds))
        spare = time_limit - (record.seconds - record.waited) * (1 + left / finished)
    return min(patience, max(record.waited, spare))


def is_hopeless(lines: Sequence[LogLine]) -> bool:
    """Whether too few cells were quiet so far. Then a profile with a time limit stops waiting."""
    run = quiet.Run(with_samples(lines))
    return len(run.never_quiet()) > (1 - MIN_QUIET_SHARE) * len(run.rounds())


def passes(job: Job, rounds: int) -> int:
    """Return how often noisy cells are measured again after a job. Cells that the job names are
    taken once: a new process would have no counterpart on the other side."""
    if job.cells:
        return 0
    return PASSES if job.round + 1 >= rounds else 1


def cells_to_retake(run: quiet.Run, seconds: float, session: Session) -> list[str]:
    """Return the noisy cells for which new processes take at most ``seconds``, those never quiet
    first. Cells that stopped and were quiet once need none."""
    took = {line.cell: line.took for line in run.lines}
    wanted = {*run.never_quiet(), *session.racing([*run.lacking()])}
    cells = [cell for cell in run.lacking() if cell in wanted]
    ends = itertools.accumulate(took[cell] for cell in cells)
    return [cell for cell, end in zip(cells, ends) if end <= seconds - ASV_START_SECONDS]


@dataclass
class Round:
    """A job while it is taken. Its processes log into the journal's directory of work.

    patience  seconds that the session may wait for quiet up to the end of this job
    wait_left  seconds of these that are left
    partner   the other side, which measures cells in turns with this one: see ``time_in_turns``
    lacking   cell -> the round that its new process belongs to, unless it is this round
    """

    job: Job
    session: Session
    plan: Plan
    journal: Journal
    device: Awake
    progress: Progress
    clock: Clock
    partner: Session | None = None
    lacking: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.patience = total_patience(self.job, self.plan, self.journal, self.session)
        self.wait_left = self.patience - self.session.record.waited

    def take(self, cells: Names, meanwhile: Context, after_first: Callable[[], object]) -> None:
        """Measure ``cells``, each in one process, then noisy cells again.

        meanwhile    context in which instructions are counted, before any timing
        after_first  called in the first round when the cells are timed that its profile has first
        """
        start = self.clock.monotonic()
        self.journal.begin()
        self.progress.done += len(self.number_lines())  # as the other side's job left them
        counted = {*self.session.cells.counted}
        # without patterns asv would run every benchmark
        if to_count := [cell for cell in cells if cell in counted]:
            self.count(to_count, meanwhile)
        if to_time := [cell for cell in cells if cell not in counted]:
            self.time(to_time, after_first)
        self.wait_left -= sum(line.waited for line in with_samples(read_log(self.journal.work)))
        for _ in range(passes(self.job, self.plan.rounds)):
            if not self.retake():
                break
        self.keep(self.clock.monotonic() - start, bool(cells or self.job.round))

    def count(self, cells: Names, meanwhile: Context) -> None:
        """Count the instructions of these cells, while ``meanwhile`` is open."""
        announce("counting instructions, which takes some minutes: leave them out with --only")
        with meanwhile:
            self.run_asv(cells, self.first_patience(cells), is_timed=False)

    def time(self, cells: Names, after_first: Callable[[], object]) -> None:
        """Time these cells with libraries that are read anew, except those that were timed in turns
        with the other side."""
        cells = self.time_in_turns(cells)
        if not cells:
            return
        self.session.suite.read_libraries(self.session.python)
        wanted = {*self.session.cells.first}
        rest = [cell for cell in cells if cell not in wanted]
        if not self.job.round and not self.job.cells and 0 < len(rest) < len(cells):
            first = [cell for cell in cells if cell in wanted]
            self.run_asv(first, self.first_patience(first))
            after_first()
            cells = rest
        self.run_asv(cells, self.first_patience(cells))

    def time_in_turns(self, cells: Names) -> list[str]:
        """Time those of these cells that can be in turns, together with the partner, whose next job
        finds them done. Return the others."""
        timed = {line.cell for line in read_log(self.journal.work)}
        can_take_turns = {*self.session.cells.in_turns}
        in_turns = [cell for cell in cells if cell in can_take_turns]
        if self.partner and in_turns:
            suites = {each.python: each.suite for each in (self.session, self.partner)}
            for python, suite in suites.items():
                suite.read_libraries(python)
            make_place(self.journal.ahead)
            sides = [
                (self.session.suite, self.journal.work),
                (self.partner.suite, self.journal.ahead),
            ]
            with self.follow() as advance:
                measure_in_turns(sides, in_turns, self.plan.machine, advance)
            timed.update(in_turns)
        return [cell for cell in cells if cell not in timed]

    def retake(self) -> bool:
        """Measure noisy cells of all rounds again, as long as time is left. Return whether there
        were any."""
        lines = [*self.journal.lines(self.job), *read_log(self.journal.work)]
        run = quiet.Run(with_samples(lines))
        self.lacking = run.lacking()
        cells = cells_to_retake(run, self.wait_left, self.session)
        if cells:
            start = self.clock.monotonic()
            self.progress.total += len(cells)
            self.run_asv(cells, (self.wait_left, len(cells)))
            self.wait_left -= self.clock.monotonic() - start
        return bool(cells)

    def keep(self, seconds: float, is_taken: bool) -> None:
        """Move the job, which took ``seconds``, into the journal with the record of its session."""
        record = self.session.record
        self.session.record = replace(
            record,
            patience=round(self.patience, 1),
            waited=round(self.patience - self.wait_left, 1),
            rounds=self.job.round + is_taken,
            seconds=round(record.seconds + seconds, 1),
        )
        self.journal.keep(self.job, self.session.record)

    def first_patience(self, cells: Names) -> tuple[float, int]:
        """Return the seconds that the first processes of these cells may wait, and their number."""
        if self.job.cells:
            return self.wait_left, len(self.job.cells)
        share = FIRST_WAIT_SHARE * len(cells) / max(1, len(self.session.round(self.job.round)))
        return min(share, FIRST_WAIT_SHARE) * self.wait_left, len(cells)

    def run_asv(self, cells: Names, patience: tuple[float, int], is_timed: bool = True) -> None:
        """Run asv for these cells."""
        session = self.session
        with self.follow(is_timed) as advance:
            measure = partial(
                session.suite.measure,
                machine=self.plan.machine,
                place=self.journal.work,
                advance=advance,
                patience=patience,
            )
            session.record = self.device.measure(session.record, session.cells, cells, measure)

    @contextlib.contextmanager
    def follow(self, is_timed: bool = True) -> Iterator[Callable[[], None]]:
        """Yield a function that prints the progress of the block. Number the rounds of the new
        lines of the log at its end."""
        log = self.journal.work / LOG
        done = self.progress.done - log.read_bytes().count(b"\n")

        counting = Progress("counting", clock=self.clock.monotonic)

        def advance() -> None:
            if is_timed:
                self.progress.at(done + log.read_bytes().count(b"\n"))
            elif noted := read_text(f"{log}{COUNTING}").split():
                counting.total = int(noted[0])
                counting.at(len(noted))

        yield advance
        advance()
        self.number_lines()

    def number_lines(self) -> list[LogLine]:
        """Give the new lines of the log the first round that their cell lacks, or this one; others
        already have a round. Return all."""
        lines = read_log(self.journal.work, self.job.round, self.lacking)
        (self.journal.work / LOG).write_text(encode_lines(lines), encoding="utf-8")
        return lines
