"""What appeared and disappeared along a history, and which routes mean something else from a release on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .declared import contract_of
from .results import Results
from .semantics import facts, measured
from .sessions import Release, of_files


@dataclass(frozen=True)
class Appearance:
    """Cells that have a figure from a release on and had none before (``gained``), or the other way round.

    routes (all of them) with these dtypes; dtypes is empty where it is the route as a whole. reason: why there is no
    figure on the other side.
    """

    at: Release
    before: Release
    gained: bool
    direction: str
    routes: tuple[str, ...]
    dtypes: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Semantic:
    """A route that means another thing from a release on; what, old and new as semantics.measured has them."""

    at: Release
    before: Release
    direction: str
    route: str
    what: str
    old: bool | str
    new: bool | str
    dtypes: tuple[str, ...]


def appearances(results: Results, releases: Sequence[Release]) -> Iterator[Appearance]:
    """What has a figure from a release on and had none before, or the other way round; of what has a route."""
    about: dict[str, tuple[str, str, str]] = {}
    there: dict[str, set[str]] = {release.file: set() for release in releases}
    absent: dict[tuple[str, str], str] = {}
    for table in (results.processes.drop_duplicates(["file", "cell"]), results.missing):
        rows = table[table["file"].isin(there) & table["method"].str.startswith("timeit_") & table["route"].notna()]
        for row in rows.to_dict("records"):
            contract = contract_of(results.benchmarks, row["benchmark"], row["route"])
            about[row["cell"]] = (contract.direction, row["route"], str(row["dtype"] or ""))
            if "status" in row:
                absent[row["file"], row["cell"]] = row["reason"] or row["status"]
            else:
                there[row["file"]].add(row["cell"])
    for before, at in zip(releases, releases[1:]):
        for gained, having, lacking in ((True, at, before), (False, before, at)):
            known = {about[cell][:2] for cell in there[lacking.file]}
            dtypes_of: dict[tuple[str, str, str], list[str]] = {}  # direction, route, reason -> dtypes
            for cell in sorted(there[having.file] - there[lacking.file], key=list(about).index):
                reason = absent.get((lacking.file, cell))
                if reason is not None:  # else it was not part of that run
                    direction, route, dtype = about[cell]
                    dtypes_of.setdefault((direction, route, reason), []).append(dtype)
            alike: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
            for (direction, route, reason), dtypes in dtypes_of.items():
                some = tuple(dict.fromkeys(filter(None, dtypes))) if (direction, route) in known else ()
                alike.setdefault((direction, reason, some), []).append(route)
            for (direction, reason, some), routes in alike.items():
                yield Appearance(at, before, gained, direction, tuple(routes), some, reason)


def redefined(results: Results, releases: Sequence[Release]) -> Iterator[Semantic]:
    """Where alias, dtype or grad of a route differ from the release before."""
    rows = of_files(facts(results), (release.file for release in releases))
    seen = {(row["file"], row["cell"]): row for row in rows.to_dict("records")}
    cells = rows.drop_duplicates("cell").to_dict("records")
    for before, at in zip(releases, releases[1:]):
        changed: dict[tuple[str, str, str, bool | str, bool | str], list[str]] = {}
        for row in cells:
            old, new = (seen.get((release.file, row["cell"])) for release in (before, at))
            if old and new and old["value"] != new["value"] and old["version"] == new["version"]:
                benchmark = results.benchmarks[row["benchmark"]]
                (what, was), (_, became) = measured(benchmark, old), measured(benchmark, new)
                key = benchmark.direction, row["route"], what, was, became
                changed.setdefault(key, []).append(row["dtype"] if isinstance(row["dtype"], str) else "")
        for (direction, route, what, was, became), dtypes in changed.items():
            yield Semantic(at, before, direction, route, what, was, became, tuple(filter(None, dtypes)))


def looked_at(results: Results, releases: Sequence[Release]) -> tuple[int, int]:
    """How many facts about what routes mean the releases have: the fewest and the most."""
    each = facts(results)["file"].value_counts()
    counts = [int(each.get(release.file, 0)) for release in releases]
    return min(counts), max(counts)
