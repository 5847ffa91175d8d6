"""What is installed in the running interpreter, found without importing torch (which takes a second)."""

import importlib.util
import platform
import re
import runpy
import sys
from functools import partial
from importlib.machinery import PathFinder
from importlib.metadata import Distribution
from pathlib import Path

from .ledger import Toolchain, identify

TAKEN = ("results", "history")  # in reports/, beside the directories of machines: no names of machines


def toolchain(path: list[str] | None = None) -> Toolchain:
    """The torch, with its build variant, and numpy that the running interpreter or the directories ``path`` hold.

    ModuleNotFoundError where one is missing.
    """
    find = importlib.util.find_spec if path is None else partial(PathFinder.find_spec, path=path)
    spec = find("torch")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("torch is not installed in this Python")
    # torch/version.py is written by torch's build: the package metadata of a CUDA wheel leaves the variant out
    build = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
    version = str(build["__version__"])
    if "+" not in version:
        variants = {"cu": build.get("cuda"), "rocm": build.get("hip"), "xpu": build.get("xpu")}
        named = [name + str(number).replace(".", "") for name, number in variants.items() if number]
        version += "+" + (named or ["cpu"])[0]
    numpy = _distribution("numpy", path)
    if numpy is None:
        raise ModuleNotFoundError("numpy is not installed in this Python")
    return identify(version, numpy.version, _from_index(_distribution("torch", path), Path(spec.origin).parent))


def here() -> Toolchain | None:
    """What is installed in the running interpreter, or None."""
    try:
        return toolchain()
    except ModuleNotFoundError:
        return None


def _distribution(name: str, path: list[str] | None) -> Distribution | None:
    return next(iter(Distribution.discover(name=name, path=sys.path if path is None else path)), None)


def _from_index(torch: Distribution | None, package: Path) -> bool:
    """Is ``package`` the build that the package index serves? Its metadata name no variant, an installer put it there.

    A wheel of PyTorch's own index names its variant, a build from source its commit; conda's and Linux distributions'
    builds are not the index's either.
    """
    if torch is None or Path(str(torch.locate_file("torch"))).resolve() != package.resolve():
        return False
    if "+" in torch.version or torch.read_text("direct_url.json"):
        return False
    return (torch.read_text("INSTALLER") or "conda").strip() not in ("conda", "debian")


def cpu_model() -> str:
    """Name of the processor, as the system tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        matched = re.search(r"^(?:model name|Hardware|Processor)\s*:\s*(.+)$", text, re.MULTILINE)
        if matched:
            return matched.group(1).strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine_name(cores: int) -> str:
    """A name made of the hardware, such as amd-epyc-2-cores. Never the host's name, which is nobody's business."""
    words = re.sub(r"\((r|tm)\)|\bcpu\b|\bprocessor\b|@.*", " ", cpu_model().lower())
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")[:40] + f"-{cores}-cores"
