"""Where a series changes along a history, as columns of one table, and what is made of it: by release, over machines.

Levels of times are found by exact optimal partitioning (statistics.optimal_partition). A change of level is reported if
its false discovery rate, over all places where a series of its noise class could change, is at most ``FDR``. An
instruction count has no noise: only where objects lie in memory moves it beside the release, and its repeats show that.

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
from .statistics import HALF, Floats
from .verdicts import AS_MANY, FASTER, FEWER, INSTRUCTIONS, MORE, SAME_WAY, SLOWER, TIME, Settings, judge_counts

if TYPE_CHECKING:
    from .history import History

CHANGED = (SLOWER, FASTER, MORE, FEWER)
# What else is known of a change: the other kind of evidence says the same, the opposite, or that nothing changed
AGREES, CONTRADICTS, UNCHANGED = "agrees", "contradicts", "unchanged"
LAYOUT = "layout"  # same instructions and less than ``Settings.equivalence``: where the code lies in memory
SAME, DIFFERS, NOT_KNOWN = "same", "differs", "not known"  # what another machine says of a change
FDR = 0.02  # with 0.05 a tenth of the changes of 16 MiB copies were not seen again
PENALTY = 6.0  # per change point, in squared standard errors; the test decides what is reported
CHANGE = ("ratio", "ratio_low", "ratio_high", "q", "verdict", "earliest", "latest")
NO_CHANGE = dict.fromkeys(CHANGE[:4], math.nan) | {"verdict": "", "earliest": None, "latest": None}
ROUTE = ["group", "direction", "route"]  # what tells a route of a history from others
OF_MACHINE = ["machine", "package", "series", "what"]
SERIES = OF_MACHINE[1:]


# --- one series ------------------------------------------------------------------------------------------------------


def reported(own: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """``level`` and CHANGE of the series of one noise class. No change point that is left is above FDR: the others are
    dropped, and levels found again without them, until that holds."""
    series = [each for _, each in own.groupby("series", sort=False)]
    places = sum(len(each) - 1 for each in series)
    least = 2.0
    while True:
        table = pd.concat([_levels(each, least, settings) for each in series])
        support = table["support"].dropna()
        p = np.concatenate([2 * special.ndtr(-support), np.ones(places - len(support))])
        table.loc[support.index, "q"] = q = statistics.q_values(p)[: len(support)]
        if (q <= FDR).all():
            break
        least = support[q <= FDR].min() if (q <= FDR).any() else math.inf
    table["verdict"] = np.where(table["q"].notna(), np.where(table["ratio"] > 1, SLOWER, FASTER), "")
    return table.drop(columns="support")


def _levels(each: pd.DataFrame, least: float, settings: Settings) -> pd.DataFrame:
    """Of one series in order of release: level (log), before, and where a level begins support and what CHANGE names.

    least  standard errors that neighbouring levels differ by; change points with less, or smaller than ``min_effect``,
           are dropped, the weakest first
    """
    y, error, versions = (each[name].to_numpy() for name in ("y", "error", "release"))
    starts = statistics.optimal_partition(y, error, PENALTY)
    while True:
        edges = list(zip(starts, [*starts[1:], len(y)]))
        means = [statistics.weighted_mean(y[a:b], error[a:b] ** 2) for a, b in edges]
        effects = np.diff([mean for mean, _ in means])
        errors = np.sqrt([a + b for (_, a), (_, b) in zip(means, means[1:])])
        support = np.where(np.abs(effects) >= math.log1p(settings.min_effect), np.abs(effects) / errors, 0.0)
        if not len(support) or support.min() >= least:
            break
        del starts[int(np.argmin(support)) + 1]
    rows = [{"before": version} | NO_CHANGE | {"support": math.nan} for version in (None, *versions[:-1])]
    for number, (effect, of_effect) in enumerate(zip(effects, errors), start=1):
        first, last = statistics.break_range(y, error, starts, number)
        ratio, low, high = np.exp([effect, effect - HALF * of_effect, effect + HALF * of_effect])
        rows[starts[number]] |= {"support": abs(effect) / of_effect, "ratio": ratio}
        rows[starts[number]] |= {"ratio_low": low, "ratio_high": high}
        rows[starts[number]] |= {"earliest": versions[first], "latest": versions[last]}
    level = np.repeat([mean for mean, _ in means], [b - a for a, b in edges])
    return pd.DataFrame(rows, index=each.index).assign(level=level)


def steps(counts: pd.DataFrame, order: Mapping[str, int], settings: Settings) -> pd.DataFrame:
    """The rows of ``History.rows`` that are of instruction counts.

    A release is judged against one of the level before, so that what is too small at each adds up: against its first
    release, or the first whose repeats agree. A change that is smaller than repeats differ by is reported if the next
    release shows it, too.
    """
    table = counts.assign(place=pd.factorize(counts["series"])[0], at=counts["release"].map(order))
    table = table.sort_values(["place", "at"]).reset_index(drop=True)
    rows: list[dict[str, object]] = []
    for _, each in table.groupby("series", sort=False):
        values, low, high = (each[name].to_numpy(dtype=float) for name in ("value", "low", "high"))
        versions, spread = list(each["release"]), high / low
        own = [{"before": version, "level": math.nan} | NO_CHANGE for version in (None, *versions[:-1])]
        begins = known = 0
        for at in range(len(each)):
            ends = low[at] / high[known], high[at] / low[known]
            verdict = judge_counts(*ends, settings) if at else AS_MANY
            clear = max(ends[0], 1 / ends[1]) > max(spread[known], spread[at])
            stays = at + 1 < len(each) and verdict == judge_counts(
                low[at + 1] / high[known], high[at + 1] / low[known], settings
            )
            if verdict in SAME_WAY and (clear or stays):
                own[at] |= {"ratio": values[at] / values[known], "ratio_low": ends[0], "ratio_high": ends[1]}
                own[at] |= {"verdict": verdict, "earliest": versions[at], "latest": versions[at]}
                begins = known = at
            elif verdict not in SAME_WAY and spread[known] > 1 + settings.min_effect >= spread[at]:
                known = at
            for row in own[begins : at + 1]:
                row["level"] = values[known]
        rows += own
    columns = ["before", "level", *CHANGE]
    found = pd.DataFrame(rows, columns=columns, index=table.index)
    return table.drop(columns=["place", "at"]).assign(what=INSTRUCTIONS, processes=0).join(found)


# --- evidence --------------------------------------------------------------------------------------------------------


def with_evidence(rows: pd.DataFrame, order: Mapping[str, int], settings: Settings) -> pd.DataFrame:
    """The rows with what the other kind of evidence says of the route, at the releases where the change may lie."""
    route, way = rows.groupby([*ROUTE, "dtype"], dropna=False).ngroup(), rows["verdict"].replace(SAME_WAY)
    table = rows[["what", "sizes", "release", "before", "low", "high", "earliest", "latest"]]
    table = table.assign(same=route, way=way, place=rows["release"].map(order), at=rows.index)
    pairs = table[way != ""].merge(table, on="same", suffixes=("", "_other"))
    pairs = pairs[pairs["what"] != pairs["what_other"]]
    alike = [bool({*sizes} & {*others}) for sizes, others in zip(pairs["sizes"], pairs["sizes_other"])]
    pairs = pairs[np.array(alike, dtype=bool)]
    where = (pairs[end].map(order) for end in ("earliest", "latest"))
    found = pairs[pairs["way_other"].ne("") & pairs["place_other"].between(*where)]
    agrees = (found["way"] == found["way_other"]).groupby(found["at"]).any()
    # of a time whose instructions have no change there: their counts at this release and at the one before
    counts = pairs[(pairs["what"] == TIME) & ~pairs["at"].isin(agrees.index)]
    old, new = (counts[counts["release_other"] == counts[end]] for end in ("before", "release"))
    both = old.drop_duplicates("at").merge(new.drop_duplicates("at"), on="at", suffixes=("_old", "_new"))
    ends = zip(both["low_other_new"] / both["high_other_old"], both["high_other_new"] / both["low_other_old"])
    same = both["at"][np.array([judge_counts(*each, settings) == AS_MANY for each in ends], dtype=bool)]
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
    of_level["weight"] = 1 / (of_level["variance"] + of_level["session_sd"] ** 2)
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
    ratio, low and high (95 %, or of any two repeats), q, verdict ("" without a reported change).

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
    changed, single, counted = both["changes"].notna(), both["changes"] == 1, both["what"] == INSTRUCTIONS
    effect = (both["value_new"] - both["value_old"]).mask(changed, both["level_new"] - both["level_old"])
    half = np.hypot(both["high_old"] - both["low_old"], both["high_new"] - both["low_new"]) / 2
    half = half.mask(changed, np.sqrt(both["square"]))
    low = (effect - half).mask(counted, both["low_new"] - both["high_old"])
    high = (effect + half).mask(counted, both["high_new"] - both["low_old"])
    forth = single & (both["place_old"] < both["place_new"])
    low = low.mask(single, -both["high"]).mask(forth, both["low"])
    high = high.mask(single, -both["low"]).mask(forth, both["high"])
    verdict = np.where(changed & (low > 0) | changed & (high < 0), _verdict(low, counted), "")
    ratios = {"ratio": np.exp(effect), "low": np.exp(low), "high": np.exp(high)}
    known = both[["index"]].assign(sizes=both["sizes_old"], **ratios, q=both["q"], verdict=verdict)
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
    table = pd.DataFrame([(each.version, each.date, each.tag) for each in history.releases][::-1])
    table.columns = ["release", "date", "tag"]
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
    a change where the first machine has another one between these releases.
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
    there = _ratios(rows, around[[*same, "base", "new", "place", "place_new"]])
    swapped = {"machine": "machine_first", "machine_first": "machine"}
    here = _ratios(rows, there[[*same, "base", "new"]].rename(columns=swapped)).rename(columns=swapped)
    here = there[["change", "machine"]].merge(here, how="left")["ratio"]
    here = here.fillna(there["change"].map(found.set_index("change")["ratio"])).astype(float)
    spans = found[[*OF_MACHINE, "place", "place_before"]].rename(columns={"machine": "machine_first"})
    spans = there.reset_index().merge(spans, on=["machine_first", *SERIES], suffixes=("", "_own"))
    spans = spans[(spans["place_before"] < spans["place_new"]) & (spans["place"] < spans["place_own"])]
    alone = spans.groupby("index").size().reindex(there.index) == 1
    said = _said(np.log(here), *np.log(there[["ratio", "low", "high"]]).to_numpy().T)
    there = there.rename(columns={"low": "ratio_low", "high": "ratio_high", "base": "since", "new": "until"})
    there["said"] = np.where(alone, said, NOT_KNOWN)

    first = kept[kept["change"].isin(there["change"])].assign(said=SAME)
    first = first.assign(since=first["before"], until=first["release"])
    first = first.iloc[np.argsort(-np.abs(np.log(first["ratio"].astype(float))), kind="stable")]
    taken = ["machine", "ratio", "ratio_low", "ratio_high", "since", "until", "said"]
    others = first.drop(columns=taken).merge(there[["change", *taken]], on="change")
    table = pd.concat([first, others]).reset_index(drop=True)
    numbers = {change: number for number, change in enumerate(first["change"])}
    machines = {history.machine: place for place, history in enumerate(every[::-1])}
    table["change"] = table["change"].map(numbers)
    places = zip(table["change"], table.index >= len(first), -table["machine"].map(machines))
    table = table.iloc[[place for *_, place in sorted((*key, place) for place, key in enumerate(places))]]
    table["verdict"] = _verdict(np.log(table["ratio"].astype(float)), table["what"] == INSTRUCTIONS)
    return table[[*every[0].rows.columns, "said", "since", "until", "change"]]
