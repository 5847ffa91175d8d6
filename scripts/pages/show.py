"""How quantities, code and sentences are shown: the one place where SI seconds and bytes are scaled.

A sentence is a string, and becomes HTML, Markdown or plain text at the very end. ``code`` sets what is Python between
two control characters. A text of a file may hold backticks, but never those (cli.line): it cannot begin or end code of
ours, so it may be put into any sentence as it is.
"""

import functools
import html
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
from analysis import cells, statistics
from analysis.cells import Row
from cli import size
from store import quiet

from benchmarks.contracts import ALIAS, COPY, INTO

TEMPLATES = Path(__file__).resolve().parent / "templates"
OPTIONS: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": jinja2.StrictUndefined}  # of all

# Parameters whose values say what they are
PLAIN_VALUES = ("copied", "direction", "dtype", "layout", "lying", "memory", "statement")
CODE_VALUES = ("route", "setting")
MEMORY = {ALIAS: "sharing memory", COPY: "as a copy", INTO: "into an existing buffer"}  # of a result
NAMED = 6  # routes at most, where something holds for many
BUSY = " ~"  # after a figure that is an upper bound; tables.Table says what it means

# What a process's seconds are, in words
FIGURE = f"the {quiet.QUANTILE:.0%} quantile of its quiet samples".replace("%", " %")
MOSTLY = 0.9  # share of quiet samples from which a machine is called mostly quiet

PREFIXES = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
BEGIN, END = "\x0e", "\x0f"  # of code in a sentence: shift out and shift in, to another alphabet and back
BESIDE, BELOW = "\x11", "\x12"  # between entries of a table's row, and after a line of an entry: in no text of a file


def code(text: str) -> str:
    """A span of a sentence that is Python, or a command, or a name; whoever wrote it."""
    return f"{BEGIN}{re.sub(f'[{BEGIN}{END}]', '', text)}{END}"


def spans(sentence: str) -> Iterator[tuple[str, bool]]:
    """The pieces of a sentence in order, and whether they are code."""
    for index, piece in enumerate(re.split(f"{BEGIN}([^{BEGIN}{END}]*){END}", sentence)):
        yield piece, index % 2 == 1


def steady(value: float) -> float:
    """A number as all processors have it: their vector units differ in the last bit, which would decide 15442.5."""
    return float(f"{value:.12g}")


def significant(value: float, digits: int = 3) -> str:
    """A number of 0.001 and more to ``digits`` significant digits, without an exponent: 0.0123, 1.23, 1,230."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "n/a"
    value = steady(value)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}")))))
    return f"{float(f'{value:.{digits - 1}e}'):,.{decimals}f}"


def seconds(value: float, quiet: bool = True) -> str:
    """Seconds with an SI prefix: 3.91e-07 is "391 ns"; marked where that is an upper bound."""
    return " ".join(_scaled(value)) + ("" if quiet else BUSY)


def _scaled(value: float) -> tuple[str, str]:
    """Seconds as a number and its unit."""
    for scale, prefix in PREFIXES:
        if float(f"{value:.2e}") >= scale:
            return significant(value / scale), f"{prefix}s"
    return significant(value / 1e-9, 2), "ns"


def time(cell: Row) -> str:
    """The seconds of a cell."""
    return seconds(cell.seconds, cell.quiet)


def estimate(row: Any) -> str:
    """The seconds of a route, or the range in place of them; of an upper bound its higher end alone."""
    if row.is_range and not row.quiet:
        return f"up to {seconds(row.high)}"
    return interval(row.low, row.high) if row.is_range else seconds(row.seconds)


def interval(low: float, high: float) -> str:
    """A range of seconds; one value where both look the same."""
    (first, unit), (last, other) = _scaled(low), _scaled(high)
    if unit != other:
        return f"{first} {unit} to {last} {other}"
    return f"{first} {unit}" if first == last else f"{first} to {last} {unit}"


def bandwidth(bytes_per_second: float) -> str:
    """Decimal gigabytes a second."""
    return f"{significant(bytes_per_second / 1e9, 2)} GB/s"


def percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def percents(shares: Collection[float]) -> str:
    """The range of shares; one value where both ends look the same."""
    low, high = percent(min(shares)), percent(max(shares))
    return low if low == high else f"{low} to {high}"


def ratio(value: float) -> str:
    """A ratio as a factor: 1.32×, 41×, 526×, 1,190×."""
    return f"{significant(value, 2 if 10 <= value < 100 else 3)}×"


def threads(count: int) -> str:
    """A number of threads that torch has."""
    return f"{count} torch thread{'s' * (count > 1)}"


def span(sizes: Sequence[float]) -> str:
    """The range of sizes in order: 4 KiB to 16 MiB; one value where it has one, "" where it has none."""
    return " to ".join(map(size, dict.fromkeys((*sizes[:1], *sizes[-1:]))))


def sizes(values: Iterable[float]) -> str:
    """Sizes as a list in words."""
    return join([size(value) for value in values])


def among(values: Iterable[float], every: Iterable[float]) -> str:
    """Some of every size, in words: three neighbours and more as a range."""
    runs = [[*run] for chosen, run in groupby(sorted({*every}), {*values}.__contains__) if chosen]
    return join([word for run in runs for word in ([span(run)] if len(run) > 2 else map(size, run))])


def join(words: Sequence[str]) -> str:
    """a, b and c."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def valued(name: str, value: Any) -> str:
    """A parameter's value in words: "float32" says what it is, "4 workers" and "one thread" have to."""
    if name in ("nbytes", "sizes"):
        return span([value] if name == "nbytes" else value)
    if name in CODE_VALUES:
        return code(str(value))
    if name in PLAIN_VALUES:
        return str(value)
    return f"{value} {name.removesuffix('s') if value in (1, 'one') else name}"


def codes(expressions: Sequence[str], most: int | None = None) -> str:
    """A list of code in words, of which so many are named."""
    named = [code(expression) for expression in expressions[:most]]
    rest = len(expressions) - len(named)
    return join([*named, *([f"{rest} more"] if rest else [])])


def named(routes: Iterable[str]) -> str:
    """Routes in words, each once; the first of them where they are many."""
    each = list(dict.fromkeys(routes))
    if len(each) <= NAMED:
        return codes(each)
    return "".join(f"{code(route)}, " for route in each[: NAMED - 1]) + f"and {len(each) - NAMED + 1} more"


def _shown(sentence: str, text: Callable[[str], str], code: Callable[[str], str]) -> str:
    """A sentence, its text and its code each as these show them."""
    return "".join(code(piece) if is_code else text(piece) for piece, is_code in spans(sentence))


def to_html(sentence: str) -> str:
    """A sentence as HTML, everything in it escaped; code may break around its brackets."""

    def code(text: str) -> str:
        return f"<code>{re.sub(r'(?<=[(])(?![)])|(?<=[)])(?=[.])', '<wbr>', html.escape(text))}</code>"

    return _shown(sentence, html.escape, code)


def to_markdown(sentence: str) -> str:
    """A sentence as Markdown, everything in it escaped; safe in a table and at the beginning of a line, too."""

    def code(text: str) -> str:
        if re.search(r"[`|]", text):  # neither can be escaped in a code span that may stand in a table or not
            return f"<code>{_escaped(text)}</code>"
        return f"`{text}`" if text.strip() else ""

    return _BLOCK.sub(r"\\", _shown(sentence.replace("\n", " "), _escaped, code).strip())


def to_plain(sentence: str) -> str:
    """A sentence as text, its code in backticks."""
    return _shown(sentence, str, "`{}`".format)


def bare(sentence: str) -> str:
    """A sentence as text, its code as it is."""
    return _shown(sentence, str, str)


# What makes a line begin a heading, an item, a fence or a rule; a number may make it an item, as it does of ours
_BLOCK = re.compile(r"^(?=#{1,6}(?:\s|$)|[-+](?:\s|$)|~~~|(?:=+|-+)\s*$)")


def _escaped(words: str) -> str:
    """Text as Markdown that says just that; GitHub makes a link even of a bare address, but for an entity in it."""
    escaped = re.sub(r"([\\`*_\[\]|$])", r"\\\1", html.escape(words, quote=False))
    return re.sub(r":(?=//)|(?<=www)\.", lambda sign: f"&#{ord(sign[0])};", escaped, flags=re.IGNORECASE)


def fenced(text: str) -> str:
    """A block of code in Markdown, with a fence that is longer than any in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def short(text: str, letters: int) -> str:
    """The text, or so many letters of it, the last of which says that there were more."""
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


@functools.cache
def _environment() -> jinja2.Environment:
    """Of templates/prose/NAME.md.jinja; what is in backticks there is code, and in a value it is not. "¦" and "↵" there
    are BESIDE and BELOW."""

    def source(name: str) -> str:
        text = (TEMPLATES / "prose" / f"{name}.md.jinja").read_text(encoding="utf-8")
        text = text.replace("¦", BESIDE).replace("↵", BELOW)
        return re.sub(r"`([^`]*)`", lambda span: code(span[1]), text)

    # without autoescape: a sentence is escaped when shown
    made = jinja2.Environment(loader=jinja2.FunctionLoader(source), **OPTIONS)
    made.globals["show"] = sys.modules[__name__]
    made.globals |= {n: value for each in (cells, statistics) for n, value in vars(each).items() if n.isupper()}
    return made


def written(name: str, block: str = "", **values: Any) -> str:
    """templates/prose/NAME.md.jinja, or one block of it. Values are put in as they are. ``show`` is this module;
    constants of analysis.cells and analysis.statistics have their names."""
    template = _environment().get_template(name)
    context = template.new_context(values)
    return "".join((template.blocks[block] if block else template.root_render_func)(context))


def prose(name: str, block: str = "", **values: Any) -> tuple[str, ...]:
    """The ``paragraphs`` of what is ``written``."""
    return paragraphs(written(name, block, **values))


def paragraphs(text: str) -> tuple[str, ...]:
    """Each a sentence or more, in one line."""
    return tuple(part.strip().replace("\n", " ") for part in re.split(r"\n\s*\n", text) if part.strip())


def said(name: str, block: str, **values: Any) -> str:
    """A block of a template in one line."""
    return " ".join(prose(name, block, **values))


def lines(name: str, block: str, **values: Any) -> list[str]:
    """The lines of a block of a template."""
    return [line.strip() for line in written(name, block, **values).split("\n") if line.strip()]
