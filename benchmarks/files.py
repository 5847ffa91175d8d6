"""What does it cost to get the numbers of a file into a tensor, by mapping the file or by reading
it?

open  the call alone: what maps a file has read nothing of it yet
warm  the call, and a sum that reads every number once; the file is in the system's page cache
cold  the same, and no page of the file is in that cache
"""

import ctypes
import mmap
import os
import tempfile

import numpy as np
import torch

from . import routes
from .core import sources

section = "From files"
about = (
    "Numbers are float32. Open: the call alone; a mapped file is not read yet. Warm and cold: the "
    "call, and a sum that reads every number once. Warm: the file is in the system's page cache. "
    "Cold: it is not, which is checked before every sample; the host of a virtual machine may "
    "still hold it."
)
place = 12
noise = "files"  # from page faults and the disk, whether memory is shared or not

SIZES = [64 * 2**10, 2**20, 16 * 2**20, 64 * 2**20]
COLD_SAMPLES = 8  # per process: each is one call that reads from the disk


def written(route, values, directory):
    """Write ``values`` to a file in ``directory``; return the names of the route's expression."""
    path = os.path.join(directory, "values.npy" if "np.load" in route.expression else "values")
    if "np.load" in route.expression:
        np.save(path, values)
    elif "torch.load" in route.expression:
        torch.save(torch.from_numpy(values), path)
    else:
        values.tofile(path)
    return {"np": np, "torch": torch, "path": path, "size": values.size}


def cached_pages(path):
    """Return the number of pages of a file that are in the page cache."""
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    pages = np.zeros(-(-len(mapped) // mmap.PAGESIZE), "uint8")
    addresses = [
        ctypes.c_void_p(values.ctypes.data) for values in (np.frombuffer(mapped, "uint8"), pages)
    ]
    if ctypes.CDLL(None).mincore(addresses[0], ctypes.c_size_t(len(mapped)), addresses[1]):
        raise NotImplementedError("this system does not say which pages of a file are in memory")
    return int((pages & 1).sum())  # the other bits are reserved


def evict(path):
    """Remove a file from the page cache. NotImplementedError if that is impossible or cannot be
    verified.
    """
    if not hasattr(os, "posix_fadvise"):
        raise NotImplementedError("this system cannot be told to forget a file")
    with open(path, "rb") as file:
        os.fsync(file.fileno())  # the system can drop only pages that are on the disk
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached_pages(path):
        raise NotImplementedError(
            "temporary files stay in memory here: set TMPDIR to a directory on a disk"
        )


class FileToTensor:
    """route × nbytes of float32."""

    direction = routes.FILE_TO_TENSOR
    params = (routes.expressions(routes.FILES), SIZES)
    contracts = routes.contracts_of(routes.FILES)
    timeout = 300

    def setup(self, route, nbytes):
        catalogued = routes.find(route, self.direction)
        sources.require(catalogued.needs)
        sources.require_memory(4 * nbytes)
        self.directory = tempfile.TemporaryDirectory(prefix="conversion-")
        sources.require_room(self.directory.name, 2 * nbytes, "the directory of temporary files")
        self.names = written(catalogued, sources.array("float32", nbytes), self.directory.name)

    def teardown(self, route, nbytes):
        if hasattr(self, "directory"):
            self.directory.cleanup()

    def timeit_open(self, route, nbytes):
        return route, self.names

    def timeit_warm(self, route, nbytes):
        return f"{route}.sum()", self.names

    def timeit_cold(self, route, nbytes):
        path = self.names["path"]
        evict(path)
        return f"{route}.sum()", {**self.names, "prepare": lambda: evict(path)}

    timeit_cold.samples_for = lambda *cell: COLD_SAMPLES
    timeit_cold.number = 1
    timeit_cold.warmup_time = 0
    timeit_cold.single_threaded = False  # it waits for the disk
    timeit_cold.noise = "disk"
