"""Two sides by their names: found, loaded and compared; releases of one history by what that history says of them."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from cli import UserError
from store.files import file_of, fresh_results, result_files, results_of
from toolchains import ledger, selection

from . import changes, statistics
from .comparison import Comparison, SelfCheck, belong_together, compare, with_times
from .declared import Benchmarks
from .history import History, histories_of
from .results import load_files
from .statistics import HALF
from .verdicts import AS_MANY, DECIDED, FEWER, INCONCLUSIVE, INSTRUCTIONS, MORE, NO_CHANGE, TIME, Settings

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
    histories: Mapping[str, History] = {}
    if files[0].absolute().parent == files[1].absolute().parent:
        with contextlib.suppress(UserError):  # a broken file of another release is no obstacle; report.py names it
            histories = _histories(files, places[0], settings)
    for history in histories.values():
        versions = {file: release.version for release in history.releases for file in release.files}
        ends = [versions.get(file_of(file), "") for file in files]
        if all(ends) and ends[0] != ends[1]:
            found = compare(first, second, settings, None, _variances(history), _check(history))
            return _as_in(history, ends, found, {**first.benchmarks, **second.benchmarks})
    learnt = next((_variances(history) for history in histories.values() if len(history.replicates)), {})
    return compare(first, second, settings, None, learnt)


def _histories(files: Sequence[Path], results: Path, settings: Settings) -> dict[str, History]:
    """The histories of the machine that has both files, by the Python, or the node, that they are of."""
    endings = {file.name.partition("-")[2] for file in files}
    known = {commit[:8] for commit in ledger.commits()}
    every = result_files(results, files[0].absolute().parent.name)
    split = [(path, path.name.partition("-")) for path in every]
    paths = [path for path, (commit, _, ending) in split if commit in known and ending in endings]
    return histories_of(load_files(results, paths), settings) if len(paths) > 1 and len(endings) == 1 else {}


def _variances(history: History) -> dict[str, float]:
    """Noise class -> variance of what two sessions differ by."""
    return {noise: 2 * sd**2 for noise, sd in history.session_sd.items()}


def _check(history: History) -> SelfCheck:
    """How often the history reports a change of a toolchain against itself.

    Halves of the baseline's processes would check a test that nobody makes here. They fail it, too: processes of one
    session may be fast and slow by turns, two of a half alike, and 8.7 % of the cells of torch 2.10.0 were flagged.
    """
    flagged, series = (int(history.replicates[name].sum()) for name in ("flagged", "series"))
    return SelfCheck(len(history.replicates), series, flagged, *statistics.rate_bounds(flagged, series))


def _as_in(history: History, versions: Sequence[str], comparison: Comparison, benchmarks: Benchmarks) -> Comparison:
    """The comparison with what the history says of the same calls, see ``changes.between``."""
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
    return replace(comparison, cells=tables[0], counted=with_times(tables[1], tables[0], benchmarks), in_history=True)


def _once(table: pd.DataFrame, series: pd.Series, judged: pd.Series, sizes: pd.Series) -> pd.DataFrame:
    """The cells of a series as one row, the first, with the parameter ``sizes`` (its ends, in bytes) for nbytes."""
    several = sizes[sizes.map(len) > 1].index
    names = table["parameters"].copy()
    for at in several:
        ends = {"sizes": (sizes[at][0], sizes[at][-1])}
        names[at] = {name: value for name, value in names[at].items() if name != "nbytes"} | ends
    again = judged & series.duplicated() & table.index.isin(several)
    return table.assign(parameters=names)[~again].reset_index(drop=True)
