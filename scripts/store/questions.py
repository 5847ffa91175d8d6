"""Files of advise.py: the array that a question is about, the measured questions of a machine, and
values computed from results.

    reports/results/MACHINE/questions.jsonl.gz   measured questions, a line each
    .cache/                                      values, kept until a file of theirs, or the suite,
                                                 changes
"""

import contextlib
import functools
import gzip
import hashlib
import io
import pickle
import sys
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import pandas as pd
from cli import ROOT, UserError

from .files import PARSE_ERRORS, put, read_content
from .frames import row_type

T = TypeVar("T")
NPY, NPZ = ".npy", ".npz"
NUMBER_KINDS = "biufc"  # of NumPy's dtypes
HDF5 = (".h5", ".hdf5")
QUESTIONS = "questions.jsonl.gz"
MAX_QUESTIONS = 1000  # the newest questions of a machine
CACHE = ROOT / ".cache"
MAX_VALUES = 32  # the newest
SUITE = ("benchmarks", "scripts")
SUITE_FILES = (".py", ".json", ".lock")  # that decide what is computed from results


# --- an array in a file, from its header alone ----------------------------------------------------


class Header(NamedTuple):
    """fortran: columns come first in memory."""

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran: bool = False


def read_header(text: str) -> Header:
    """Read FILE.npy, FILE.npz:MEMBER, FILE.h5:DATASET or DIRECTORY.zarr:DATASET. UserError if that
    is no array of numbers."""
    name, _, member = text.partition(":")
    path = Path(name)
    if not path.exists():
        raise UserError(f"--like {text}: no such file")
    try:
        header = _header(path, member)
    except (OSError, ValueError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        reason = " ".join(f"{error}".split()) or type(error).__name__
        raise UserError(f"--like {text}: cannot be read as an array: {reason}") from None
    if header.dtype.kind not in NUMBER_KINDS:
        raise UserError(f"--like {text}: dtype {header.dtype} holds no numbers")
    return header


def _header(path: Path, member: str) -> Header:
    if path.suffix == NPY:
        with path.open("rb") as file:
            return _npy_header(file)
    if path.suffix == NPZ:
        with zipfile.ZipFile(path) as archive:
            members = [entry.removesuffix(NPY) for entry in archive.namelist()]
            if member not in members:
                raise ValueError(f"name a member as {path.name}:NAME, of {', '.join(members)}")
            with archive.open(member + NPY) as file:
                return _npy_header(file)
    if path.suffix in HDF5:
        import h5py

        with h5py.File(path) as archive:
            dataset = archive[member]
            return Header(dataset.dtype, dataset.shape)
    if not path.is_dir():
        raise ValueError("write FILE.npy, FILE.npz:NAME, FILE.h5:NAME or DIRECTORY.zarr")
    import zarr

    dataset = zarr.open(path, mode="r")
    dataset = dataset[member] if member else dataset
    return Header(np.dtype(dataset.dtype), dataset.shape)


def _npy_header(file: IO[bytes]) -> Header:
    version = np.lib.format.read_magic(file)
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, fortran, dtype = read(file)
    return Header(dtype, shape, fortran)


# --- measured questions ---------------------------------------------------------------------------


def add_question(results: Path, machine: str, question: object) -> None:
    """Add a question to those of a machine. UserError if their file is broken."""
    path = results / machine / QUESTIONS
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [*_texts(path)[-MAX_QUESTIONS + 1 :], msgspec.json.encode(question)]
    put(path, gzip.compress(b"\n".join(lines) + b"\n", mtime=0))


def machines_with_questions(results: Path) -> list[str]:
    """Return the names of the machines with measured questions, sorted."""
    return sorted(path.parent.name for path in results.glob(f"*/{QUESTIONS}"))


def read_questions(results: Path, machine: str, question: type[T]) -> list[T]:
    """Return the questions of a machine, the newest first. Those of another version of the suite
    are left out. UserError if their file is broken."""
    questions = []
    for text in _texts(results / machine / QUESTIONS)[::-1]:
        try:
            questions.append(msgspec.json.decode(text, type=question))
        except PARSE_ERRORS:
            continue
    return questions


def _texts(path: Path) -> list[bytes]:
    try:
        return read_content(path).splitlines() if path.is_file() else []
    except PARSE_ERRORS as error:
        raise UserError(f"{path} {error}: remove it, or restore it from git") from None


# --- values computed from files -------------------------------------------------------------------


class RowPickler(pickle.Pickler):
    """A pickler that also takes rows of tables, whose type no module holds."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, tuple) and type(value).__qualname__ == "Row":
            return _row, (getattr(value, "_fields"), tuple(value))  # noqa: B009 - a tuple to mypy
        return NotImplemented


def _row(columns: tuple[str, ...], values: tuple[object, ...]) -> object:
    return row_type(columns)(*values)


@functools.cache
def _suite_state() -> tuple[str, ...]:
    """The libraries and files of the suite that decide a computed value."""
    paths = (path for room in SUITE for path in (ROOT / room).rglob("*"))
    code = sorted(path for path in paths if path.suffix in SUITE_FILES)
    return (sys.version, pd.__version__, *map(_file_state, code))


def _file_state(path: Path) -> str:
    stat = path.stat()
    return f"{path.absolute()} {stat.st_size} {stat.st_mtime_ns}"


def remember(name: str, paths: Iterable[Path], compute: Callable[[], T]) -> T:
    """Return ``compute()``, or its value from before if the files, the suite's code and the
    libraries are as they were. It is not kept where .cache/ cannot be written."""
    state = [*_suite_state(), name, *map(_file_state, sorted(paths))]
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
