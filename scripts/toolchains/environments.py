"""Virtual environments, one per toolchain, and the packages in an environment or in the running
interpreter.

An environment is made when it is first needed. Beyond a limit the least recently used environment
is removed. A CUDA build of torch takes about 5 GB and a minute and a half to install, so not all
twenty of a history stay. Several processes may need environments at the same time. One installs
while the others wait. No process removes an environment that another installs or uses. Installed
versions are found without importing torch, which takes a second.
"""

import contextlib
import dataclasses
import importlib.util
import json
import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from . import interpreters
from .ledger import Toolchain, identify

if TYPE_CHECKING:
    from importlib.metadata import Distribution

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LIMIT_VARIABLE = "CONVERSION_KEEP_ENVIRONMENTS"
# For the plugin: the results directory of a run that is not complete yet
RESULTS_VARIABLE = "CONVERSION_RESULTS"
# For the plugin: a file with the benchmarks that asv finds. Its first run writes it, others read it
BENCHMARKS_VARIABLE = "CONVERSION_BENCHMARKS"
# If asv.conf.json gives no number; two let `asv continuous` alternate without installing again
DEFAULT_LIMIT = 3
READY = "ready"  # a file in every complete environment; its modification time is the last use
NO_WHEEL = "No matching distribution found"  # begins the reason if a release has no wheel
NO_PYTHON = "no Python"  # begins the reason if an interpreter is missing
INDEX_SECONDS = 300  # limit for an answer of pip about the package index
REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements.txt"
PINNED = ("asv", "asv_runner")  # pinned in requirements.txt, because the timing depends on them


class InstallError(Exception):
    """A toolchain cannot be installed. The text says why in one line."""


def environment_limit(default: int = DEFAULT_LIMIT) -> int:
    """Return the maximum number of environments on disk: the environment variable, else
    ``default``."""
    text = os.environ.get(LIMIT_VARIABLE, "")
    return max(1, int(text)) if text.isdigit() else default


def directory(root: Path, toolchain: Toolchain) -> Path:
    """Directory of a toolchain's environment. It is named by its content, so that the two histories
    share it."""
    python = toolchain.python or interpreters.release_of(interpreters.version())
    return root / f"py{python}-torch-{toolchain.release}-numpy-{toolchain.numpy}"


def interpreter_of(environment: Path) -> Path:
    """The interpreter of an environment."""
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def installed_in(environment: Path, expected: Toolchain) -> Toolchain:
    """Return the toolchain that the environment of ``expected`` has, with its build variant."""
    path = [*map(str, environment.glob("[Ll]ib*/**/site-packages"))]
    installed = read_toolchain(path)
    return dataclasses.replace(installed, history=expected.history, python=expected.python)


def requirements(toolchain: Toolchain) -> list[str]:
    """Return pip requirements of an environment. The pinned asv_runner runs the benchmarks there.

    ``===`` takes the package index's build. ``==`` would prefer a nearer wheel of another variant,
    such as 2.13.0+cpu, but a history has one build variant.
    """
    return [
        f"torch==={toolchain.release}",
        f"numpy=={toolchain.numpy}",
        f"asv_runner=={pins()['asv_runner']}",
    ]


def pins() -> dict[str, str]:
    """Return the versions of PINNED in requirements.txt. Raise InstallError if a package is not
    pinned."""
    text = REQUIREMENTS.read_text(encoding="utf-8")
    versions = dict(re.findall(r"^(\w+)==(\S+)", text, re.MULTILINE))
    for package in PINNED:
        if package not in versions:
            raise InstallError(f"{REQUIREMENTS} does not pin {package}")
    return {package: versions[package] for package in PINNED}


def is_installed(toolchain: Toolchain, running: Toolchain) -> bool:
    """Whether ``running``, the interpreter's toolchain, is this release of a history. Histories
    share toolchains."""
    same = ("release", "numpy", "python")
    return bool(running.history) and all(
        getattr(toolchain, name) == getattr(running, name) for name in same
    )


def is_ready(environment: Path) -> bool:
    """Is this environment complete?"""
    return (environment / READY).is_file() and interpreter_of(environment).exists()


def prepare(root: Path, toolchain: Toolchain, limit: int, seconds: float = 3600) -> Path:
    """Return the environment of a history's toolchain. Install it if missing. Raise InstallError if
    that fails.

    This process uses the environment from now on. It releases the previous one, which may have to
    be removed.
    """
    environment = directory(root, toolchain)
    deadline = time.monotonic() + seconds
    root.mkdir(parents=True, exist_ok=True)
    while _held_locks:
        os.close(_held_locks.pop())
    while (lock := _lock(environment, alone=not is_ready(environment))) is None:
        if time.monotonic() > deadline:
            raise InstallError(f"another process has been installing it for {seconds:.0f} s")
        time.sleep(0.1)
    _held_locks.append(lock)
    if not is_ready(environment):
        clean_up(root, limit - 1)
        shutil.rmtree(environment, ignore_errors=True)
        try:
            _install(environment, toolchain, seconds)
        except BaseException:
            shutil.rmtree(environment, ignore_errors=True)
            raise
    (environment / READY).touch()
    if fcntl:
        fcntl.flock(lock, fcntl.LOCK_SH)  # others may use it, too
    clean_up(root, limit)
    return environment


_held_locks: list[int] = []  # the lock of the environment that this process uses, if any


def _lock(environment: Path, alone: bool) -> int | None:
    """Lock an environment: shared by its users, or exclusive (``alone``) to install or remove it.
    Return None if another process holds the lock, or if there is no environment to share. The lock
    ends with the process, however the process ends. Unlike a process number, it also works across
    containers and across machines with the same disk. Windows has no such locks, but keeps files
    that are in use.
    """
    lock = os.open(environment.with_name(environment.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if fcntl:
            fcntl.flock(lock, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        if alone or is_ready(environment):
            return lock
    except BlockingIOError:
        pass
    except OSError as error:  # such as on Lustre, mounted without -o flock
        os.close(lock)
        raise InstallError(
            f"no file can be locked in .asv/env ({error.strerror}): "
            "make it a link to a directory of a local disk"
        ) from None
    os.close(lock)
    return None


def note_use(environment: Path) -> None:
    """Note that an environment has been used, if it is there."""
    if is_ready(environment):
        (environment / READY).touch()


def clean_up(root: Path, limit: int) -> None:
    """Remove incomplete environments, and the least recently used ones until at most ``limit`` are
    left.

    Environments that another process installs or uses stay.
    """
    complete = sorted(
        root.glob(f"py*-torch-*/{READY}"), key=lambda ready: ready.stat().st_mtime_ns, reverse=True
    )
    staying = {ready.parent for ready in complete[: max(0, limit)]}
    for path in list(root.glob("py*-torch-*")):
        if not path.is_dir() or path in staying:
            continue
        lock = _lock(path, alone=True)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _install(environment: Path, toolchain: Toolchain, seconds: float) -> None:
    python = toolchain.python and interpreters.find_interpreter(toolchain.python)
    if python is None:
        raise InstallError(
            f"{NO_PYTHON} {toolchain.python} was found: put python{toolchain.python} on the PATH, "
            f"or name it in {interpreters.PYTHONS_VARIABLE}"
        )
    virtualenv = [sys.executable, "-m", "virtualenv", "--quiet", "--python"]
    run_program([*virtualenv, str(python or sys.executable), str(environment)], seconds)
    # A release without a wheel for this Python has to fail, not to compile for an hour
    pip = [str(interpreter_of(environment)), "-m", "pip"]
    install = [*pip, "install", "--progress-bar=off", "--only-binary=torch,numpy"]
    try:
        run_program([*install, *requirements(toolchain)], seconds)
    except InstallError as error:
        raise InstallError(_missing_wheel(pip, toolchain) or str(error)) from None
    try:
        installed = installed_in(environment, toolchain)
    except ModuleNotFoundError as missing:
        raise InstallError(str(missing)) from None
    if (installed.release, installed.numpy) != (toolchain.release, toolchain.numpy):
        raise InstallError(f"pip installed {installed} instead")


def _missing_wheel(pip: Sequence[str], toolchain: Toolchain) -> str:
    """Return the first requirement that the package index has no wheel of for this Python, as a
    sentence; "" if it has all. pip lists the index's versions as JSON."""
    for requirement in requirements(toolchain):
        package, _, version = requirement.replace("===", "==").partition("==")
        listing = [*pip, "index", "versions", package, "--json", "--only-binary=:all:"]
        try:
            output = run_program(listing, INDEX_SECONDS)
            # pip's warnings, such as that of a location without packages, stand around it
            listed, _ = json.JSONDecoder().raw_decode(output[output.index("{") :])
            versions = listed["versions"]
        except (InstallError, ValueError, LookupError):
            return (
                f"{NO_WHEEL} for {requirement} "
                "(the package index lists none for this Python, or did not answer)"
            )
        if version not in versions:
            return f"{NO_WHEEL} for {requirement}"
    return ""


def run_program(command: Sequence[str], seconds: float | None = None) -> str:
    """Run a program such as pip and return its output. Raise InstallError if it fails or takes too
    long."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # Otherwise pip asks the index for its own newest version, and prints lines about that
    env |= {"PIP_USER": "false", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        return subprocess.check_output(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            errors="replace",
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise InstallError(f"{command[2]} took longer than {seconds:.0f} s") from None
    except subprocess.CalledProcessError as failed:
        raise InstallError(last_error(failed.output)) from None


def last_error(output: str) -> str:
    """The last error that pip printed, in one line, without addresses of an index and paths of this
    machine: those do not belong in results."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["it said nothing"]
    errors = [line for line in lines if line.lower().startswith("error: ")]
    # the end of another error, and the beginning of a traceback, whose last line is the error
    errors = [line for line in errors if not re.search("ResolutionImpossible|Exception:$", line)]
    text = re.sub("^error: *", "", (errors or lines)[-1], flags=re.IGNORECASE)
    return re.sub(r"[\w/.+-]*://\S+|host='[^']*'|'/[^']*'", "", text).strip()[:300]


# --- an interpreter's packages, and its machine ---------------------------------------------------


def read_toolchain(path: list[str] | None = None) -> Toolchain:
    """Return the toolchain of the running interpreter, or of the directories ``path``, with torch's
    build variant.

    Raise ModuleNotFoundError if torch or numpy is missing.
    """
    spec = (
        importlib.util.find_spec("torch") if path is None else PathFinder.find_spec("torch", path)
    )
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("torch is not installed in this Python")
    # torch's build writes torch/version.py. The package metadata of a CUDA wheel omits the variant
    build = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
    version = str(build["__version__"])
    if "+" not in version:
        variants = {"cu": build.get("cuda"), "rocm": build.get("hip"), "xpu": build.get("xpu")}
        names = [name + str(number).replace(".", "") for name, number in variants.items() if number]
        version += "+" + (names or ["cpu"])[0]
    numpy = find_distribution("numpy", path)
    if numpy is None:
        raise ModuleNotFoundError("numpy is not installed in this Python")
    return identify(
        version,
        numpy.version,
        _from_index(find_distribution("torch", path), Path(spec.origin).parent),
        interpreters.release_of(interpreters.version()) if interpreters.IS_FREE_THREADED else "",
    )


def running_toolchain() -> Toolchain | None:
    """The toolchain of the running interpreter, or None."""
    try:
        return read_toolchain()
    except ModuleNotFoundError:
        return None


def find_distribution(name: str, path: list[str] | None = None) -> "Distribution | None":
    """Find an installed package in the running interpreter or in the directories ``path``; None if
    there is none."""
    from importlib.metadata import Distribution  # 7 ms, which advise.py spends better

    return next(
        iter(Distribution.discover(name=name, path=sys.path if path is None else path)), None
    )


def _from_index(torch: "Distribution | None", package: Path) -> bool:
    """Whether ``package`` is the package index's build: its metadata names no variant, and pip or a
    similar program installed it.

    A wheel of PyTorch's own index names its variant, and a build from source names its commit.
    Builds of conda and of Linux distributions do not come from the index either.
    """
    if torch is None or Path(str(torch.locate_file("torch"))).resolve() != package.resolve():
        return False
    if "+" in torch.version or torch.read_text("direct_url.json"):
        return False
    return (torch.read_text("INSTALLER") or "conda").strip() not in ("conda", "debian")


def cpu_model() -> str:
    """Return the processor's name as asv finds it. asv takes 0.13 s to import, py-cpuinfo a
    second, so Linux's own list is read first."""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        if model := re.search(r"^model name\s*:\s*(.+?)\s*$", text, re.MULTILINE):
            return model[1]
    from asv.util import get_cpu_info  # whether asv is missing is checked elsewhere

    return get_cpu_info() or platform.processor() or platform.machine()


def machine_name(cores: int = os.cpu_count() or 1) -> str:
    """Return a name made from the hardware, such as amd-epyc-2-cores. The host's name is private
    and never used."""
    words = re.sub(r"\((r|tm)\)|\bcpu\b|\bprocessor\b|@.*", " ", cpu_model().lower())
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")[:40] + f"-{cores}-cores"
