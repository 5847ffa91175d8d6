"""What the verbs in scripts/ share: one clear line and exit code 2 for every error a person can
mend."""

import argparse
import contextlib
import io
import math
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "reports" / "results"
# Exit code if the reader is gone: not 0, as nobody has read a verdict
READER_GONE_STATUS = 128 + getattr(signal, "SIGPIPE", 13)
MAX_TEXT_LENGTH = 1000  # characters in an error, and in any text of a file
CommandLine = Sequence[str] | None  # without the program; None: of this process


class UserError(Exception):
    """An error that the user can fix. Its text says how."""


def _interrupt(number: int, frame: object) -> NoReturn:
    """Handle a signal like Ctrl-C: the user or the system wants the program to end."""
    raise KeyboardInterrupt(number)


ONLY = (
    "only results whose name holds this text, or else matches this regular expression: "
    "'from_numpy', 'torch.tensor(a)', ', 1048576'; instructions are counted if it names them: "
    "'instructions'"
)


class Parser(argparse.ArgumentParser):
    """argparse.ArgumentParser with one-line errors."""

    def __init__(self, about: str | None) -> None:
        super().__init__(
            description=about,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def option(self, words: str, about: str, **more: Any) -> None:
        """Add an option, spelled as in its help: "--keep N" takes a whole number (see TAKES), and
        "--resume" no value, unless there are ``choices``. The help states the default. ``more``
        goes to argparse."""
        name, _, takes = words.partition(" ")
        default = more.get("default")
        if default:
            default = os.path.relpath(default, ROOT) if isinstance(default, Path) else str(default)
            about = f"{about} (default: {default.replace('%', '%%')})"
        if takes or "choices" in more:
            kind = {"metavar": takes or None, "type": TAKES.get(takes, str)}
        else:
            kind = {"action": "store_true"}
        self.add_argument(name, help=about, **{**kind, **more})

    def parse_known_args(  # type: ignore[override]
        self, args: CommandLine = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        for argument in sys.argv[1:] if args is None else args:
            # to argparse this is the end of options
            if argument.startswith("--") and argument.endswith("=--"):
                self.error(f"argument {argument.removesuffix('=--')}: -- is no value")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")


def matcher(only: str | None, names: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that decides whether --only chooses a cell, given by its asv name.

    --only means the same in every verb: a part of a name such as
    ``conversion.NumpyToTorch.timeit_convert('torch.from_numpy(a)', 'float32', 8)``. If it is part
    of none of ``names``, it is a regular expression that is found anywhere in a name, as asv's
    --bench. UserError if it is neither.
    """
    if only and any(only in name for name in names):
        return lambda cell: only in cell
    try:
        with warnings.catch_warnings():
            # Python warns in three lines that "[[" may change its meaning
            warnings.simplefilter("ignore")
            pattern = re.compile(only or "")
    # a{99999999999}, 5,000 digits, brackets
    except (re.error, OverflowError, ValueError, RecursionError) as error:
        raise UserError(
            f"--only {only!r} is part of no name, and not a regular expression: {error}"
        ) from None
    return lambda cell: pattern.search(cell) is not None


def whole_number(text: str, least: int = 1) -> int:
    """Parse a whole number of at least ``least``."""
    if not re.fullmatch(r"\d{1,15}", text) or int(text) < least:
        raise argparse.ArgumentTypeError(f"takes a whole number from {least}")
    return int(text)


UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def size(nbytes: float) -> str:
    """Format bytes in powers of two: 1048576 is "1 MiB"."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if nbytes >= 2**power:
            return f"{nbytes / 2**power:.4g} {unit}"
    return f"{nbytes:.4g} B"


def parse_size(text: str) -> int | None:
    """Parse a size such as "3MiB", "3 MB", "1e6" or "4096". None if it is no whole number of
    bytes."""
    number = r"\s*(\d+(?:\.\d+)?(?:e\d{1,2})?)\s*"
    matched = re.fullmatch(rf"{number}(|[kmg]i?)b?\s*", text, re.IGNORECASE)
    nbytes = Fraction(matched[1]) * UNITS[matched[2].lower()] if matched else Fraction(1, 2)
    return int(nbytes) if nbytes.denominator == 1 else None


def parse_shape(text: str) -> tuple[int, ...] | None:
    """Parse a shape such as "1080x1920x3" or "12". None if it is none."""
    if not re.fullmatch(r"\s*\d{1,15}(x\d{1,15})*\s*", text, re.IGNORECASE):
        return None
    shape = tuple(map(int, text.lower().split("x")))
    return shape if all(shape) else None


def parse_share(text: str, ends: bool = False) -> float:
    """Parse a share such as "1%", "1 %" or "0.01", above 0 and below 1; ``ends``: also 0 or 1."""
    number = text.strip()
    try:
        value = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not (0 < value < 1 or (ends and value in (0, 1))):
        raise UserError(f"{text!r} is no share: write 1% or 0.01")
    return value


TAKES: dict[str, Callable[[str], object]] = {
    "N": whole_number,
    "DIR": Path,
    "SHARE": parse_share,
}


def check_writable(option: str, path: Path) -> None:
    """Raise UserError, before anything is measured, if ``put`` could not write ``path``."""
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(f"{option} {path}: cannot be written")


def run(main: Callable[[CommandLine], int]) -> NoReturn:
    """Run a verb as a program. The exit status is the result of ``main``, 2 after an error, or 128
    plus the number of a signal."""
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by whoever started us
            setattr(sys, stream, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        if isinstance(getattr(sys, stream), io.TextIOWrapper):
            getattr(sys, stream).reconfigure(errors="backslashreplace")  # ASCII has no µ
    for signal_name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, signal_name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores one
            signal.signal(number, _interrupt)
    try:
        code = main(None)
    except BaseException as error:
        code = report_end(error)
    sys.exit(flush_output(code))


def report_end(error: BaseException) -> int:
    """Print in one line why a verb ends without a verdict, and return the exit code."""
    code = 2
    match error:
        case SystemExit():  # of --help
            return error.code if isinstance(error.code, int) else int(error.code is not None)
        case BrokenPipeError():
            return READER_GONE_STATUS
        case KeyboardInterrupt():
            print(file=sys.stderr)  # below ^C
            message, code = "interrupted", 128 + (error.args[0] if error.args else signal.SIGINT)
        case UserError():
            message = str(error)
        case OSError():
            message = f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")
        case ModuleNotFoundError():
            message = (
                f"needs {error.name}: use .venv/bin/python, which make bench makes, "
                "or pip install -r requirements.txt"
            )
        case _:
            message = describe_unexpected(error)
    with contextlib.suppress(BrokenPipeError):
        print(f"{os.path.basename(sys.argv[0])}: {one_line(message)}", file=sys.stderr)
    return code


def flush_output(code: int) -> int:
    """Flush the output and return the exit code. If the reader is gone, as with ``| head``, it
    states no verdict."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            code = code if code == 2 else READER_GONE_STATUS
    return code


if os.path.dirname(os.path.abspath(sys.argv[0])) == os.path.dirname(os.path.abspath(__file__)):
    # A verb imports this module first. Then Ctrl-C and missing packages during its other imports
    # give one line, too
    sys.path.insert(0, str(ROOT))  # has benchmarks/
    sys.excepthook = lambda kind, error, trace: os._exit(flush_output(report_end(error)))


def one_line(text: str) -> str:
    """Make a text one line that a terminal can show: without control characters, and of limited
    length."""
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else " " for letter in text)
    half = MAX_TEXT_LENGTH // 2 - 2  # short enough that line(line(text)) == line(text)
    return text if len(text) <= MAX_TEXT_LENGTH else f"{text[:half]} … {text[-half:]}"


def describe_unexpected(error: BaseException) -> str:
    """The message for an unforeseen error. Its traceback goes to a file."""
    import tempfile
    import traceback

    try:
        handle, details = tempfile.mkstemp(".txt", "numpy-torch-")
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(traceback.format_exception(error))
    except OSError:
        details = "none, for no directory of temporary files can be written: set TMPDIR"
    name, text = type(error).__name__, one_line(str(error))
    return f"unexpected {name}: {text} (a defect of this suite; details: {details})"
