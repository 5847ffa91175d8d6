"""Where a series changes along a history, as columns of one table, and what is made of it: by release, over machines.

Levels of times are found by exact optimal partitioning (statistics.optimal_partition). A change of level is reported if
its false discovery rate, over all places where a series of its noise class could change, is at most ``FDR``. An
instruction count is found to change in the same way, but by no less than memory layout moves it between processes.

The thresholds come from two whole histories of 26 toolchains, measured on the same machine seven hours apart
(``check.py history``, docs/accuracy.md).
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from packaging.version import Version
from scipy import special

from . import statistics
from .statistics import HALF, NARROWER, Floats
from .verdicts import FASTER, FEWER, INSTRUCTIONS, MORE, OF_TIMES, SLOWER, TIME, Settings, largest_first

if TYPE_CHECKING:
    from .history import History

CHANGED = (SLOWER, FASTER, MORE, FEWER)
# What else is known of a change: the other kind of evidence says the same, the opposite, or that nothing changed
AGREES, CONTRADICTS, UNCHANGED = "agrees", "contradicts", "unchanged"
LAYOUT = "layout"  # same instructions and less than ``Settings.equivalence``: where the code lies in memory
SAME, DIFFERS, NOT_KNOWN = "same", "differs", "not known"  # what another machine says of a change
FDR = 0.02  # with 0.05 a tenth of the changes of 16 MiB copies were not seen again
PENALTY = 6.0  # per change point, in squared standard errors; the test decides what is reported
ROUTE = ["group", "direction", "route"]  # what tells a route of a history from others
OF_MACHINE = ["machine", "package", "series", "what"]
SERIES = OF_MACHINE[1:]


# --- one series ------------------------------------------------------------------------------------------------------


def reported(own: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """Of the series of one noise class, each in order of release with y (log), error and spread (see layout_sd; 0 of
    times): level (log) and before, and where a level begins ratio, its ends, q, verdict, earliest and latest.

    No change point that is left is above FDR: the others are dropped, the weakest first, and levels found again without
    them, until that holds. So are those smaller than ``min_effect``, or than the range over processes by layout.
    """
    series = [each for _, each in own.groupby("series", sort=False)]
    known = [(each["y"].to_numpy(), each["error"].to_numpy()) for each in series]
    smallest = [max(math.log1p(settings.min_effect), 2 * each["spread"].iloc[0]) for each in series]
    starts = [statistics.optimal_partition(y, error, PENALTY) for y, error in known]
    least, places = 2.0, len(own) - len(series)
    while True:
        levels = [_levels(*each, begins, effect, least) for each, begins, effect in zip(known, starts, smallest)]
        level, effect, error, support = map(np.concatenate, zip(*levels))
        p = np.concatenate([2 * special.ndtr(-support), np.ones(places - len(support))])
        q = statistics.q_values(p)[: len(support)]
        if (q <= FDR).all():
            break
        least = support[q <= FDR].min() if (q <= FDR).any() else math.inf
    index = np.concatenate([each.index for each in series])
    changed = [each.index[start] for each, begins in zip(series, starts) for start in begins[1:]]
    ends = {"ratio": effect, "ratio_low": effect - HALF * error, "ratio_high": effect + HALF * error}
    found = pd.DataFrame({name: np.exp(log) for name, log in ends.items()} | {"q": q}, index=changed)
    found["verdict"] = _verdict(effect, own.loc[changed, "what"] == INSTRUCTIONS)
    ranges = [
        each["release"].iloc[[*statistics.break_range(*values, begins, number)]].to_numpy()
        for each, values, begins in zip(series, known, starts)
        for number in range(1, len(begins))
    ]
    found["earliest"], found["latest"] = np.array(ranges, dtype=object).reshape(-1, 2).T
    table = pd.DataFrame({"level": level}, index=index).join(found)
    return table.assign(before=own.groupby("series")["release"].shift(), verdict=table["verdict"].fillna(""))


def _levels(y: Floats, error: Floats, starts: list[int], smallest: float, least: float) -> tuple[Floats, ...]:
    """The level of each point of a series, and of each change between levels effect (log), error and support: the
    standard errors that it amounts to, 0 of one below ``smallest``. Those with less than ``least`` are taken out of
    ``starts``, the weakest first."""
    while True:
        edges = list(zip(starts, [*starts[1:], len(y)]))
        means = np.array([statistics.weighted_mean(y[a:b], error[a:b] ** 2) for a, b in edges])
        effects = np.diff(means[:, 0])
        errors = np.sqrt(means[1:, 1] + means[:-1, 1])
        support = np.where(np.abs(effects) >= smallest, np.abs(effects) / errors, 0.0)
        if not len(support) or support.min() >= least:
            return np.repeat(means[:, 0], [b - a for a, b in edges]), effects, errors, support
        del starts[int(np.argmin(support)) + 1]


# --- evidence --------------------------------------------------------------------------------------------------------


def with_evidence(rows: pd.DataFrame, order: Mapping[str, int], settings: Settings) -> pd.DataFrame:
    """The rows with what the other kind of evidence says of the route, at the releases where the change may lie."""
    route, way = rows.groupby([*ROUTE, "dtype"], dropna=False).ngroup(), rows["verdict"].replace(OF_TIMES)
    table = rows[["what", "sizes", "release", "before", "y", "error", "at", "earliest", "latest"]]
    table = table.assign(same=route, way=way, row=rows.index)
    pairs = table[way != ""].merge(table, on="same", suffixes=("", "_other"))
    pairs = pairs[pairs["what"] != pairs["what_other"]]
    alike = [bool({*sizes} & {*others}) for sizes, others in zip(pairs["sizes"], pairs["sizes_other"])]
    pairs = pairs[np.array(alike, dtype=bool)]
    where = (pairs[end].map(order) for end in ("earliest", "latest"))
    found = pairs[pairs["way_other"].ne("") & pairs["at_other"].between(*where)]
    agrees = (found["way"] == found["way_other"]).groupby(found["row"]).any()
    # of a time whose instructions have no change there: their counts at this release and at the one before
    counts = pairs[(pairs["what"] == TIME) & ~pairs["row"].isin(agrees.index)]
    old, new = (counts[counts["release_other"] == counts[end]] for end in ("before", "release"))
    both = old.drop_duplicates("row").merge(new.drop_duplicates("row"), on="row", suffixes=("_old", "_new"))
    effect = np.abs(both["y_other_new"] - both["y_other_old"])
    most = effect + HALF * NARROWER * np.hypot(both["error_other_new"], both["error_other_old"])
    same = both.loc[most < math.log1p(settings.equivalence), "row"]
    evidence = pd.Series("", index=rows.index)
    evidence[agrees.index] = np.where(agrees, AGREES, CONTRADICTS)
    small = np.abs(np.log(rows.loc[same, "ratio"].astype(float))) < math.log1p(settings.equivalence)
    evidence[same] = np.where(small, LAYOUT, UNCHANGED)
    return rows.assign(evidence=evidence)


def with_nodes(rows: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    """The rows, in order of release, with which nodes have a change of time and which do not, see ``_said``."""
    times = rows[rows["what"] == TIME]
    level = (times["verdict"] != "").groupby(times["series"]).cumsum()
    of_level = points.merge(times[["series", "release"]].assign(level=level), on=["series", "release"])
    of_level["weight"] = 1 / of_level["variance"]
    means = of_level.assign(y=of_level["y"] * of_level["weight"]).groupby(["series", "level", "node"])[["y", "weight"]]
    means = means.sum().assign(y=lambda sums: sums["y"] / sums["weight"]).reset_index()
    both = means.merge(means.assign(level=means["level"] + 1), on=["series", "level", "node"], suffixes=("", "_old"))
    changed = times.loc[times["verdict"] != "", ["series", "ratio"]].assign(level=level).reset_index()
    both = both.merge(changed, on=["series", "level"])
    seen, error = both["y"] - both["y_old"], HALF * np.sqrt(1 / both["weight"] + 1 / both["weight_old"])
    said = _said(np.log(both["ratio"].astype(float)), seen, seen - error, seen + error)
    for name, which in (("nodes_with", SAME), ("nodes_without", DIFFERS)):
        rows[name] = both[said == which].groupby("index")["node"].agg(", ".join).reindex(rows.index, fill_value="")
    return rows


def _said(effect: "pd.Series[float] | Floats", *seen: "pd.Series[float] | Floats") -> np.ndarray:
    """Whether a machine, or a node, has a change: SAME if it shows at least half of it and its interval none of the
    other way, DIFFERS if the interval excludes half of it. All are logs of ratios; seen: with its interval."""
    share, *ends = (log / effect for log in seen)
    same = (share >= 0.5) & (np.minimum(*ends) > 0)
    return np.select([np.maximum(*ends) < 0.5, same], [DIFFERS, SAME], NOT_KNOWN)


# --- two releases ----------------------------------------------------------------------------------------------------


def between(history: "History", base: str, new: str) -> pd.DataFrame:
    """What a route costs at release ``new`` over ``base``. One row per series that both have: series, what, sizes,
    ratio, low and high (95 %), q, verdict ("" without a reported change).

    With a reported change between the two it is the ratio of their levels, as on the page of the history; with one
    change that row itself. Without, it is the ratio of the two points.
    """
    pairs = history.rows[OF_MACHINE].drop_duplicates().assign(base=base, new=new)
    return _ratios(_placed(history.rows), pairs)


def _placed(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the place of their release, and of the one before, among all of them."""
    places = {version: place for place, version in enumerate(sorted({*rows["release"]}, key=Version))}
    return rows.assign(place=rows["release"].map(places), place_before=rows["before"].map(places))


def _ratios(rows: pd.DataFrame, pairs: pd.DataFrame) -> pd.DataFrame:
    """``between`` of pairs of releases of a series, of those that it has; pairs: OF_MACHINE, base and new."""
    points = rows[[*OF_MACHINE, "release", "place", "sizes"]]
    points = points.join(np.log(rows[["value", "low", "high", "level"]].astype(float)))
    old, new = (points.rename(columns={"release": end}) for end in ("base", "new"))
    both = pairs[[*OF_MACHINE, "base", "new"]].reset_index().merge(old)
    both = both.merge(new, on=[*OF_MACHINE, "new"], suffixes=("_old", "_new"))
    found = both[[*OF_MACHINE, "index", "place_old", "place_new"]]
    found = found.merge(rows.loc[rows["verdict"] != "", [*OF_MACHINE, "place", "q", "ratio_low", "ratio_high"]])
    ends = found[["place_old", "place_new"]]
    found = found[found["place"].gt(ends.min(axis=1)) & found["place"].le(ends.max(axis=1))]
    low, high = (np.log(found[name].astype(float)) for name in ("ratio_low", "ratio_high"))
    found = found.assign(low=low, high=high, square=(high - low) ** 2 / 4, changes=1).groupby("index")
    changes = found.agg({"changes": "sum", "q": "max", "square": "sum", "low": "sum", "high": "sum"})
    both = both.join(changes, on="index")
    changed, single = both["changes"].notna(), both["changes"] == 1
    effect = (both["value_new"] - both["value_old"]).mask(changed, both["level_new"] - both["level_old"])
    half = np.hypot(both["high_old"] - both["low_old"], both["high_new"] - both["low_new"]) / 2
    half = half.mask(changed, np.sqrt(both["square"]))
    forth = single & (both["place_old"] < both["place_new"])
    low = (effect - half).mask(single, -both["high"]).mask(forth, both["low"])
    high = (effect + half).mask(single, -both["low"]).mask(forth, both["high"])
    verdict = np.where(changed & (low > 0) | changed & (high < 0), _verdict(low, both["what"] == INSTRUCTIONS), "")
    ratios = {"ratio": np.exp(effect), "low": np.exp(low), "high": np.exp(high)}
    known = both[["index", "changes", "q"]].assign(sizes=both["sizes_old"], **ratios, verdict=verdict)
    return pairs.merge(known, left_index=True, right_on="index").drop(columns="index").reset_index(drop=True)


def _verdict(effect: "pd.Series[float] | Floats", counted: "pd.Series[bool]") -> np.ndarray:
    """What is said of a larger, or a smaller, time or count; effect: log of a ratio."""
    return np.where(counted, np.where(effect > 0, MORE, FEWER), np.where(effect > 0, SLOWER, FASTER))


# --- by release, over machines ---------------------------------------------------------------------------------------


def by_route(found: pd.DataFrame, *apart: str) -> pd.DataFrame:
    """Changes of one route at one release in one row: of ``History.changes``, largest first, the first of each what,
    and of each value of the columns ``apart``."""
    return found.groupby(["package", "release", "what", *apart, *ROUTE], sort=False, dropna=False).head(1)


def headlines(history: "History") -> pd.DataFrame:
    """One row per release of a history, the newest first: release, date, tag, and for each verdict how many routes have
    it, each once, by its largest change of time or of instructions; for slower and faster without those of LAYOUT, with
    the median ratio (slower_ratio, faster_ratio)."""
    routes = by_route(history.changes[history.changes["evidence"] != LAYOUT])
    table = pd.DataFrame(history.releases[::-1]).rename(columns={"version": "release"})[["release", "date", "tag"]]
    for verdict in CHANGED:
        own = routes[routes["verdict"] == verdict].groupby("release")["ratio"]
        table[verdict] = table["release"].map(own.size()).fillna(0).astype(int)
        table[f"{verdict}_ratio"] = table["release"].map(own.median().astype(float))
    return table


def over_machines(histories: Mapping[str, Sequence["History"]]) -> pd.DataFrame:
    """One row per change that a machine reports of a series that others measured around that release, and per machine:
    the columns of ``History.changes`` with machine, verdict, ratio and its ends of that machine, change (a number,
    the largest change 0), since and until (releases of that machine between which its ratio is) and said: SAME (at
    least half of the change, and none is excluded), DIFFERS (half of it is excluded) or NOT_KNOWN.

    A change that several machines report is one change, of the machine that measured the most releases. A machine that
    lacks the releases is asked for the nearest ones around them, and so is the first machine then. It knows nothing of
    a change where the first machine has another one between these releases, or has not measured them.
    """
    every = sorted((history for each in histories.values() for history in each), key=lambda one: -len(one.releases))
    if not every:
        return pd.DataFrame()
    rows = _placed(pd.concat([history.rows for history in every], ignore_index=True))
    found = pd.concat([history.changes for history in every])
    found = found.merge(rows[[*OF_MACHINE, "release", "place", "place_before"]]).reset_index(names="change")
    found["larger"] = found["ratio"] > 1
    kept = found[:0]
    for _, mine in found.groupby(["package", "machine"], sort=False):
        pairs = mine.merge(kept, on=[*SERIES, "larger"], suffixes=("", "_kept"))
        again = (pairs["place_before"] < pairs["place_kept"]) & (pairs["place_before_kept"] < pairs["place"])
        kept = pd.concat([kept, mine[~mine["change"].isin(pairs.loc[again, "change"])]])

    # the nearest releases around each change, of each machine that has some
    points = rows[[*OF_MACHINE, "release", "place"]].sort_values("place", kind="stable")
    pairs = kept[["change", *OF_MACHINE, "place", "place_before"]].merge(points, on=SERIES, suffixes=("_first", ""))
    pairs = pairs[pairs["machine_first"] != pairs["machine"]]
    same = ["change", "machine_first", *OF_MACHINE]
    old = pairs[pairs["place"] <= pairs["place_before"]].drop_duplicates(same, keep="last")
    new = pairs[pairs["place"] >= pairs["place_first"]].drop_duplicates(same, keep="first")
    around = old.merge(new, on=same, suffixes=("", "_new")).rename(columns={"release": "base", "release_new": "new"})
    there = _ratios(rows, around[[*same, "base", "new"]])
    swapped = {"machine": "machine_first", "machine_first": "machine"}
    here = _ratios(rows, around[[*same, "base", "new"]].rename(columns=swapped)).rename(columns=swapped)
    here = there[["change", "machine"]].merge(here, how="left")
    said = _said(np.log(here["ratio"]), *np.log(there[["ratio", "low", "high"]]).to_numpy().T)
    there = there.rename(columns={"low": "ratio_low", "high": "ratio_high", "base": "since", "new": "until"})
    there["said"] = np.where(here["changes"] == 1, said, NOT_KNOWN)

    first = largest_first(kept[kept["change"].isin(there["change"])])
    first = first.assign(since=first["before"], until=first["release"], said=SAME, rank=-math.inf)
    there["rank"] = there["machine"].map({history.machine: -place for place, history in enumerate(every[::-1])})
    taken = ["machine", "ratio", "ratio_low", "ratio_high", "since", "until", "said", "rank"]
    table = pd.concat([first, first.drop(columns=taken).merge(there[["change", *taken]], on="change")])
    table["change"] = pd.Index(first["change"]).get_indexer(table["change"])
    table = table.sort_values(["change", "rank"], kind="stable", ignore_index=True)
    table["verdict"] = _verdict(np.log(table["ratio"].astype(float)), table["what"] == INSTRUCTIONS)
    return table[[*every[0].rows.columns, "said", "since", "until", "change"]]
