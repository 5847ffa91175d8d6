"""Decide how long a session waits for a quiet machine, and which noisy cells are measured again."""

import itertools
import math
from collections.abc import Sequence

from store import quiet
from store.schema import LogLine, with_samples

from .journal import Job, Journal, Plan
from .profiles import ASV_START_SECONDS, PROFILES
from .session import Session

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
    planned = cells.total(plan.rounds)
    finished = cells.total(job.round)
    processes = len(job.cells or cells.round(job.round))
    patience = record.patience + budget(processes, plan.profile, planned)
    time_limit = PROFILES[plan.profile].time_limit
    if not finished or time_limit == math.inf:
        return patience
    spare = 0.0
    if not is_hopeless(journal.lines(job)):
        spare = time_limit - (record.seconds - record.waited) * planned / finished
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


def cells_to_retake(run: quiet.Run, seconds: float) -> list[str]:
    """Return the noisy cells for which new processes take at most ``seconds``, those never quiet
    first."""
    took = {line.cell: line.took for line in run.lines}
    cells = list(run.lacking())
    ends = itertools.accumulate(took[cell] for cell in cells)
    return [cell for cell, end in zip(cells, ends) if end <= seconds - ASV_START_SECONDS]
