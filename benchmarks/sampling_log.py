"""What asv's results have no place for: a process's samples with their probes, and why a cell has no figure."""

import dis
import json
import os
import sys
from pathlib import Path

LONGEST_REASON = 300  # letters of why a cell failed
LOG_VARIABLE = "CONVERSION_SAMPLING_LOG"  # file that collects it


def log(**record):
    """Append one JSON line to the sampling log, if the caller of asv asked for one (scripts/run.py does)."""
    path = os.environ.get(LOG_VARIABLE)
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def first_line(error):
    """The first line of an exception's text; torch adds pages of advice below it."""
    return str(error).strip().split("\n")[0]


def is_out_of_memory(error):
    """Whether an exception says that the host or the device has no more memory."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return any(phrase in text for phrase in ("out of memory", "can't allocate memory", "not enough memory"))


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


class Logged:
    """Of an asv benchmark: why a cell is skipped or fails is logged."""

    def do_setup(self):
        """Run the setups; True when one says by NotImplementedError that the cell does not exist here."""
        try:
            for setup in self._setups:
                setup(*self._build_params())
        except Exception as error:
            if isinstance(error, NotImplementedError) and not is_torchs(error):
                self.log_skip(error)
                return True
            self.log_failure(error)
            raise
        return False

    def log_failure(self, error):
        """asv prints why a cell failed, once, and keeps nothing of it."""
        why = f"{type(error).__name__}: {first_line(error)}"
        log(benchmark=self.name, params=self.params_text(), failed=why[:LONGEST_REASON])

    def log_skip(self, reason):
        print(f"asv: skipped: {reason}")
        log(benchmark=self.name, params=self.params_text(), skipped=str(reason))

    def params_text(self):
        """The cell's parameters as asv writes them."""
        return [repr(value) for value in self._current_params]
