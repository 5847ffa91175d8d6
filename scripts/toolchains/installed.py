"""What is installed in the running interpreter, found without importing torch (which takes a second)."""

import importlib.metadata
import importlib.util
import platform
import re
import runpy
from pathlib import Path

from .ledger import Toolchain


def toolchain() -> Toolchain:
    """The installed torch, with its build variant, and numpy. ModuleNotFoundError where one is missing."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("torch is not installed in this Python")
    # torch/version.py is written by torch's build: the package metadata of a CUDA wheel leaves the variant out
    build = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
    version = str(build["__version__"])
    if "+" not in version:
        variants = {"cu": build.get("cuda"), "rocm": build.get("hip"), "xpu": build.get("xpu")}
        named = [name + str(number).replace(".", "") for name, number in variants.items() if number]
        version += "+" + (named or ["cpu"])[0]
    try:
        return Toolchain(version, importlib.metadata.version("numpy"))
    except importlib.metadata.PackageNotFoundError:
        raise ModuleNotFoundError("numpy is not installed in this Python") from None


def cpu_model() -> str:
    """Name of the processor, as the system tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        found = re.search(r"^(?:model name|Hardware|Processor)\s*:\s*(.+)$", text, re.MULTILINE)
        if found:
            return found.group(1).strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine_name(cores: int) -> str:
    """A name made of the hardware, such as amd-epyc-2-cores. Never the host's name, which is nobody's business."""
    words = re.sub(r"\((r|tm)\)|\bcpu\b|\bprocessor\b|@.*", " ", cpu_model().lower())
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")[:40] + f"-{cores}-cores"
