"""Findings about routes besides their times, as data: semantics, useful settings, costs of placement.

The semantics of routes are measured, compared with their contracts, and followed along a history.

A setting of the environment in which a program starts may gain more than any choice of a route. It is chosen for each
route at the usual size, as a route is (see ranking.py). It is the first of the family's advised settings without a
decidedly faster one, if the route is decided to be more than GAIN times as fast with it. Routes that have a good
setting in common get one.

Placement: some routes take longer if a source and its buffer are neighbours in memory.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from benchmarks.contracts import ALIAS, COPY, GRAD, INTO, Role, Route

from .cells import Row, at_usual_size
from .results import Results
from .ties import select_fastest, significantly_slower

# --- semantics of routes ----------------------------------------------------------------------------------------------


MEMORY, DTYPE, TAKES_GRAD = "memory", "dtype", "grad"  # measured semantics of a route
MEASURED = {
    "track_alias": MEMORY,
    "track_dtype": DTYPE,
    "track_taken": TAKES_GRAD,
}  # by methods of benchmarks/semantics.py


def facts(results: Results) -> pd.DataFrame:
    """Return the rows of Results.values with the measured semantics of routes. what: MEMORY, DTYPE or TAKES_GRAD; measured:
    whether memory is shared; the result's dtype, "?" if its benchmark does not name it; whether a tensor that requires
    grad is taken."""

    def said(benchmark: str, what: str, value: float) -> bool | str:
        names = results.benchmarks[benchmark].stands_for
        return bool(value) if what != DTYPE else names[int(value)] if value < len(names) else "?"

    rows = results.of_role(results.values, Role.SEMANTICS)
    rows = rows[rows["method"].isin(MEASURED)]
    rows = rows.assign(
        what=rows["method"].astype(object).map(MEASURED),
        dtype=rows["dtype"].astype(object).fillna(""),
    )
    said_of = [said(*row) for row in zip(rows["benchmark"], rows["what"], rows["value"])]
    return rows.assign(measured=pd.Series(said_of, index=rows.index, dtype=object))


class Semantics:
    """Measured semantics of each route. measured: (direction, route, what) -> dtype of the source -> measured value."""

    def __init__(self, results: Results) -> None:
        of_route = facts(results).groupby(["direction", "route", "what"], sort=False, observed=True)
        self.measured = {key: dict(zip(rows["dtype"], rows["measured"])) for key, rows in of_route}

    def values(self, contract: Route, what: str) -> dict[str, Any]:
        """Return a route's measured values of ``what``, by the source's dtype."""
        return self.measured.get((contract.direction, contract.expression, what), {})

    def memory(self, contract: Route) -> dict[str, str]:
        """alias, copy or into as measured, by dtype."""
        seen = self.values(contract, MEMORY)
        fresh = INTO if contract.memory == INTO and not any(seen.values()) else COPY
        return {dtype: ALIAS if shares else fresh for dtype, shares in seen.items()}

    def takes_grad(self, contract: Route) -> bool | None:
        """Whether the route took a tensor that requires grad; None where that was not measured."""
        return next(iter(self.values(contract, TAKES_GRAD).values()), None)

    def broken(self, contracts: Iterable[Route]) -> list[dict[str, Any]]:
        """Return the promises that measurements contradict: route, what and measured as in ``facts``, dtype of the
        source ("" for TAKES_GRAD), and promised (by the contract)."""
        contradicted = []
        for contract, what in itertools.product(contracts, MEASURED.values()):
            for dtype, found in self.values(contract, what).items():
                if what == MEMORY:
                    promised, kept = (
                        contract.memory_for(dtype),
                        found == (contract.memory_for(dtype) == ALIAS),
                    )
                elif what == DTYPE:
                    promised = contract.casts_to or dtype
                    kept = promised in ("python", found)
                else:
                    promised = contract.inputs.get(GRAD, "")
                    kept = not promised or found == contract.takes_grad
                if not kept:
                    about = {"route": contract.expression, "what": what, "dtype": dtype}
                    contradicted.append({**about, "measured": found, "promised": promised})
        return contradicted


# --- changes of semantics along a history -----------------------------------------------------------------------------


def _with_before(rows: pd.DataFrame, releases: Sequence[Any], same: list[str]) -> pd.DataFrame:
    """Join the rows of each release (its version) with those of the release before it (..._before) by the columns
    ``same``."""
    places = {release.files[0]: place for place, release in enumerate(releases)}
    rows = rows[rows["file"].isin(places)].astype(object)
    rows = rows.assign(place=rows["file"].map(places).astype(int))
    both = rows.merge(
        rows.assign(place=rows["place"] + 1), on=["place", *same], suffixes=("", "_before")
    )
    return both.assign(release=[releases[place].version for place in both["place"]])


def appearances(results: Results, releases: Sequence[Any]) -> pd.DataFrame:
    """Return the routes and dtypes that gain a figure at a release, or lose it. Columns: release, gained (else lost),
    direction, reason (why the other side has no figure), dtype (several; empty for the route as a whole) and route (all
    with the same values)."""
    route = ["direction", "route"]
    rows = results.cells[
        results.cells["method"].str.startswith("timeit_") & results.cells["route"].notna()
    ]
    rows = rows[["file", "cell", *route, "dtype", "status", "reason"]].astype(object).fillna("")
    known = pd.MultiIndex.from_frame(rows.loc[rows["status"] == "measured", ["file", *route]])
    both, found = (
        _with_before(rows, releases, ["cell", *route, "dtype"]),
        [],
    )  # cells of one release only are left out
    for gained, having, lacking in ((True, "", "_before"), (False, "_before", "")):
        own = both[
            (both[f"status{having}"] == "measured") & (both[f"status{lacking}"] != "measured")
        ]
        reason = own[f"reason{lacking}"].where(
            own[f"reason{lacking}"] != "", own[f"status{lacking}"]
        )
        others = pd.MultiIndex.from_frame(own[[f"file{lacking}", *route]]).isin(known)
        found.append(own.assign(gained=gained, reason=reason, dtype=own["dtype"].where(others, "")))
    same = ["release", "gained", "direction", "reason"]
    dtypes = (
        pd.concat(found).groupby([*same, "route"], sort=False)["dtype"].agg(_named).reset_index()
    )
    return dtypes.groupby([*same, "dtype"], sort=False)["route"].agg(tuple).reset_index()


def redefined(results: Results, releases: Sequence[Any]) -> pd.DataFrame:
    """Return where alias, dtype or grad of a route differ from the release before. One row per release, direction,
    route, what, measured_before and measured (see ``facts``), with the dtypes that it holds for."""
    both = _with_before(
        facts(results), releases, ["cell", "version", "direction", "route", "what", "dtype"]
    )
    both = both[both["measured"] != both["measured_before"]]
    same = ["release", "direction", "route", "what", "measured_before", "measured"]
    return both.groupby(same, sort=False)["dtype"].agg(_named).reset_index()


def _named(dtypes: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, dtypes)))


# --- comparisons within a family --------------------------------------------------------------------------------------


def pair_with_reference(cells: Iterable[Row]) -> list[tuple[Row, Row | None]]:
    """Pair each cell with the cell of its benchmark that its family compares it with (see Family.reference); None if the
    family names none, or it was not measured."""

    def place(cell: Row) -> tuple[object, ...]:
        return cell.benchmark, *(
            value for name, value in cell.parameters.items() if name not in cell.declared.reference
        )

    there, every = {}, list(cells)
    for cell in every:
        wanted = {
            name: value for name, value in cell.declared.reference.items() if name != "called"
        }
        if wanted and cell.parameters.items() >= wanted.items():
            there[place(cell)] = cell
    return [(cell, there.get(place(cell))) for cell in every]


# --- settings of the environment --------------------------------------------------------------------------------------


GAIN = 1.5


@dataclass(frozen=True)
class Gain:
    """A route at one size, slow and fast: without and with a setting, or between neighbours and between arrays that lie
    apart. retained: additional bytes that processes hold afterwards, a row of ``Results.values``; None: not counted."""

    slow: Row
    fast: Row
    retained: Any = None

    @property
    def factor(self) -> float:
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
        """Whether the gain holds for this route: its own, or one with the promise that the family declares."""
        promise = self.slow.declared.applies_to
        return bool(
            contract.expression == self.slow.route or (promise and getattr(contract, promise))
        )


@dataclass(frozen=True)
class SettingAdvice:
    """A setting for some routes. ties: settings as good for all of them. busy: some other settings are noisy."""

    setting: str
    gains: tuple[Gain, ...]
    ties: tuple[str, ...]
    busy: bool


def setting_advice(results: Results, cells: pd.DataFrame) -> list[SettingAdvice]:
    """Return the settings to take, each with the routes that gain; empty if no setting is decided to gain enough."""
    kept = {
        count.cell: count for count in results.values.itertuples()
    }  # of these, the class's track_kept
    groups: list[tuple[list[str], list[dict[str, Gain]], bool]] = []
    for _, of_route in cells[cells["role"] == Role.SETTINGS].groupby(
        ["benchmark", "route"], sort=False
    ):
        here = at_usual_size(of_route, "setting")
        gaining = _gaining(here, kept)
        busy = not here["quiet"].all()
        common = [setting for setting in groups[-1][0] if setting in gaining] if groups else []
        if common:
            groups[-1] = (common, [*groups[-1][1], gaining], groups[-1][2] or busy)
        elif gaining:
            groups.append((list(gaining), [gaining], busy))
    advice = []
    for (setting, *ties), each, busy in groups:
        advice.append(
            SettingAdvice(setting, tuple(gaining[setting] for gaining in each), tuple(ties), busy)
        )
    return advice


def _gaining(cells: pd.DataFrame, kept: Mapping[str, Any]) -> dict[str, Gain]:
    """Return the settings of one route at one size that gain enough and are unbeaten, from quiet cells, in the family's
    order. kept: cell -> count of bytes, see ``Gain``."""
    declared, cells = cells["declared"].iloc[0], cells[cells["quiet"]]
    settings = cells["parameters"].map(lambda own: own["setting"])
    without = next(cells[settings == declared.reference["setting"]].itertuples(), None)
    if without is None:
        return {}
    # in the order of the entries: benchmarks.json sorts the advised settings by name
    candidates = cells.assign(place=settings.map(lambda setting: declared.nth("setting", setting)))
    good = select_fastest(candidates[settings.isin([*declared.settings])].sort_values("place"))
    good = good[significantly_slower(pd.DataFrame([without]), good, GAIN - 1)]
    counts = [
        kept.get(name.replace(without.benchmark, f"{declared.group}.track_kept"))
        for name in good["cell"]
    ]
    gains = (Gain(without, *each) for each in zip(good.itertuples(), counts))
    return {gain.setting: gain for gain in gains}


# --- neighbours in memory ---------------------------------------------------------------------------------------------


def neighbour_costs(cells: pd.DataFrame) -> list[Gain]:
    """Return the routes and sizes decided to be more than GAIN times as fast apart; both cells must be quiet."""
    each = pair_with_reference(
        cells[(cells["role"] == Role.PLACEMENT) & cells["quiet"]].itertuples()
    )
    pairs = [(cell, other) for cell, other in each if other is not None and other is not cell]
    cells, apart = (pd.DataFrame([pair[side] for pair in pairs]) for side in (0, 1))
    return [
        Gain(*pair)
        for pair, is_slower in zip(pairs, significantly_slower(cells, apart, GAIN - 1))
        if is_slower
    ]


def worst_neighbour_costs(cells: pd.DataFrame) -> list[Gain]:
    """Return ``neighbour_costs`` at the size with the largest factor, per route."""
    worst: dict[tuple[str, str], Gain] = {}
    for pair in neighbour_costs(cells):
        key = pair.slow.benchmark, pair.slow.route
        worst[key] = max(worst.get(key, pair), pair, key=lambda candidate: candidate.factor)
    return list(worst.values())
