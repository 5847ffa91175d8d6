"""The dtype, shape and order of an array in a file, from its header alone."""

import zipfile
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from cli import UserError

NPY, NPZ = ".npy", ".npz"
HDF5 = (".h5", ".hdf5")


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
    if header.dtype.kind not in "biufc":
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
