"""Log of data that asv's results cannot hold: samples with their probes, and reasons for cells
without a figure.
"""

import contextlib
import dis
import json
import os
import re
import sys
from pathlib import Path

LONGEST_LINE = 120  # letters of an error's first line; a longer line is cut to its first sentence
NOTES = {}  # facts that this process found before its samples, logged with them
GONE = "the device was lost: "  # prefix of the reason of such a skip
LOST = ".lost"  # suffix of the file next to the log with the reason why the device stopped working
LOG_VARIABLE = "CONVERSION_SAMPLING_LOG"  # path of the log


def log(**record):
    """Append one JSON line to the sampling log, if the caller of asv asked for one (scripts/run.py
    does).
    """
    if path := os.environ.get(LOG_VARIABLE):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def note(**facts):
    """Add ``facts`` to the next record of samples; each process measures one cell."""
    NOTES.update(facts)


def lose(reason):
    """Keep later processes of this run from trying the device again. A logged run began with a
    working device.
    """
    if path := os.environ.get(LOG_VARIABLE):
        Path(path + LOST).write_text(reason, encoding="utf-8")


def lost():
    """Return why the device of this run stopped working; "" if no process has lost it."""
    file = Path(os.environ.get(LOG_VARIABLE, "") + LOST)
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def first_line(error):
    """Return the first line of an exception's text; torch adds pages of advice below it."""
    return str(error).strip().split("\n")[0]


def first_sentence(error):
    """Return the first line or, if it is long, its first sentence: torch may add advice on the same
    line.
    """
    line = first_line(error)
    return line if len(line) <= LONGEST_LINE else re.split(r"(?<=[a-z\d)])\. (?=[A-Z])", line)[0]


def is_out_of_memory(error):
    """Whether an exception says that the host or the device has no more memory."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return any(
        phrase in text for phrase in ("out of memory", "can't allocate memory", "not enough memory")
    )


@contextlib.contextmanager
def out_of_memory_skips():
    """Skip the cell, with its reason, where host or device run out of memory inside."""
    try:
        yield
    except Exception as error:
        if isinstance(error, NotImplementedError) or not is_out_of_memory(
            error
        ):  # the first is already a skip
            raise
        raise NotImplementedError(f"out of memory: {first_sentence(error)}") from None


def is_torchs(error):
    """Whether a NotImplementedError is torch's own, for an operator that a backend lacks: a
    failure, not a skip.

    Ours come from a ``raise``. Torch's come from a call without a Python frame, or from torch's own
    files.
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
