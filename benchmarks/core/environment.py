"""The measured settings of the environment. To add a setting, add one entry to SETTINGS here.

A setting is the text that a user would put before a command. It must be set when the process
starts. An entry defines the cells of a setting, its row in every table, its advice, and a check
that it is in force in a process started with it. Without the check, a misspelt name would be
measured as a setting without effect.
"""

import ctypes
import os
import platform
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from . import sources

try:
    import resource
except ImportError:  # Windows
    resource = None

ALLOCATOR_VARIABLE = "PYTORCH_ALLOC_CONF"  # options of torch's allocators
NONE = "none"  # the reference of all other settings
PROBE = 64 * 2**20  # bytes: more than glibc keeps for reuse by default
FEW = 32  # pages: fewer than the huge pages of the probe, so that faults of huge pages count, too
TRIES = 12  # copies until the heap has room for all of them, at most
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
MAPPINGS = Path("/proc/self/smaps")
MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (?:\S+ ){3}\d+ *(.*)")


@dataclass(frozen=True)
class Setting:
    """Requirements and effects of a setting.

    missed      () -> evidence that it is not in force in this process; "" if it is
    needs       releases that support it, as for a route
    glibc       version of glibc that supports it
    huge_pages  concerns huge pages, which a machine may never give
    package     Debian package of the library that it loads
    x86         concerns instructions of x86 processors
    copying     concerns the copying of bytes, not fresh memory
    pinning     an option of torch's allocator of pinned memory
    caution     one sentence that advice shows
    advised     False: a baseline, a setting that slows things down, or one no better than the
                default
    """

    missed: Callable[[], str]
    needs: str = ""
    glibc: str = ""
    huge_pages: bool = False
    package: str = ""
    x86: bool = False
    copying: bool = False
    pinning: bool = False
    caution: str = ""
    advised: bool = True


# What shows that a setting is in force
# ------------------------------------------------------------------------------


def mapping(address):
    """Return the system's description of the mapping around an address: name -> text, "path" of its
    file.
    """
    fields = {}
    with MAPPINGS.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            bounds = MAPPING.match(line)
            if bounds and fields:
                break
            if bounds and int(bounds[1], 16) <= address < int(bounds[2], 16):
                fields["path"] = bounds[3]
            elif fields:
                name, _, value = line.partition(":")
                fields[name] = value.strip()
    return fields


def mapping_of(result):
    """Return the mapping in the middle of an array or a tensor: its beginning may lie in another
    mapping.
    """
    array = np.asarray(result)
    return mapping(array.ctypes.data + array.nbytes // 2)


def huge_share(result):
    """Return the share of a result's mapping that lies in huge pages, 0 to 1."""
    fields = mapping_of(result)
    huge, resident = (int(fields.get(name, "0").split()[0]) for name in ("AnonHugePages", "Rss"))
    return huge / max(1, resident)


def page_faults():
    """Return the number of pages that this process has faulted in so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _asks_for_huge_pages(result):
    return "hg" in mapping_of(result).get("VmFlags", "").split()


def _not_huge():
    probe = torch.ones(PROBE // 4)
    # glibc does not ask where the system gives huge pages by default
    huge = _asks_for_huge_pages(probe) or huge_share(probe) > 0.5
    return "" if huge else "torch's memory is not in huge pages, and nobody asked for them"


def _asked_by_numpy():
    return (
        "NumPy asks for huge pages" if _asks_for_huge_pages(np.ones(PROBE // 4, np.float32)) else ""
    )


def _not_reused():
    for _ in range(TRIES):
        start = page_faults()
        torch.ones(PROBE // 4)
        if page_faults() - start < FEW:
            return ""
    return "every 64 MiB have their pages faulted in anew"


def _not_allocating(library):
    """Return evidence that malloc is not the library's. Its file's name may be longer: libx.so.4 is
    libx.so.4.5.
    """
    malloc = ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value
    name = Path(mapping(malloc).get("path", "")).name
    return "" if name.startswith(library) else f"malloc is that of {name or 'no file'}"


def _other_threshold(variable):
    """Compare glibc's value of a tunable with the setting: glibc silently ignores values out of
    bounds.
    """
    name, _, threshold = variable.partition("=")
    mapped = (line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines())
    loader = next(path for path in mapped if "ld-linux" in Path(path).name)
    tunables = subprocess.run([loader, "--list-tunables"], capture_output=True, text=True).stdout
    match = re.search(rf"^{re.escape(name)}: (\w+)", tunables, re.MULTILINE)
    return (
        ""
        if match and int(match[1], 0) == int(threshold)
        else f"{name} is {match[1] if match else 'not there'}"
    )


def _other_options(options):
    """Compare the options of torch's allocators with the setting: torch raises for unknown ones."""
    in_force = torch.cuda.memory._snapshot()["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"]
    missed = f"torch's allocators have {in_force or 'no options'}"
    return "" if in_force == options else missed


# The settings
# --------------------------------------------------------------------------------------------------

_NO_REP_MOVSB = "glibc.cpu.x86_rep_movsb_threshold=1073741824"
_JEMALLOC, _TCMALLOC, _MIMALLOC = "libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2"
# Option of torch's allocator of pinned memory -> release of torch that has it. No round
# threshold, which can be unsafe: see docs/gpu.md
PINNED_OPTIONS = {
    "pinned_use_cuda_host_register:True": "2.9",
    "pinned_use_cuda_host_register:True,pinned_num_register_threads:8": "2.9",
    "pinned_use_background_threads:True": "2.9",
    "pinned_reserve_segment_size_mb:1024": "2.10",
    "pinned_max_cached_size_mb:1": "2.13",
}
# In order of scope: torch's large tensors alone, all large blocks, the whole allocator. In a tie,
# advice takes the first setting.
SETTINGS = {
    NONE: Setting(lambda: "", advised=False),
    "THP_MEM_ALLOC_ENABLE=1": Setting(_not_huge, needs="torch>=2.2", huge_pages=True),
    "GLIBC_TUNABLES=glibc.malloc.hugetlb=1": Setting(_not_huge, glibc="2.35", huge_pages=True),
    # Not M_MMAP_THRESHOLD: mallopt(3) limits it to 32 MiB
    "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=1073741824": Setting(
        _not_reused,
        caution="the process keeps up to 1 GiB of what it freed, "
        "and up to 15 of its first copies gain nothing",
    ),
    "NUMPY_MADVISE_HUGEPAGE=0": Setting(_asked_by_numpy, huge_pages=True, advised=False),
    f"LD_PRELOAD={_JEMALLOC}": Setting(lambda: _not_allocating(_JEMALLOC), package="libjemalloc2"),
    f"LD_PRELOAD={_JEMALLOC} MALLOC_CONF=dirty_decay_ms:-1,muzzy_decay_ms:-1": Setting(
        lambda: _not_allocating(_JEMALLOC) or _not_reused(),
        package="libjemalloc2",
        caution="the process gives back nothing that it freed",
    ),
    f"LD_PRELOAD={_TCMALLOC}": Setting(
        lambda: _not_allocating(_TCMALLOC), package="libtcmalloc-minimal4"
    ),
    f"LD_PRELOAD={_MIMALLOC}": Setting(
        lambda: _not_allocating(_MIMALLOC),
        package="libmimalloc2.0 (libmimalloc3 of newer systems is another library)",
    ),
    f"GLIBC_TUNABLES={_NO_REP_MOVSB}": Setting(
        lambda: _other_threshold(_NO_REP_MOVSB),
        glibc="2.33",  # can list its tunables; 2.32 has the tunable, too
        x86=True,
        copying=True,
        caution="for neighbours: arrays of whole pages, allocated one behind the other",
    ),
    **{
        f"{ALLOCATOR_VARIABLE}={options}": Setting(
            partial(_other_options, options), needs=f"torch>={release}", pinning=True, advised=False
        )
        for options, release in PINNED_OPTIONS.items()
    },
}
FRESH = [text for text, setting in SETTINGS.items() if not (setting.copying or setting.pinning)]
COPYING = [NONE, *(text for text, setting in SETTINGS.items() if setting.copying)]
PINNING = [NONE, *(text for text, setting in SETTINGS.items() if setting.pinning)]
# Setting that may be advised -> note for the user
ADVISED = {
    text: "; ".join(
        filter(
            None, (setting.package and f"needs apt-get install {setting.package}", setting.caution)
        )
    )
    for text, setting in SETTINGS.items()
    if setting.advised
}

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# The older name of the variable: torch reads it where the new one is not set
REPLACED = {"PYTORCH_CUDA_ALLOC_CONF"}
JOINED = {"LD_PRELOAD": " ", "GLIBC_TUNABLES": ":"}  # lists: existing values are kept


def variables(text):
    """Return the variables of a setting: name -> value."""
    return dict(pair.split("=", 1) for pair in text.split()) if text != NONE else {}


def started_with(text):
    """Return the environment of a process that is started with this setting and no other."""
    inherited, added = dict(os.environ), variables(text)
    for name, separator in JOINED.items():
        if name in added and inherited.get(name):
            added[name] += separator + inherited[name]
    replaced = {name for each in SETTINGS for name in variables(each)} - set(JOINED) | REPLACED
    return {
        **{name: value for name, value in inherited.items() if name not in replaced},
        **ONE_THREAD,
        **added,
    }


def require(text):
    """Skip the cell if a setting has no effect on this system."""
    setting, (library, version) = SETTINGS[text], platform.libc_ver()
    if library != "glibc" or not MAPPINGS.exists() or resource is None:
        raise NotImplementedError("these are settings of Linux and glibc")
    sources.require(setting.needs)
    if setting.glibc and sources.release(version) < sources.release(setting.glibc):
        raise NotImplementedError(f"needs glibc {setting.glibc}, this is {version}")
    if setting.huge_pages and (not HUGE_PAGES.exists() or "[never]" in HUGE_PAGES.read_text()):
        raise NotImplementedError("this machine never gives transparent huge pages")
    if setting.x86 and platform.machine() not in ("x86_64", "AMD64", "i686"):
        raise NotImplementedError(f"is about x86, this is {platform.machine()}")
    preloaded = variables(text).get("LD_PRELOAD", "")
    if preloaded:  # the loader reports a missing library and goes on without it
        complaints = subprocess.run(
            ["true"], env=started_with(text), capture_output=True, text=True
        ).stderr
        if preloaded in complaints:
            raise NotImplementedError(
                f"{preloaded} is not there: apt-get install {setting.package}"
            )
