"""Source arrays and tensors of routes: dtype, size, layout. All pages are written, with random
data.

Zeros would mislead: a fresh zero array is one shared page of zeros, and copies of it look faster
than they are.
"""

import math
import os
import re
import shutil
from pathlib import Path

import numpy as np
import numpy.random  # by the fork server: each process would take 10 ms and more for it
import torch

NUMPY_DTYPES = ["bool", "uint8", "int32", "int64", "float16", "float32", "float64", "complex64"]
TORCH_DTYPES = [*NUMPY_DTYPES[:5], "bfloat16", *NUMPY_DTYPES[5:]]
# From a scalar to beyond every cache. A copy of 512 KiB stays in a second-level cache of 1 or 2
# MiB. From 32 MiB, glibc gives every fresh copy fresh pages. Larger sizes therefore say nothing
# about 17 to 31 MiB, so one size is just below
SIZES = [
    8,
    *(kib * 2**10 for kib in (4, 64, 128, 256, 512)),
    *(mib * 2**20 for mib in (1, 2, 4, 8, 16, 28, 64, 256)),
]
LAYOUTS = ["contiguous", "strided", "transposed", "fortran", "power of two", "5-d", "0-d"]
TILE = 2**16  # elements from the random generator; larger sources repeat them
# torch's default number of threads here, or the user's OMP_NUM_THREADS. All benchmarks use one
# thread, except the family ``parallel``
DEFAULT_THREADS = torch.get_num_threads()
torch.set_num_threads(1)

VERSIONS = {"torch": torch.__version__, "numpy": np.__version__}
if not hasattr(
    torch.Tensor, "nbytes"
):  # torch 1.13 and 2.0 have none: https://github.com/pytorch/pytorch/pull/98322
    torch.Tensor.nbytes = property(lambda values: values.nelement() * values.element_size())


def release(version):
    """Return the leading numbers of a version: "2.13.0+cpu" gives (2, 13, 0)."""
    return tuple(int(number) for number in re.match(r"\d+(\.\d+)*", version).group().split("."))


def require(needs):
    """Skip the cell unless the toolchain has what a route ``needs``: "torch>=2.9 numpy>=2.1"."""
    for need in needs.split():
        package, _, least = need.partition(">=")
        if package not in VERSIONS:
            continue  # a need of the device: moving.require checks it
        if release(VERSIONS[package]) < release(least):
            raise NotImplementedError(f"needs {package} {least}, this is {VERSIONS[package]}")


def require_memory(nbytes):
    """Skip the cell unless ``nbytes`` bytes of memory are free."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            free = next(
                int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable")
            )
    except (OSError, StopIteration):
        try:
            free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        except (AttributeError, OSError, ValueError):
            return
    if free < nbytes:
        raise NotImplementedError(f"needs {nbytes / 2**30:.1f} GiB of free memory")


def require_room(directory, nbytes, called):
    """Skip the cell unless ``nbytes`` bytes can be written to ``directory``, which the reason calls
    ``called``.
    """
    if shutil.disk_usage(directory).free < nbytes:
        raise NotImplementedError(f"needs {nbytes / 2**30:.1f} GiB of room in {called}")


def cache_size():
    """Return the bytes of all last-level caches of the machine; 0 if unknown (not Linux)."""
    sizes = {}
    for index in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cache/index3"):
        shared, size = ((index / name).read_text().strip() for name in ("shared_cpu_list", "size"))
        sizes[shared] = int(size.rstrip("K")) * 1024
    return sum(sizes.values())


LARGEST_FREED = 2**25 - 2**16  # bytes: glibc adapts its thresholds to freed blocks of up to 32 MiB


def settle_heap():
    """Have malloc keep freed memory, as in a program that has freed a large array before.

    glibc adapts its thresholds to the largest mapped block that was freed (mallopt(3),
    M_MMAP_THRESHOLD). Until then, a process that frees many blocks at once returns memory to the
    system at every call or never. This depends on the end of the heap: torch.stack of 64 arrays, 16
    MiB together, took 2 ms in some processes and 11 ms in others.
    """
    bytearray(LARGEST_FREED)


def tile(dtype, count, seed):
    """Return at most TILE random numbers: 0 to the largest for integers, normally distributed for
    floats.
    """
    dtype, size = np.dtype(dtype), min(count, TILE)
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.integers(0, 2, size).astype(dtype)
    if dtype.kind in "iu":
        return rng.integers(0, np.iinfo(dtype).max, size, dtype=dtype)
    if dtype.kind == "c":
        return (rng.standard_normal(size) + 1j * rng.standard_normal(size)).astype(dtype)
    return rng.standard_normal(size).astype(dtype)


def filled(empty, seed):
    """Fill a flat array with random numbers, so that every page is written; return it."""
    numbers = tile(empty.dtype, empty.size, seed)
    for start in range(0, empty.size, TILE):
        empty[start : start + TILE] = numbers[: empty.size - start]
    return empty


def array(dtype, nbytes, seed=0):
    """Return a one-dimensional contiguous array of random numbers; ``nbytes`` bytes, at least one
    element.
    """
    return filled(np.empty(max(1, nbytes // np.dtype(dtype).itemsize), dtype), seed)


def laid_out(dtype, nbytes, layout):
    """Return an array of ``nbytes`` bytes of elements, to 1 %, in a layout of LAYOUTS: 1-D, 2-D,
    5-D or 0-d.

    "transposed" and "fortran" are as square as possible, with an odd number of columns, at most
    1,001. With a power of two, a layout of its own, the elements of a column collide in the caches.

    NotImplementedError if the layout does not exist in that size.
    """
    if layout == "0-d":
        return array(dtype, 1).reshape(())
    flat = array(dtype, nbytes)
    if layout == "contiguous":
        return flat
    if layout == "strided":  # every second element of twice the memory
        return array(dtype, 2 * flat.nbytes)[::2]
    if layout == "5-d":
        if flat.size < 64:
            raise NotImplementedError(f"a 5-d source has {64 * flat.itemsize} bytes at least")
        return flat[: flat.size // 64 * 64].reshape(-1, 2, 2, 4, 4)
    columns = min(1000, math.isqrt(flat.size)) | 1
    if layout == "power of two":
        columns = min(1024, 1 << (math.isqrt(flat.size).bit_length() - 1))
    matrix = flat[: flat.size // columns * columns].reshape(-1, columns)
    return np.asfortranarray(matrix) if layout == "fortran" else matrix.T


def tensor(dtype, nbytes, seed=0):
    """Return a one-dimensional contiguous tensor of random numbers in torch's memory; ``nbytes``
    bytes.
    """
    if dtype == "bfloat16":
        return tensor("float32", 2 * nbytes, seed).to(torch.bfloat16)
    values = torch.empty(max(1, nbytes // np.dtype(dtype).itemsize), dtype=getattr(torch, dtype))
    filled(values.numpy(), seed)
    return values


def namespace(route, source):
    """Return the names for a route's expression: its source, an existing buffer of the other kind,
    the packages.
    """
    names = {"np": np, "torch": torch}
    if isinstance(source, np.ndarray):
        kind = getattr(torch, source.dtype.name)
        names.update(a=source, dtype=kind)
        if re.search(r"\bb\b", route.expression):
            names["b"] = torch.from_numpy(
                np.array(source)
            ).clone()  # in memory that torch allocates
    else:
        names["t"] = source
        if re.search(r"\bb\b", route.expression):
            names["b"] = np.array(source.detach().numpy())
    return names


PAGE = 4096  # bytes
# bytes from one array's offset in its page to the next one's, where malloc gives both whole pages
NEIGHBOURS = 16
# Offset of a library's memory in its cache line, in bytes: NumPy uses malloc, which begins a
# mapping with 16 bytes of its own; torch aligns. On Intel's Emerald Rapids torch's copies take
# twice as long into a target that does not begin at a line, whatever their source
# (docs/lab-notes.md)
BY_NUMPY, BY_TORCH = 16, 0


def address(values):
    """Return the address of the first byte of an array or a tensor."""
    return values.ctypes.data if isinstance(values, np.ndarray) else values.data_ptr()


def is_neighbour(source, target):
    """Whether the target's offset in its page is 1 to 31 bytes larger than the source's, see
    ``placed``.
    """
    return 0 < (address(target) - address(source)) % PAGE < 2 * NEIGHBOURS


def at(place, values):
    """Copy contiguous values into a block with a spare page, ``place`` bytes after the beginning of
    a page.
    """
    spare = values.nbytes + PAGE
    if isinstance(values, np.ndarray):
        block = np.empty(spare, np.uint8)
        start = (place - address(block)) % PAGE
        moved = block[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
        moved[...] = values
        return moved
    block = torch.empty(spare, dtype=torch.uint8)
    start = (place - address(block)) % PAGE
    moved = block[start : start + values.nbytes].view(values.dtype).view(values.shape)
    return moved.copy_(values.detach()).requires_grad_(values.requires_grad)


def placed(names, distance=None):
    """Move a route's source and buffer to fixed offsets in their pages; return its names.

    The source begins in the middle of a page and the buffer at the beginning of one, each aligned
    as by its library. With ``distance``, the buffer's offset in its page is that many bytes larger
    than the source's.

    Otherwise the time depends on chance: on AMD's Zen 3 C's memmove takes 2 to 11 times as long for
    4 to 256 KiB where the target's offset in its page is 1 to 31 bytes larger than the source's
    ("rep movsb": glibc bug 30994). Arrays of whole pages, allocated one after the other, are such
    NEIGHBOURS. With the source in a block with a spare page, a fresh result is its neighbour only
    by a chance of 1 in 256.

    A source that is not contiguous stays in place: memmove does not copy it.
    """
    name = "a" if "a" in names else "t"
    source, buffer = names[name], names.get("b")
    if not (
        source.flags.c_contiguous if isinstance(source, np.ndarray) else source.is_contiguous()
    ):
        return names
    begin = PAGE // 2 + (BY_NUMPY if name == "a" else BY_TORCH)
    names[name] = at(begin, source)
    if isinstance(buffer, torch.Tensor):
        names["b"] = torch.from_numpy(
            at(BY_TORCH if distance is None else begin + distance, buffer.numpy())
        )
    elif buffer is not None:
        names["b"] = at(BY_NUMPY if distance is None else begin + distance, buffer)
    return names


def map_tree(convert, tree):
    """Apply ``convert`` to every leaf of nested dicts, lists and tuples."""
    if isinstance(tree, dict):
        return {key: map_tree(convert, value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_tree(convert, value) for value in tree)
    return convert(tree)


MOST_OBJECTS = 2**24  # elements: making a Python object of each takes seconds


def source(route, dtype, nbytes):
    """Return the contiguous source of a conversion route. Skip the cell if route or machine cannot
    do it.
    """
    require(route.needs)
    if dtype in route.refuses:
        raise NotImplementedError(f"{dtype}: raises {route.refuses[dtype]}")
    itemsize = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
    if route.per_element and nbytes > MOST_OBJECTS * itemsize:
        raise NotImplementedError(
            f"makes a Python object of every element: beyond {MOST_OBJECTS:,} it takes minutes"
        )
    # a Python number takes 40 bytes, with its place in a list; torch.tensor also makes a wider copy
    # of the result
    require_memory(nbytes * 4 + (nbytes // itemsize * 64 if route.per_element else 0))
    return array(dtype, nbytes) if route.direction.startswith("numpy") else tensor(dtype, nbytes)
