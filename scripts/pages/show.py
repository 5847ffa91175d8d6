"""Formatting of quantities, code and sentences. Only this module scales SI seconds and bytes.

A sentence is a string that becomes HTML, Markdown or plain text at the very end. ``code`` sets
Python code between two control characters. Text from a file may hold backticks, but never those
characters (cli.one_line). So it cannot begin or end a code span, and may be put into any sentence
unchanged.
"""

import functools
import html
import json
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from types import ModuleType

import jinja2
import numpy as np
from analysis.cells import BY_BYTES, Row
from analysis.costs import Candidate
from analysis.ranking import MARGIN, PROMISE
from analysis.statistics import MIN_PROCESSES, Z95
from cli import size
from pandas import DataFrame, Series
from store import quiet
from store.frames import FIGURE_DEFINITION, Parameter
from store.questions import CACHE
from toolchains.interpreters import UNOPTIMISED

from benchmarks.contracts import ALIAS, COPY, INTO

TEMPLATES = Path(__file__).resolve().parent / "templates"
make_environment = functools.partial(  # of all templates
    jinja2.Environment, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
)

Lines = tuple[str, ...]

# Parameters whose values need no name beside them
PLAIN_VALUES = ("copy_order", "direction", "dtype", "layout", "memory", "placement", "statement")
CODE_VALUES = ("route", "setting")
# Of a result
MEMORY_WORDS = {ALIAS: "sharing memory", COPY: "as a copy", INTO: "into an existing buffer"}
MAX_LISTED_ROUTES = 6  # maximum number of routes named in a list
UPPER_BOUND_MARK = " ~"  # after a figure that is an upper bound; tables.Table says what it means
MOSTLY_QUIET = 0.9  # share of quiet samples from which a machine is called mostly quiet

PREFIXES = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
# They delimit code in a sentence: the control characters shift out and shift in
BEGIN = "\x0e"
END = "\x0f"
# A link in a sentence: its address, then its text; a directory stands for the page in it
LINK = re.compile("\x15([^\x16]*)\x16([^\x17]*)\x17")
JOINT = re.compile("(?<=[(])(?=[^)]{3})|(?<=[)])(?=[.])")  # of code, where a line may end
# Between entries of a table's row, and after a line of an entry; never in a file's text
ENTRY_SEPARATOR = "\x11"
LINE_MARK = "\x12"


def code(text: str) -> str:
    """Mark text as code in a sentence: Python, a command or a name, from any source."""
    return f"{BEGIN}{re.sub(f'[{BEGIN}{END}]', '', text)}{END}"


def link(text: str, address: str) -> str:
    """Mark a part of a sentence as a link. An address that ends in "/", but for its fragment, is
    that of the page in this directory."""
    return f"\x15{address}\x16{text}\x17"


def spans(sentence: str) -> Iterator[tuple[str, bool]]:
    """The pieces of a sentence in order, and whether they are code."""
    for index, piece in enumerate(re.split(f"{BEGIN}([^{BEGIN}{END}]*){END}", sentence)):
        yield piece, index % 2 == 1


def round_last_bits(value: float) -> float:
    """Round off the last bits, in which processors' vector units differ: they would decide the
    rounding of 15442.5."""
    return float(f"{value:.12g}")


def significant(value: float, digits: int = 3) -> str:
    """A number from 0.001 on to ``digits`` significant digits, without an exponent: 0.0123, 1.23,
    1,230."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "n/a"
    value = round_last_bits(value)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}")))))
    return f"{float(f'{value:.{digits - 1}e}'):,.{decimals}f}"


def number(value: float, digits: int = 2) -> str:
    """A ratio or probability: 1.08, 0.93; a large or tiny one has three significant digits."""
    if value == 0 or 10**-digits / 2 <= value < 100:
        return f"{value:.{digits}f}"
    return significant(value)


def whole_number(value: float) -> str:
    """A number of instructions: 15,442."""
    return f"{round_last_bits(value):,.0f}"


def signed(value: float) -> str:
    """A difference of instructions: −310, +1,200."""
    return f"{value:+,.0f}".replace("-", "−")


def percentage(share: float) -> str:
    """5 %, 0.5 %, 0.42 %."""
    return f"{100 * share:.3g} %"


def seconds(value: float, quiet: bool = True) -> str:
    """Seconds with an SI prefix: 3.91e-07 is "391 ns". An upper bound is marked."""
    return " ".join(_scaled(value)) + ("" if quiet else UPPER_BOUND_MARK)


def _scaled(value: float) -> tuple[str, str]:
    """Seconds as a number and its unit."""
    for scale, prefix in PREFIXES:
        if float(f"{value:.2e}") >= scale:
            return significant(value / scale), f"{prefix}s"
    return significant(value / 1e-9, 2), "ns"


def time(cell: Row) -> str:
    """The seconds of a cell."""
    return seconds(cell.seconds, cell.quiet)


def estimate(row: Candidate) -> str:
    """The seconds of a route, or their range; only the higher end if the range is an upper
    bound."""
    if row.is_range and not row.quiet:
        return f"up to {seconds(row.high)}"
    return interval(row.low, row.high) if row.is_range else seconds(row.seconds)


def interval(low: float, high: float) -> str:
    """A range of seconds; one value if both ends look the same."""
    (first, unit), (last, other) = _scaled(low), _scaled(high)
    if unit != other:
        return f"{first} {unit} to {last} {other}"
    return f"{_range(first, last)} {unit}"


def bandwidth(bytes_per_second: float) -> str:
    """Decimal gigabytes per second."""
    return f"{significant(bytes_per_second / 1e9, 2)} GB/s"


def percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def percents(shares: Collection[float]) -> str:
    """The range of shares; one value if both ends look the same."""
    return _range(percent(min(shares)), percent(max(shares)))


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def ratio(value: float) -> str:
    """A ratio as a factor: 1.32×, 41×, 526×, 1,190×."""
    return f"{significant(value, 2 if 10 <= value < 100 else 3)}×"


def threads(count: int) -> str:
    """A number of torch threads in words."""
    return f"{count} torch thread{'s' * (count > 1)}"


def ends(values: Collection[int]) -> list[int]:
    """The smallest and the largest value, one if they are equal; empty without values."""
    return sorted({min(values), max(values)}) if len(values) else []


def size_range(sizes: Sequence[float]) -> str:
    """The range of sorted sizes: 4 KiB to 16 MiB; one value for a single size, "" for no sizes."""
    return " to ".join(map(size, dict.fromkeys((*sizes[:1], *sizes[-1:]))))


def list_sizes(values: Iterable[float]) -> str:
    """Sizes as a list in words."""
    return join([size(value) for value in values])


def size_ranges(values: Iterable[float], every: Iterable[float]) -> str:
    """``values`` in words; three or more neighbours among ``every`` value become a range."""
    runs = [[*run] for chosen, run in groupby(sorted({*every}), {*values}.__contains__) if chosen]
    return join(
        [word for run in runs for word in ([size_range(run)] if len(run) > 2 else map(size, run))]
    )


def join(words: Sequence[str]) -> str:
    """a, b and c."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def parameter_text(name: str, value: Parameter | tuple[float, ...]) -> str:
    """A parameter's value in words, with its name where needed: "float32", but "4 workers" and "one
    thread"."""
    if isinstance(value, tuple):  # sizes
        return size_range(value)
    if name == "nbytes":
        return size(int(value))
    if name in CODE_VALUES:
        return code(str(value))
    if name in PLAIN_VALUES:
        return str(value)
    return f"{value} {name.removesuffix('s') if value in (1, 'one') else name}"


def list_code(expressions: Sequence[str], most: int | None = None) -> str:
    """A list of code in words, of which at most ``most`` are named."""
    parts = [code(expression) for expression in expressions[:most]]
    rest = len(expressions) - len(parts)
    return join([*parts, *([f"{rest} more"] if rest else [])])


def list_routes(routes: Iterable[str]) -> str:
    """Routes in words, each once; only the first ones if there are more than MAX_LISTED_ROUTES."""
    each = [*dict.fromkeys(routes)]
    if len(each) <= MAX_LISTED_ROUTES:
        return list_code(each)
    named = each[: MAX_LISTED_ROUTES - 1]
    return f"{', '.join(map(code, named))}, and {len(each) - len(named)} more"


def _shown(sentence: str, text: Callable[[str], str], code: Callable[[str], str]) -> str:
    """Convert a sentence: its text by ``text``, its code by ``code``."""
    return "".join(code(piece) if is_code else text(piece) for piece, is_code in spans(sentence))


def to_html(sentence: str) -> str:
    """A sentence as HTML, everything in it escaped; code may break before what is
    longer in brackets, and behind them."""

    def code(text: str) -> str:
        return f"<code>{JOINT.sub('<wbr>', html.escape(text))}</code>"

    anchor = r'<a href="\1">\2</a>'
    marked = LINK.sub(anchor, _shown(sentence, html.escape, code))
    return re.sub(r'(?<=href=")(?!https:)([^"#]*/)(?=["#])', r"\1index.html", marked)


def to_markdown(sentence: str) -> str:
    """A sentence as Markdown, everything in it escaped; also safe in a table and at the beginning
    of a line."""

    def code(text: str) -> str:
        if re.search(r"[`|]", text):  # no escape works in a code span both in and outside a table
            return f"<code>{_escaped(text)}</code>"
        return f"`{text}`" if text.strip() else ""

    marked = _shown(sentence.replace("\n", " "), _escaped, code).strip()
    linked = LINK.sub(lambda found: f"[{found[2]}]({_markdown_address(found[1])})", marked)
    return _BLOCK.sub(r"\\", linked)


def _markdown_address(address: str) -> str:
    """Address of a link: pages in Markdown have no form, so its case is left out."""
    address = html.unescape(address)
    page = address.partition("#")[0]
    return f"{page}README.md" if page.endswith("/") and "https" not in page else address


def to_plain(sentence: str) -> str:
    """A sentence as text, its code in backticks."""
    return LINK.sub(r"\2", _shown(sentence, str, "`{}`".format))


def bare(sentence: str) -> str:
    """A sentence as text, its code without backticks."""
    return LINK.sub(r"\2", _shown(sentence, str, str))


# Begins a heading, a list item, a fence or a rule. Numbers are left alone: our own lists use them
_BLOCK = re.compile(r"^(?=#{1,6}(?:\s|$)|[-+](?:\s|$)|~~~|(?:=+|-+)\s*$)")


def _escaped(words: str) -> str:
    """Escape text for Markdown. GitHub links even a bare address, unless it contains an entity."""
    escaped = re.sub(r"([\\`*_\[\]|$])", r"\\\1", html.escape(words, quote=False))
    return re.sub(
        r":(?=//)|(?<=www)\.", lambda sign: f"&#{ord(sign[0])};", escaped, flags=re.IGNORECASE
    )


def script_json(document: object) -> str:
    """JSON for a script element, whose text cannot end the element or begin a comment. An object is
    written by its attributes."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=vars)
    return text.replace("<", "\\u003c")


def fenced(text: str) -> str:
    """A block of code in Markdown, with a fence that is longer than any in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def short(text: str, letters: int) -> str:
    """Shorten a text to at most ``letters`` characters; the last one marks that it was cut."""
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


MAX_FUNCTION_LETTERS = 60  # of the name of a compiled function
# What templates may use: a value is formatted by a filter, two values by a function
FILTERS = {
    "bandwidth": bandwidth,
    "code": code,
    "code_list": list_code,
    "estimate": estimate,
    "fenced": fenced,
    "in_words": join,
    "markdown": to_markdown,
    "number": number,
    "percent": percent,
    "percentage": percentage,
    "percents": percents,
    "ratio": ratio,
    "route_list": list_routes,
    "seconds": seconds,
    "shortened": functools.partial(short, letters=MAX_FUNCTION_LETTERS),
    "signed": signed,
    "significant": significant,
    "size": size,
    "size_list": list_sizes,
    "size_range": size_range,
    "threads": threads,
    "time": time,
    "whole_number": whole_number,
}
FUNCTIONS = {
    "interval": interval,
    "link": link,
    "parameter_text": parameter_text,
    "size_ranges": size_ranges,
}
CONSTANTS = {
    "BY_BYTES": BY_BYTES,
    "FIGURE_DEFINITION": FIGURE_DEFINITION,
    "MARGIN": MARGIN,
    "MEMORY_WORDS": MEMORY_WORDS,
    "MIN_PROCESSES": MIN_PROCESSES,
    "MIN_QUIET_SHARE": quiet.MIN_QUIET_SHARE,
    "MOSTLY_QUIET": MOSTLY_QUIET,
    "PROMISE": PROMISE,
    "UNOPTIMISED": UNOPTIMISED,
    "UPPER_BOUND_MARK": UPPER_BOUND_MARK,
    "Z95": Z95,
}
NOT_FOR_TEMPLATES = (DataFrame, Series, np.ndarray, ModuleType)


def _compiled_templates() -> jinja2.BytecodeCache | None:
    """Templates that another process has compiled, which takes 0.1 s; None where .cache/ cannot be
    written."""
    try:
        CACHE.mkdir(exist_ok=True)
    except OSError:
        return None
    is_writable = os.access(CACHE, os.W_OK)
    return jinja2.FileSystemBytecodeCache(f"{CACHE}") if is_writable else None


@functools.cache
def _environment() -> jinja2.Environment:
    """Environment of templates/prose/NAME.md.jinja. Backticks mark code in a template, but not in a
    value. "¦" and "↵" in a template are ENTRY_SEPARATOR and LINE_MARK."""

    def source(name: str) -> str:
        text = (TEMPLATES / "prose" / f"{name}.md.jinja").read_text(encoding="utf-8")
        text = text.replace("¦", ENTRY_SEPARATOR).replace("↵", LINE_MARK)
        return re.sub(r"`([^`]*)`", lambda span: code(span[1]), text)

    # no autoescape: a sentence is escaped when shown
    environment = make_environment(
        loader=jinja2.FunctionLoader(source), bytecode_cache=_compiled_templates()
    )
    environment.filters |= FILTERS
    environment.globals |= FUNCTIONS | CONSTANTS
    return environment


def _refuse_frames(value: object) -> None:
    """Raise TypeError for a frame, an array or a module, also inside a list, tuple or dict. A row
    of a frame, which is a named tuple, may hold arrays."""
    if isinstance(value, NOT_FOR_TEMPLATES):
        raise TypeError(f"a template takes views of data, no {type(value).__name__}")
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        for item in value:
            _refuse_frames(item)


def render(name: str, block: str = "", **values: object) -> str:
    """Render templates/prose/NAME.md.jinja, or one block of it. Values are inserted unchanged.
    Templates see FILTERS, FUNCTIONS and CONSTANTS. Raises TypeError for a value that only code can
    read: a frame, an array, a module."""
    _refuse_frames(values)
    template = _environment().get_template(name)
    context = template.new_context(values)
    return "".join((template.blocks[block] if block else template.root_render_func)(context))


def render_paragraphs(name: str, block: str = "", **values: object) -> Lines:
    """The ``paragraphs`` of a template or one block of it."""
    return paragraphs(render(name, block, **values))


def paragraphs(text: str) -> Lines:
    """Split text into paragraphs, each in one line."""
    return tuple(
        part.strip().replace("\n", " ") for part in re.split(r"\n\s*\n", text) if part.strip()
    )


def render_line(name: str, block: str, **values: object) -> str:
    """A block of a template in one line."""
    return " ".join(render_paragraphs(name, block, **values))


def render_lines(name: str, block: str, **values: object) -> list[str]:
    """The lines of a block of a template."""
    return [line.strip() for line in render(name, block, **values).split("\n") if line.strip()]
