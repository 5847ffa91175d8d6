"""Where a series changes along a history, as columns of one table, and what is made of it: by release, over machines.

Levels of times are found by exact optimal partitioning (statistics.optimal_partition). A change of level is reported if
its false discovery rate, over all places where a series of its noise class could change, is at most ``FDR``. An
instruction count has no noise: only where objects lie in memory moves it beside the release, and its repeats show that.

The thresholds come from two whole histories of 26 toolchains, measured on the same machine seven hours apart
(``check.py history``, docs/accuracy.md).
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from packaging.version import Version
from scipy import special

from . import statistics
from .statistics import HALF, Bools
from .verdicts import AS_MANY, FASTER, FEWER, INSTRUCTIONS, MORE, SAME_WAY, SLOWER, TIME, Settings, judge_counts

if TYPE_CHECKING:
    from .history import History

Words = np.ndarray[Any, np.dtype[np.str_]]
CHANGED = (SLOWER, FASTER, MORE, FEWER)
# What else is known of a change: the other kind of evidence says the same, the opposite, or that nothing changed
AGREES, CONTRADICTS, UNCHANGED = "agrees", "contradicts", "unchanged"
LAYOUT = "layout"  # same instructions and less than ``Settings.equivalence``: where the code lies in memory
SAME, DIFFERS, NOT_KNOWN = "same", "differs", "not known"  # what another machine says of a change
FDR = 0.02  # with 0.05 a tenth of the changes of 16 MiB copies were not seen again
PENALTY = 6.0  # per change point, in squared standard errors; the test decides what is reported
CHANGE = ("ratio", "ratio_low", "ratio_high", "q", "verdict", "earliest", "latest")
NO_CHANGE = dict.fromkeys(CHANGE[:4], math.nan) | {"verdict": "", "earliest": None, "latest": None}
CALL = ["group", "direction", "route"]  # what a call is called by


# --- one series ------------------------------------------------------------------------------------------------------


def reported(own: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """``level`` and CHANGE of the series of one noise class. No change point that is left is above FDR: the others are
    dropped, and levels found again without them, until that holds."""
    series = [each for _, each in own.groupby("series", sort=False)]
    places = sum(len(each) - 1 for each in series)
    support = 2.0
    while True:
        table = pd.concat([_levels(each, support, settings) for each in series])
        p = table["p"].dropna()
        table.loc[p.index, "q"] = q = statistics.q_values(np.concatenate([p, np.ones(places - len(p))]))[: len(p)]
        if (q <= FDR).all():
            break
        support = -special.ndtri(p[q <= FDR].max() / 2) if (q <= FDR).any() else math.inf
    table["verdict"] = np.where(table["q"].notna(), np.where(table["ratio"] > 1, SLOWER, FASTER), "")
    return table.drop(columns="p")


def _levels(each: pd.DataFrame, least: float, settings: Settings) -> pd.DataFrame:
    """Of one series in order of release: level (log), before, and where a level begins p and what CHANGE names.

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
    rows = [{"before": version} | NO_CHANGE | {"p": math.nan} for version in (None, *versions[:-1])]
    for number, (effect, of_effect) in enumerate(zip(effects, errors), start=1):
        first, last = statistics.break_range(y, error, starts, number)
        ratio, low, high = np.exp([effect, effect - HALF * of_effect, effect + HALF * of_effect])
        rows[starts[number]] |= {"p": 2 * special.ndtr(-abs(effect / of_effect)), "ratio": ratio}
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
    """The rows with what the other kind of evidence says of the same call, at the releases where the change may lie."""
    call, way = rows.groupby([*CALL, "dtype"], dropna=False).ngroup(), rows["verdict"].replace(SAME_WAY)
    table = rows[["what", "sizes", "release", "before", "low", "high", "earliest", "latest"]]
    table = table.assign(call=call, way=way, place=rows["release"].map(order), at=rows.index)
    pairs = table[way != ""].merge(table, on="call", suffixes=("", "_other"))
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


def with_nodes(rows: pd.DataFrame, points: pd.DataFrame, order: Mapping[str, int]) -> pd.DataFrame:
    """The rows with which nodes have a change of time and which do not, see ``_said``."""
    rows = rows.assign(nodes_with="", nodes_without="")
    for at, row in rows[(rows["verdict"] != "") & (rows["what"] == TIME)].iterrows():
        own = rows[(rows["series"] == row["series"]) & (rows["what"] == TIME)]
        place = own["release"].map(order)
        edges = place[own["verdict"] != ""].tolist()
        here = order[row["release"]]
        start = max([edge for edge in edges if edge < here], default=-1)
        end = min([edge for edge in edges if edge > here], default=len(order))
        mine = points[points["series"] == row["series"]].assign(place=lambda table: table["release"].map(order))
        mine = mine.assign(weight=1 / (mine["variance"] + mine["session_sd"] ** 2))
        effect = math.log(row["ratio"])
        said: dict[str, list[str]] = {SAME: [], DIFFERS: [], NOT_KNOWN: []}
        for node, of_node in mine.groupby("node"):
            sides = [of_node[of_node["place"].between(*span)] for span in ((start, here - 1), (here, end - 1))]
            if all(map(len, sides)):
                old, new = (np.average(side["y"], weights=side["weight"]) for side in sides)
                error = HALF * math.sqrt(sum(1 / side["weight"].sum() for side in sides))
                seen = new - old
                said[_said(effect, (seen, seen - error, seen + error))].append(node)
        rows.loc[at, ["nodes_with", "nodes_without"]] = [", ".join(said[SAME]), ", ".join(said[DIFFERS])]
    return rows


# --- two releases ----------------------------------------------------------------------------------------------------


def between(history: "History", base: str, new: str) -> pd.DataFrame:
    """What a call costs at release ``new`` over ``base``. One row per series that both have: series, what, sizes,
    ratio, low and high (95 %, or of any two repeats), q, verdict ("" without a reported change).

    With a reported change between the two it is the ratio of their levels, as on the page of the history; with one
    change that row itself. Without, it is the ratio of the two points.
    """
    order = {release.version: place for place, release in enumerate(history.releases)}
    same = ["series", "what"]
    rows = history.rows.assign(place=history.rows["release"].map(order))
    old, later = (rows[rows["release"] == version].set_index(same) for version in (base, new))
    ends = ["value", "low", "high", "level"]
    joined = {"left_index": True, "right_index": True}
    both = old[["sizes", *ends]].merge(later[ends], suffixes=("", "_new"), **joined)
    first, last = sorted((order[base], order[new]))
    found = rows[rows["place"].gt(first) & rows["place"].le(last) & (rows["verdict"] != "")]
    interval = np.log(found[["ratio_low", "ratio_high"]].astype(float))
    found = found.assign(square=(interval["ratio_high"] - interval["ratio_low"]) ** 2 / 4, **interval)
    changes = found.groupby(same).agg(
        changes=("q", "size"),
        q=("q", "max"),
        square=("square", "sum"),
        low=("ratio_low", "sum"),
        high=("ratio_high", "sum"),
    )
    both = both.merge(changes, how="left", suffixes=("", "_change"), **joined)
    logs = {name: np.log(both[name].astype(float)) for name in ("value", "low", "high", "level")}
    logs |= {name: np.log(both[name].astype(float)) for name in ("value_new", "low_new", "high_new", "level_new")}
    changed, single = both["changes"].notna(), both["changes"] == 1
    counted = both.index.get_level_values("what") == INSTRUCTIONS
    effect = np.where(changed, logs["level_new"] - logs["level"], logs["value_new"] - logs["value"])
    half = np.hypot(logs["high"] - logs["low"], logs["high_new"] - logs["low_new"]) / 2
    half = np.where(changed, np.sqrt(both["square"]), half)
    sides = [
        np.where(counted, logs["low_new"] - logs["high"], effect - half),
        np.where(counted, logs["high_new"] - logs["low"], effect + half),
    ]
    forth = order[base] < order[new]
    own = (both["low_change"], both["high_change"]) if forth else (-both["high_change"], -both["low_change"])
    low, high = (np.where(single, mine, side) for mine, side in zip(own, sides))
    up, down = _verdicts(counted)
    verdict = np.where(changed & (low > 0), up, np.where(changed & (high < 0), down, ""))
    ratios = {"ratio": np.exp(effect), "low": np.exp(low), "high": np.exp(high)}
    return both[["sizes"]].assign(**ratios, q=both["q"], verdict=verdict).reset_index()


def _verdicts(counted: "pd.Series[bool] | Bools") -> tuple[Words, Words]:
    """What is said of larger and of smaller values, where they are instructions and where they are times."""
    return np.where(counted, MORE, SLOWER), np.where(counted, FEWER, FASTER)


# --- by release, over machines ---------------------------------------------------------------------------------------


def by_call(found: pd.DataFrame, *apart: str) -> pd.DataFrame:
    """Changes of one call at one release in one row: of ``History.changes``, largest first, the first of each what, and
    of each value of the columns ``apart``."""
    return found.groupby(["package", "release", "what", *apart, *CALL], sort=False, dropna=False).head(1)


def headlines(history: "History") -> pd.DataFrame:
    """One row per release of a history, the newest first: release, date, tag, and for each verdict how many calls have
    it, each once, by its largest change of time or of instructions; for slower and faster without those of LAYOUT, with
    the median ratio (slower_ratio, faster_ratio)."""
    calls = by_call(history.changes[history.changes["evidence"] != LAYOUT])
    table = pd.DataFrame([(each.version, each.date, each.tag) for each in history.releases][::-1])
    table.columns = ["release", "date", "tag"]
    for verdict in CHANGED:
        own = calls[calls["verdict"] == verdict].groupby("release")["ratio"]
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
    every = [history for each in histories.values() for history in each]
    every.sort(key=lambda history: -len(history.releases))
    pairs = {history.machine + history.package: _Pairs(history) for history in every}
    taken: dict[tuple[object, ...], list[tuple[Version, Version]]] = {}
    rows = []
    for history in every:
        own = pairs[history.machine + history.package]
        others = [other for other in every if other.package == history.package and other is not history]
        for row in history.changes.to_dict("records"):
            of_series = row["package"], row["series"], row["what"], row["ratio"] > 1
            span = Version(row["before"]), Version(row["release"])
            if any(first < span[1] and span[0] < last for first, last in taken.get(of_series, [])):
                continue
            taken.setdefault(of_series, []).append(span)
            found = [row | {"said": SAME, "since": row["before"], "until": row["release"]}]
            for other in others:
                ends, there = pairs[other.machine + other.package].around(row)
                if there:
                    here = own.ratio(row, *ends) or (row["ratio"], row["ratio_low"], row["ratio_high"])
                    ratios = dict(zip(("ratio", "ratio_low", "ratio_high"), there))
                    alone = own.changes_between(row, *ends) == 1
                    said = _said(math.log(here[0]), [math.log(ratio) for ratio in there]) if alone else NOT_KNOWN
                    where = {"machine": other.machine, "said": said, "since": ends[0], "until": ends[1]}
                    found.append(row | ratios | where)
            rows += [found] if len(found) > 1 else []
    rows.sort(key=lambda found: -abs(math.log(found[0]["ratio"])))
    made = [each | {"change": number} for number, found in enumerate(rows) for each in found]
    columns = [*every[0].rows.columns, "said", "since", "until", "change"] if every else []
    table = pd.DataFrame(made, columns=columns)
    if made:
        table["verdict"] = np.where(table["ratio"] > 1, *_verdicts(table["what"] == INSTRUCTIONS))
    return table


def _said(effect: float, seen: Sequence[float]) -> str:
    """Whether a machine, or a node, has a change: SAME if it shows at least half of it and its interval none of the
    other way, DIFFERS if the interval excludes half of it. Both are logs of ratios; seen: with its interval."""
    share, *ends = (log / effect if effect else math.nan for log in seen)
    if max(ends) < 0.5:
        return DIFFERS
    return SAME if share >= 0.5 and min(ends) > 0 else NOT_KNOWN


class _Pairs:
    """What ``between`` says of releases of one history, each pair looked up once; where its changes lie."""

    def __init__(self, history: "History") -> None:
        self.history = history
        self.releases = history.rows.groupby(["series", "what"], sort=False)["release"].agg(list).to_dict()
        self.known: dict[tuple[str, str], dict[tuple[str, str], tuple[float, float, float]]] = {}
        ends = zip(*(history.changes[end].map(Version) for end in ("before", "release")))
        self.spans: dict[tuple[str, str], list[tuple[Version, Version]]] = {}
        for series, what, span in zip(history.changes["series"], history.changes["what"], ends):
            self.spans.setdefault((series, what), []).append(span)

    def changes_between(self, row: Mapping[str, object], base: str, new: str) -> int:
        """How many changes of a series are reported of what lies between two releases."""
        since, until = Version(base), Version(new)
        spans = self.spans[str(row["series"]), str(row["what"])]
        return sum(before < until and since < release for before, release in spans)

    def ratio(self, row: Mapping[str, object], base: str, new: str) -> tuple[float, float, float] | None:
        """Ratio of a series and its interval; None where it lacks a release, or the two are one."""
        key = str(row["series"]), str(row["what"])
        if base == new or not {base, new} <= set(self.releases.get(key, ())):
            return None
        if (base, new) not in self.known:
            table = between(self.history, base, new)
            ratios = zip(table["ratio"], table["low"], table["high"])
            self.known[base, new] = dict(zip(zip(table["series"], table["what"]), ratios))
        return self.known[base, new].get(key)

    def around(self, row: Mapping[str, object]) -> tuple[tuple[str, str], tuple[float, float, float] | None]:
        """The releases next to both sides of a change, and ``ratio`` between them."""
        versions = self.releases.get((str(row["series"]), str(row["what"])), [])
        before, after = Version(str(row["before"])), Version(str(row["release"]))
        old = [version for version in versions if Version(version) <= before]
        new = [version for version in versions if Version(version) >= after]
        ends = (old[-1], new[0]) if old and new else ("", "")
        return ends, self.ratio(row, *ends)
