"""Two sides by their names: found, loaded and compared; releases of one history by what that history says of them."""

import contextlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from cli import UserError
from store.files import fresh_results, result_files, results_of
from toolchains import ledger, selection

from . import changes
from .changes import INSTRUCTIONS, TIME
from .comparison import Comparison, belong_together, compare
from .history import History, history_of, session_variances
from .results import load_files
from .statistics import HALF
from .verdicts import AS_MANY, DECIDED, FEWER, INCONCLUSIVE, MORE, NO_CHANGE, Settings

NARROWER = 1.645 / HALF  # a 90 % interval in units of one of 95 %


def compare_named(base: str, new: str, results: Path, machine: str | None, settings: Settings) -> Comparison:
    """Compare what ``result_file`` finds by two names, and fresh processes where ``compare.py --run`` took some.

    Two releases of one history, on one machine, have the ratios, intervals and verdicts of that history. UserError if a
    name is of no file or of several, or both are of the same.
    """
    files = [selection.result_file(name, results, machine) for name in (base, new)]
    if files[0].resolve() == files[1].resolve():
        raise UserError(f"BASE and NEW are the same file, {files[0]}: its A/A needs a second run of that toolchain")
    places = [results_of(file) for file in files]
    first, second = (load_files(place, [file]) for place, file in zip(places, files))
    stages = [stage for place in places if (stage := fresh_results(place))]
    if len(stages) == len(places):
        again = [load_files(stage, [selection.result_file(str(stage), stage)]) for stage in stages]
        fresh = (again[0], again[1]) if belong_together(first, second, *again) else None
        return compare(first, second, settings, fresh)
    # of other files than these: one that is broken is no obstacle, and report.py names it
    of_history, sessions = None, None
    if files[0].absolute().parent == files[1].absolute().parent:
        with contextlib.suppress(UserError):
            of_history = _history(files, places[0], settings)
            sessions = session_variances(places[0], files[0].absolute().parent.name)
    comparison = compare(first, second, settings, None, sessions)
    return _as_in(of_history, comparison) if of_history else comparison


def _history(files: list[Path], results: Path, settings: Settings) -> History | None:
    """The history that both files are releases of; None where they are of none, or of two."""
    every = {toolchain.commit[:8]: toolchain for toolchain in ledger.commits().values()}
    toolchains = [every.get(file.name.partition("-")[0]) for file in files]
    packages = {toolchain.history if toolchain else "" for toolchain in toolchains}
    endings = {file.name.partition("-")[2] for file in files}
    package = packages.pop()
    if packages or not package or len(endings) > 1:
        return None
    ending = endings.pop()
    paths = [
        path
        for path in result_files(results, files[0].absolute().parent.name)
        if path.name.partition("-")[0] in every and path.name.partition("-")[2] == ending
    ]
    history = history_of(load_files(results, paths), package, settings)
    measured = {release.version for release in history.releases}
    return history if {toolchain.version for toolchain in toolchains if toolchain} <= measured else None


def _as_in(history: History, comparison: Comparison) -> Comparison:
    """The comparison with what the history says of the same calls, see ``changes.between``."""
    tags = {release.tag: release.version for release in history.releases}
    versions = [tags.get(side["toolchain"], "") for side in (comparison.base, comparison.new)]
    if not all(versions):
        return comparison
    said = changes.between(history, *versions)
    said = said.assign(low95=said["low"], high95=said["high"])
    tables = []
    for what, table in ((TIME, comparison.cells), (INSTRUCTIONS, comparison.counted)):
        own = said[said["what"] == what].set_index("series")
        series = table["cell"].map(history.series)
        judged = table["verdict"].isin((*DECIDED, INCONCLUSIVE, MORE, FEWER, AS_MANY)) & series.isin(own.index)
        own = own.loc[series[judged]].set_index(table.index[judged])
        for name in ("ratio", "q", "low95", "high95") if what == TIME else ("ratio", "low", "high"):
            table.loc[judged, name] = own[name].astype(float)
        changed = own["verdict"] != ""
        table.loc[own.index[changed], "verdict"] = own.loc[changed, "verdict"]
        rest = own.index[~changed]
        if what == TIME:
            half = np.log(own["high"] / own["low"]) / 2 * NARROWER
            table.loc[judged, "low90"], table.loc[judged, "high90"] = (own["ratio"] * np.exp(s * half) for s in (-1, 1))
            same = 1 + comparison.settings.equivalence
            small = table.loc[rest, "high90"].lt(same) & table.loc[rest, "low90"].gt(1 / same)
            table.loc[rest, "verdict"] = np.where(small, NO_CHANGE, INCONCLUSIVE)
        tables.append(_once(table, series, judged, own["sizes"]))
    return replace(comparison, cells=tables[0], counted=tables[1], in_history=True)


def _once(table: pd.DataFrame, series: pd.Series, judged: pd.Series, sizes: pd.Series) -> pd.DataFrame:
    """The cells of a series as one row, the first, with the parameter ``sizes`` (its ends, in bytes) for nbytes."""
    several = sizes[sizes.map(len) > 1].index
    names = table["parameters"].copy()
    for at in several:
        ends = {"sizes": (sizes[at][0], sizes[at][-1])}
        names[at] = {name: value for name, value in names[at].items() if name != "nbytes"} | ends
    again = judged & series.duplicated() & table.index.isin(several)
    return table.assign(parameters=names)[~again].reset_index(drop=True)
