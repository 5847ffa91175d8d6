"""Read a dump of callgrind: the instructions of each function itself, without those that it calls.

A function's name is folded, so that it is the same in the next release: without its arguments,
template parameters and the suffixes of compilers, and behind the library that holds it. This module
needs only the standard library.
"""

import re
from collections import Counter

SHARE = 0.97  # of a count: the functions that make it are kept
# What an address, a recursion, a version of a symbol or a compiler adds to a name
ADDED = re.compile(r"'\d+$|@.*|\.(constprop|isra|part|cold|lto_priv)\b.*| ?\[clone [^]]*\]")
OPERATOR = re.compile(r"operator ?(\(\)(?=\()|[<>=!-]+|\w)")
SYMBOLS = str.maketrans({"(": "call", ")": "", "<": "lt", ">": "gt", "=": "eq"})
ENTRY = re.compile(r"(c?)(ob|fn)=\((\d+)\)(?: (.*))?")
COST = re.compile(r"[-+*\d]\S* (\d+)$")


def fold(name):
    """Return a function's name without arguments and template parameters; "?" if it has none."""
    if name.startswith(("0x", "???")):
        return "?"
    name = ADDED.sub("", name).replace("(anonymous namespace)", "{anonymous}")
    name = OPERATOR.sub(lambda match: f"operator_{match[1].translate(SYMBOLS)}", name)
    previous = ""
    while previous != name:
        previous, name = name, re.sub(r"<[^<>]*>|\([^()]*\)", "", name)
    name = re.sub(r"( const| volatile| &+)+$", "", name.strip())
    return name.rpartition(" ")[2] or "?"


def library(path):
    """Return the name of a library without its directory and version: libtorch_python."""
    return re.split(r"[.-]", path.rpartition("/")[2])[0] or "?"


def functions(dump):
    """Return the instructions of each function of a dump, by "library:function"."""
    names = {"ob": {}, "fn": {}}
    current = {"ob": "?", "fn": "?"}
    costs = Counter()
    is_callee = False  # the next line has the cost of the functions that were called
    for line in dump.splitlines():
        if entry := ENTRY.match(line):
            called, kind, number, name = entry.groups()
            if name is not None:
                names[kind][number] = library(name) if kind == "ob" else fold(name)
            if not called:
                current[kind] = names[kind].get(number, "?")
        elif line.startswith("calls="):
            is_callee = True
        elif cost := COST.match(line):
            if not is_callee:
                costs[f"{current['ob']}:{current['fn']}"] += int(cost[1])
            is_callee = False
    return costs


def largest(costs, total):
    """Return the functions that make SHARE of ``total``, by name, in whole instructions."""
    kept, rest = {}, SHARE * total
    for name, cost in sorted(costs.items(), key=lambda item: -abs(item[1])):
        if rest <= 0:
            break
        kept[name] = round(cost)
        rest -= cost
    return dict(sorted(kept.items()))
