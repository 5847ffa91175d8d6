"""Interpreters: which release and build of Python runs this, and where another release is.

The build changes what a call costs as much as a release does: one without profile-guided
optimisation takes up to 27 % more (docs/method.md). Needs the standard library alone: any Python
can run this file, which prints its own version and build.
"""

import json
import os
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PYTHONS_VARIABLE = "CONVERSION_PYTHONS"  # interpreters or environments, as a PATH
UNOPTIMISED = "not optimised"  # begins the build of such an interpreter
IS_FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
SECONDS = 20  # limit for an interpreter to print its version


def version() -> str:
    """This Python's version: 3.13.5, of a free-threaded build 3.13.5t."""
    return platform.python_version() + "t" * IS_FREE_THREADED


def release_of(version: str) -> str:
    """The release of a version: 3.13 of 3.13.5, 3.13t of 3.13.5t."""
    major, minor, *_ = version.rstrip("t").split(".")
    return f"{major}.{minor}{'t' * version.endswith('t')}"


def build() -> str:
    """How this Python was built, as far as it says, and whether its GIL is on.

    Debian's program is built with PGO and LTO, but its sysconfig describes its shared library,
    which is not.
    """
    options = sysconfig.get_config_var("CONFIG_ARGS")
    is_debian = "deb_system" in sysconfig.get_scheme_names()
    words = []
    if options is not None:  # Windows keeps none
        is_optimised = is_debian or "--enable-optimizations" in options
        words.append("optimised" if is_optimised else UNOPTIMISED)
        words += ["LTO"] * (is_debian or "'--with-lto" in options)
    words += ["debug"] * bool(sysconfig.get_config_var("Py_DEBUG"))
    if IS_FREE_THREADED:
        has_gil = sys._is_gil_enabled()  # type: ignore[attr-defined, unused-ignore]
        words.append(f"free-threaded, GIL {'on' if has_gil else 'off'}")
    return ", ".join(words)


@cache
def find_interpreter(release: str) -> Path | None:
    """Find a Python of a release such as 3.13 or 3.13t: the first optimised one, else the first."""
    found = {}
    for path in _candidates(release):
        if os.access(path, os.X_OK) and path not in found:
            answer = _ask(path)
            if answer and answer[0] == release:
                found[path] = answer[1]
    optimised = (path for path, build in found.items() if not build.startswith(UNOPTIMISED))
    return next(optimised, next(iter(found), None))


def _candidates(release: str) -> Iterator[Path]:
    """Where an interpreter may be: named by the user, this one, on the PATH, or pyenv's."""
    for name in filter(None, os.environ.get(PYTHONS_VARIABLE, "").split(os.pathsep)):
        path = Path(name).expanduser()
        yield path / "bin" / "python" if path.is_dir() else path
    yield Path(sys.executable)
    yield from (Path(place, f"python{release}") for place in os.get_exec_path())
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob(f"versions/{release.rstrip('t')}.*/bin/python"), reverse=True)


def _ask(python: Path) -> tuple[str, str] | None:
    """Return release and build of another Python, or None if it does not run."""
    command = [str(python), "-I", __file__]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        answer = json.loads(done.stdout)
        return release_of(answer["python"]), answer["build"]
    except (OSError, ValueError, LookupError, subprocess.TimeoutExpired):
        return None


if __name__ == "__main__":
    print(json.dumps({"python": version(), "build": build()}))
