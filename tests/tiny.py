"""A copy of the suite for tiny packages: `torch` and `numpy` of a few lines each, installed offline in a second.

Its scripts and asv.conf.json are the real ones; the releases, their wheels and the benchmarks are made up. asv's own
commands and the verbs therefore run as on the real histories, but in seconds.
"""

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import asv_runner
import psutil
from conftest import ROOT, environment, run, until
from store import files

RELEASES = {
    "held": {"torch": "2.0.1", "numpy": "1.26.4"},
    "torch": {
        "1.13.1": "2022-12-15",
        "2.0.0": "2023-03-15",
        "2.0.1": "2023-05-08",
        "2.1.0": "2023-10-04",
        "2.2.0": "2024-01-30",  # has no wheel
        "2.3.0": "2024-04-24",
    },
    "numpy": {"1.26.4": "2024-02-05", "2.0.0": "2024-06-16"},
}
# Modules of benchmarks/ that every benchmark needs
ENGINE = ("__init__", "probes", "statement", "timing", "turns", "versions")
MODULES = ("__init__", "contracts", *(f"core/{name}" for name in ENGINE))
DEVICES = "def answer():\n    return {'device': None, 'device_name': None, 'no_device': 'none'}\n"
WITHOUT_WHEEL = "2.2.0"
SLOWER_FROM = "2.1.0"  # the release that the tests look for

BENCHMARKS = """
import itertools

import numpy
import torch

SLOWER = tuple(map(int, torch.__version__.split("+")[0].split("."))) >= {slower}
COST = 2 if SLOWER else 1
ROUTES = ["torch.from_numpy(a)", "torch.tensor(a)"]


def work():
    for _ in itertools.repeat(None, 400 * COST**2):  # four times as long: a busy host alone makes it twice as long
        pass


class NumpyToTorch:
    params = ROUTES, ["float32"], [4096, 1048576]
    param_names = ["route", "dtype", "nbytes"]
    role = "conversion"

    def setup(self, route, dtype, nbytes):
        if torch.__version__.startswith("1.") and route == "torch.tensor(a)":
            raise NotImplementedError("not in torch 1")

    def timeit_convert(self, route, dtype, nbytes):
        return "work()", {{"work": work}}


class Figures:
    def track_cost(self):
        return COST

    def track_repeated(self):
        return {{"samples": [100 * COST, 101 * COST, 109 * COST], "number": 1}}
"""
FAMILIES = {"conversion": BENCHMARKS.format(slower=tuple(map(int, SLOWER_FROM.split("."))))}


def wheel(folder, name, version, files):
    """Write a wheel of pure Python; return its path."""
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/RECORD": "",  # pip fills it
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tiny\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


def torch_wheel(folder, release, variant=""):
    """Write a wheel of torch. The package index's build is a CUDA build, which only torch/version.py says."""
    text = f"__version__ = '{release}+{variant or 'cu126'}'\ncuda = {None if variant else '12.6'!r}\nhip = None\n"
    code = "from .version import __version__\nfrom . import version\nversion.git_version = ''\n"
    code += "def get_num_threads():\n    return 1\n"
    files = {"torch/__init__.py": code, "torch/version.py": text}
    return wheel(folder, "torch", release + (f"+{variant}" if variant else ""), files)


# Verbs judge samples with numpy, so this numpy loads the real one further down the path, if any, under its own version
NUMPY = """
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

__version__ = {release!r}
own = Path(__file__).parents[1].resolve()
real = PathFinder.find_spec("numpy", [path for path in sys.path if Path(path).resolve() != own])
if real is not None:
    sys.modules["numpy"] = module = module_from_spec(real)
    real.loader.exec_module(module)
    module.__version__ = __version__
"""


def numpy_wheel(folder, release):
    return wheel(folder, "numpy", release, {"numpy/__init__.py": NUMPY.format(release=release)})


def asv_runner_wheel(folder):
    """Write the installed asv_runner as a wheel; return its path."""
    package = Path(asv_runner.__file__).parent
    files = {str(path.relative_to(package.parent)): path.read_text("utf-8") for path in package.rglob("*.py")}
    return wheel(folder, "asv_runner", version("asv_runner"), files)


def tags(records):
    return [record.toolchain.tag for record in records]


class Project:
    """A suite in ``folder``: made once, then driven by ``asv`` and ``verb``.

    families  file of ``benchmarks`` -> its code
    judged    whether samples are judged; if not, all count as quiet, since a machine that runs tests may never be quiet
    variables environment variables of its commands, besides the home directory
    """

    def __init__(self, folder, releases=RELEASES, families=FAMILIES, judged=False):
        self.root = folder / "suite"
        self.wheels = folder / "wheels"
        self.home = folder / "home"
        self.here = folder / "here"  # packages "installed" in the interpreter that runs asv
        self.filed = self.root / "reports" / "results"
        # virtualenv unpacks and compiles files once per home, in three seconds: all tests of this user share them;
        # environments link to them, which saves a second each
        mine = (each for each in folder.parents if each.name.startswith("pytest-of-"))
        unpacked = str(next(mine, folder.parent) / "virtualenv")
        self.variables = {"VIRTUALENV_OVERRIDE_APP_DATA": unpacked, "VIRTUALENV_SYMLINK_APP_DATA": "true"}
        self.variables |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels), "PIP_CONFIG_FILE": os.devnull}
        self.variables["PYTHONPATH"] = str(self.here)
        for path in (self.root / "benchmarks" / "core", self.wheels, self.home, self.here):
            path.mkdir(parents=True)
        modules = (f"benchmarks/{name}.py" for name in MODULES)
        for file in ("asv.conf.json", "requirements.txt", "benchmarks/versions.lock", *modules):
            shutil.copy(ROOT / file, self.root / file)
        shutil.copytree(ROOT / "scripts", self.root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        (self.root / "scripts" / "toolchains" / "releases.json").write_text(json.dumps(releases))
        if not judged:
            near = "dict.fromkeys((PROCESSOR, CACHE, MEMORY), 9.0)"
            self.replace("benchmarks/core/probes.py", NEAR_BASELINE_LOG=near)
            self.replace("benchmarks/core/timing.py", UNDISTURBED=0.0)
        for name, code in {"core/sources": "", "core/driver": "", "core/devices": DEVICES, **families}.items():
            (self.root / "benchmarks" / f"{name}.py").write_text(code)
        for release in releases["torch"].keys() - {WITHOUT_WHEEL}:
            torch_wheel(self.wheels, release)
        torch_wheel(self.wheels, "2.3.0", "cpu")  # nearer than the index's build, must not be installed
        for release in releases["numpy"]:
            numpy_wheel(self.wheels, release)
        asv_runner_wheel(self.wheels)
        self.install(torch_wheel(self.wheels, "2.9.0", "cpu"), self.wheels / "numpy-2.0.0-py3-none-any.whl")

    def replace(self, file, **constants):
        """Change constants in one of its files, each defined in lines of its own."""
        path = self.root / file
        for name, value in constants.items():
            definition = rf"^{name} = (\(\n(    .*\n)*\)|.*$)"
            text, found = re.subn(definition, f"{name} = {value}", path.read_text(), flags=re.MULTILINE)
            assert found == 1, f"{file} has no {name}"
            path.write_text(text)

    def install(self, *wheels):
        """Replace the packages of the interpreter that runs asv by these wheels."""
        shutil.rmtree(self.here)
        self.here.mkdir()
        # pandas 3 refuses the numpy of these releases; pandas 2, on Python 3.10, accepts it
        (self.here / "pandas.py").write_text('raise ImportError("pandas is too new for this numpy")')
        for path in wheels:
            shutil.unpack_archive(path, self.here, "zip")
        for info in self.here.glob("*.dist-info"):
            (info / "INSTALLER").write_text("pip\n")

    def run(self, *command, code=0, **variables):
        """Run a command in the project; its exit code must be ``code`` (None: any)."""
        done = run(*command, home=self.home, cwd=self.root, timeout=300, **self.variables | variables)
        assert code in (None, done.returncode), done.stdout + done.stderr
        return done

    def start(self, *command, **options):
        """Start a command in its own session; its output goes to pipes by default."""
        pipe = subprocess.PIPE
        options = {"stdout": pipe, "stderr": pipe, "text": True, "start_new_session": True, **options}
        return subprocess.Popen(command, cwd=self.root, env=environment(self.home, **self.variables), **options)

    def stop(self, process, once, how=signal.SIGINT):
        """Signal a verb when ``once()`` is true and wait for its end; return the printed text that was not yet read."""
        until(lambda: once() or process.poll() is not None, 240)
        process.send_signal(how)
        printed, complaint = process.communicate(timeout=120)
        assert process.returncode == 128 + how, printed + complaint
        return printed

    def left(self):
        """Return the processes whose working directory is in the project."""
        every = psutil.process_iter(["cwd"])
        return [process for process in every if (process.info["cwd"] or "").startswith(str(self.root))]

    def asv(self, *arguments, **more):
        """Run a command of asv; return its output."""
        done = self.run(sys.executable, "-m", "asv", *arguments, **more)
        return done.stdout + done.stderr

    def verb(self, name, *arguments, **more):
        return self.run(sys.executable, f"scripts/{name}.py", *arguments, **more)

    @property
    def toolchains(self):
        """Commit -> tag and torch release, from the ledger."""
        code = (
            "import sys; sys.path[0] = 'scripts'; from toolchains import plugin; known = plugin.Ledger()._toolchains\n"
        )
        code += "print({commit: (toolchain.tag, toolchain.torch) for commit, toolchain in known.items()})"
        return ast.literal_eval(self.run(sys.executable, "-c", code).stdout)

    @property
    def environments(self):
        return {path.name for path in (self.root / ".asv" / "env").glob("py*") if path.is_dir()}

    def records(self, machine=None):
        """Node ("" for a machine without nodes) -> run records of its sessions, in order of time."""
        paths = files.result_files(self.filed, machine, files.RECORDS)
        every = [record for path in paths for record in files.read_records(path)]
        found = {}
        for record in sorted(every, key=lambda each: each.started):
            found.setdefault(record.fleet.get("node", ""), []).append(record)
        return found

    def names_hosts(self, *hosts):
        """Return the results and pages that contain one of these words, or this machine's host name."""
        every = [path for path in (self.root / "reports").rglob("*") if path.is_file()]
        words = {path: set(files.read_content(path).decode().replace('"', " ").split()) for path in every}
        return [path for path in every if words[path] & {*hosts, os.uname().nodename}]

    def sessions(self):
        """Tag -> number of filed sessions, without those of nodes."""
        return Counter(tags(self.records().get("", [])))

    def results(self):
        """Tag -> asv's result file, in which each benchmark's row is a dictionary by column name."""
        known = self.toolchains
        found = [json.loads(path.read_text()) for path in self.filed.glob("*/*-toolchain-*.json")]
        for file in found:
            file["results"] = {name: dict(zip(file["result_columns"], row)) for name, row in file["results"].items()}
        return {known[result["commit_hash"]][0]: result for result in found}
