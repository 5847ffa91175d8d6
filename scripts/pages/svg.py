"""Figures as SVG, for a file and for a page, in one style (report.mplstyle)."""

import hashlib
import io
import re
import xml.etree.ElementTree as xml
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
# CSS variables of the page, so that each colour can have a dark variant; the literal is a fallback
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
COLOUR = re.compile("|".join(VARIABLES))
WHITE = re.compile("(fill|stroke): #ffffff")
FONT = re.compile(r"font-family: ('DejaVu Sans Mono')?[^;]*;? ?")
REFERENCE = re.compile(r"(url\(#|^#)([\w-]+)")  # to an id
LONG = re.compile(r"(-?\d+\.\d\d)\d+")  # more digits than anyone can see
NUMERIC = ("d", "x", "y", "points", "transform")  # attributes; an SVG is mostly numbers
Look = dict[str, Any]  # arguments of matplotlib
SVG = "http://www.w3.org/2000/svg"
GROUP = f"{{{SVG}}}g"
METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # all left out
xml.register_namespace("", SVG)
xml.register_namespace("xlink", "http://www.w3.org/1999/xlink")


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
    buffer = io.BytesIO()
    with plt.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata=METADATA)
    plt.close(figure)
    root = xml.fromstring(buffer.getvalue())
    _shorten_ids(root, name)
    for element in reversed(list(root.iter())):
        _simplify(element)
    root.attrib |= {"role": "img", "aria-labelledby": f"{name}-title {name}-desc"}
    root.insert(0, _text_element("title", name, show.bare(caption)))
    root.insert(1, _text_element("desc", name, description))
    lines = xml.tostring(root, encoding="unicode").replace("><", ">\n<")
    file = f'<?xml version="1.0" encoding="utf-8"?>\n{lines}\n'
    _fit_page(root)
    inline = f"{xml.tostring(root, encoding='unicode')}\n"
    return Figure(name, description, file, inline, tuple(cells), caption)


def _text_element(tag: str, name: str, text: str) -> xml.Element:
    element = xml.Element(f"{{{SVG}}}{tag}", id=f"{name}-{tag}")
    element.text = text
    return element


def _fit_page(root: xml.Element) -> None:
    """Leave size, white, fonts and colours to the page."""
    del root.attrib["width"], root.attrib["height"]
    for element in list(root.iter()):
        for style in element.findall(f"{{{SVG}}}style"):
            element.remove(style)
        for key, value in element.attrib.items():
            value = WHITE.sub(r"\1: none", value)
            value = COLOUR.sub(lambda colour: f"var({VARIABLES[colour[0]]}, {colour[0]})", value)
            value = FONT.sub(lambda font: "font-family: var(--mono); " if font[1] else "", value)
            element.set(key, value)


# --- without the invisible half of matplotlib's output ------------------------------------------


def _shorten_ids(root: xml.Element, name: str) -> None:
    """Remove ids that nothing refers to. As a page holds many figures, an id begins with the
    figure's name, or with a short hash of it."""
    values = [value for element in root.iter() for key, value in element.items() if key != "id"]
    targets = sorted({target for value in values for _, target in REFERENCE.findall(value)})
    prefix = hashlib.sha256(name.encode()).hexdigest()[:6]
    short = {target: f"f{prefix}-{place}" for place, target in enumerate(targets)}
    for element in root.iter():
        identifier = element.attrib.pop("id", "")
        for key, value in element.items():
            value = REFERENCE.sub(lambda match: match[1] + short[match[2]], value)
            element.set(key, value)
        if identifier.startswith(POINTS):
            element.set("id", f"{name}-{identifier}")
        elif identifier in short:
            element.set("id", short[identifier])


def _simplify(element: xml.Element) -> None:
    """Remove white space, excess digits, and groups and rotations without effect. A style that all
    children share becomes the group's. Children come before their parents."""
    element.text = element.text and element.text.strip()
    element.tail = element.tail and element.tail.strip()
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    for key in element.attrib.keys() & NUMERIC:
        element.set(key, LONG.sub(r"\1", element.attrib[key]))
    children: list[xml.Element] = []
    for child in element:
        is_needed = child.tag != GROUP or "id" in child.attrib or (len(child) and child.attrib)
        children += [child] if is_needed else child
    element[:] = children
    if element.tag != GROUP or len(children) < 2 or any(child.tag == GROUP for child in children):
        return
    for attribute in ("style", "clip-path"):
        value = children[0].get(attribute)
        is_shared = all(child.get(attribute) == value for child in children)
        if value and is_shared and attribute not in element.attrib:
            element.set(attribute, value)
            for child in children:
                del child.attrib[attribute]
