"""Histories: how each release of torch or numpy changed the cost of every route on a machine.

``History.rows`` is one table of points and changes. The last sections summarise changes: by
release, and between two releases.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from pandas import DataFrame, MultiIndex, Series
from store.frames import MEASURED, Change, check_frame, rows_of
from toolchains import ledger

from .changes import AGREES, LAYOUT, ROUTE, changes_of
from .results import Results, where
from .series import SessionPoints, points_of, sessions_of
from .verdicts import (
    CHANGED,
    DEFAULT,
    INSTRUCTIONS,
    Settings,
    largest_first,
    verdict_of_change,
)

SERIES = ["package", "series", "what"]  # the columns that identify a series on a machine
MACHINE_SERIES = ["machine", *SERIES]


class Release(NamedTuple):
    """A measured release. torch and numpy are as imported, the build variant included; started is
    of its first session, files are the results of all sessions."""

    package: str
    version: str
    date: str
    tag: str
    torch: str
    numpy: str
    started: str
    files: tuple[str, ...]
    name: str  # "torch 2.6.0"


@dataclass(frozen=True)
class History:
    """History of one package's releases on one machine.

    package             the history's name: torch, numpy, or another of the ledger
    python              release of Python; "": that is what varies
    fixed_package       the other packages with their versions: "numpy 2.1.3"
    releases            in order
    rows                one ``Change`` per series, release and ``what`` (time or instructions), in
                        order of release. The cell is that of the smallest size. Where no level
                        begins, ratio and its like are missing; verdict is "" where no change is
                        reported
    replicates          one row per pair of sessions of one toolchain: torch, numpy, hours (between
                        them), series (compared), median (ratio), half (of the ratios lie within
                        this factor), flagged (at ``FDR``: false alarms)
    session_sd          noise class -> SD of log seconds between sessions
    nodes               one row per node: node, sessions, releases, ratio (its time over that of the
                        mean node); empty for one
    failures            version -> why its measurement failed
    other_pythons       another Python -> number of releases measured with it
    uncounted_releases  number of releases without counts, as they were counted on another
                        processor, C library or Python
    """

    package: str
    machine: str
    python: str
    fixed_package: str
    releases: tuple[Release, ...]
    rows: DataFrame
    replicates: DataFrame
    session_sd: Mapping[str, float]
    nodes: DataFrame
    failures: Mapping[str, str]
    other_pythons: Mapping[str, int]
    uncounted_releases: int
    settings: Settings

    @cached_property
    def changes(self) -> DataFrame:
        """The rows of reported changes, controls left out: the largest first."""
        return largest_first(self.rows.query("verdict != '' and not control"))

    @property
    def false_alarms(self) -> DataFrame:
        """The rows of controls with reported changes: no release should have changed them."""
        return self.rows.query("verdict != '' and control")


def histories_of(results: Results, settings: Settings = DEFAULT) -> dict[str, History]:
    """Return package -> history for the results of one machine. A package needs at least two
    measured releases, and a result with enough quiet processes.

    If releases were measured with several Pythons, only those with the most common one are used.
    """
    sessions = sessions_of(results)
    counts = sessions.groupby(["package", "python"], as_index=False)["release"].nunique()
    ranked = counts.sort_values(["release", "python"])
    pythons = ranked.drop_duplicates("package", keep="last")[["package", "python"]]
    histories = {}
    for python, of_python in sessions.merge(pythons).groupby("python"):
        points = points_of(results, of_python)
        for package, of_package in of_python.groupby("package"):
            if package in {*points.points["package"]} and of_package["release"].nunique() > 1:
                releases = counts.query("package == @package").set_index("python")["release"]
                others = releases.drop(python).to_dict()
                histories[package] = _history(results, of_package, points, others, settings)
    return {name: histories[name] for name in ledger.histories() if name in histories}


def _history(
    results: Results,
    sessions: DataFrame,
    data: SessionPoints,
    other_pythons: Mapping[str, int],
    settings: Settings,
) -> History:
    """Return the history of one package, from its sessions with one Python."""
    first = sessions.iloc[0]
    package = first["package"]
    varied = ledger.history(package)[0].package
    fixed = [name for name in ledger.PACKAGES if name != varied]
    is_counted = data.points["what"].eq(INSTRUCTIONS).any()
    uncounted = sessions.query("not same_platform")["release"].nunique()
    points = data.points.query("package == @package")
    return History(
        package=package,
        machine=first["machine"],
        python=first["python"],
        fixed_package=", ".join(f"{name} {_versions(sessions[name])}" for name in fixed),
        releases=_releases(sessions),
        rows=check_frame(changes_of(points, sessions, settings), Change, results.parameters),
        replicates=data.replicates,
        session_sd=data.session_sd,
        nodes=data.nodes.query("package == @package"),
        failures=_failures(results, package),
        other_pythons=other_pythons,
        uncounted_releases=uncounted if is_counted else 0,
        settings=settings,
    )


def _versions(of_sessions: "Series[str]") -> str:
    return " and ".join(of_sessions.str.partition("+")[0].unique())


def _releases(sessions: DataFrame) -> tuple[Release, ...]:
    """Return the releases of one package's sessions."""
    names = {"release": "version", "run": "started"}
    first = sessions.rename(columns=names).drop_duplicates("version")
    files = sessions.groupby("release")["file"].unique()
    first = first.assign(files=[tuple(files[version]) for version in first["version"]])
    rows = rows_of(first[[*Release._fields]])
    return tuple(map(Release._make, rows))


def _failures(results: Results, package: str) -> dict[str, str]:
    measured = set(where(results.cells, status=MEASURED)["file"])
    versions = {toolchain.tag: toolchain.version for toolchain in ledger.history(package)}
    return {
        versions[record.toolchain.tag]: record.failed
        for record in results.runs
        if record.failed and record.toolchain.tag in versions and record.file not in measured
    }


# --- by release -----------------------------------------------------------------------------------


def largest_by_route(changes: DataFrame, *columns: str) -> DataFrame:
    """Return the largest change of each route at each release, from ``History.changes`` (largest
    first): one row per ``what``, and per value of the further ``columns``."""
    keys = ["package", "release", "what", *columns, *ROUTE]
    return changes.groupby(keys, sort=False, dropna=False).head(1)


def headlines(history: History) -> DataFrame:
    """Return one row per release except the oldest, newest first, indexed by release: the number of
    routes with each verdict, and the median ratio (slower_ratio, faster_ratio).

    A route counts once for time and once for instructions, by its largest change; changes with the
    evidence LAYOUT are left out.
    """
    routes = largest_by_route(history.changes[history.changes["evidence"] != LAYOUT])
    table = DataFrame(index=[release.version for release in history.releases[:0:-1]])
    for verdict in CHANGED:
        ratios = where(routes, verdict=verdict).groupby("release")["ratio"]
        table[verdict] = ratios.size().reindex(table.index, fill_value=0)
        table[f"{verdict}_ratio"] = ratios.median().astype(float)
    return table


# --- two releases ---------------------------------------------------------------------------------


def compare_releases(history: History, releases: Sequence[tuple[str, str]]) -> DataFrame:
    """Return the cost of each route at one release over another, for pairs of releases (``base``
    and ``new``). One row per pair and series of both releases: series, what, sizes, ratio, low95
    and high95, q, verdict ("" without a reported change).

    With reported changes between the two, the ratio is that of their levels, as on the page of the
    history; a single change keeps its own interval and q. Without, it is the ratio of the two
    points. As on the page, controls and changes with the evidence LAYOUT give no verdict.
    """
    series = history.rows[MACHINE_SERIES].drop_duplicates()
    pairs = series.merge(DataFrame(releases, columns=["base", "new"]), how="cross")
    return pairs.join(_ratios(_with_places(history.rows), pairs)).dropna(subset="ratio")


def _with_places(rows: DataFrame) -> DataFrame:
    """Add the place of each row's release, and of the one before, in the order of all releases."""
    releases = sorted(rows["release"].unique(), key=ledger.order)
    places = {release: n for n, release in enumerate(releases)}
    return rows.assign(place=rows["release"].map(places), place_before=rows["before"].map(places))


def _ratios(rows: DataFrame, pairs: DataFrame) -> DataFrame:
    """Return ``compare_releases`` for pairs of releases of a series (NaN if one is missing), with
    the number of reported ``changes`` between them. Indexed as ``pairs`` (MACHINE_SERIES, base and
    new)."""
    old, new = _points_at(rows, pairs, "base"), _points_at(rows, pairs, "new")
    totals = _sum_changes(rows, pairs, old["place"], new["place"])
    is_changed = totals["changes"].notna()
    is_backward = old["place"] > new["place"]
    effect = (new["value"] - old["value"]).mask(is_changed, new["level"] - old["level"])
    half_width = np.hypot(old["high"] - old["low"], new["high"] - new["low"]) / 2
    half_width = half_width.mask(is_changed, np.sqrt(totals["square"]))
    ends = DataFrame({"low95": effect - half_width, "high95": effect + half_width})
    of_single = totals[[*ends]].mask(is_backward, -totals[["high95", "low95"]].to_numpy())
    ends = ends.mask(totals["changes"] == 1, of_single)
    is_reported = (totals["counted"] > 0) & ((ends["low95"] > 0) | (ends["high95"] < 0))
    verdict = verdict_of_change(effect, pairs["what"])
    return totals[["changes", "q"]].assign(
        sizes=old["sizes"],
        ratio=np.exp(effect),
        **np.exp(ends),
        verdict=np.where(is_reported, verdict, ""),
    )


def _points_at(rows: DataFrame, pairs: DataFrame, end: str) -> DataFrame:
    """Return, per pair, the point at the release in its column ``end``: place, sizes, and the logs
    of value, low, high and level."""
    figures = ["value", "low", "high", "level"]
    points = rows.set_index([*MACHINE_SERIES, "release"])[["place", "sizes", *figures]]
    points[figures] = np.log(points[figures].astype(float))
    keys = MultiIndex.from_frame(pairs[[*MACHINE_SERIES, end]])
    return points.reindex(keys).set_axis(pairs.index)


def _sum_changes(
    rows: DataFrame, pairs: DataFrame, start: "Series[int]", end: "Series[int]"
) -> DataFrame:
    """Return, per pair, the reported changes between the places of its releases: changes (number),
    counted (of these, those on the page), q (the largest), square (of half their interval, log),
    low95 and high95 (log); NaN if none."""
    spans = pairs[MACHINE_SERIES].assign(first=np.minimum(start, end), last=np.maximum(start, end))
    changes = rows.query("verdict != ''")
    changes = spans.reset_index(names="pair").merge(changes, on=MACHINE_SERIES)
    changes = changes.query("first < place <= last")
    low, high = (np.log(changes[name].astype(float)) for name in ("ratio_low", "ratio_high"))
    changes = changes.assign(
        low95=low,
        high95=high,
        square=(high - low) ** 2 / 4,
        changes=1,
        counted=changes["evidence"].ne(LAYOUT) & ~changes["control"].astype(bool),
    )
    names = ["changes", "counted", "square", "low95", "high95"]
    sums = dict.fromkeys(names, "sum") | {"q": "max"}
    return changes.groupby("pair").agg(sums).reindex(pairs.index)


# --- the counts behind changes of times -----------------------------------------------------------


def explained_counts(changes: DataFrame) -> dict[tuple[object, ...], Change]:
    """Release, route and dtype -> the change of its instructions, where functions explain it."""
    if "because" not in changes:
        return {}
    explained = changes[changes["because"].notna()]
    keys = explained[["release", "direction", "route", "dtype"]].itertuples(index=False, name=None)
    return dict(zip(keys, rows_of(explained)))


def count_of(change: Change, counts: Mapping[tuple[object, ...], Change]) -> Change | None:
    """The change of instructions that goes with a change of time."""
    is_paired = change.evidence == AGREES and not change.group.startswith("RequiresGrad")
    key = (change.release, change.direction, change.route, change.dtype)
    return counts.get(key) if is_paired else None
