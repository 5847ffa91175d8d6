"""What asv's results have no place for: a process's samples with their probes, and why a cell has no figure."""

import contextlib
import dis
import json
import os
import re
import sys
from pathlib import Path

LONGEST_LINE = 120  # letters of an error's first line: of a longer one the first sentence says what happened
NOTES = {}  # what this process found out before its samples, and is logged with them
GONE = "the device was lost: "  # begins the reason of such a skip
LOST = ".lost"  # suffix of the file beside the log that says why the device, which worked before, does not any more
LOG_VARIABLE = "CONVERSION_SAMPLING_LOG"  # file that collects it


def log(**record):
    """Append one JSON line to the sampling log, if the caller of asv asked for one (scripts/run.py does)."""
    if path := os.environ.get(LOG_VARIABLE):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def note(**facts):
    """Add this to what is logged next: a process measures one cell."""
    NOTES.update(facts)


def lose(why):
    """Keep later processes of this run from trying the device again. A run that logs began with one that worked."""
    if path := os.environ.get(LOG_VARIABLE):
        Path(path + LOST).write_text(why, encoding="utf-8")


def lost():
    """Why the device of this run does not work any more; "" where it does, as far as is known."""
    file = Path(os.environ.get(LOG_VARIABLE, "") + LOST)
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def first_line(error):
    """The first line of an exception's text; torch adds pages of advice below it."""
    return str(error).strip().split("\n")[0]


def first_sentence(error):
    """The first line or, of a long one, its first sentence: torch's advice is on the same line, too."""
    line = first_line(error)
    return line if len(line) <= LONGEST_LINE else re.split(r"(?<=[a-z\d)])\. (?=[A-Z])", line)[0]


def is_out_of_memory(error):
    """Whether an exception says that the host or the device has no more memory."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return any(phrase in text for phrase in ("out of memory", "can't allocate memory", "not enough memory"))


@contextlib.contextmanager
def out_of_memory_skips():
    """Skip the cell, with its reason, where host or device run out of memory inside."""
    try:
        yield
    except Exception as error:
        if isinstance(error, NotImplementedError) or not is_out_of_memory(error):  # the first says why already
            raise
        raise NotImplementedError(f"out of memory: {first_sentence(error)}") from None


def is_torchs(error):
    """Whether a NotImplementedError is torch's own, of an operator that a backend lacks: a failure, not a skip.

    Ours come from a ``raise``; torch's come out of a call, with no frame of their own, or stand in torch's own files.
    """
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    raised = dis.opname[code.co_code[trace.tb_lasti]] in ("RAISE_VARARGS", "RERAISE")
    torch = Path(sys.modules["torch"].__file__).resolve().parent
    return not raised or torch in Path(code.co_filename).parents
