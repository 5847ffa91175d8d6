"""Which samples of a run were calm: taken while the machine ran at full speed, judged with all of the run in sight.

Beside every sample stand pulses, constant pieces of work (benchmarks/pulses.py). Their floor is the fastest level that
the machine *holds*, and a sample is calm where all pulses beside it are near the floor of their kind and it had its
processor throughout. Estimates rest on calm samples; a cell that has none says so everywhere. Near is not at: what is
left of the clock's changes, process by process, is taken out by the same pulses (``_pace``).

Needs the standard library alone: it runs beside whatever numpy is measured, too.
"""

import itertools
import json
import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

Line = Mapping[str, Any]  # of the sampling log: what one process logged of one cell, see StatementBenchmark._measure

PROCESSOR, MEMORY = "processor", "memory"
# log units from the floor up to which a pulse of a kind is calm, see benchmarks/pulses.py
NEAR = {PROCESSOR: math.log(1.1), "cache": math.log(1.2), MEMORY: math.log(1.2)}
# ns that the processor's pulse may take longer right behind a sample that moves bytes in memory: what it counts, and
# the interpreter, were driven out of the caches. The next pulse takes what one does. On Zen 4 at full speed 1 to 6 of
# 22.3 µs, on Zen 5 2 to 5 of 14.1 (scripts/check_pace.py): a tenth that is the sample's, not the machine's
COLD = 7000
LEVEL = math.log(1.03)  # width of a level
WIDTH = math.exp(LEVEL)
HELD = 0.05  # share of a part's pulses that a level needs to be seen in that part
RECURS = 0.4  # share of the run's parts in which the level that the machine holds is seen
PARTS = 24  # of a run at most
PART = 20  # pulses in a part at least
LEAST = 0.4  # share of the samples wanted that must be calm for a process to count as calm
# Of a process's calm samples: two pulses do not see all that comes between them, and what comes there only slows
QUANTILE = 0.1
UNWATCHED = 0.25  # the quantile of all samples of a process that took no pulses
# What of a line is not checked otherwise, with its kind
KINDS: Mapping[str, Any] = dict(run=str, at=(int, float), round=int, wanted=int, number=int, waiting=list)
SUFFIX = ".ndjson"  # of the file of samples and pulses, beside asv's result file and the run records
DIGITS = 6  # of a sample that are kept, as in benchmarks/timing.py
POLL_SECONDS = 0.004  # what one pulse of a wait stands for
START_SECONDS = 0.03  # what a process takes before its setup


def floor(pulses: Sequence[float]) -> float:
    """The fastest level that a machine holds, in the unit of ``pulses``, which are in order of time; NaN of none.

    Not the fastest pulse: a processor may begin at a clock that it cannot keep, and the first seconds of a run, or of a
    round after a rest, are never seen again. Nor a quantile of all: on a busy machine nine in ten are slow. It is the
    fastest level that is seen in RECURS of the run's parts.
    """
    if not pulses:
        return math.nan
    count = min(PARTS, max(1, len(pulses) // PART))
    edges = [len(pulses) * part // count for part in range(count + 1)]
    parts = [sorted(pulses[first:last]) for first, last in zip(edges, edges[1:])]
    known = sorted(itertools.chain.from_iterable(parts))  # in runs that are sorted: sorted at once
    for begin in sorted(map(_fastest, parts)):
        if sum(_holds(part, begin) for part in parts) >= RECURS * count:
            return statistics.median(known[bisect_left(known, begin) : bisect_right(known, begin * WIDTH)])
    return statistics.median(known)


def _holds(part: Sequence[float], begin: float) -> bool:
    """Whether enough of a part's pulses, sorted, are at the level that begins there."""
    return bisect_right(part, begin * WIDTH) - bisect_left(part, begin) >= max(HELD * len(part), 1)


def _fastest(part: Sequence[float]) -> float:
    """Where the fastest level of a part begins, whose pulses are sorted; the last one where it holds none."""
    return next((begin for begin in part if _holds(part, begin)), part[-1])


def floors(lines: Iterable[Line]) -> dict[str, float]:
    """Kind of pulse -> its floor in ns, of all processes of one run.

    Pulses that move bytes count where the processor's, taken in the same moment, is calm: on a busy machine too few of
    them are at their floor for a level to be seen, and most of what lifts them lifts that one, too.
    """
    ordered = sorted((line for line in lines if PROCESSOR in line["pulses"]), key=lambda line: line["at"])
    if not ordered:
        return {}
    known = floor([pulse for line in ordered for pulse in line["pulses"][PROCESSOR]])
    by_kind = {PROCESSOR: known}
    for kind in dict.fromkeys(kind for line in ordered for kind in line["pulses"] if kind != PROCESSOR):
        there = [line for line in ordered if kind in line["pulses"]]
        taken = list(itertools.chain.from_iterable(line["pulses"][kind] for line in there))
        at_full_speed = itertools.chain.from_iterable(near(line, PROCESSOR, known) for line in there)
        by_kind[kind] = floor(list(itertools.compress(taken, at_full_speed)) or taken)
    return by_kind


def behind(line: Line) -> set[int]:
    """Where in the list of pulses those stand that were taken right behind a sample."""
    return {place + 1 for place in places(line)}


def near(line: Line, kind: str, known: float) -> list[bool]:
    """Whether each pulse of a kind that a process took around its samples is near the kind's floor ``known``, in ns."""
    low, high = _around(kind, known)
    if kind != PROCESSOR or MEMORY not in line["pulses"]:
        return [low <= pulse <= high for pulse in line["pulses"][kind]]
    cold = behind(line)
    return [low <= pulse <= high + COLD * (place in cold) for place, pulse in enumerate(line["pulses"][kind])]


def _around(kind: str, known: float) -> tuple[float, float]:
    return known * math.exp(-NEAR[kind]), known * math.exp(NEAR[kind])


@dataclass(frozen=True)
class Process:
    """What is used of one process of a cell.

    samples  in seconds a call: the calm ones, at full speed, where it counts as calm, else all as they were taken
    calm     None where nobody watched
    wanted   how many samples it was to take
    run      when the run began that it is of
    parts    what was timed beside each of them, in turns
    floor    ns of the pulses by which its samples are at full speed; NaN where they are as they were taken
    """

    samples: Sequence[float]
    calm: bool | None
    wanted: int
    number: int
    run: str = ""
    parts: Mapping[str, Sequence[float]] = field(default_factory=dict)
    floor: float = math.nan

    @property
    def quantile(self) -> float:
        """Which of its samples its figure is."""
        return UNWATCHED if self.calm is None else QUANTILE

    @property
    def seconds(self) -> float:
        """Its figure."""
        return self._figure(self.samples)

    @property
    def beside(self) -> dict[str, float]:
        """The figures of its parts, made as its own."""
        return {name: self._figure(samples) for name, samples in self.parts.items()}

    def _figure(self, samples: Sequence[float]) -> float:
        return _quantile(samples, self.quantile)


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low, part = int(place), place % 1
    return ordered[low] if not part else ordered[low] + part * (ordered[low + 1] - ordered[low])


def places(line: Line) -> list[int]:
    """Where in the list of pulses the one before each sample stands; the one behind it is the next.

    One pulse lies between two samples, and two where the process waited in between.
    """
    waits = line["waits"]
    if not waits:
        return list(range(len(line["seconds"])))
    return [sample + bisect_right(waits, sample) for sample in range(len(line["seconds"]))]


def judge(line: Line, known: Mapping[str, float], at_full_speed: bool = True) -> Process:
    """A process, with its calm samples as they would be at full speed, or, where they are fewer than LEAST, all."""
    between = places(line)
    calm = [True] * len(between)
    for kind in line["pulses"]:
        looks = near(line, kind, known[kind])
        if not all(looks):
            calm = [good and looks[place] and looks[place + 1] for place, good in zip(between, calm)]
    for index in line["disturbed"]:
        calm[index] = False
    enough = sum(calm) >= max(1, math.ceil(LEAST * line["wanted"]))
    used = [sample for sample, good in zip(line["seconds"], calm) if good or not enough]
    held = math.nan
    if enough and at_full_speed and has_pace(line):
        held = known[PROCESSOR]
        pace = _pace(line["pulses"][PROCESSOR], [place for place, good in zip(between, calm) if good]) / held
        used = [float(f"{sample / pace:.{DIGITS}g}") for sample in used]
    # parts have what takes no pulses, so that all samples are used
    parts = line.get("parts", {})
    return Process(used, enough, line["wanted"], line["number"], line.get("run", ""), parts, held)


def has_pace(line: Line) -> bool:
    """Whether a process goes by the processor's clock: what waits for memory or a device has another."""
    return not (PROCESSOR not in line["pulses"] or MEMORY in line["pulses"] or "device" in line or "on_device" in line)


def _pace(taken: Sequence[float], between: Sequence[int]) -> float:
    """How long the processor took for constant work beside the samples that are used: of the pulses ``taken`` the
    quantile that is used of samples.

    A clock follows what a host does, and calm allows it a tenth. scripts/check_pace.py says what that is worth: on a
    virtual machine of Zen 5 that has full speed a third of the time processes of a call differ by three times as much
    without this, in proportion to these pulses; on one of Zen 3 that holds its clock it changes nothing.

    between  where in the list of pulses the one before each sample stands
    """
    return _quantile([(taken[place] + taken[place + 1]) / 2 for place in between], QUANTILE)


def name_of(line: Line) -> str:
    """asv's name of the cell that a line of the sampling log is about."""
    return f"{line['benchmark']}({', '.join(line['params'])})" if line["params"] else line["benchmark"]


def timed(lines: Iterable[Line]) -> list[Line]:
    """The lines of the sampling log that are about samples; the others say why a cell was skipped."""
    return [line for line in lines if "seconds" in line]


def attempts(
    lines: Iterable[Line], known: Mapping[str, float], at_full_speed: bool = True
) -> dict[str, dict[int, Process]]:
    """Cell -> round -> its process: the first calm one of the round, else what all of them took."""
    by_cell: dict[str, dict[int, Process]] = {}
    for line in lines:
        rounds = by_cell.setdefault(name_of(line), {})
        before, process = rounds.get(line["round"]), judge(line, known, at_full_speed)
        if before is None or (process.calm and not before.calm):
            rounds[line["round"]] = process
        elif not before.calm:
            rounds[line["round"]] = replace(before, samples=[*before.samples, *process.samples])
    return by_cell


def select(rounds: Mapping[int, Process]) -> dict[int, Process]:
    """The processes of a cell that its figure rests on, by round: the calm ones.

    Where none is, the one with the fastest of all samples, and that sample alone: what disturbs a sample makes it
    longer, so at full speed the cell takes at most this. Two runs differ less in it than in any quantile.
    """
    calm = {number: process for number, process in rounds.items() if process.calm}
    if calm:
        return dict(sorted(calm.items()))
    number, process = min(rounds.items(), key=lambda item: min(item[1].samples))
    return {number: replace(process, samples=[min(process.samples)])}


def are_seconds(samples: Sequence[float]) -> bool:
    """Whether all samples, one at least, are above zero and finite; by their sum, for min and max may miss a NaN."""
    return min(samples) > 0 and math.isfinite(sum(samples))


def read(path: Path) -> list[Line]:
    """The samples and pulses beside a result file, a line a process; none where there is no such file.

    ValueError, TypeError or KeyError where the file is broken.
    """
    if not path.is_file():
        return []
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        count = len(line["seconds"])
        for taken in (line["seconds"], *line.get("parts", {}).values()):
            if not count or len(taken) != count or not are_seconds(taken):
                raise ValueError(f"{name_of(line)} took {taken}")
        for taken in line["pulses"].values():
            if len(taken) != count + 1 + len(line["waits"]) or min(taken) <= 0:
                raise ValueError(f"{name_of(line)} has {len(taken)} pulses around {count} samples")
        if not all(0 <= index < count for index in line["disturbed"]):
            raise ValueError(f"{name_of(line)} has no sample {line['disturbed']}")
        if not set(line["pulses"]) <= set(NEAR):
            raise ValueError(f"{name_of(line)} has pulses of {', '.join(line['pulses'])}")
        for name, kind in KINDS.items():
            if not isinstance(line[name], kind):
                raise TypeError(f"{name} is {line[name]!r}")
        if not line["run"].isprintable():  # the one text of a line that is shown
            raise ValueError(f"run is {line['run']!a}")
    return lines


def chosen(lines: Iterable[Line], at_full_speed: bool = True) -> dict[str, dict[int, Process]]:
    """Cell -> the processes that its figure rests on, by round, of all runs in a file of samples.

    A run is judged by its own floors. The rounds of a second run of the same cells go on where the first run's end.
    """
    runs: dict[str, list[Line]] = {}
    for line in lines:
        runs.setdefault(line["run"], []).append(line)
    by_cell: dict[str, dict[int, Process]] = {}
    first: dict[str, int] = {}
    for run in runs.values():
        rounds = 1 + max(line["round"] for line in run)
        for cell, processes in attempts(run, floors(run), at_full_speed).items():
            begin = first.get(cell, 0)
            by_cell.setdefault(cell, {}).update({begin + number: process for number, process in processes.items()})
            first[cell] = begin + rounds
    return {cell: select(processes) for cell, processes in by_cell.items()}


def lacking(by_cell: Mapping[str, Mapping[int, Process]], rounds: Collection[int]) -> dict[str, list[int]]:
    """Cell -> the rounds of these in which it had no calm process; those that never had one first."""
    lost = {cell: [n for n in rounds if n in by_round and not by_round[n].calm] for cell, by_round in by_cell.items()}
    order = sorted(lost, key=lambda cell: any(process.calm for process in by_cell[cell].values()))
    return {cell: lost[cell] for cell in order if lost[cell]}


def share(lines: Iterable[Line], known: Mapping[str, float]) -> float:
    """Share of the time in which the machine ran at full speed, as far as it was watched; NaN where it was not.

    What a process does before its first pulse counts as that pulse says, or waiting for calm would weigh too much.
    """
    calm = total = 0.0
    for line in lines:
        if PROCESSOR not in line["pulses"]:
            continue
        looks = near(line, PROCESSOR, known[PROCESSOR])
        low, high = _around(PROCESSOR, known[PROCESSOR])
        spent = [seconds * line["number"] for seconds in line["seconds"]]
        calm += sum(took * (looks[place] + looks[place + 1]) / 2 for place, took in zip(places(line), spent))
        calm += POLL_SECONDS * sum(low <= pulse <= high for pulse in line["waiting"])
        watched = sum(spent) + POLL_SECONDS * len(line["waiting"])
        before = max(0.0, line["took"] - watched) + START_SECONDS
        calm += before * looks[0]
        total += watched + before
    return calm / total if total else math.nan
