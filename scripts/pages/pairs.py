"""The comparisons that a page offers: any two releases of a history, any two machines.

The page's script (templates/compare.js) shows what this module writes and computes nothing: ratios,
intervals, verdicts and thresholds are those of scripts/compare.py.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from analysis.changes import ROUTE
from analysis.comparison import Comparison, compare
from analysis.history import MACHINE_SERIES, History, compare_releases
from analysis.judging import judge_ratios
from analysis.results import Results, where
from analysis.verdicts import (
    CHANGED,
    INCONCLUSIVE,
    NO_CHANGE,
    SIDES,
    TIME,
    Settings,
    count_changes,
    largest_first,
)
from cli import UserError
from pandas import DataFrame
from store.frames import rows_of

from . import comparison_words, show
from .tables import Table, lines_of, render_table

ACROSS = Settings(across_machines=True, across_builds=True)
OF_CHANGE = {"low95": "ratio_low", "high95": "ratio_high"}  # columns as a history names them


@dataclass(frozen=True)
class Pairs:
    """What two menus choose from: a table for each base and new.

    key     of the section on the page
    title   of the section
    names   of the sides, in the order of the menus
    chosen  base and new until a reader chooses
    """

    key: str
    title: str
    names: Sequence[str]
    chosen: tuple[str, str]
    tables: Mapping[tuple[str, str], Table]

    @property
    def as_json(self) -> str:
        """For the page's script. Texts of a table are places in ``texts``, as most repeat."""
        places: dict[str, int] = {}

        def place(line: str) -> int:
            return places.setdefault(show.to_html(line), len(places))

        tables = {
            "\t".join(sides): {
                "title": place(table.title),
                "rows": [
                    [place(" ".join(lines_of(entry))) for entry in row]
                    for row in (table.columns, *table.rows)
                ],
                "notes": [*map(place, table.notes)],
            }
            for sides, table in self.tables.items()
        }
        menus = {"key": self.key, "names": self.names, "chosen": self.chosen}
        return show.script_json(menus | {"tables": tables, "texts": [*places]})


def release_pairs(history: History) -> Pairs:
    """Any two releases of a history, as scripts/compare.py compares them."""
    names = [release.version for release in history.releases]
    sides = [*permutations(names, 2)]
    judged = judged_pairs(history, sides)
    changed = largest_first(where(judged, verdict=CHANGED))
    changed = changed.drop_duplicates([*SIDES, *ROUTE, "what"])
    rows = dict(iter(changed.groupby([*SIDES])))
    times = where(judged, what=TIME)
    steady = where(times, verdict=NO_CHANGE).groupby([*SIDES])["detectable"]
    steady_counts, detectable = steady.size().to_dict(), steady.median().to_dict()
    undecided = where(times, verdict=INCONCLUSIVE).groupby([*SIDES]).size().to_dict()
    tables = {
        pair: _release_table(
            *pair,
            rows.get(pair, changed[:0]),
            steady=steady_counts.get(pair, 0),
            detectable=detectable.get(pair, math.nan),
            undecided=undecided.get(pair, 0),
            equivalence=history.settings.equivalence,
        )
        for pair in sides
    }
    title = f"Compare two releases of {history.package}"
    return Pairs(f"compare-{history.package}", title, names, (names[-2], names[-1]), tables)


def judged_pairs(history: History, releases: Sequence[tuple[str, str]]) -> DataFrame:
    """``history.compare_releases`` with a verdict for each row, controls left out, and what
    describes its series."""
    ratios = judge_ratios(compare_releases(history, releases), history.settings)
    described = [*MACHINE_SERIES, *ROUTE, "statement", "dtype", "control"]
    series = history.rows[described].drop_duplicates(MACHINE_SERIES)
    rows = ratios.merge(series, on=MACHINE_SERIES).query("not control")
    return rows.rename(columns=OF_CHANGE)


def _release_table(base: str, new: str, changed: DataFrame, **power: float) -> Table:
    """The routes whose time changed, or else those whose instructions did, once each."""
    is_time = changed["what"] == TIME
    shown = changed[is_time] if is_time.any() else changed
    counts = count_changes(changed)
    return render_table(
        "history",
        "pair",
        False,
        base=base,
        new=new,
        headline=show.render_line("history", "headline", row=counts),
        counts=counts,
        changes=rows_of(shown),
        **power,
    )


def machine_pairs(results: Mapping[str, Results], answers: DataFrame) -> tuple[Pairs, ...]:
    """Any two machines, as scripts/compare.py compares them; at first the one measured last
    with another. Empty if there are fewer than two.

    results  of each machine
    answers  to show: fastest safe routes of all machines, see machine.best_routes
    """
    names = [*results]
    if len(names) < 2:
        return ()
    tables = {}
    for base, new in permutations(names, 2):
        try:
            comparison = compare(results[base], results[new], ACROSS)
        except UserError as error:  # nothing to compare
            tables[base, new] = Table(str(error), ("",), ())
        else:
            own = where(answers, machine=base)
            tables[base, new] = _machine_table(comparison, own)
    newest = max(names, key=lambda name: max(run.started for run in results[name].runs))
    others = (name for name in names if name != newest)
    chosen = (next(others), newest)
    return (Pairs("compare-machines", "Compare two machines", names, chosen, tables),)


def _machine_table(comparison: Comparison, answers: DataFrame) -> Table:
    """The verdict on the fastest safe route of the base for each need and size."""
    cells = {row["cell"]: row for row in comparison.cells.to_dict("records")}
    rows = [
        (answer, cells[answer.cell], comparison_words.evidence(cells[answer.cell], comparison))
        for answer in rows_of(answers)
        if answer.cell in cells
    ]
    summary = comparison_words.summarise(comparison)
    return render_table("comparison", "machines", False, rows=rows, **summary)
