"""Change points of series: where levels begin, how sure that is, and what else shows the change.

Levels are found by exact optimal partitioning. A change of level is reported if its false discovery
rate, over all places where a series of its noise class could change, is at most ``FDR``. Changes of
instruction counts are found in the same way, but must exceed the effect of memory layout between
processes. The thresholds come from two whole histories of 26 toolchains, measured on the same
machine seven hours apart (``check.py history``, docs/lab-notes.md).
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import scipy
from pandas import DataFrame, Index, Series, concat

from .results import where
from .series import FDR, SESSION, average_points
from .statistics import CONFIDENCE, Z90_OVER_Z95, Z95, Floats, q_values
from .verdicts import (
    INSTRUCTIONS,
    TIME,
    TIME_VERDICTS,
    Settings,
    explain_rows,
    verdict_of_change,
)

# Evidence: the other figure (count or time) changes the same way, the opposite way, or not at all
AGREES, CONTRADICTS, UNCHANGED = "agrees", "contradicts", "unchanged"
# Same instructions and a change below ``Settings.equivalence``: placement of the code
LAYOUT = "layout"
# Whether another machine, or a node, shows a change
CONFIRMED, REFUTED, UNDETERMINED = "same", "differs", "not known"
CONFIRMING_SHARE = 0.5  # of a change, in log units
# Largest q of a reported change. The same data choose its place and test it: in simulated series of
# 17 and 26 releases, 3 to 4 % of reported changes are false with q at FDR, and 0.4 to 1.5 % with
# half of that
MAX_Q = FDR / 2
MIN_SUPPORT = 2.0  # of a change point, in standard errors: weaker ones are dropped first
PENALTY = 6.0  # per change point, in squared standard errors; the test decides what is reported
ROUTE = ["group", "direction", "route"]  # the columns that identify a route in a history
WORKING_COLUMNS = ["y", "variance", "error", "spread", "place", "at", "functions"]
WORKING_COLUMNS += [name for name in SESSION if name not in ("package", "release")]


def changes_of(points: DataFrame, sessions: DataFrame, settings: Settings) -> DataFrame:
    """Return one ``Change`` per series and release of one package on one machine. Sessions of a
    release are averaged, weighted by their precision. See ``points_of`` and ``sessions_of``."""
    dates = sessions.drop_duplicates("release").set_index("release")["date"]
    order = {release: place for place, release in enumerate(dates.index)}
    rows = average_points(points, "series", "release")
    rows = rows.assign(
        error=rows["variance"] ** 0.5,
        at=rows["release"].map(order),
        place=pd.factorize(rows["series"])[0],
        machine=sessions["machine"].iloc[0],
        date=rows["release"].map(dates),
    )
    rows = rows.sort_values(["place", "at"], ignore_index=True)
    noise_classes = rows.groupby("noise", sort=False)
    rows = rows.join(concat([find_changes(members, settings) for _, members in noise_classes]))
    half_width = Z95 * rows["error"]
    rows = rows.assign(
        value=np.exp(rows["y"]),
        low=np.exp(rows["y"] - half_width),
        high=np.exp(rows["y"] + half_width),
        level=np.exp(rows["level"]),
        evidence=_evidence(rows, order, settings),
    )
    prior = rows.groupby("series")[["value", "functions"]].shift()
    because = explain_rows(prior, rows, rows["verdict"].ne("") & rows["what"].eq(INSTRUCTIONS))
    if because.notna().any():
        rows["because"] = because
    if points["node"].nunique() > 1:
        confirmations = _node_confirmations(rows, points)
        rows["nodes_with"] = _names_of_nodes(confirmations, CONFIRMED, rows.index)
        rows["nodes_without"] = _names_of_nodes(confirmations, REFUTED, rows.index)
    return rows.drop(columns=WORKING_COLUMNS)


# --- change points --------------------------------------------------------------------------------


class _Levels:
    """The levels of one series. ``starts`` are their first places, the first of them 0; effects
    (log), errors and support (effects in standard errors, 0 if below ``min_effect``) are of the
    changes between them."""

    def __init__(self, points: DataFrame, settings: Settings) -> None:
        self.points = points
        self.y = points["y"].to_numpy()
        self.error = points["error"].to_numpy()
        self.min_effect = max(math.log1p(settings.min_effect), 2 * points["spread"].iloc[0])
        self.starts = optimal_partition(self.y, self.error, PENALTY)

    def prune(self, min_support: float) -> None:
        """Remove changes of less support, the weakest first."""
        self._fit()
        while len(self.support) and self.support.min() < min_support:
            del self.starts[int(np.argmin(self.support)) + 1]
            self._fit()

    def _fit(self) -> None:
        weight = 1.0 / self.error**2
        ends = [*self.starts[1:], len(self.y)]
        means = np.array(
            [
                np.average(self.y[start:end], weights=weight[start:end], returned=True)
                for start, end in zip(self.starts, ends)
            ]
        )
        self.level = np.repeat(means[:, 0], np.diff([0, *ends]))
        self.effects = np.diff(means[:, 0])
        self.errors = np.sqrt(1.0 / means[1:, 1] + 1.0 / means[:-1, 1])
        sizes = np.abs(self.effects)
        self.support = np.where(sizes >= self.min_effect, sizes / self.errors, 0.0)

    def ranges(self) -> list[tuple[str, str]]:
        """Return the releases between which each change lies."""
        releases = self.points["release"].to_numpy()
        numbers = range(1, len(self.starts))
        places = (break_range(self.y, self.error, self.starts, number) for number in numbers)
        return [(releases[first], releases[last]) for first, last in places]


def find_changes(points: DataFrame, settings: Settings) -> DataFrame:
    """Return level (log) and before (the release before) for the series of one noise class, and
    where a level begins, ratio, its ends, q, verdict, earliest and latest.

    points: what, y (log), error and spread (see layout_sd; 0 for times), each series in order of
    release. Change points are dropped, the weakest first, and levels are found again without them,
    until all remaining have a q of at most MAX_Q. Those smaller than ``min_effect``, or than the
    range over processes by layout, are also dropped.
    """
    every = [_Levels(rows, settings) for _, rows in points.groupby("series", sort=False)]
    q = _drop_unsure(every, len(points) - len(every))
    effect = np.concatenate([levels.effects for levels in every])
    half_width = Z95 * np.concatenate([levels.errors for levels in every])
    starts = [levels.points.index[start] for levels in every for start in levels.starts[1:]]
    ranges = [ends for levels in every for ends in levels.ranges()]
    changes = DataFrame(ranges, starts, ["earliest", "latest"], dtype=object).assign(
        ratio=np.exp(effect),
        ratio_low=np.exp(effect - half_width),
        ratio_high=np.exp(effect + half_width),
        q=q,
        verdict=verdict_of_change(effect, points.loc[starts, "what"]),
    )
    level = concat([Series(levels.level, levels.points.index) for levels in every])
    rows = level.to_frame("level").join(changes)
    return rows.assign(
        before=points.groupby("series")["release"].shift(), verdict=rows["verdict"].fillna("")
    )


def _drop_unsure(every: Sequence[_Levels], places: int) -> Floats:
    """Remove changes, in place, until q is at most MAX_Q for all. Return their q over all
    ``places`` where a series could change."""
    min_support = MIN_SUPPORT
    while True:
        for levels in every:
            levels.prune(min_support)
        support = np.concatenate([levels.support for levels in every])
        p = np.concatenate([2 * scipy.special.ndtr(-support), np.ones(places - len(support))])
        q = q_values(p)[: len(support)]
        is_sure = q <= MAX_Q
        if is_sure.all():
            return q
        min_support = support[is_sure].min() if is_sure.any() else math.inf


# --- evidence -------------------------------------------------------------------------------------


def _evidence(rows: DataFrame, order: Mapping[str, int], settings: Settings) -> Series:
    """Return the evidence on each change: the other figure of the same route, at the releases of
    the change. order: release -> its place."""
    pairs = _pair_with_other_figure(rows)
    agrees = _agreements(pairs, order)
    rest = pairs[~pairs["row"].isin(agrees.index)].query("what == @TIME")
    margin = math.log1p(settings.equivalence)
    unchanged = _rows_without_change(rest, margin)
    sizes = np.abs(np.log(rows.loc[unchanged, "ratio"].astype(float)))
    evidence = Series("", index=rows.index)
    evidence[agrees.index] = np.where(agrees, AGREES, CONTRADICTS)
    evidence[unchanged] = np.where(sizes < margin, LAYOUT, UNCHANGED)
    return evidence


def _pair_with_other_figure(rows: DataFrame) -> DataFrame:
    """Return each change with every row of the other figure of its route that has one of its sizes.
    Columns: of ``rows``, of the other figure with "_other", and ``row``, the change's index."""
    columns = ["series", "what", "sizes", "release", "before", "y", "error", "at"]
    figures = rows[[*columns, "earliest", "latest"]].assign(
        call=rows.groupby([*ROUTE, "dtype"], dropna=False).ngroup(),
        trend=rows["verdict"].replace(TIME_VERDICTS),
        row=rows.index,
    )
    changes = figures.query("trend != ''")
    pairs = changes.merge(figures, on="call", suffixes=("", "_other")).query("what != what_other")
    sizes = zip(pairs["sizes"], pairs["sizes_other"])
    has_size = [not set(those).isdisjoint(other) for those, other in sizes]
    return pairs[np.array(has_size, dtype=bool)]


def _agreements(pairs: DataFrame, order: Mapping[str, int]) -> "Series[bool]":
    """Return whether the other figure changes the same way, for rows where it changes in range."""
    places = pairs.assign(first=pairs["earliest"].map(order), last=pairs["latest"].map(order))
    changes = places.query("trend_other != '' and first <= at_other <= last")
    return (changes["trend"] == changes["trend_other"]).groupby(changes["row"]).any()


def _rows_without_change(pairs: DataFrame, margin: float) -> Index:
    """Return the rows whose other figure changes by less than ``margin`` (log) at all sizes, from
    the release before to that of the change, with 95 % confidence."""
    old = pairs.query("release_other == before")
    new = pairs.query("release_other == release")
    steps = old.merge(new, on=["row", "series_other"], suffixes=("_old", "_new"))
    effect = np.abs(steps["y_other_new"] - steps["y_other_old"])
    error = np.hypot(steps["error_other_new"], steps["error_other_old"])
    is_small = effect + Z95 * Z90_OVER_Z95 * error < margin
    is_unchanged = is_small.groupby(steps["row"]).all()
    return is_unchanged.index[is_unchanged]


def _node_confirmations(rows: DataFrame, points: DataFrame) -> DataFrame:
    """Return one row per change of time and node: index (of the change in ``rows``), node and
    confirmation, in order of node."""
    times = where(rows, what=TIME)[["series", "release", "verdict", "ratio"]]
    is_change = times["verdict"] != ""
    times = times.assign(level=is_change.groupby(times["series"]).cumsum())
    points = points.merge(times[["series", "release", "level"]], on=["series", "release"])
    level_of_node = ["series", "level", "node"]
    means = average_points(points[[*level_of_node, "y", "variance"]], *level_of_node)
    means = means.sort_values("node")
    old = means.assign(level=means["level"] + 1)
    steps = means.merge(old, on=level_of_node, suffixes=("", "_old"))
    changes = times[is_change].reset_index()[["index", "series", "level", "ratio"]]
    steps = steps.merge(changes, on=["series", "level"])
    effect = steps["y"] - steps["y_old"]
    half_width = Z95 * np.sqrt(steps["variance"] + steps["variance_old"])
    expected = np.log(steps["ratio"].astype(float))
    confirmation = judge_confirmation(expected, effect, effect - half_width, effect + half_width)
    return steps[["index", "node"]].assign(confirmation=confirmation)


def _names_of_nodes(confirmations: DataFrame, sort: str, rows: Index) -> Series:
    nodes = confirmations.query("confirmation == @sort").groupby("index")["node"]
    return nodes.agg(", ".join).reindex(rows, fill_value="")


def judge_confirmation(
    expected: "Series[float]",
    effect: "Series[float]",
    low: "Series[float]",
    high: "Series[float]",
) -> np.ndarray:
    """Return whether a machine, or a node, shows the ``expected`` changes. All are logs of ratios;
    low and high: the interval of ``effect``.

    CONFIRMED if it shows at least half of a change and its interval excludes the opposite sign,
    REFUTED if the interval excludes half of the change.
    """
    ends = low / expected, high / expected
    is_confirmed = (effect / expected >= CONFIRMING_SHARE) & (np.minimum(*ends) > 0)
    is_refuted = np.maximum(*ends) < CONFIRMING_SHARE
    return np.select([is_refuted, is_confirmed], [REFUTED, CONFIRMED], UNDETERMINED)


# --- the places of breaks -------------------------------------------------------------------------


def optimal_partition(values: Floats, noise: Floats, penalty: float) -> list[int]:
    """Return the starts of the segments of constant level in ``values`` (the first is 0): the exact
    optimum.

    Normal noise of known standard deviation ``noise`` (points,) > 0; each break costs ``penalty``;
    a segment may be a single point. Dynamic programming over the last break, O(points^2) (Jackson
    et al. 2005, An algorithm for optimal partitioning of data on an interval, IEEE SPL 12(2)). Of
    equally good partitions, the one whose last segments begin earliest is returned.
    """
    if not (np.isfinite(values).all() and np.isfinite(noise).all() and (noise > 0).all()):
        raise ValueError("optimal_partition takes finite values and noise above zero")
    weight = noise**-2.0
    centred = values - np.average(values, weights=weight)  # against cancellation below
    moments = weight * np.vander(centred, 3, increasing=True).T
    sums = np.pad(np.cumsum(moments, axis=1), ((0, 0), (1, 0)))
    cost = np.zeros(len(values) + 1)
    cost[0] = -penalty
    last_start = [0]
    for end in range(1, len(cost)):
        # of the segments that end here, by start: squared residuals from three sums
        w, x, xx = sums[:, end, None] - sums[:, :end]
        costs = cost[:end] + (xx - x**2 / w) + penalty
        last_start.append(int(np.argmin(costs)))
        cost[end] = costs.min()
    starts = []
    end = len(values)
    while end:
        end = last_start[end]
        starts.append(end)
    return starts[::-1]


def partition_cost(values: Floats, noise: Floats, starts: Sequence[int]) -> float:
    """Return the cost of ``optimal_partition`` without the penalty per break: squared residuals in
    units of the noise."""
    cost = 0.0
    for start, end in zip(starts, [*starts[1:], len(values)]):
        weight = noise[start:end] ** -2.0
        level = np.sum(weight * values[start:end]) / np.sum(weight)
        cost += float(np.sum(weight * (values[start:end] - level) ** 2))
    return cost


def break_range(
    values: Floats, noise: Floats, starts: Sequence[int], number: int
) -> tuple[int, int]:
    """Return the first and the last place where break ``number`` (1 is the first) may be, with the
    other breaks fixed.

    These places cost at most 2 ln(2 / (1 - CONFIDENCE)) more than the best place. For known levels,
    the log likelihood ratio of other places against the true one is a random walk whose exponential
    is a martingale: on either side it ever exceeds x with probability exp(-x) at most. So the range
    holds the true place with the stated confidence, however small the change. The error of
    estimated levels is neglected.
    """
    start, place, end = [*starts, len(values)][number - 1 : number + 2]
    segment = slice(start, end)
    # the cost beyond these two segments does not depend on this break
    costs = [
        partition_cost(values[segment], noise[segment], [0, length])
        for length in range(1, end - start)
    ]
    max_cost = costs[place - start - 1] + 2.0 * math.log(2.0 / (1.0 - CONFIDENCE))
    places = np.flatnonzero(np.array(costs) <= max_cost) + start + 1
    return int(places[0]), int(places[-1])
