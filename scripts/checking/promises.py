"""What noise did to the suite's figures, as a table, with what is promised of them beside it."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from cli import UserError
from measuring.profiles import KIB, MIB
from store.records import record_of

from .noise import BEFORE, CALM, CONDITIONS, NEW, PAIRS, PLANTED, ROUNDS, ROUTE, SLOWDOWN, Step, Workplace, steps

# What is promised; A/A figures are |log ratio|, 0.02 is 2 %
MEDIAN, NINE_IN_TEN = 0.02, 0.06
TIME, MOVED = 1.15, 0.01  # calm, new against before: seconds a cell, and the median cell's figure

Figures = Mapping[str, Mapping[str, Any]]  # condition -> all that its finished steps tell, see figures()

# The classes that the A/A is shown by, sizes in bytes
ALL, WERE_CALM, NEVER_CALM = "all", "calm in both runs", "never calm in one of them"
SIZES = {"≤ 4 KiB": (0, 4 * KIB), "1 MiB": (MIB, MIB), "≥ 16 MiB": (16 * MIB, math.inf)}
CLASSES = (ALL, WERE_CALM, NEVER_CALM, *SIZES)

AGAINST = "against"  # the figures of one code, those of the other
FLAGS = ("slower", "faster")
DECIDED = (*FLAGS, "no change")


def spread(run: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """A/A of two runs, for all cells and for those of each of CLASSES: cells in both and in either, and of the
    |log ratio| of their figures the median, the 90 % quantile (nine) and the share beyond NINE_IN_TEN."""
    cells = pd.DataFrame({"run": run["cells"], "other": other["cells"]})
    cells["apart"] = np.log(cells["run"] / cells["other"]).abs()
    nbytes = pd.Series({**run["nbytes"], **other["nbytes"]}, dtype=float).reindex(cells.index)
    calm = cells.index.isin({*run["quiet"]} & {*other["quiet"]})
    chosen = {ALL: calm | True, WERE_CALM: calm, NEVER_CALM: ~calm}
    chosen |= {name: nbytes.between(*ends) for name, ends in SIZES.items()}
    found = {}
    for name, which in chosen.items():
        off = cells["apart"][which].dropna()
        if len(off):
            found[name] = {
                "cells": len(off),
                "either": int(which.sum()),
                "median": off.median(),
                "nine": off.quantile(0.9),
                "beyond": (off > NINE_IN_TEN).mean(),
            }
    if not found:
        raise UserError("two runs of one code have no cell in common")
    return found


def of_code(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The A/A of the first two runs of a code; seconds, cells and disturbed samples of a run, on average."""
    quiet = [record_of(result["record"]).quiet for result in runs]
    return {
        "spread": spread(runs[0], runs[1]),
        "seconds": statistics.mean(result["seconds"] for result in runs),
        "cells": statistics.mean(len(result["cells"]) for result in runs),
        "disturbed": statistics.mean(math.nan if share is None else 1 - share for share in quiet),
    }


def against(new: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Two codes in the same minutes, new ÷ before: time (seconds a cell) and figures (of the median cell)."""
    sides = new[: len(before) + 1], before
    time_of = [statistics.mean(run["seconds"] / len(run["cells"]) for run in runs) for runs in sides]
    logs = [np.log(pd.DataFrame([run["cells"] for run in runs])).mean(skipna=False) for runs in sides]
    apart = (logs[0] - logs[1]).dropna()  # of the cells that all of these runs have
    if apart.empty:
        raise UserError("the two codes have no cell in common")
    return {"time": time_of[0] / time_of[1], "figures": math.exp(apart.median()), "cells": len(apart)}


def of_planted(said: Mapping[str, Any]) -> dict[str, Any]:
    """found of cells that have the slowdown, their ratios, and wrong flags among the others that have none."""
    have = [cell for cell in said["cells"] if cell["route"] == ROUTE]
    others = [cell for cell in said["cells"] if cell["route"] != ROUTE]
    return {
        "found": sum(cell["verdict"] == "slower" for cell in have),
        "cells": len(have),
        "ratios": [[cell[name] for name in ("ratio", "low95", "high95")] for cell in have],
        "wrong": sum(cell["verdict"] in FLAGS for cell in others),
        "others": len(others),
        "processes": max((cell["base_processes"] for cell in have), default=0),
        "exit_code": said["exit_code"],
    }


def of_pairs(pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A/A comparisons: how many, how many of them flagged a cell or could not compare; cells flagged and decided."""
    verdicts = [[cell["verdict"] for cell in pair["cells"]] for pair in pairs]
    every = Counter(verdict for pair_verdicts in verdicts for verdict in pair_verdicts)
    decided = sum(every[verdict] for verdict in DECIDED)
    return {
        "pairs": len(pairs),
        "alarms": sum(any(verdict in FLAGS for verdict in pair_verdicts) for pair_verdicts in verdicts),
        "flags": sum(every[verdict] for verdict in FLAGS),
        "could_not": sum(pair["exit_code"] == 2 for pair in pairs),
        "decided": decided / max(1, decided + every["inconclusive"]),
    }


def figures(place: Workplace, plan: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Condition -> all that its finished steps tell; nothing of a condition without any."""
    by_condition: dict[str, dict[str, Any]] = {}
    for condition in CONDITIONS:
        planned = steps([condition], plan["runs"], bool(plan["before"]))
        done = {step: result for step in planned if (result := place.result(step)) is not None}
        of_condition: dict[str, Any] = {}
        runs = {code: [result for step, result in done.items() if step.what == code] for code in (NEW, BEFORE)}
        for code, results in runs.items():
            if len(results) > 1:
                of_condition[code] = of_code(results)
        if NEW in of_condition and BEFORE in of_condition:
            of_condition[AGAINST] = against(runs[NEW], runs[BEFORE])
        planted, pairs = (done.get(Step(condition, what)) for what in (PLANTED, PAIRS))
        if planted:
            of_condition[PLANTED] = {stage: of_planted(said) for stage, said in planted.items()}
        if pairs:
            of_condition[PAIRS] = of_pairs(pairs)
        if of_condition:
            by_condition[condition] = of_condition
    return by_condition


# --- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """What a line of the table shows of every condition.

    show    the figures that are meant -> text; "" where there are none
    of      which those are: of one of the codes (a column each), of both, of a comparison
    keeps   those figures -> whether what is promised in words was kept; asked of the new code in the conditions judged
    """

    label: str
    show: Callable[[Any], str]
    of: Sequence[str] = (NEW, BEFORE)
    promise: str = ""
    keeps: Callable[[Any], bool] | None = None
    judged: Sequence[str] = CONDITIONS

    def shown(self, by_condition: Figures) -> dict[str, str]:
        """Column -> text."""
        return {
            column(condition, what): self.show(figures[what])
            for condition, figures in by_condition.items()
            for what in self.of
            if what in figures
        }

    def kept(self, by_condition: Figures) -> dict[str, bool]:
        """Condition -> whether the promise was kept; none without promise."""
        return {
            condition: bool(self.keeps(figures[what]))
            for condition, figures in by_condition.items()
            for what in self.of
            if self.keeps and what in figures and what != BEFORE and condition in self.judged
        }


def percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f} %"


def column(condition: str, what: str) -> str:
    return f"{condition}, {what}" if what == BEFORE else condition


def _of_class(name: str, runs: Mapping[str, Any]) -> str:
    of_class = runs["spread"].get(name)
    return f"{of_class['cells']:.0f}: {percent(of_class['median'])}, {percent(of_class['nine'])}" if of_class else ""


def _ratios(ratios: Iterable[Sequence[float | None]]) -> str:
    known = [[float(value) for value in ratio if value is not None] for ratio in ratios]
    return ", ".join("{:.2f} ({:.2f}–{:.2f})".format(*ratio) for ratio in known if len(ratio) == 3) or "–"


LINES = (
    Line(
        "A/A of two runs: the median cell differs by",
        lambda runs: percent(runs["spread"][ALL]["median"]),
        promise=f"at most {percent(MEDIAN, 0)}",
        keeps=lambda runs: runs["spread"][ALL]["median"] <= MEDIAN,
    ),
    Line(
        "nine cells in ten differ by at most",
        lambda runs: percent(runs["spread"][ALL]["nine"]),
        promise=percent(NINE_IN_TEN, 0),
        keeps=lambda runs: runs["spread"][ALL]["nine"] <= NINE_IN_TEN,
    ),
    Line(f"cells beyond {percent(NINE_IN_TEN, 0)}", lambda runs: percent(runs["spread"][ALL]["beyond"])),
    *(Line(f"{name}: cells, median, nine in ten", partial(_of_class, name)) for name in CLASSES if name != ALL),
    Line("cells in both runs", lambda runs: "{cells} of {either}".format(**runs["spread"][ALL])),
    Line("seconds a run", lambda runs: f"{runs['seconds']:.0f}"),
    Line("samples that the run calls disturbed", lambda runs: percent(runs["disturbed"])),
    Line(
        "time, new ÷ before",
        lambda ratios: f"{ratios['time']:.2f}",
        (AGAINST,),
        f"calm: at most {TIME}",
        lambda ratios: ratios["time"] <= TIME,
        (CALM,),
    ),
    Line(
        "figures, new ÷ before, the median cell",
        lambda ratios: f"{ratios['figures']:.3f}",
        (AGAINST,),
        f"calm: within {percent(MOVED, 0)}",
        lambda ratios: abs(ratios["figures"] - 1) <= MOVED,
        (CALM,),
    ),
    Line(
        f"{percent(SLOWDOWN, 0)} slowdown of `{ROUTE}`, {ROUNDS} processes a side: found in",
        lambda planted: "{found} of {cells}".format(**planted["first"]),
        (PLANTED,),
        "every cell",
        lambda planted: planted["first"]["found"] == planted["first"]["cells"] > 0,
    ),
    Line("the slowdown it reads (95 %)", lambda planted: _ratios(planted["first"]["ratios"]), (PLANTED,)),
    Line(
        "unchanged cells flagged beside it",
        lambda planted: f"{planted['first']['wrong'] + planted['fresh']['wrong']} of {planted['first']['others']}",
        (PLANTED,),
        "none",
        lambda planted: planted["first"]["wrong"] + planted["fresh"]["wrong"] == 0,
    ),
    Line(
        "found with the fresh processes that `compare.py --run` takes where it is close",
        lambda planted: "{found} of {cells}".format(**planted["fresh"]),
        (PLANTED,),
    ),
    Line(
        "A/A comparisons with a false flag",
        lambda pairs: "{alarms} of {pairs}".format(**pairs),
        (PAIRS,),
        "none",
        lambda pairs: pairs["alarms"] == 0,
    ),
    Line("cells they decide", lambda pairs: percent(pairs["decided"]), (PAIRS,)),
    Line(
        "comparisons that could not tell (exit code 2)",
        lambda pairs: "{could_not} of {pairs}".format(**pairs),
        (PAIRS,),
    ),
)


def kept(by_condition: Figures) -> dict[str, dict[str, bool]]:
    """Promise, by the label of its line -> condition -> whether it was kept; those that were tried."""
    return {line.label: tried for line in LINES if (tried := line.kept(by_condition))}


def markdown(by_condition: Figures) -> str:
    """The table of all figures, and whether the new code kept what is promised of it, to be pasted into a page."""
    shown = {line: texts for line in LINES if any((texts := line.shown(by_condition)).values())}
    columns = [column(condition, what) for condition in CONDITIONS for what in (NEW, BEFORE)]
    used = [name for name in columns if any(name in texts for texts in shown.values())]
    lines = [["", "promise", *used, "kept"], ["---"] * (len(used) + 3)]
    for line, texts in shown.items():
        tried = line.kept(by_condition)
        broken = ", ".join(condition for condition, was_kept in tried.items() if not was_kept)
        told = f"**no**: {broken}" if broken else "yes" if tried else ""
        lines.append([line.label, line.promise, *(texts[name] or "–" if name in texts else "" for name in used), told])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def describe(place: Workplace, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Machine, toolchain, day and codes, by the run record of the first run that is done."""
    done = (place.result(Step(condition, NEW, 1)) for condition in CONDITIONS)
    record = record_of(next(result for result in done if result)["record"])
    return {
        **{name: getattr(record.conditions, name) for name in ("cpu", "cores", "cores_allowed", "system")},
        **{name: getattr(record.settings, name) for name in ("torch", "numpy", "python")},
        "day": record.started[:10],
        **{name: plan[name] for name in (NEW, BEFORE, "command")},
    }


def sentence(about: Mapping[str, Any]) -> str:
    """Below the table: on what it was measured, and the command."""
    codes = f"new is {about['new'] or 'this checkout'}" + (f", before {about['before'][:8]}" if about["before"] else "")
    return (
        f"{about['cpu']}, {about['cores_allowed']} of {about['cores']} cores, {about['system']}; Python "
        f"{about['python']}, torch {about['torch']}, numpy {about['numpy']}; {about['day']}; {codes}; "
        f"`{about['command']}`"
    )
