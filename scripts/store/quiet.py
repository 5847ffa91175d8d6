"""Which samples of a run are quiet, taken while the machine was undisturbed, judged with all of the run in sight.

Beside every sample stand speed probes, constant pieces of work (benchmarks/probes.py). Their baseline is the fastest
level that the machine *holds*. A sample is quiet if all probes beside it are near the baseline of their kind and its
process had a processor throughout. A process is quiet if LEAST of its samples are. Estimates rest on the quiet samples
of quiet processes; a cell without such a process says so everywhere. Near is not at: the same probes take out what is
left of the clock's changes, process by process (speed correction).

Needs numpy alone: it runs beside whatever torch is measured.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.probes import HELD, MEMORY, NEAR, POLL, PROCESSOR, WIDTH
from benchmarks.timing import DIGITS

from .records import Line, Record, name_of, with_samples

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.intp]

# ns that the processor's probe may take longer right behind a sample that moves bytes in memory: what it counts, and
# the interpreter, were driven out of the caches. The next probe takes its usual time. On undisturbed Zen 4 1 to 6 of
# 22.3 µs, on Zen 5 2 to 5 of 14.1 (docs/accuracy.md): a tenth that is the sample's, not the machine's
COLD = 7000
RECURS = 0.4  # share of the run's parts in which the level that the machine holds is seen
PARTS = 24  # of a run at most
PART = 20  # probes in a part at least
LEAST = 0.4  # share of the samples wanted that must be quiet for a process to count as quiet
# Of a process's quiet samples: two probes do not see all that comes between them, and what comes there only slows
QUANTILE = 0.1
# What waits for a device alone has no probes, for the host's speed has no part in it: its own spread says how quiet it
# was. Samples that last this long and are this far above the quantile of their process are not.
LASTS, APART = 0.0003, 0.05
START_SECONDS = 0.03  # that a process takes before its setup


def baseline(probes: Floats, near: float = NEAR[PROCESSOR], whole: float = math.inf) -> float:
    """The fastest level that a machine holds, in the unit of ``probes``, which are in order of time; NaN of none.

    Not the fastest probe: a processor may begin at a clock that it cannot keep, and the first seconds of a run, or of a
    round after a rest, are never seen again. Nor a quantile of all: on a busy machine nine in ten are slow. It is the
    fastest level that is seen in RECURS of the run's parts.

    A machine whose neighbours come and go by the millisecond holds none, and which of its speeds looks like one is
    chance. It shows by the probes that are faster than ``near`` (log units) the level: where HELD of RECURS of the
    parts are, the baseline is what those just reach.

    whole: the baseline of the whole run, where later runs replaced most of its processes. It is taken where the rest
    shows a slower level only, which is that of a noisy moment.
    """
    if not len(probes):
        return math.nan
    count = min(PARTS, max(1, len(probes) // PART))
    edges = [len(probes) * part // count for part in range(count + 1)]
    parts = [np.sort(probes[first:last]) for first, last in itertools.pairwise(edges)]
    least = [max(HELD * len(part), 1) for part in parts]
    holding = [_at_level(part, part) >= few for part, few in zip(parts, least)]
    begins = sorted(part[held.argmax()] if held.any() else part[-1] for part, held in zip(parts, holding))

    def recurs(begin: float) -> bool:
        return bool(sum(_at_level(part, begin) >= few for part, few in zip(parts, least)) >= RECURS * count)

    reached = sorted(part[math.ceil(few) - 1] for part, few in zip(parts, least))[math.ceil(RECURS * count) - 1]
    begin = next(filter(recurs, begins), math.inf)
    if begin > reached * math.exp(near):
        begin = reached
    found = float(np.median(probes[(probes >= begin) & (probes <= begin * WIDTH)]))
    return whole if 0 < whole * WIDTH < found else found


def _at_level(part: Floats, begin: Any) -> Any:
    """How many probes of a part, sorted, are at the level that begins there."""
    return np.searchsorted(part, begin * WIDTH, "right") - np.searchsorted(part, begin)


class Run:
    """The processes of one run that took samples, with their samples judged. Arrays are in the order of ``lines``.

    ValueError or TypeError where samples or probes are no positive numbers.

    lines      of the file of measurements, those with samples
    whole      baselines of all the run, where ``lines`` are what is left of it
    of         place in ``lines`` of the process of each sample
    taken      seconds of each sample, per call
    baselines  kind of probe -> its baseline in ns
    """

    def __init__(self, lines: Sequence[Line], whole: Mapping[str, float] | None = None) -> None:
        self.lines = lines
        self.taken, sizes, self._first = _joined([line["seconds"] for line in lines])
        self.of: Ints = np.repeat(np.arange(len(lines)), sizes)
        # Place of the probe before each sample in its process's list of probes; the one behind it is the next
        place = np.arange(len(self.taken)) - self._first[self.of]
        for first, size, line in zip(self._first, sizes, lines):
            for sample in line["waits"]:  # there lies another probe, from before the wait
                place[first + sample : first + size] += 1
        kinds = dict.fromkeys(kind for line in lines for kind in line["probes"])
        self._probes = {kind: _Probes(lines, kind, self.of, place) for kind in kinds}
        self.baselines = self._baselines(whole or {})

    def _baselines(self, whole: Mapping[str, float]) -> dict[str, float]:
        """Probes that move bytes count only where the processor's probe of the same moment is quiet. On a busy machine
        too few of all are at their baseline for a level to be seen, and most of what slows them slows that one, too."""
        if PROCESSOR not in self._probes:
            return {}
        processor, found = self._probes[PROCESSOR], dict[str, float]()
        near = np.ones(len(processor.taken), dtype=bool)
        for kind, probes in {PROCESSOR: processor, **self._probes}.items():
            taken, quiet = probes.taken[probes.in_order(processor.has)], near[processor.in_order(probes.has)]
            found[kind] = baseline(taken[quiet] if quiet.any() else taken, NEAR[kind], whole.get(kind, math.inf))
            if kind == PROCESSOR:  # which is the first
                near = self._near(PROCESSOR, found[PROCESSOR])
        return found

    def _near(self, kind: str, known: float) -> Bools:
        """Whether each probe of a kind is near its baseline ``known``, in ns."""
        probes = self._probes[kind]
        high = np.full(len(probes.taken), known * math.exp(NEAR[kind]))
        if kind == PROCESSOR and MEMORY in self._probes:
            behind = probes.there & self._probes[MEMORY].there
            high[probes.before[behind] + 1] += COLD
        return (probes.taken >= known * math.exp(-NEAR[kind])) & (probes.taken <= high)

    @cached_property
    def quiet_samples(self) -> Bools:
        """Whether each sample is quiet."""
        quiet = np.ones(len(self.taken), dtype=bool)
        for kind, probes in self._probes.items():
            near, before = self._near(kind, self.baselines[kind]), probes.before[probes.there]
            quiet[probes.there] &= near[before] & near[before + 1]
        alone = np.array([not line["probes"] and "on_device" in line for line in self.lines], dtype=bool)
        if alone.any():
            lasted = self.taken * np.array([line["number"] for line in self.lines], dtype=float)[self.of]
            usual = _quantile(self.taken, self.of, len(self.lines))[self.of]
            quiet &= ~(alone[self.of] & (lasted >= LASTS) & (self.taken > usual * (1 + APART)))
        disturbed = [first + sample for first, line in zip(self._first, self.lines) for sample in line["disturbed"]]
        quiet[disturbed] = False
        return quiet

    @cached_property
    def quiet(self) -> Bools:
        """Whether enough samples of each process are quiet."""
        wanted = np.array([line["wanted"] for line in self.lines], dtype=float)
        counts = np.bincount(self.of, weights=self.quiet_samples, minlength=len(self.lines))
        return counts >= np.maximum(1, np.ceil(LEAST * wanted))

    def used_of(self, place: int) -> list[float]:
        """The samples of a process that its figure rests on, as they were taken: quiet ones, or the fastest."""
        samples = slice(self._first[place], self._first[place] + len(self.lines[place]["seconds"]))
        taken = self.taken[samples]
        used: list[float] = taken[self.quiet_samples[samples]].tolist() if self.quiet[place] else [float(min(taken))]
        return used

    @cached_property
    def slowdown(self) -> Floats:
        """The time of the processor's probes beside the quiet samples of each process, over their baseline: the
        quantile that is used of samples. NaN where samples stay as they were taken.

        A clock follows the host's load, and quiet allows it a tenth. On a virtual machine of Zen 5 that is undisturbed
        a third of the time, processes of a call differ by three times as much without this, in proportion to these
        probes; on one of Zen 3 that holds its clock it changes nothing (docs/accuracy.md).
        """
        corrected = self.quiet & np.array([_by_processor(line) for line in self.lines], dtype=bool)
        if PROCESSOR not in self._probes:
            return np.full(len(self.lines), math.nan)
        probes, chosen = self._probes[PROCESSOR], corrected[self.of] & self.quiet_samples
        before = probes.before[chosen]
        beside = (probes.taken[before] + probes.taken[before + 1]) / 2
        return _quantile(beside, self.of[chosen], len(self.lines)) / self.baselines[PROCESSOR]

    @cached_property
    def seconds(self) -> Floats:
        """Each sample after speed correction, where its process has one."""
        slowdown = self.slowdown[self.of]
        with np.errstate(invalid="ignore"):
            return np.where(np.isnan(slowdown), self.taken, _rounded(self.taken / slowdown))

    @cached_property
    def figures(self) -> Floats:
        """A quantile of the quiet samples of each process, in seconds per call; of a noisy process the fastest sample:
        what disturbs a sample makes it longer, so on the undisturbed machine the cell takes at most this. Two runs
        differ less in it than in any quantile."""
        found = _quantile(self.seconds[self.quiet_samples], self.of[self.quiet_samples], len(self.lines))
        return np.where(self.quiet, found, np.minimum.reduceat(self.taken, self._first))

    def rounds(self) -> dict[str, dict[int, bool]]:
        """Cell -> round -> whether one of its processes was quiet."""
        by_cell: dict[str, dict[int, bool]] = {}
        for line, quiet in zip(self.lines, self.quiet.tolist()):
            rounds = by_cell.setdefault(name_of(line), {})
            rounds[line["round"]] = rounds.get(line["round"], False) or quiet
        return by_cell

    def never_quiet(self) -> tuple[str, ...]:
        """The cells without a quiet process."""
        return tuple(cell for cell, by_round in self.rounds().items() if not any(by_round.values()))

    def lacking(self) -> dict[str, int]:
        """Cell -> the first round in which it had no quiet process; cells that never had one come first."""
        lost = [(cell, by_round) for cell, by_round in self.rounds().items() if not all(by_round.values())]
        lost.sort(key=lambda each: any(each[1].values()))
        return {cell: min(number for number, quiet in by_round.items() if not quiet) for cell, by_round in lost}

    def quiet_share(self) -> float:
        """Share of the time in which the machine was undisturbed, as far as it was watched; NaN where it was not.

        The time of a process before its first probe counts as that probe says, or waits would weigh too much.
        """
        if PROCESSOR not in self._probes:
            return math.nan
        probes, known = self._probes[PROCESSOR], self.baselines[PROCESSOR]
        near, before = self._near(PROCESSOR, known), probes.before[probes.there]
        lasted = self.taken * np.array([line["number"] for line in self.lines], dtype=float)[self.of]
        beside = lasted[probes.there]
        waiting, waits, _ = _joined([line["waiting"] for line in self.lines])
        waited_quiet = np.abs(np.log(waiting / known)) <= NEAR[PROCESSOR]
        took = np.array([line["took"] for line in self.lines]) - POLL * waits
        starts = np.maximum(0.0, took - np.bincount(self.of, lasted, len(self.lines)))[probes.has] + START_SECONDS
        quiet = np.sum(beside * (near[before].astype(float) + near[before + 1]) / 2)
        quiet += POLL * np.sum(waited_quiet) + np.sum(starts * near[probes.first[probes.has]])
        return float(quiet / (np.sum(beside) + POLL * len(waiting) + np.sum(starts)))


def runs_of(lines: Iterable[Line], records: Iterable[Record] = ()) -> dict[str, Run]:
    """The lines with samples among these, by the run that took them; ``records`` know the baselines of whole runs."""
    by_run: dict[str, list[Line]] = {}
    for line in with_samples(lines):
        by_run.setdefault(line["run"], []).append(line)
    whole = {record.started: record.baselines for record in records}
    return {started: Run(of_run, whole.get(started)) for started, of_run in by_run.items()}


def counting(lines: Iterable[Line], records: Iterable[Record] = ()) -> dict[str, dict[int, tuple[Run, int]]]:
    """Cell -> the processes that its figure rests on, by the number of their round: a run, and a place in it.

    Each run is judged by its own baselines. Of the processes of a round the first quiet one counts; of a cell without
    quiet processes the one with the fastest sample. The rounds of a second run of the same cells go on where the first
    run's end.
    """
    found, noisy, ends = dict[str, dict[int, tuple[Run, int]]](), [], Counter[str]()
    for run in runs_of(lines, records).values():
        cells = [name_of(line) for line in run.lines]
        for place, (cell, line) in enumerate(zip(cells, run.lines)):
            number = ends[cell] + line["round"]
            if run.quiet[place]:
                found.setdefault(cell, {}).setdefault(number, (run, place))
            else:
                noisy.append((run.figures[place], cell, {number: (run, place)}))
        ends.update(dict.fromkeys(cells, 1 + max(line["round"] for line in run.lines)))
    for _, cell, process in sorted(noisy, key=lambda each: each[0]):
        found.setdefault(cell, process)
    return found


class _Probes:
    """All probes of one kind in a run.

    has, first     of each process: whether it took some; where its own begin in ``taken``
    there, before  of each sample: whether its process took some; the place in ``taken`` of the probe before it
    """

    def __init__(self, lines: Sequence[Line], kind: str, of: Ints, place: Ints) -> None:
        self.taken, self._sizes, self.first = _joined([line["probes"].get(kind, ()) for line in lines])
        self.has: Bools = self._sizes > 0
        self.there, self.before = self.has[of], self.first[of] + place
        self._at = np.array([line["at"] for line in lines])

    def in_order(self, processes: Bools) -> Ints:
        """The places in ``taken`` of the probes of these processes, in order of time."""
        places = np.flatnonzero(np.repeat(processes, self._sizes))
        return places[np.argsort(np.repeat(self._at, self._sizes)[places], kind="stable")]


def _by_processor(line: Line) -> bool:
    """Whether a process goes by the processor's clock: what waits for memory or a device has another."""
    return PROCESSOR in line["probes"] and not (MEMORY in line["probes"] or "device" in line or "on_device" in line)


def _joined(lists: Sequence[Sequence[float]]) -> tuple[Floats, Ints, Ints]:
    """The numbers of all lists in one array, how many are of each list, and where those begin."""
    sizes = np.array([len(each) for each in lists], dtype=np.intp)
    values = np.fromiter(itertools.chain.from_iterable(lists), dtype=np.float64, count=int(sizes.sum()))
    if not np.all((values > 0) & (values < math.inf)):
        raise ValueError("a sample or a probe is no positive number")
    return values, sizes, np.cumsum(sizes) - sizes


def _rounded(values: Floats) -> Floats:
    """Positive numbers with as many digits as samples are logged with."""
    scale = 10.0 ** (DIGITS - 1 - np.floor(np.log10(values)))
    return np.round(values * scale) / scale


def _quantile(values: Floats, group: Ints, groups: int, share: float = QUANTILE) -> Floats:
    """A quantile of the values of each group, by linear interpolation; NaN of a group without values."""
    ordered = np.append(values[np.lexsort((values, group))], math.nan)  # of an empty last group
    sizes = np.bincount(group, minlength=groups)
    first, place = np.cumsum(sizes) - sizes, share * np.maximum(sizes - 1, 0)
    low, high = (ordered[first + end(place).astype(np.intp)] for end in (np.floor, np.ceil))
    return np.where(sizes > 0, low + place % 1 * (high - low), math.nan)
