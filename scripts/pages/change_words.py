"""A change of a history in words: its route, its effect with an interval, and where it holds."""

from analysis.changes import MachineChange
from analysis.verdicts import FASTER, FEWER, INSTRUCTIONS
from store.frames import Change

from . import show
from .comparison_words import number


def number_range(low: float, high: float) -> str:
    """Two ratios as a range; one number if both ends look the same."""
    return "–".join(dict.fromkeys((number(low), number(high))))


def effect_text(change: Change | MachineChange, unit: str = "") -> str:
    """A change with its interval: "1.31× faster (1.29–1.32)", "1.10× fewer"."""
    if change.verdict in (FASTER, FEWER):
        ratio = 1 / change.ratio
        interval = number_range(1 / change.ratio_high, 1 / change.ratio_low)
    else:
        ratio = change.ratio
        interval = number_range(change.ratio_low, change.ratio_high)
    effect = f"{number(ratio)}× {change.verdict}{unit}"
    exact = change.what == INSTRUCTIONS and "–" not in interval
    return effect if exact else f"{effect} ({interval})"


def grad_text(change: Change) -> str:
    """Say if the source of a row of ``History.rows`` requires grad; else ""."""
    return "t requires grad" if str(change.group).startswith("RequiresGrad") else ""


def route_lines(change: Change) -> list[str]:
    """The route of a row, then its direction and whether its source requires grad."""
    expression = change.route if isinstance(change.route, str) else change.statement
    name = show.code(expression) if isinstance(expression, str) else change.group
    return [name, _listed(change.direction, grad_text(change))]


def route_text(change: Change) -> str:
    """The route of a row in one line."""
    return _listed(*route_lines(change))


def conditions_text(change: Change) -> str:
    """The sizes and the other parameters of a row: "4 KiB to 16 MiB, float32"."""
    parameters = {"dtype": change.dtype, "layout": change.layout, "threads": change.threads}
    texts = [
        show.parameter_text(name, value)
        for name, value in parameters.items()
        if isinstance(value, str)
    ]
    return _listed(show.size_range(change.sizes), *texts)


def series_text(series: Change) -> str:
    """The sizes of a series, and whether its source requires grad."""
    return _listed(show.size_range(series.sizes), grad_text(series))


def summary(change: Change) -> str:
    """A change in one line: `t.numpy()`, torch→numpy: 1.31× faster (1.29–1.32), 4 KiB to 16 MiB"""
    unit = " instructions" if change.what == INSTRUCTIONS else ""
    effect = _listed(effect_text(change, unit), show.size_range(change.sizes))
    return f"{route_text(change)}: {effect}"


def _listed(*texts: str) -> str:
    return ", ".join(filter(None, texts))
