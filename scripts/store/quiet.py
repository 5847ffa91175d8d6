"""Decide which samples of a run are quiet, that is taken while the machine was undisturbed.

Speed probes, constant pieces of work (benchmarks/core/probes.py), run before and after every
sample. Their baseline is the fastest level that the machine *holds* over the whole run. A sample is
quiet if all probes next to it are near the baseline of their kind and its process had a processor
throughout. A process is quiet if MIN_QUIET_SHARE of its samples are. Estimates use the quiet
samples of quiet processes. A cell without such a process is marked everywhere. Probes near the
baseline may still differ from it: speed correction removes these changes of the clock, process by
process.

Needs numpy alone, because it runs with any torch that is measured.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from benchmarks.core.probes import HELD, MEMORY, NEAR_BASELINE_LOG, POLL, PROCESSOR, WIDTH
from benchmarks.core.timing import DIGITS

from .schema import Counts, Measurement, RunRecord, TimedProcess, with_samples

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.intp]

# ns that the processor's probe may take longer right after a sample that moves bytes in memory: the
# sample drives the probe's data and the interpreter out of the caches. The next probe takes its
# usual time. On undisturbed Zen 4 it takes 1 to 6 µs more than 22.3 µs, on Zen 5 2 to 5 µs more
# than 14.1 µs (docs/lab-notes.md)
COLD_PROBE_NS = 7000
RECURRING_SHARE = 0.4  # a level is held if it is seen in this share of the run's parts
MAX_PARTS = 24  # of a run at most
MIN_PART_PROBES = 20  # probes in a part at least
MIN_QUIET_SHARE = 0.4  # a process is quiet if this share of the samples wanted is quiet
# Of a process's quiet samples. Two probes miss some disturbances between them, and disturbances
# only slow
QUANTILE = 0.1
# Samples that only wait for a device have no probes, because the host's speed does not matter.
# Their own spread decides: those that last MIN_JUDGED_SECONDS seconds and are MAX_SAMPLE_EXCESS (a
# share) above the quantile of their process are noisy.
MIN_JUDGED_SECONDS, MAX_SAMPLE_EXCESS = 0.0003, 0.05
START_SECONDS = 0.03  # duration of a process before its setup


def baseline(
    probes: Floats, tolerance: float = NEAR_BASELINE_LOG[PROCESSOR], run_baseline: float = math.inf
) -> float:
    """Return the fastest level that a machine holds, in the unit of ``probes``; NaN without probes.

    It is the fastest level that is seen in RECURRING_SHARE of the run's parts. The fastest probe
    would not do: a processor may begin a run, or a round after a rest, at a clock that it keeps for
    seconds only and never reaches again. Nor would a quantile of all probes: on a busy machine 90 %
    of them are slow.

    If the neighbours of a machine come and go by the millisecond, it holds no level, and any of its
    speeds may look like one by chance. Then many probes are faster than the level by more than
    ``tolerance`` (log units). If these are HELD of the probes in RECURRING_SHARE of the parts, the
    baseline is the time that they just reach.

    probes        in order of time
    tolerance     infinite for probes that move bytes: while the neighbours rest, a shared cache has
                  some of these bytes. On Zen 5 8 % of such probes took 108 to 195 µs, and most
                  others 200 to 270 (docs/lab-notes.md)
    run_baseline  of the whole run, for when later runs replaced most of its processes. It is used
                  if the remaining probes show only a slower level, that of a noisy moment
    """
    if not len(probes):
        return math.nan
    parts = _sorted_parts(probes)
    needed = [max(HELD * len(part), 1) for part in parts]
    min_parts = RECURRING_SHARE * len(parts)
    levels = []  # where the fastest level of each part begins
    for part, few in zip(parts, needed):
        is_level = _count_at_level(part, part) >= few
        levels.append(part[is_level.argmax()] if is_level.any() else part[-1])

    def recurs(begin: float) -> bool:
        counts = [_count_at_level(part, begin) for part in parts]
        return bool(np.sum(np.greater_equal(counts, needed)) >= min_parts)

    reached = sorted(part[math.ceil(few) - 1] for part, few in zip(parts, needed))
    fast = reached[math.ceil(min_parts) - 1]
    begin = next(filter(recurs, sorted(levels)), math.nan)
    if not begin <= fast * math.exp(tolerance):
        begin = fast
    level = float(np.median(probes[(probes >= begin) & (probes <= begin * WIDTH)]))
    return run_baseline if 0 < run_baseline * WIDTH < level else level


def _sorted_parts(probes: Floats) -> list[Floats]:
    """Split the probes of a run into its parts, each in order of size."""
    count = min(MAX_PARTS, max(1, len(probes) // MIN_PART_PROBES))
    edges = [len(probes) * part // count for part in range(count + 1)]
    return [np.sort(probes[first:last]) for first, last in itertools.pairwise(edges)]


def _count_at_level(part: Floats, begin: Floats | float) -> Ints | np.intp:
    """The number of probes in a sorted part that are at the level which begins at ``begin``."""
    return np.searchsorted(part, begin * WIDTH, "right") - np.searchsorted(part, begin)


class Run:
    """The processes of one run that took samples, and which samples are quiet. Arrays are in the
    order of ``lines``.

    ValueError or TypeError if samples or probes are not positive numbers.

    lines          lines with samples of the measurements file
    run_baselines  of the whole run, if ``lines`` are only the rest of it
    process_of     place in ``lines`` of the process of each sample
    raw_seconds    of each sample, per call
    baselines      kind of probe -> its baseline in ns
    """

    def __init__(
        self, lines: Sequence[TimedProcess], run_baselines: Mapping[str, float] | None = None
    ) -> None:
        self.lines = lines
        self.raw_seconds, sizes, self._first = _join([line.seconds for line in lines])
        self.process_of: Ints = np.repeat(np.arange(len(lines)), sizes)
        # Place of the probe before each sample in its process's list of probes; the probe after the
        # sample is the next
        place = np.arange(len(self.raw_seconds)) - self._first[self.process_of]
        for first, size, line in zip(self._first, sizes, lines):
            for sample in line.waits:  # one more probe, from before the wait
                place[first + sample : first + size] += 1
        calls = np.array([line.number for line in lines], dtype=float)
        self._durations: Floats = self.raw_seconds * calls[self.process_of]  # with all calls
        kinds = dict.fromkeys(kind for line in lines for kind in line.probes)
        self._probes = {kind: _Probes(lines, kind, self.process_of, place) for kind in kinds}
        self.baselines = self._baselines(run_baselines or {})

    def _baselines(self, run_baselines: Mapping[str, float]) -> dict[str, float]:
        """Return the baseline of each kind of probe.

        Probes that move bytes count only where the processor's probe of the same moment is quiet.
        On a busy machine too few of all of them are at their baseline to show a level. Most
        disturbances slow the processor's probe, too.
        """
        if PROCESSOR not in self._probes:
            return {}
        processor = self._probes[PROCESSOR]
        level = baseline(
            processor.times[processor.in_order(processor.is_probed)],
            run_baseline=run_baselines.get(PROCESSOR, math.inf),
        )
        is_near = self._near_baseline(PROCESSOR, level)
        baselines = {PROCESSOR: level}
        for kind, probes in self._probes.items():
            if kind != PROCESSOR:
                times = probes.times[probes.in_order(processor.is_probed)]
                is_quiet = is_near[processor.in_order(probes.is_probed)]
                times = times[is_quiet] if is_quiet.any() else times
                run_baseline = run_baselines.get(kind, math.inf)
                baselines[kind] = baseline(times, math.inf, run_baseline)
        return baselines

    def _near_baseline(self, kind: str, level: float) -> Bools:
        """Whether each probe of a kind is near its baseline ``level``, in ns."""
        probes = self._probes[kind]
        tolerance = NEAR_BASELINE_LOG[kind]
        low = level * math.exp(-tolerance)
        high = np.full(len(probes.times), level * math.exp(tolerance))
        if kind == PROCESSOR and MEMORY in self._probes:
            cold = probes.sample_probed & self._probes[MEMORY].sample_probed
            high[probes.preceding[cold] + 1] += COLD_PROBE_NS
        return (probes.times >= low) & (probes.times <= high)

    @cached_property
    def quiet_samples(self) -> Bools:
        """Whether each sample is quiet."""
        quiet = np.ones(len(self.raw_seconds), dtype=bool)
        for kind, probes in self._probes.items():
            is_near = self._near_baseline(kind, self.baselines[kind])
            preceding = probes.preceding[probes.sample_probed]
            quiet[probes.sample_probed] &= is_near[preceding] & is_near[preceding + 1]
        unprobed = np.array([not line.probes and line.on_device for line in self.lines], dtype=bool)
        if unprobed.any():
            usual = _quantile(self.raw_seconds, self.process_of, len(self.lines))
            is_slow = self.raw_seconds > usual[self.process_of] * (1 + MAX_SAMPLE_EXCESS)
            is_long = self._durations >= MIN_JUDGED_SECONDS
            quiet &= ~(unprobed[self.process_of] & is_long & is_slow)
        for first, line in zip(self._first, self.lines):
            quiet[[first + sample for sample in line.disturbed]] = False
        return quiet

    @cached_property
    def quiet(self) -> Bools:
        """Whether enough samples of each process are quiet."""
        wanted = np.array([line.wanted for line in self.lines], dtype=float)
        counts = np.bincount(self.process_of, weights=self.quiet_samples, minlength=len(self.lines))
        return counts >= np.maximum(1, np.ceil(MIN_QUIET_SHARE * wanted))

    @cached_property
    def is_evidence(self) -> Bools:
        """Whether each process counts for a figure: it is quiet, or took its samples in turns."""
        in_turns: Bools = np.array([line.in_turns for line in self.lines], dtype=bool)
        return in_turns | self.quiet

    def used_samples(self, place: int) -> list[float]:
        """The samples behind the figure of a process, uncorrected: the quiet ones, or the fastest
        one."""
        samples = slice(self._first[place], self._first[place] + len(self.lines[place].seconds))
        seconds = self.raw_seconds[samples]
        if not self.quiet[place]:
            return [float(min(seconds))]
        quiet: list[float] = seconds[self.quiet_samples[samples]].tolist()
        return quiet

    @cached_property
    def slowdown(self) -> Floats:
        """The divisor of speed correction for each process, or NaN if its samples are not
        corrected.

        It is the time of the processor's probes next to the process's quiet samples, divided by
        their baseline. The same quantile is taken as of samples. A clock follows the host's load,
        and quiet samples may differ by a tenth. On a Zen 5 virtual machine that is undisturbed a
        third of the time, uncorrected processes of a call differ by three times as much, in
        proportion to these probes. On a Zen 3 virtual machine with a steady clock the correction
        changes nothing (docs/lab-notes.md).
        """
        if PROCESSOR not in self._probes:
            return np.full(len(self.lines), math.nan)
        probes = self._probes[PROCESSOR]
        # of others the speed of memory or of a device sets the time
        by_processor = [
            not (MEMORY in line.probes or line.device or line.on_device) for line in self.lines
        ]
        is_corrected = self.quiet & probes.is_probed & by_processor
        selected = is_corrected[self.process_of] & self.quiet_samples
        preceding = probes.preceding[selected]
        speeds = (probes.times[preceding] + probes.times[preceding + 1]) / 2
        slowness = _quantile(speeds, self.process_of[selected], len(self.lines))
        return slowness / self.baselines[PROCESSOR]

    @cached_property
    def seconds(self) -> Floats:
        """Each sample after speed correction, if its process is corrected."""
        slowdown = self.slowdown[self.process_of]
        with np.errstate(invalid="ignore"):
            seconds = self.raw_seconds / slowdown
            # to the number of digits in the log of samples
            scale = 10.0 ** (DIGITS - 1 - np.floor(np.log10(seconds)))
            seconds = np.round(seconds * scale) / scale
        return np.where(np.isnan(slowdown), self.raw_seconds, seconds)

    @cached_property
    def figures(self) -> Floats:
        """The figure of each process in seconds per call: a quantile of its quiet samples.

        The figure of a noisy process is its fastest sample. Disturbances only make a sample longer,
        so this is an upper bound for the undisturbed machine. Two runs differ less in it than in
        any quantile.
        """
        quiet = self.quiet_samples
        quantiles = _quantile(self.seconds[quiet], self.process_of[quiet], len(self.lines))
        return np.where(self.quiet, quantiles, np.minimum.reduceat(self.raw_seconds, self._first))

    @property
    def quiet_logs(self) -> Floats:
        """Log of the figure of each process; NaN where it is noisy."""
        return np.where(self.quiet, np.log(self.figures), np.nan)

    def rounds(self) -> dict[str, dict[int, bool]]:
        """Cell -> round -> whether one of its processes was quiet."""
        by_cell: dict[str, dict[int, bool]] = {}
        for line, quiet in zip(self.lines, self.quiet.tolist()):
            rounds = by_cell.setdefault(line.cell, {})
            rounds[line.round] = rounds.get(line.round, False) or quiet
        return by_cell

    def never_quiet(self) -> tuple[str, ...]:
        """The cells without a quiet process."""
        return tuple(cell for cell, by_round in self.rounds().items() if not any(by_round.values()))

    def lacking(self) -> dict[str, int]:
        """Cell -> the first round without a quiet process. Cells without any quiet process come
        first."""
        by_cell = self.rounds()
        cells = sorted(by_cell, key=lambda cell: any(by_cell[cell].values()))
        noisy = ((cell, number) for cell in cells for number in sorted(by_cell[cell], reverse=True))
        return {cell: number for cell, number in noisy if not by_cell[cell][number]}

    def quiet_share(self) -> float:
        """Share of the probed time in which the machine was undisturbed; NaN without probes.

        The time of a process before its first probe counts like that probe. Without it, waits would
        weigh too much.
        """
        if PROCESSOR not in self._probes:
            return math.nan
        probes = self._probes[PROCESSOR]
        level = self.baselines[PROCESSOR]
        is_near = self._near_baseline(PROCESSOR, level).astype(float)
        preceding = probes.preceding[probes.sample_probed]
        waiting, waits, _ = _join([line.waiting for line in self.lines])
        took = np.array([line.took for line in self.lines]) - POLL * waits
        sampling = np.bincount(self.process_of, self._durations, len(self.lines))
        starting = START_SECONDS + np.maximum(0.0, took - sampling)
        is_quiet = [
            (is_near[preceding] + is_near[preceding + 1]) / 2,
            np.abs(np.log(waiting / level)) <= NEAR_BASELINE_LOG[PROCESSOR],
            is_near[probes.first[probes.is_probed]],
        ]
        seconds = [
            self._durations[probes.sample_probed],
            np.full(len(waiting), POLL),
            starting[probes.is_probed],
        ]
        return float(np.average(np.concatenate(is_quiet), weights=np.concatenate(seconds)))


Selected = dict[str, dict[int, tuple[Run, int]]]  # as ``select_processes`` returns them
UsedSamples = dict[str, tuple[list[float], int | None]]  # as ``used_samples`` returns them


def runs_of(lines: Iterable[Measurement], records: Iterable[RunRecord] = ()) -> dict[str, Run]:
    """Group the lines with samples by their run. ``records`` give the baselines of whole runs."""
    by_run: dict[str, list[TimedProcess]] = defaultdict(list)
    for line in with_samples(lines):
        by_run[line.run].append(line)
    baselines = {record.started: record.baselines for record in records}
    return {started: Run(members, baselines.get(started)) for started, members in by_run.items()}


def select_processes(lines: Iterable[Measurement], records: Iterable[RunRecord] = ()) -> Selected:
    """Cell -> round number -> the process that counts for the cell's figure, as its run and its
    place there.

    Each run is judged by its own baselines. In each round the first process counts that is quiet,
    or that took its samples in turns. In a cell without such processes, the process with the
    fastest sample counts. If a second run has the same cells, its rounds are numbered on from the
    first run's last.
    """
    selected: Selected = {}
    noisy = []
    first_rounds = Counter[str]()  # of the next run
    for run in runs_of(lines, records).values():
        for place, line in enumerate(run.lines):
            number = first_rounds[line.cell] + line.round
            if run.is_evidence[place]:
                selected.setdefault(line.cell, {}).setdefault(number, (run, place))
            else:
                noisy.append((run.figures[place], line.cell, {number: (run, place)}))
        rounds = 1 + max(line.round for line in run.lines)
        first_rounds.update(dict.fromkeys((line.cell for line in run.lines), rounds))
    for _, cell, process in sorted(noisy, key=lambda figure_first: figure_first[0]):
        selected.setdefault(cell, process)
    return selected


def used_samples(lines: Iterable[Measurement], records: Iterable[RunRecord] = ()) -> UsedSamples:
    """Cell -> the samples behind its figure, uncorrected, and the number of calls per sample.

    A cell of instruction counts has its counts, and None. A cell without quiet processes has its
    fastest sample alone.
    """
    lines = list(lines)
    used: UsedSamples = {
        line.cell: (list(line.values), None) for line in lines if isinstance(line, Counts)
    }
    for cell, processes in select_processes(lines, records).items():
        samples: list[float] = []
        for run, place in processes.values():
            samples += run.used_samples(place)
            used[cell] = samples, run.lines[place].number
    return used


class _Probes:
    """All probes of one kind in a run.

    times                      of all of them in ns
    is_probed, first           per process: whether it took probes; where they begin in ``times``
    sample_probed, preceding   per sample: whether its process took probes; the place in ``times``
                               of the probe before the sample
    """

    def __init__(
        self, lines: Sequence[TimedProcess], kind: str, process_of: Ints, place: Ints
    ) -> None:
        self.times, self._sizes, self.first = _join([line.probes.get(kind, ()) for line in lines])
        self.is_probed: Bools = self._sizes > 0
        self.sample_probed = self.is_probed[process_of]
        self.preceding = self.first[process_of] + place
        self._at = np.array([line.at for line in lines])

    def in_order(self, processes: Bools) -> Ints:
        """The places in ``times`` of the probes of these processes, in order of time."""
        places = np.flatnonzero(np.repeat(processes, self._sizes))
        return places[np.argsort(np.repeat(self._at, self._sizes)[places], kind="stable")]


def _join(lists: Sequence[Sequence[float]]) -> tuple[Floats, Ints, Ints]:
    """Join lists into one array. Return it with the size of each list and the place where each
    begins."""
    sizes = np.array([len(each) for each in lists], dtype=np.intp)
    values = np.fromiter(
        itertools.chain.from_iterable(lists), dtype=np.float64, count=int(sizes.sum())
    )
    if not np.all((values > 0) & (values < math.inf)):
        raise ValueError("a sample or a probe is no positive number")
    return values, sizes, np.cumsum(sizes) - sizes


def _quantile(values: Floats, group: Ints, groups: int) -> Floats:
    """Return the quantile of each group by linear interpolation; NaN for a group without values."""
    order = np.lexsort((values, group))
    ordered = np.append(values[order], math.nan)  # of an empty last group
    sizes = np.bincount(group, minlength=groups)
    first = np.cumsum(sizes) - sizes
    place = QUANTILE * np.maximum(sizes - 1, 0)
    low_place = first + np.floor(place).astype(np.intp)
    high_place = first + np.ceil(place).astype(np.intp)
    low = ordered[low_place]
    quantiles = low + place % 1 * (ordered[high_place] - low)
    return np.where(sizes > 0, quantiles, math.nan)
