"""The data of the page of a machine's histories: frames and run records, read once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd
from analysis import findings
from analysis.changes import LAYOUT
from analysis.history import History
from analysis.results import Results
from analysis.verdicts import TIME
from store.frames import Change
from store.schema import RunRecord

USUAL_DTYPE = "float32"  # of the routes in pictures
PICTURE_KEYS = ["direction", "contract"]  # a picture shows the routes that share these


@dataclass(frozen=True)
class HistoryData:
    """All that the page of a machine's histories shows.

    records     of all sessions, by start
    parameters  columns of parameters that any series has, in order
    outdated    of each benchmark: whether it has changed since it was measured
    appearances, redefinitions
                package -> routes that a release gains or loses, or whose behaviour it changes;
                see ``analysis.findings``
    """

    histories: Sequence[History]
    records: Sequence[RunRecord]
    parameters: Sequence[str]
    outdated: Sequence[bool]
    appearances: Mapping[str, pd.DataFrame]
    redefinitions: Mapping[str, pd.DataFrame]

    @property
    def machine(self) -> str:
        return self.histories[0].machine

    @cached_property
    def rows(self) -> pd.DataFrame:
        """The rows of all histories."""
        return pd.concat([history.rows for history in self.histories], ignore_index=True)

    @property
    def node_count(self) -> int:
        """Nodes of the machine; 0 if it is a single computer."""
        return max(len(history.nodes) for history in self.histories)


def read_histories(results: Results, histories: Sequence[History]) -> HistoryData:
    """Gather the data of a page from a machine's results and the histories made from them."""
    releases = {history.package: history.releases for history in histories}
    files = {file for each in releases.values() for release in each for file in release.files}
    records = [record for file in files for record in results.sessions_of(file)]
    rows = pd.concat([history.rows for history in histories])
    return HistoryData(
        histories=histories,
        records=sorted(records, key=lambda record: record.started),
        parameters=[
            name for name in results.parameters if name != "direction" and rows[name].notna().any()
        ],
        outdated=results.version_changes(rows),
        appearances={name: findings.appearances(results, each) for name, each in releases.items()},
        redefinitions={name: findings.redefined(results, each) for name, each in releases.items()},
    )


def counted_changes(history: History) -> pd.DataFrame:
    """The changes of a history without those that code layout alone explains, the largest first."""
    return history.changes[history.changes["evidence"] != LAYOUT]


def times_first(changes: pd.DataFrame) -> pd.DataFrame:
    """Changes of times, then changes of instructions, each in the order given."""
    return changes.sort_values("what", key=lambda figure: figure != TIME, kind="stable")


class PictureRow(Change):
    """A row of ``picture_rows``."""

    newest: float
    base: str
    over: float


def picture_rows(history: History) -> pd.DataFrame:
    """The rows of routes in one dtype. newest: level at the last release, ``base``; over: level /
    newest."""
    rows = history.rows[history.rows["route"].notna() & ~history.rows["control"]]
    rows = rows[rows["dtype"].isna() | (rows["dtype"] == USUAL_DTYPE)]
    last = rows.groupby(["series", "what"])[["level", "release"]].transform("last")
    return rows.assign(
        over=rows["level"] / last["level"], newest=last["level"], base=last["release"]
    )
