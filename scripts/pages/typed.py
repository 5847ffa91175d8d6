"""A case as somebody types it: as options, or as the answers to one question at a time."""

import argparse
import re
import shlex
import sys
from fractions import Fraction

from analysis import case as cases
from analysis.case import Case
from analysis.curves import CONTIGUOUS
from cli import UserError

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
ENDS = ", ".join(cases.ENDS)
# Asked one at a time: the option, the question, what Enter says
QUESTIONS = (
    ("from", f"What have you got? ({ENDS})", "numpy"),
    ("to", f"Where do you want it? ({ENDS})", "torch"),
    ("nbytes", "How large is it? (such as 4096, 3MiB)", "1MiB"),
    ("dtype", "Of which dtype?", "float32"),
    ("layout", "In which layout? (contiguous, strided, transposed, fortran, 5-d, 0-d)", CONTIGUOUS),
    ("memory", "Must the result own its memory, share it, or be a buffer that exists? (any, own, share, into)", "any"),
    ("count", "How many times?", "1"),
)
MEMORIES = ("any", "own", "share", "into")


def size(text: str) -> int:
    """Bytes of "3MiB", "3 MB" or "4096"; UserError where that is no whole number of them."""
    matched = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*(|[kmg]i?)b?\s*", text, re.IGNORECASE)
    nbytes = Fraction(matched[1]) * UNITS[matched[2].lower()] if matched else Fraction(1, 2)
    if nbytes.denominator != 1:
        raise UserError(f"--nbytes {text!r}: write bytes such as 4096, 3MiB or 3MB")
    return int(nbytes)


def whole(option: str, text: str) -> int:
    """A whole number; UserError where it is none."""
    try:
        return int(text)
    except ValueError:
        raise UserError(f"{option} {text!r} is no whole number") from None


def case_of(chosen: argparse.Namespace) -> Case:
    """The case that was typed; UserError where it contradicts itself."""
    if chosen.host not in ("", *cases.HOSTS):
        raise UserError(f"--source {chosen.host}: {' or '.join(cases.HOSTS)}")
    case = Case(
        chosen.source,
        chosen.target,
        size(chosen.nbytes),
        chosen.dtype,
        chosen.layout,
        chosen.memory or "",
        chosen.host,
        chosen.grad,
        whole("--batch", chosen.batch),
        chosen.enqueue,
        whole("--count", chosen.count),
    )
    cases.check(case)
    return case


def ask() -> list[str]:
    """The arguments that answers to questions make; UserError where the input ends."""
    given: list[str] = []
    for option, question, usual in QUESTIONS:
        while True:
            print(f"{question} [{usual}] ", end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
            if not line:
                raise UserError("no more answers; python scripts/advise.py --help lists the options")
            said = line.strip() or usual
            wrong = _wrong(option, said)
            if not wrong:
                break
            print(wrong, file=sys.stderr)
        if option != "memory":
            given += [f"--{option}", said]
        elif said != "any":
            given.append("--into-buffer" if said == "into" else f"--{said}")
    print(f"\n{shlex.join(['python', 'scripts/advise.py', *given])}\n", file=sys.stderr)
    return given


def _wrong(option: str, said: str) -> str:
    """Why this cannot be the answer to a question; "" where it can."""
    try:
        if option in ("from", "to") and said not in cases.ENDS:
            return f"one of {', '.join(cases.ENDS)}"
        if option == "memory" and said not in MEMORIES:
            return f"one of {', '.join(MEMORIES)}"
        if option == "nbytes" and size(said) < 1:
            return "one byte at least"
        if option == "count" and whole("--count", said) < 1:
            return "once at least"
    except UserError as error:
        return str(error)
    return ""
