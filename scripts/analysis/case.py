"""A case, an array of some size that somebody has here and wants there, and its routes, looked up in what is ranked.

Between measured sizes a time is interpolated; beyond them it is extrapolated to FARTHEST times the size; nothing is
carried across a size at which times leap, nor from one layout to another.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from cli import UserError
from store.records import MACHINE, Conditions, Record

from benchmarks.contracts import (
    ALIAS,
    ALL_THREADS,
    CONTIGUOUS,
    COPY,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    INTO,
    NUMPY_TO_TORCH,
    ONE_THREAD,
    PAGEABLE,
    PARALLEL,
    PINNED,
    TORCH_TO_NUMPY,
    Route,
)

NUMPY, TORCH, CUDA = ENDS = ("numpy", "torch", "cuda")
ZERO_D = "0-d"
# Source and target -> direction, and whether it is an array that is at the host's end of a link
WAYS = {
    (NUMPY, TORCH): (NUMPY_TO_TORCH, False),
    (TORCH, NUMPY): (TORCH_TO_NUMPY, False),
    (NUMPY, CUDA): (HOST_TO_DEVICE, True),
    (TORCH, CUDA): (HOST_TO_DEVICE, False),
    (CUDA, NUMPY): (DEVICE_TO_HOST, True),
    (CUDA, TORCH): (DEVICE_TO_HOST, False),
}
FLOATS = ("float", "bfloat", "complex")
FRESH = 32 * 2**20  # bytes: from here on glibc gives fresh memory fresh pages at every call, see benchmarks/sources.py
STAGED = 64 * 2**10  # bytes: more than that CUDA's driver takes from pageable memory by way of pinned memory of its own
FARTHEST = 4.0  # times the largest measured size, or that part of the smallest: nothing is said of sizes beyond
# Relative, of two routes: figures of a call that moves 16 MiB differ by 9 % (SD) from session to session, others by 1 %
AS_GOOD = 0.1
BY_BYTES = 2.0  # what takes this many times its shortest call: the bytes decide, a bandwidth has a meaning
MEASURED, INTERPOLATED, EXTRAPOLATED = ("measured", "interpolated", "extrapolated")
# What a route is among those of its need at a size: to be taken, as good, slower, not known to be (an upper bound);
# faster for whoever heeds its condition; faster and not safe; nothing that anybody would take
GOOD = BEST, TIE, SLOWER, UNDECIDED = "best", "tie", "slower", "undecided"
KINDS = (*GOOD, CONDITION := "condition", UNSAFE := "unsafe", OTHER := "other")
FIGURES = ["seconds", "low", "high"]


def itemsize(dtype: str) -> int:
    """Bytes of an element."""
    digits = re.search(r"\d+", dtype)
    return max(1, int(digits[0]) // 8) if digits else 1  # bool


def uses(route: str, name: str) -> bool:
    """Whether a route's expression uses a name of the catalogue."""
    return re.search(rf"\b{name}\b", route) is not None


# --- what is known ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Need:
    """What somebody has and wants: routes of one need are ranked against each other.

    memory   alias, copy or into
    goal     dtype of the result; "": that of the source
    batch    several arrays become one
    threads  that torch has: ONE_THREAD, another number, or ALL_THREADS; "" where a link is crossed
    host     memory at the host's end of a link; array: there it is a NumPy array, else a tensor
    enqueue  ranked by how long the call holds its caller, else by completion
    """

    direction: str
    memory: str
    dtype: str
    goal: str = ""
    layout: str = CONTIGUOUS
    grad: bool = False
    batch: bool = False
    threads: str = ""
    host: str = ""
    array: bool = False
    enqueue: bool = False

    @property
    def plain(self) -> bool:
        """Whether it is one array or tensor that keeps its dtype and requires no grad."""
        return not (self.goal or self.grad or self.batch)

    @property
    def crosses(self) -> bool:
        """Whether it crosses the link to a device."""
        return self.direction in (HOST_TO_DEVICE, DEVICE_TO_HOST)


class Effect(NamedTuple):
    """What changes a route's time by ``factor`` at a size; said of ``routes``.

    setting  of the environment, with which it is so many times as fast; "": it takes so many times as long, where its
             arrays lie as neighbours do
    """

    route: str
    nbytes: int
    factor: float
    routes: tuple[str, ...]
    setting: str = ""
    caution: str = ""


@dataclass(frozen=True)
class Known:
    """What is known of one machine and one toolchain.

    run      the record of the run that measured it
    rows     the choices that somebody may take, with what they cost: see choices.priced
    limit    seconds per byte of memcpy, by size
    dtypes   direction -> dtypes that the suite times, each with why it has no figure
    """

    machine: str
    run: Record
    rows: pd.DataFrame
    limit: "pd.Series[float]"
    effects: tuple[Effect, ...] = ()
    dtypes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def breaks(self) -> tuple[int, ...]:
        """Sizes from which on fresh memory takes longer."""
        return (FRESH,) if self.run.conditions.libc.startswith("glibc") else ()

    @property
    def threads(self) -> int:
        """Of torch by itself."""
        return self.run.settings.torch_threads or 1

    @property
    def spreads(self) -> bool:
        """Whether conversions were measured with as many threads as torch takes by itself."""
        return ALL_THREADS in set(self.rows["threads"])

    def breaks_of(self, need: Need) -> tuple[int, ...]:
        """The sizes at which the times of a need leap: where its routes take fresh memory of the host, and where torch
        begins to spread a copy over its threads."""
        fresh = self.breaks if need.memory == COPY and need.direction != HOST_TO_DEVICE else ()
        spreads = need.threads not in ("", ONE_THREAD) and need.memory != ALIAS
        return (PARALLEL * itemsize(need.dtype), *fresh) if spreads else fresh


@dataclass(frozen=True)
class Case:
    """What somebody has and wants.

    nbytes   of the source; of each array where there are several
    memory   alias, copy or into; "": alias where that can be, else copy
    host     memory at the host's end of a link; "": pageable, or pinned once by whoever asks
    batch    how many arrays become one; 0: it is one already
    enqueue  rank by how long the caller is held
    count    how many transfers share what is paid once
    goal     dtype of the result; "": that of the source
    threads  that torch has; "": as many as it takes by itself, or one where nothing else was measured
    """

    source: str
    target: str
    nbytes: int
    dtype: str = "float32"
    layout: str = CONTIGUOUS
    memory: str = ""
    host: str = ""
    grad: bool = False
    batch: int = 0
    enqueue: bool = False
    count: int = 1
    goal: str = ""
    threads: str = ""

    @property
    def direction(self) -> str:
        return WAYS[self.source, self.target][0]

    @property
    def device(self) -> bool:
        return CUDA in (self.source, self.target)

    @property
    def total(self) -> int:
        """Bytes that are moved."""
        return self.nbytes * max(1, self.batch)

    def threads_in(self, known: Known) -> str:
        """How many threads torch has, as needs have it."""
        asked = self.threads or ("" if self.device else ALL_THREADS if known.spreads else ONE_THREAD)
        return ALL_THREADS if known.spreads and asked == str(known.threads) else asked


# --- sizes that were not measured -------------------------------------------------------------------------------------


def estimate(
    curve: pd.DataFrame, nbytes: int, breaks: Sequence[int] = (), limit: "pd.Series[float] | None" = None
) -> dict[str, Any] | None:
    """What the rows of a route, by size, say of a size: such a row, how (measured, interpolated or extrapolated) and
    the sizes that it rests on. None where no measured size may speak for it. An estimate has no rate and share.

    breaks: sizes from which on other times hold; no row on the other side says anything. limit: seconds per byte of
    memcpy by size: where that is more or less at the size than where the route was measured, the interval holds both.
    """
    curve = curve.sort_values("nbytes")
    here = curve[np.searchsorted(breaks, curve["nbytes"], "right") == np.searchsorted(breaks, nbytes, "right")]
    ends = pd.concat([here[here["nbytes"] <= nbytes].tail(1), here[here["nbytes"] >= nbytes].head(1)])
    ends = ends.drop_duplicates("nbytes")
    if ends.empty:
        return None
    last, sizes, figures = ends.iloc[-1].to_dict(), tuple(ends["nbytes"]), ends[FIGURES].to_numpy(dtype=float)
    if nbytes in sizes:
        return {**last, "how": MEASURED, "sizes": sizes}
    call, alone = curve["seconds"].min(), len(curve) == 1
    if len(ends) == 2:
        how, lines = INTERPOLATED, _lines(figures, sizes, nbytes, call)
        (seconds, _, _), low, high = lines[-1], lines[:, 1].min(), lines[:, 2].max()
    else:
        how, ratio = EXTRAPOLATED, nbytes / sizes[0]
        if not 1 / FARTHEST <= ratio <= FARTHEST:
            return None
        call = 0.0 if alone else call  # of one size alone nobody knows which part is the call
        seconds, low, high = call + np.maximum(0.0, figures[0] - call) * ratio
        if alone:
            low, high = min(low, last["low"]), max(high, last["high"])
        dearer = _per_byte(limit, nbytes) / _per_byte(limit, sizes[0])
        low, high = low * min(1.0, dearer), high * max(1.0, dearer)
    kind = max(ends["kind"], key=KINDS.index)  # that which promises least
    figure = {"nbytes": nbytes, "seconds": seconds, "low": low, "high": high, "rate": math.nan, "share": math.nan}
    return {**last, **figure, "kind": kind, "quiet": ends["quiet"].all(), "how": how, "sizes": sizes}


def _per_byte(limit: "pd.Series[float] | None", nbytes: int) -> float:
    """Of memcpy at the next size that it was measured at, else at the largest; 1 of none."""
    if limit is None or limit.empty:
        return 1.0
    return float(limit.iloc[min(limit.index.searchsorted(nbytes), len(limit) - 1)])


def _lines(figures: Any, sizes: Sequence[int], nbytes: int, call: float) -> Any:
    """FIGURES on two lines between those of two sizes: straight in time against size and, where the bytes take most of
    it, in log time on top of the call against log size. So latency and bandwidth give their own line back in both."""
    (left, right), (smaller, larger) = figures, sizes
    straight = left + (nbytes - smaller) / (larger - smaller) * (right - left)
    bent = (np.minimum(left, right) > call) & (left[0] >= BY_BYTES * call)
    power = math.log(nbytes / smaller) / math.log(larger / smaller)
    first, last = np.where(bent, (left - call, right - call), 1.0)
    return np.stack([straight, np.where(bent, call + first * (last / first) ** power, straight)])


# --- answers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """routes: as ``estimate`` has them, with ``total``: seconds with what falls on each of the case's transfers of what
    is paid once. First those to take, in order, one at least; then those that would be faster on a condition, or but
    for a hazard.

    unmeasured   routes that would do, of which no measured size speaks for the case's
    instead      the dtype and "no grad" whose times are used, "" where they are the case's own
    """

    case: Case
    known: Known
    routes: pd.DataFrame
    unmeasured: tuple[str, ...] = ()
    instead: str = ""

    @property
    def ranked(self) -> list[Any]:
        return self.of(*GOOD)

    def of(self, *kinds: str) -> list[Any]:
        return list(self.routes[self.routes["kind"].isin(kinds)].itertuples())


def answer(case: Case, known: Known) -> Answer:
    """The routes for a case. UserError where there cannot be such a case, or nothing measured speaks for it."""
    sources = list(_sources(case, _alike(case, known)))
    found = [each for rows in sources if (each := _by(rows, case, known)) is not None]
    if not found:
        raise UserError(_nothing(case, sources))
    return min(found, key=lambda each: each.ranked[0].how == EXTRAPOLATED)  # its own first, if that will do


def _sources(case: Case, rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The rows of each memory, dtype and grad whose times may speak for a case: its own first. Bits are bits, and to
    detach takes no time; another layout may be another thing to do."""
    usual = rows["dtype"].value_counts().index[0]
    for memory in (case.memory,) if case.memory else (ALIAS, COPY):
        own = rows[rows["memory"] == memory]
        for dtype in dict.fromkeys((case.dtype, case.dtype if case.goal else usual)):
            for grad in dict.fromkeys((case.grad, False)):
                here = own[(own["dtype"] == dtype) & (own["grad"] == grad)]
                if len(here):
                    yield here
        if ((own["grad"] == case.grad) & own["dtype"].isin([case.dtype, usual])).any():
            return


def priced(rows: pd.DataFrame, count: int = 1) -> pd.DataFrame:
    """With the seconds of a transfer, of which so many share what is paid once."""
    return rows.assign(total=rows["seconds"] + rows["once"].fillna(0.0) / count)


def in_pinned(rows: pd.DataFrame) -> pd.DataFrame:
    """What it costs whose memory is pinned already."""
    pinned = rows["host"] == PINNED
    return rows.assign(paid=rows["paid"].mask(pinned, ""), once=rows["once"].mask(pinned, 0.0))


def _by(rows: pd.DataFrame, case: Case, known: Known) -> Answer | None:
    """By the rows of a source; None where none of its routes may be taken."""
    need, others = rows["need"].iloc[0], rows.groupby("host")["nbytes"].agg(set)

    def fits(contract: Route) -> bool:
        takes = case.dtype not in contract.refuses and (contract.takes_grad or not case.grad)
        return takes and contract.memory_for(case.dtype, case.layout) == need.memory

    def said(curve: pd.DataFrame) -> dict[str, Any] | None:
        limit = None if need.crosses or need.memory == ALIAS else known.limit
        found = estimate(curve, case.total, known.breaks_of(need), limit)
        # between its sizes lies one at which others were measured: a driver stages from some size on, times leap there
        wide = need.crosses and found and any(found["sizes"][0] < n < found["sizes"][-1] for n in others[found["host"]])
        staged = found and (need.direction, found["host"]) == (HOST_TO_DEVICE, PAGEABLE) and case.total > STAGED
        if found and staged and found["sizes"][0] <= STAGED:  # nobody measured how far it leaps
            wide = wide or len(found["sizes"]) == 1
            ends = curve[curve["nbytes"].isin(found["sizes"])]
            found = {**found, "low": ends["low"].min(), "high": ends["high"].max()}
        return None if wide else found

    rows = rows[rows["contract"].map(fits).astype(bool)]
    rows = in_pinned(rows) if case.host == PINNED else rows
    # those of the case's own size first, as they are ranked there
    rows = rows.sort_values("nbytes", key=lambda sizes: sizes != case.total, kind="stable")
    curves = [curve for _, curve in rows.groupby(["host", "route"], sort=False)]
    found = [said(curve) for curve in curves]
    unmeasured = [curve["route"].iloc[0] for curve, each in zip(curves, found) if each is None]
    candidates = priced(pd.DataFrame([each for each in found if each], columns=[*rows, "how", "sizes"]), case.count)
    good = _in_order(candidates[candidates["kind"].isin(GOOD)])
    if good.empty:
        return None
    faster = candidates[~candidates["kind"].isin(GOOD) & (candidates["total"] < good["total"].iloc[0])]
    instead = [need.dtype] * (need.dtype != case.dtype) + ["no grad"] * (need.grad != case.grad)
    return Answer(case, known, pd.concat([good, faster]), tuple(dict.fromkeys(unmeasured)), " ".join(instead))


def _in_order(good: pd.DataFrame) -> pd.DataFrame:
    """Candidates as they are ranked at a measured size; else by time, first the one that is best where they were."""
    ranked = good["kind"].head(1).eq(BEST).all() and good["how"].eq(MEASURED).all()
    if ranked and len(good[["host", "paid", "once"]].drop_duplicates()) <= 1:
        return good
    unknown = good["once"].isna()
    good = good.loc[good.assign(unknown=unknown).sort_values(["unknown", "total"], kind="stable").index]
    named = good.index[good["kind"].eq(BEST) & good["paid"].eq("")]
    if len(named) == 1 and good["total"][named[0]] <= (1 + AS_GOOD) * good["total"].iloc[0]:
        good = good.loc[[*named, *good.index.drop(named)]]
    alike = good["kind"].isin((BEST, TIE)) & good["paid"].eq("")
    kinds = np.where(alike & alike.iloc[0], TIE, SLOWER)
    return good.assign(kind=[BEST, *kinds[1:]])


def effects_on(best: Any, case: Case, known: Known) -> list[Effect]:
    """What would change the time of a route that moves bytes: the settings that were measured on the case's side of the
    size at which times leap; and arrays that lie as neighbours do, at the nearest size, among those that were measured.

    A contiguous source alone is copied in one piece.
    """
    found = [each for each in known.effects if best.route in each.routes and best.memory != ALIAS]
    settings = [e for e in found if e.setting and all((at <= e.nbytes) == (at <= case.total) for at in known.breaks)]
    near = {each.nbytes: each for each in reversed(found) if not each.setting and case.layout == CONTIGUOUS}
    if not near or not min(near) <= case.nbytes <= max(near):
        return settings
    return [*settings, near[min(near, key=lambda nbytes: abs(math.log(nbytes / case.nbytes)))]]


# --- what cannot be answered ------------------------------------------------------------------------------------------


def _alike(case: Case, known: Known) -> pd.DataFrame:
    """The rows that have in common with a case what no other may stand for; UserError where there are none, or there
    cannot be such a case."""
    direction, array = WAYS.get((case.source, case.target), ("", False))
    rows = known.rows[(known.rows["direction"] == direction) & (known.rows["array"] == array)]
    if rows.empty:
        device = "; with an accelerator, python scripts/run.py --profile transfers does that"
        ends = f"--from {case.source} --to {case.target}: not measured on {known.machine}"
        raise UserError(f"{ends}{device if case.device else ''}")
    wanted = {"batch": bool(case.batch), "enqueue": case.enqueue, "layout": case.layout, "goal": case.goal}
    wanted |= {"threads": case.threads_in(known), "host": case.host, "dtype": case.goal and case.dtype}
    for name, value in wanted.items():
        if name in ("host", "dtype") and not value:
            continue  # any
        fits, option = rows[name] == value, {"goal": "to-dtype", "host": "source"}.get(name, name)
        if not fits.any():
            said = f"--{option}" if value is True else f"--{option} {value}" if value else f"no --{option}"
            others = "" if isinstance(value, bool) else ", ".join(sorted({*rows[name]} - {""}))
            raise UserError(f"{said}: not measured {direction}{others and f'; there are {others}'}")
        rows = rows[fits]
    dtypes, size = known.dtypes.get(direction, {}), itemsize(case.dtype)
    lacking = dtypes.get(case.dtype, f"not timed {direction}; there are {', '.join(dtypes)}")
    if lacking and not case.goal:
        raise UserError(f"--dtype {case.dtype}: {lacking}")
    if case.nbytes % size or (case.layout == ZERO_D and case.nbytes != size):
        raise UserError(f"--nbytes {case.nbytes}: no {case.layout} source of {case.dtype}, {size} bytes each, has that")
    if case.grad and not case.dtype.startswith(FLOATS):
        raise UserError(f"--grad: floating point and complex tensors require grad, {case.dtype} does not")
    return rows


def _nothing(case: Case, sources: Sequence[pd.DataFrame]) -> str:
    """Why no route can be recommended."""
    if any(case.dtype in contract.refuses for rows in sources for contract in rows["contract"]):
        return f"--dtype {case.dtype}: no route keeps it {case.direction}, they raise"
    wanted = {ALIAS: " that shares memory", COPY: " that copies", INTO: " into a buffer"}.get(case.memory, "")
    grad = " and takes a tensor that requires grad" if case.grad else ""
    what = f"a batch of {case.dtype}" if case.batch else f"{case.layout} {case.dtype}"
    good = [rows[rows["kind"].isin(GOOD)] for rows in sources]
    sizes = sorted({nbytes for rows in good for nbytes in rows["nbytes"]})
    near = f" near {case.total} bytes; it was of {', '.join(map(str, sizes))} bytes" if sizes else ""
    return f"no route {case.direction}{wanted}{grad} was measured for {what}{near}"


# --- whose results ----------------------------------------------------------------------------------------------------


def closest(known: Sequence[Known], here: Conditions, device: bool) -> tuple[Known, tuple[str, ...]]:
    """Of one machine at least the one most like this, and in what it differs. device: it has to have measured one, if
    any has."""

    def differs(machine: Known) -> tuple[str, ...]:
        return tuple(name for name in MACHINE if getattr(machine.run.conditions, name) != getattr(here, name))

    def distance(machine: Known) -> tuple[bool, int, int]:
        lacking = device and not any(need.crosses for need in machine.rows["need"])
        return lacking, len(differs(machine)), abs((machine.run.conditions.cores or 0) - (here.cores or 0))

    nearest = min(known, key=distance)
    return nearest, differs(nearest)
