"""Values computed from files, kept in .cache/ until one of the files, or the suite, changes."""

import contextlib
import functools
import hashlib
import io
import pickle
import sys
from collections import namedtuple
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from cli import ROOT

from .files import put

T = TypeVar("T")
CACHE = ROOT / ".cache"
MAX_VALUES = 32  # the newest
CODE = ("benchmarks", "scripts")


class RowPickler(pickle.Pickler):
    """A pickler that also takes rows of DataFrame.itertuples, whose type no module holds."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, tuple) and type(value).__qualname__ == "Pandas":
            return _row, (getattr(value, "_fields"), tuple(value))  # noqa: B009 - a tuple to mypy
        return NotImplemented


@functools.cache
def _row_type(fields: tuple[str, ...]) -> type:
    return namedtuple("Pandas", fields, rename=True)


def _row(fields: tuple[str, ...], values: tuple[object, ...]) -> object:
    return _row_type(fields)(*values)


def remember(name: str, paths: Iterable[Path], compute: Callable[[], T]) -> T:
    """Return ``compute()``, or its value from before if the files, the suite's code and the
    libraries are as they were. It is not kept where .cache/ cannot be written."""
    code = (path for room in CODE for path in (ROOT / room).rglob("*.py"))
    state = [sys.version, pd.__version__, name]
    for path in sorted({*code, *map(Path.absolute, paths)}):
        stat = path.stat()
        state.append(f"{path} {stat.st_size} {stat.st_mtime_ns}")
    key = hashlib.sha256("\n".join(state).encode()).hexdigest()
    place = CACHE / f"{key}.pickle"
    with contextlib.suppress(OSError, pickle.UnpicklingError, EOFError):
        value: T = pickle.loads(place.read_bytes())
        return value
    value = compute()
    with contextlib.suppress(OSError):
        content = io.BytesIO()
        RowPickler(content, pickle.HIGHEST_PROTOCOL).dump(value)
        put(place, content.getvalue())
        values = sorted(CACHE.glob("*.pickle"), key=lambda path: path.stat().st_mtime)
        for old in values[:-MAX_VALUES]:
            old.unlink(missing_ok=True)
    return value
