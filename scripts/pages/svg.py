"""Figures as SVG, for a file and for a page, in one style (report.mplstyle)."""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import matplotlib.pyplot as plt
from analysis.cells import Row

from . import show

STYLE = Path(__file__).with_name("report.mplstyle")
MARKERS = "os^Dv<>PX"  # with seven colours: 63 lines before a pair repeats
INK, MUTED, GRID = "#1b1f24", "#6e7781", "#d8dee4"
BLUE, RED, GREEN = "#0072b2", "#d55e00", "#009e73"
SANS, MONO = "sans-serif", "monospace"  # the style defines their fonts
POINTS = "points-"  # prefix of the ids that a page's script reads
NAME_LETTERS = 100  # of a file name; file systems allow 255
# CSS variables of the page, so that each colour can have a dark variant
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    BLUE: "--blue",
    RED: "--red",
    GREEN: "--green",
    "#cc79a7": "--pink",
    "#e69f00": "--orange",
    "#56b4e9": "--sky",
}
Look = dict[str, Any]  # arguments of matplotlib
METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # all left out
IN_TAG = "(?=[^<>]*>)"  # follows what is no text of a reader
# What no reader sees, or what a group's elements share -> what stands for it
EXCESS = {
    "(?s:^.*?(?=<svg)|<!--.*?-->)": "",
    r"(?<=>)\s+|\s+(?=<)|\n": "",
    r'<g([^<>]*)>(<[^<>]*( style="[^"]*")[^<>]*/>(?:<[^<>]*\3[^<>]*/>)*)</g>': lambda group: (
        f"<g{group[1]}{group[3]}>{group[2].replace(group[3], '')}</g>"
    ),
    rf' id="[\w.]+_\d+"{IN_TAG}': "",  # nothing refers to these
    rf' transform="rotate\(-0 [^"]*"{IN_TAG}': "",
    rf"(?<=\.\d\d)\d+{IN_TAG}": "",
}
# A page has its own size, white, style and fonts
OF_FILE = {
    f' (?:width|height)="[^"]*pt"{IN_TAG}': "",
    "<defs><style.*?</style></defs>": "",
    f"(fill|stroke): #ffffff{IN_TAG}": r"\1: none",
    f"font-family: 'DejaVu Sans Mono'[^;]*;{IN_TAG}": "font-family: var(--mono);",
    f"font-family: (?!var)[^;]*; ?{IN_TAG}": "",
    f"(?:{'|'.join(VARIABLES)}){IN_TAG}": lambda colour: f"var({VARIABLES[colour[0]]})",
}


@dataclass(frozen=True)
class Figure:
    """name: of the SVG file, and prefix of every id in it. cells: shown in the figure and in its
    data table."""

    name: str
    description: str
    file: str
    inline: str
    cells: tuple[Row, ...]
    caption: str


def slug(*words: str) -> str:
    """Make a name for files and ids."""
    text = "-".join(words).lower().replace("→", "-to-")
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:NAME_LETTERS]


def finish(
    figure: plt.Figure, name: str, description: str, cells: Sequence[Row], caption: str
) -> Figure:
    """Save the figure once, and return its SVG for a file (white) and for the page (the page's
    fonts and colours)."""
    buffer = io.StringIO()
    with plt.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata=METADATA)
    plt.close(figure)
    head = (
        f' role="img" aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(show.bare(caption))}</title>'
        f'<desc id="{name}-desc">{escape(description)}</desc>'
    )
    svg = _replace(buffer.getvalue(), EXCESS).replace(">", head, 1)
    svg = svg.replace(f'id="{POINTS}', f'id="{name}-{POINTS}')  # a page holds many figures
    lines = svg.replace("><", ">\n<")
    file = f'<?xml version="1.0" encoding="utf-8"?>\n{lines}\n'
    return Figure(name, description, file, f"{_replace(svg, OF_FILE)}\n", tuple(cells), caption)


def _replace(text: str, replacements: Mapping[str, Any]) -> str:
    """Replace each pattern in turn."""
    for pattern, replacement in replacements.items():
        text = re.sub(pattern, replacement, text)
    return text
