"""What was found about routes beside their times, as data: what they do, which settings help, what placement costs.

What routes do is measured and held against their contracts, and followed along a history.

A setting of the environment, with which a program is started, may gain more than any choice of a route. It is chosen
for each route, at the size that answers are about, as a route is (see choices.py). Of the settings that the family
advises it is the first one that has no faster one, as far as that is decided, and with which the route is decided to be
more than GAIN times as fast as without. Routes that have one in common get one.

Placement: some routes take longer where a source and its buffer lie as neighbours in memory do.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from benchmarks.contracts import ALIAS, COPY, GRAD, INTO, Role, Route

from .cells import Row, at_usual_size, slower, unbeaten
from .results import Results

# --- what routes do ---------------------------------------------------------------------------------------------------


MEMORY, DTYPE, TAKEN = "memory", "dtype", "grad"  # what is measured of a route
MEASURED = {"track_alias": MEMORY, "track_dtype": DTYPE, "track_taken": TAKEN}  # by methods of benchmarks/semantics.py


def facts(results: Results) -> pd.DataFrame:
    """The rows of Results.values that say what routes were measured to do. what: MEMORY, DTYPE or TAKEN; measured:
    whether memory is shared; the result's dtype, "?" where its benchmark does not name it; whether what requires grad
    is taken."""

    def said(benchmark: str, what: str, value: float) -> bool | str:
        names = results.benchmarks[benchmark].stands_for
        return bool(value) if what != DTYPE else names[int(value)] if value < len(names) else "?"

    rows = results.of_role(results.values, Role.SEMANTICS)
    rows = rows[rows["method"].isin(MEASURED)]
    rows = rows.assign(what=rows["method"].astype(object).map(MEASURED), dtype=rows["dtype"].astype(object).fillna(""))
    said_of = [said(*row) for row in zip(rows["benchmark"], rows["what"], rows["value"])]
    return rows.assign(measured=pd.Series(said_of, index=rows.index, dtype=object))


class Semantics:
    """What was measured of each route. seen: direction, route and what -> dtype of the source -> what it does."""

    def __init__(self, results: Results) -> None:
        of_route = facts(results).groupby(["direction", "route", "what"], sort=False, observed=True)
        self.seen = {key: dict(zip(rows["dtype"], rows["measured"])) for key, rows in of_route}

    def of(self, contract: Route, what: str) -> dict[str, Any]:
        """What a route was measured to do, by the source's dtype."""
        return self.seen.get((contract.direction, contract.expression, what), {})

    def memory(self, contract: Route) -> dict[str, str]:
        """alias, copy or into as measured, by dtype."""
        seen = self.of(contract, MEMORY)
        fresh = INTO if contract.memory == INTO and not any(seen.values()) else COPY
        return {dtype: ALIAS if shares else fresh for dtype, shares in seen.items()}

    def taken(self, contract: Route) -> bool | None:
        """Whether the route took a tensor that requires grad; None where that was not measured."""
        return next(iter(self.of(contract, TAKEN).values()), None)

    def broken(self, contracts: Iterable[Route]) -> list[dict[str, Any]]:
        """The promises of contracts that the measurement contradicts: route, what and measured as ``facts`` has them,
        dtype of the source ("" where it is about TAKEN), and promised, as the contract has it."""
        contradicted = []
        for contract, what in itertools.product(contracts, MEASURED.values()):
            for dtype, found in self.of(contract, what).items():
                if what == MEMORY:
                    promised, kept = contract.memory_for(dtype), found == (contract.memory_for(dtype) == ALIAS)
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


# --- what changed of that along a history -----------------------------------------------------------------------------


def _with_before(rows: pd.DataFrame, releases: Sequence[Any], same: list[str]) -> pd.DataFrame:
    """The rows of each release (its version) with those of the release before it (..._before), where both have the
    ``same``."""
    places = {release.files[0]: place for place, release in enumerate(releases)}
    rows = rows[rows["file"].isin(places)].astype(object)
    rows = rows.assign(place=rows["file"].map(places).astype(int))
    both = rows.merge(rows.assign(place=rows["place"] + 1), on=["place", *same], suffixes=("", "_before"))
    return both.assign(release=[releases[place].version for place in both["place"]])


def appearances(results: Results, releases: Sequence[Any]) -> pd.DataFrame:
    """What has a figure from a release on and had none before, or the other way round; of what has a route. A row per
    release: gained (or else it is gone), direction, reason (why there is no figure on the other side), dtype (several;
    none where it is the route as a whole) and route (all of which that holds)."""
    route = ["direction", "route"]
    rows = results.cells[results.cells["method"].str.startswith("timeit_") & results.cells["route"].notna()]
    rows = rows[["file", "cell", *route, "dtype", "status", "reason"]].astype(object).fillna("")
    known = pd.MultiIndex.from_frame(rows.loc[rows["status"] == "measured", ["file", *route]])
    both, found = _with_before(rows, releases, ["cell", *route, "dtype"]), []  # other cells are neither new nor gone
    for gained, having, lacking in ((True, "", "_before"), (False, "_before", "")):
        own = both[(both[f"status{having}"] == "measured") & (both[f"status{lacking}"] != "measured")]
        reason = own[f"reason{lacking}"].where(own[f"reason{lacking}"] != "", own[f"status{lacking}"])
        others = pd.MultiIndex.from_frame(own[[f"file{lacking}", *route]]).isin(known)
        found.append(own.assign(gained=gained, reason=reason, dtype=own["dtype"].where(others, "")))
    same = ["release", "gained", "direction", "reason"]
    dtypes = pd.concat(found).groupby([*same, "route"], sort=False)["dtype"].agg(_named).reset_index()
    return dtypes.groupby([*same, "dtype"], sort=False)["route"].agg(tuple).reset_index()


def redefined(results: Results, releases: Sequence[Any]) -> pd.DataFrame:
    """Where alias, dtype or grad of a route differ from the release before. A row per release, direction, route, what,
    measured_before and measured (see ``facts``), with dtype: those of which that holds."""
    both = _with_before(facts(results), releases, ["cell", "version", "direction", "route", "what", "dtype"])
    both = both[both["measured"] != both["measured_before"]]
    same = ["release", "direction", "route", "what", "measured_before", "measured"]
    return both.groupby(same, sort=False)["dtype"].agg(_named).reset_index()


def _named(dtypes: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, dtypes)))


# --- what a family compares its figures with --------------------------------------------------------------------------


def beside(cells: Iterable[Row]) -> list[tuple[Row, Row | None]]:
    """Each cell with that of its benchmark which its family compares it with, see Family.beside; None where the family
    wants none, or it was not measured."""

    def place(cell: Row) -> tuple[object, ...]:
        return cell.benchmark, *(value for name, value in cell.parameters.items() if name not in cell.declared.beside)

    there, every = {}, list(cells)
    for cell in every:
        wanted = {name: value for name, value in cell.declared.beside.items() if name != "called"}
        if wanted and cell.parameters.items() >= wanted.items():
            there[place(cell)] = cell
    return [(cell, there.get(place(cell))) for cell in every]


# --- settings of the environment --------------------------------------------------------------------------------------


GAIN = 1.5


@dataclass(frozen=True)
class Gain:
    """A route at one size in the way that takes longer, and in the other: without a setting and with it, or between
    neighbours and between arrays that lie apart. kept: bytes that the process has more of afterwards; None: not
    counted."""

    slow: Row
    fast: Row
    kept: float | None = None

    @property
    def factor(self) -> float:
        return float(self.slow.seconds / self.fast.seconds)

    @property
    def setting(self) -> str:
        """Of the environment; "" between neighbours."""
        return str(self.fast.parameters.get("setting", ""))

    @property
    def caution(self) -> str:
        """What else the setting does."""
        return str(self.fast.declared.settings.get(self.setting, ""))

    def is_about(self, contract: Route) -> bool:
        """Whether it is this route, or one that makes the promise which the family declares."""
        promise = self.slow.declared.speaks_for
        return bool(contract.expression == self.slow.route or (promise and getattr(contract, promise)))


@dataclass(frozen=True)
class Advised:
    """A setting for some routes. ties: as good for all of them. busy: nothing is decided about some of the others."""

    setting: str
    gains: tuple[Gain, ...]
    ties: tuple[str, ...]
    busy: bool


def advised(results: Results, cells: pd.DataFrame) -> list[Advised]:
    """The settings to take, each with the routes that gain; none where none is decided to gain enough."""
    kept = dict(zip(results.values["cell"], results.values["value"]))  # bytes, by the class's track_kept
    groups: list[tuple[list[str], list[dict[str, Gain]], bool]] = []
    for _, of_route in cells[cells["role"] == Role.SETTINGS].groupby(["benchmark", "route"], sort=False):
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
        advice.append(Advised(setting, tuple(gaining[setting] for gaining in each), tuple(ties), busy))
    return advice


def _gaining(cells: pd.DataFrame, kept: Mapping[str, float]) -> dict[str, Gain]:
    """Of one route at one size: the settings that gain enough and are as good as any, of quiet cells, in the family's
    order. kept: see ``Gain``, by the name of its cell."""
    declared, cells = cells["declared"].iloc[0], cells[cells["quiet"]]
    settings = cells["parameters"].map(lambda own: own["setting"])
    without = next(cells[settings == declared.beside["setting"]].itertuples(), None)
    if without is None:
        return {}
    # of the entries: benchmarks.json sorts what is advised by its letters
    candidates = cells.assign(place=settings.map(lambda setting: declared.nth("setting", setting)))
    good = unbeaten(candidates[settings.isin([*declared.settings])].sort_values("place"))
    good = good[slower(pd.DataFrame([without]), good, GAIN - 1)]
    counts = [kept.get(name.replace(without.benchmark, f"{declared.group}.track_kept")) for name in good["cell"]]
    gains = (Gain(without, *each) for each in zip(good.itertuples(), counts))
    return {gain.setting: gain for gain in gains}


# --- neighbours in memory ---------------------------------------------------------------------------------------------


def between_neighbours(cells: pd.DataFrame) -> list[Gain]:
    """The routes and sizes that are decided to be more than GAIN times as fast apart, where both were quiet."""
    each = beside(cells[(cells["role"] == Role.PLACEMENT) & cells["quiet"]].itertuples())
    pairs = [(cell, other) for cell, other in each if other is not None and other is not cell]
    cells, apart = (pd.DataFrame([pair[side] for pair in pairs]) for side in (0, 1))
    return [Gain(*pair) for pair, is_slower in zip(pairs, slower(cells, apart, GAIN - 1)) if is_slower]


def slowed(cells: pd.DataFrame) -> list[Gain]:
    """The same, of each route the size at which it costs most."""
    worst: dict[tuple[str, str], Gain] = {}
    for pair in between_neighbours(cells):
        key = pair.slow.benchmark, pair.slow.route
        worst[key] = max(worst.get(key, pair), pair, key=lambda candidate: candidate.factor)
    return list(worst.values())
