"""Findings about routes besides their times: semantics, useful settings, costs of placement.

The semantics of routes are measured, compared with their contracts, and followed along a history.

A setting of the environment in which a program starts may gain more than any choice of a route. It
is chosen for each route at the usual size, as a route is (see ranking.py), of the family's advised
settings with which the route is significantly more than MIN_GAIN times as fast. Those that cost
nothing come before those that keep memory or have to be installed. It is the first of them without
a significantly faster one. Routes that have a good setting in common get one.

Placement: some routes take longer if a source and its buffer are neighbours in memory.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pandas import DataFrame, MultiIndex, Series, concat
from store.frames import rows_of

from benchmarks.contracts import ALIAS, COPY, GRAD, INTO, Role, Route

from .cells import Row, at_usual_size
from .history import Release
from .ranking import select_fastest, significantly_slower
from .results import Results, where
from .suite import Declared

# --- semantics of routes --------------------------------------------------------------------------


# Measured aspects of a route
MEMORY, DTYPE, TAKES_GRAD, WRITABLE = "memory", "dtype", "grad", "writable"
# Methods of benchmarks/semantics.py -> what they measure
ASPECTS = {
    "track_alias": MEMORY,
    "track_dtype": DTYPE,
    "track_taken": TAKES_GRAD,
    "track_writable": WRITABLE,
}
ROUTE = ["direction", "route"]  # columns that name a route


def facts(results: Results) -> DataFrame:
    """Return the rows of Results.values with the measured semantics of routes.

    aspect    MEMORY, DTYPE, TAKES_GRAD or WRITABLE
    measured  whether memory is shared; the result's dtype, "?" if its benchmark does not name it;
              whether a tensor that requires grad is taken, or the array may be written to
    """
    rows = results.of_role(results.values, Role.SEMANTICS).astype({"method": object})
    rows = rows.assign(aspect=rows["method"].map(ASPECTS), dtype=rows["dtype"].astype(object))
    rows = rows.dropna(subset="aspect").fillna({"dtype": ""})
    measured = [_measured(row, results.benchmarks[row.benchmark]) for row in rows_of(rows)]
    return rows.assign(measured=Series(measured, rows.index, dtype=object))


def _measured(row: Any, declared: Declared) -> bool | str:
    if row.aspect != DTYPE:
        return bool(row.value)
    return dict(enumerate(declared.stands_for)).get(int(row.value), "?")


class Semantics:
    """Measured semantics of each route.

    measured: (direction, route, aspect) -> dtype of the source -> measured value
    """

    def __init__(self, results: Results) -> None:
        by_aspect = facts(results).groupby([*ROUTE, "aspect"], sort=False, observed=True)
        self.measured = {key: dict(zip(rows["dtype"], rows["measured"])) for key, rows in by_aspect}

    def values(self, contract: Route, aspect: str) -> dict[str, bool | str]:
        """Return a route's measured values of an aspect, by the source's dtype."""
        return self.measured.get((contract.direction, contract.expression, aspect), {})

    def memory(self, contract: Route) -> dict[str, str]:
        """Return alias, copy or into as measured, by dtype."""
        shares = self.values(contract, MEMORY)
        fresh = INTO if contract.memory == INTO and not any(shares.values()) else COPY
        return {dtype: ALIAS if is_shared else fresh for dtype, is_shared in shares.items()}

    def takes_grad(self, contract: Route) -> bool | None:
        """Whether the route took a tensor that requires grad; None where that was not measured."""
        return next(map(bool, self.values(contract, TAKES_GRAD).values()), None)

    def broken(self, contracts: Iterable[Route]) -> list[dict[str, object]]:
        """Return the promises that measurements contradict: route, aspect and measured as in
        ``facts``, dtype of the source ("" for TAKES_GRAD), and promised (by the contract)."""
        contradicted = []
        for contract, aspect in itertools.product(contracts, ASPECTS.values()):
            for dtype, measured in self.values(contract, aspect).items():
                promised, is_kept = _promise(contract, aspect, dtype, measured)
                finding: dict[str, object] = {
                    "route": contract.expression,
                    "aspect": aspect,
                    "dtype": dtype,
                    "measured": measured,
                    "promised": promised,
                }
                contradicted += [] if is_kept else [finding]
        return contradicted


def _promise(contract: Route, aspect: str, dtype: str, measured: bool | str) -> tuple[str, bool]:
    """Return what a contract promises for a source of this dtype, and whether a measurement
    agrees."""
    if aspect == MEMORY:
        memory = contract.memory_for(dtype)
        return memory, measured == (memory == ALIAS)
    if aspect == DTYPE:
        result = contract.casts_to or dtype
        return result, result in ("python", measured)
    if aspect == WRITABLE:
        return "a writable array", bool(measured)
    outcome = contract.inputs.get(GRAD, "")
    return outcome, not outcome or measured == contract.takes_grad


# --- changes of semantics along a history ---------------------------------------------------------


def _pair_releases(rows: DataFrame, releases: Sequence[Release], key: Sequence[str]) -> DataFrame:
    """Join the rows of each release (its version) with those of the release before it
    (..._before) by the columns ``key``."""
    places = {release.files[0]: place for place, release in enumerate(releases)}
    rows = where(rows, file=[*places]).astype(object)
    rows = rows.assign(place=rows["file"].map(places).astype(int))
    next_place = rows.assign(place=rows["place"] + 1)
    pairs = rows.merge(next_place, on=["place", *key], suffixes=("", "_before"))
    return pairs.assign(release=[releases[place].version for place in pairs["place"]])


def appearances(results: Results, releases: Sequence[Release]) -> DataFrame:
    """Return the routes and dtypes that gain a figure at a release, or lose it.

    Columns: release, gained (else lost), direction, reason (why the other side has no figure),
    dtype (several; empty for the route as a whole) and route (all with the same values).
    """
    cells = results.cells
    is_timed = cells["method"].str.startswith("timeit_") & cells["route"].notna()
    columns = ["file", "cell", *ROUTE, "dtype", "status", "reason"]
    rows = cells.loc[is_timed, columns].astype(object).fillna("")
    # cells of one release only are left out
    pairs = _pair_releases(rows, releases, ["cell", *ROUTE, "dtype"])
    measured_routes = MultiIndex.from_frame(where(rows, status="measured")[["file", *ROUTE]])
    sides = (("", "_before"), ("_before", ""))
    changes = concat([_appearing(pairs, *side, measured_routes) for side in sides])
    change = ["release", "gained", "direction", "reason"]
    dtypes = changes.groupby([*change, "route"], sort=False)["dtype"].agg(_distinct).reset_index()
    return dtypes.groupby([*change, "dtype"], sort=False)["route"].agg(tuple).reset_index()


def _appearing(
    pairs: DataFrame, present: str, absent: str, measured_routes: MultiIndex
) -> DataFrame:
    """Select the cells that are measured on the side with suffix ``present`` and not on the other
    one. Their dtype is "" if the other side has no figure of the route at all."""
    statuses = pairs[f"status{absent}"]
    rows = pairs[(pairs[f"status{present}"] == "measured") & (statuses != "measured")]
    reason = rows[f"reason{absent}"]
    absent_route = MultiIndex.from_frame(rows[[f"file{absent}", *ROUTE]])
    return rows.assign(
        gained=not present,
        reason=reason.where(reason != "", statuses),
        dtype=rows["dtype"].where(absent_route.isin(measured_routes), ""),
    )


def redefined(results: Results, releases: Sequence[Release]) -> DataFrame:
    """Return where alias, dtype or grad of a route differ from the release before. One row per
    release, direction, route, aspect, measured_before and measured (see ``facts``), with the dtypes
    that it holds for."""
    key = ["cell", "version", *ROUTE, "aspect", "dtype"]
    pairs = _pair_releases(facts(results), releases, key)
    changes = pairs[pairs["measured"] != pairs["measured_before"]]
    change = ["release", *ROUTE, "aspect", "measured_before", "measured"]
    return changes.groupby(change, sort=False)["dtype"].agg(_distinct).reset_index()


def _distinct(dtypes: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, dtypes)))


# --- comparisons within a family ------------------------------------------------------------------


def pair_with_reference(cells: Iterable[Row]) -> list[tuple[Row, Row | None]]:
    """Pair each cell with the cell of its benchmark that its family compares it with (see
    Family.reference); None if the family names none, or it was not measured."""
    cells = [*cells]
    references = {_place(cell): cell for cell in cells if _is_reference(cell)}
    return [(cell, references.get(_place(cell))) for cell in cells]


def _place(cell: Row) -> tuple[object, ...]:
    """Return the benchmark and the parameters that a cell has in common with its reference."""
    parameters = cell.parameters.items()
    return cell.benchmark, *(v for name, v in parameters if name not in cell.declared.reference)


def _is_reference(cell: Row) -> bool:
    values = {name: v for name, v in cell.declared.reference.items() if name != "called"}
    return bool(values) and cell.parameters.items() >= values.items()


# --- settings of the environment ------------------------------------------------------------------


MIN_GAIN = 1.5


@dataclass(frozen=True)
class Gain:
    """A route at one size, slow and fast: without and with a setting, or between neighbours and
    between arrays that lie apart.

    retained: additional bytes that processes hold afterwards, a row of ``Results.values``; None:
    not counted
    """

    slow: Row
    fast: Row
    retained: Row | None = None

    @property
    def factor(self) -> float:
        """Seconds without ÷ seconds with."""
        return float(self.slow.seconds / self.fast.seconds)

    @property
    def setting(self) -> str:
        """The setting of the environment; "" between neighbours."""
        return str(self.fast.parameters.get("setting", ""))

    @property
    def caution(self) -> str:
        """Side effects of the setting."""
        return str(self.fast.declared.settings.get(self.setting, ""))

    def applies_to(self, contract: Route) -> bool:
        """Whether the gain holds for this route: the measured one, or one with the promise that the
        family declares."""
        promise = self.slow.declared.applies_to
        has_promise = promise and getattr(contract, promise)
        return bool(contract.expression == self.slow.route or has_promise)


@dataclass(frozen=True)
class SettingAdvice:
    """A setting for some routes.

    settings          good for all of the routes: the one to take, then those that are as good
    gains_by_setting  of each route: good setting -> gain
    busy              some other settings are noisy
    costly            of all routes: gains that are larger, and cost something
    """

    settings: list[str]
    gains_by_setting: list[Mapping[str, Gain]]
    busy: bool
    costly: list[Gain]

    @property
    def gains(self) -> list[Gain]:
        """The gain of each route."""
        return [gains[self.settings[0]] for gains in self.gains_by_setting]


def setting_advice(results: Results, cells: DataFrame) -> list[SettingAdvice]:
    """Return the settings to take, each with the routes that gain; empty if no setting gains
    enough."""
    counts = {count.cell: count for count in rows_of(results.values)}
    by_route = where(cells, role=Role.SETTINGS).groupby(["benchmark", "route"], sort=False)
    advice: list[SettingAdvice] = []
    for _, rows in by_route:
        rows = at_usual_size(rows, "setting")
        gains, costly = _gains(where(rows, quiet=True), counts)
        busy = not rows["quiet"].all()
        last = advice[-1] if advice else SettingAdvice([], [], busy, [])
        shared = [setting for setting in last.settings if setting in gains]
        if shared:
            by_route = [*last.gains_by_setting, gains]
            advice[-1] = SettingAdvice(shared, by_route, last.busy or busy, last.costly + costly)
        elif gains:
            advice.append(SettingAdvice([*gains], [gains], busy, costly))
    return advice


def _gains(cells: DataFrame, counts: Mapping[str, Row]) -> tuple[dict[str, Gain], list[Gain]]:
    """Return the settings of one route at one size that gain enough and have no significantly
    faster one, in the family's order; then faster ones that cost something, if those cost nothing.
    counts: cell -> count, of which the class's track_kept."""
    without = next(filter(_is_reference, rows_of(cells)), None)
    if without is None:
        return {}, []
    declared = without.declared
    settings = cells["parameters"].map(lambda parameters: parameters["setting"])
    # in the order of the entries: benchmarks.json sorts the advised settings by name
    cells = cells.assign(
        place=settings.map(lambda setting: declared.nth("setting", setting)),
        is_free=settings.map(declared.settings) == "",
    )
    advised = cells[settings.isin([*declared.settings])].sort_values("place")
    advised = advised[significantly_slower(DataFrame([without]), advised, MIN_GAIN - 1)]
    fastest = select_fastest(advised, ["benchmark"])
    good = select_fastest(where(advised, is_free=True), ["benchmark"])
    costly = where(fastest, is_free=False)
    if good.empty:
        good, costly = fastest, costly[:0]
    elif fastest["is_free"].any():  # the cheap one is as fast
        costly = costly[:0]
    gains = []
    for cell in rows_of(concat([good, costly])):
        count = cell.cell.replace(cell.benchmark, f"{declared.group}.track_kept")
        gains.append(Gain(without, cell, counts.get(count)))
    return {gain.setting: gain for gain in gains[: len(good)]}, gains[len(good) :]


# --- neighbours in memory -------------------------------------------------------------------------


def neighbour_costs(cells: DataFrame) -> list[Gain]:
    """Return the routes and sizes significantly more than MIN_GAIN times as fast apart; both cells
    must be quiet."""
    placed = rows_of(where(cells, role=Role.PLACEMENT, quiet=True))
    gains = [
        Gain(cell, reference)
        for cell, reference in pair_with_reference(placed)
        if reference is not None and reference is not cell
    ]
    slow, fast = DataFrame([gain.slow for gain in gains]), DataFrame([gain.fast for gain in gains])
    return [*itertools.compress(gains, significantly_slower(slow, fast, MIN_GAIN - 1))]


def worst_neighbour_costs(cells: DataFrame) -> list[Gain]:
    """Return ``neighbour_costs`` at the size with the largest factor, per route."""
    worst: dict[tuple[str, str], Gain] = {}
    for gain in neighbour_costs(cells):
        key = gain.slow.benchmark, gain.slow.route
        worst[key] = max(worst.get(key, gain), gain, key=lambda candidate: candidate.factor)
    return [*worst.values()]
