"""The rules of a scan: what it says of a place, and the table of docs/rules.md.

Sentences are in templates/prose/rules.md.jinja.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.patterns import book
from cli import one_line
from pandas import DataFrame

from benchmarks.contracts import FINE, Route, kind
from benchmarks.routes import ROUTES

from . import show

DOCS = Path(__file__).resolve().parents[2] / "docs" / "rules.md"
LEAST_GAIN = 1.3
MAX_INPUTS = 2  # that a message names
# Columns in which two times that are compared agree
SAME = ["direction", "dtype", "goal", "layout", "grad", "arrays", "threads", "nbytes"]
Row = Mapping[str, Any]
# Of an expression with two directions, the first in the catalogue
CATALOGUE = {route.expression: route for route in reversed(ROUTES)}


def routes_of(pattern: Row) -> tuple[str, str]:
    """The two routes whose times are compared."""
    first, second = pattern.get("priced") or (pattern["found"][0], pattern["write"])
    return first, second


def gain(routes: tuple[str, str], choices: DataFrame) -> dict[int, float]:
    """Size -> how many times as long the first route takes. Of several dtypes and numbers of
    threads the smallest ratio counts. Empty where it was not measured, or is always below
    LEAST_GAIN."""
    slow, fast = (choices[choices["quiet"] & (choices["route"] == route)] for route in routes)
    pairs = slow.merge(fast, on=SAME)
    ratios = (pairs["seconds_x"] / pairs["seconds_y"]).groupby(pairs["nbytes"]).min().round(2)
    return ratios.to_dict() if ratios.max() >= LEAST_GAIN else {}


def differences(rule: Row, pattern: Row, most: int | None = None) -> list[str]:
    """Where what was found and what to write give different results, a line each. More than
    ``most`` inputs are a number."""
    written = (pattern["found"][0], pattern["write"])
    pair = written if CATALOGUE.keys() >= {*written} else routes_of(pattern)
    old, new = map(CATALOGUE.get, pair)
    changed = old and new and _changed(old, new)
    return show.render_lines("rules", "differences", rule=rule, old=old, changed=changed, most=most)


def _changed(old: Route, new: Route) -> Route:
    """The contract of what to write, with the inputs alone of which something else becomes."""
    inputs = {
        source: does
        for source, does in new.inputs.items()
        if kind(does) not in (*FINE, kind(old.outcome(source)))
    }
    return replace(new, inputs=inputs)


def explain(places: list[dict[str, Any]], machine: str, choices: DataFrame) -> None:
    """Put the code, the gain and the message of each place in place of its rule and pattern."""
    known: dict[int, Row] = {}  # pattern -> what is the same at all its places
    for place in places:
        rule, pattern = place.pop("rule"), place.pop("pattern")
        if id(pattern) not in known:
            routes = routes_of(pattern)
            known[id(pattern)] = {
                "code": rule["code"],
                "page": f"docs/rules.md#{rule['code'].lower()}",
                "machine": machine,
                "routes": routes,
                "gain": gain(routes, choices),
                "differences": differences(rule, pattern, MAX_INPUTS),
            }
        place |= known[id(pattern)]
        message = show.render_line(
            "rules", "message", place=place, rule=rule, pattern=pattern, least=LEAST_GAIN
        )
        place["message"] = one_line(show.to_plain(message))


def output(places: list[dict[str, Any]], form: str) -> str:
    """The places in one of the formats of scan.py."""
    if form == "json":
        return json.dumps(places, indent=2, ensure_ascii=False) + "\n"
    return show.render("rules", form, places=places, rules=book()["rules"])


def document() -> str:
    """The text of docs/rules.md."""
    groups: dict[str, list[Row]] = {}
    for rule in book()["rules"]:
        groups.setdefault(rule["group"], []).append(rule)
    text = show.render("rules", "document", groups=groups, differences=differences)
    return show.to_plain(text).lstrip()


if __name__ == "__main__":
    DOCS.write_text(document(), "utf-8")
