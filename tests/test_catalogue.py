"""Catalogue entries are well formed and reach benchmarks and reports; importing the benchmarks has no side effects."""

import builtins
import json
import re
import sys
from types import SimpleNamespace

import grimp  # comes with import-linter
import pytest
from conftest import ROOT, run
from resultfiles import SUITE
from store.schema import from_json

from benchmarks import contracts, routes
from benchmarks.core import devices, driver, sources

SCRIPTS = sorted((ROOT / "scripts").rglob("*.py"))
DIRECTIONS = {getattr(routes, name) for name in dir(routes) if re.fullmatch(r"[A-Z]+_TO_[A-Z]+", name)}
EVERY = pytest.mark.parametrize("route", routes.ROUTES, ids=lambda r: f"{r.expression} {r.direction}")


# Entries ------------------------------------------------------------------------------------------------------------


@EVERY
def test_entry_is_well_formed(route):
    compile(route.expression, "<route>", "exec")  # what is timed, tested, shown and pasted
    assert route.direction in DIRECTIONS
    assert route.memory in (routes.ALIAS, routes.COPY, routes.INTO)
    assert route.families
    assert route.casts_to != "python" or route.memory == routes.COPY, "Python's numbers share no memory"
    assert all(re.fullmatch(r"[a-z]+(>=\d+(\.\d+)*)?", need) for need in route.needs.split())
    assert set(route.copies) <= {*sources.LAYOUTS, *route.inputs}
    assert not route.copies or route.memory == routes.ALIAS
    # hazards: one object per element, a copy instead of an alias, read-only memory shared without a warning
    silent = route.memory == routes.ALIAS and route.inputs.get("read-only") == routes.Does.WORKS
    surprises = route.per_element or silent or (route.copies and routes.CONVERSION in route.families)
    assert route.hazard or not surprises
    if route.hazard_memory:  # a page's chooser relies on it: the route is good with any host memory
        assert route.hazard and route.non_blocking and set(route.hazard_memory) < set(routes.ANY_HOST)
    if route.casts_to and not route.view:  # it may share memory if there is nothing to cast
        shares = route.memory_for(route.casts_to) == routes.ALIAS
        said = route.hazard + route.caution
        assert shares == (f"{route.casts_to} already" in said or "this dtype already" in said)
    assert "dates" in route.caution or routes.Does.COUNTS not in route.inputs.values()
    assert not route.hazard.endswith(".") and "\n" not in route.hazard, "a sentence that tables put in a cell"
    assert routes.find(route.expression, route.direction) is route
    # reports decide by kind, not by words: only exceptions have the kind RAISES
    for does in route.inputs.values():
        error = isinstance(getattr(builtins, does, None), type)
        assert (contracts.kind(does) == contracts.RAISES) == error, does


# Patterns in the expression of a transfer: its call does not wait (EARLY, including work on data after its arrival);
# the host's end is a NumPy array (ARRAY)
EARLY = r"non_blocking=True|copy_in_chunks|to\(device\)\."
ARRAY = {routes.HOST_TO_DEVICE: r"\ba\b", routes.DEVICE_TO_HOST: r"\.numpy\(|buffers\.read\(|np\."}


@EVERY
def test_what_the_expression_shows_is_declared(route):
    """Entries declare ``non_blocking`` and ``array``, since reports do not parse the expression."""
    assert route.non_blocking == bool(re.search(EARLY, route.expression))
    if routes.TRANSFER in route.families:
        assert route.array == bool(re.search(ARRAY[route.direction], route.expression))


@EVERY
def test_route_has_cells_and_its_contract_travels(route, suite):
    timed = [
        benchmark
        for benchmark in suite.values()
        if benchmark.type == "time"
        and repr(route.expression) in (benchmark.params[0] if benchmark.params else ())
        and benchmark.contracts.get(route.expression, {}).get("direction") == route.direction
    ]
    by_questions_alone = bool({routes.BUFFERED_BATCHES, routes.PADDED_BATCHES, routes.PYTHON_LISTS} & {*route.families})
    assert bool(timed) != by_questions_alone, "no benchmark times it"
    assert all(benchmark.contracts[route.expression] == route.contract() for benchmark in timed)
    assert from_json(contracts.Route, json.loads(json.dumps(route.contract()))) == route, (
        "as reports see it, after JSON"
    )


# Parameters ---------------------------------------------------------------------------------------------------------


def test_parameters_are_plain_and_routes_those_of_the_catalogue(suite):
    """Parameters are strings and integers: asv files results under their repr, and an object's changes between runs."""
    known = {route.expression for route in routes.ROUTES}
    for benchmark in suite.values():
        for name, values in zip(benchmark.param_names, benchmark._params):
            assert all(isinstance(value, (str, int)) for value in values), benchmark.name
            assert name != "route" or set(values) <= known, benchmark.name


def test_every_benchmark_accepts_its_parameters_as_arguments(suite, capsys):
    """As `asv check` does."""
    assert all([benchmark.check(str(ROOT / "benchmarks")) for benchmark in suite.values()]), capsys.readouterr().out


def test_roles_are_known_on_both_sides():
    """Benchmarks and reports know the same roles.

    A role unknown to reports would hide its family's figures; a role without a family is dead code.
    """
    declared = {made["role"] for made in SUITE.values()} - {""}
    ours = {value for name, value in vars(contracts.Role).items() if name.isupper() and isinstance(value, str)}
    assert declared == ours


OLD_TOOLCHAIN = """
import json, sys
import numpy, torch
old_torch, old_numpy, root = sys.argv[1:]
torch.__version__, numpy.__version__ = old_torch, old_numpy
if old_torch.startswith("1."):
    for name in ("accelerator", "uint16", "uint32", "uint64", "compiler"):
        vars(torch).pop(name, None)
from asv_runner.discovery import disc_benchmarks
print(json.dumps({benchmark.name: benchmark.params for benchmark in disc_benchmarks(root)}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("torch_version", "numpy_version"), [("1.13.1", "1.23.5"), ("2.99.0.dev20300101+cu999", "3.1.0")]
)
def test_parameters_do_not_depend_on_the_version(suite, tmp_path, torch_version, numpy_version):
    """Every toolchain has the same cells; setup skips those that it does not support."""
    command = (sys.executable, "-c", OLD_TOOLCHAIN, torch_version, numpy_version, ROOT / "benchmarks")
    done = run(*command, home=tmp_path, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {name: benchmark.params for name, benchmark in suite.items()}


# Import -------------------------------------------------------------------------------------------------------------


def test_benchmarks_import_nothing_else(monkeypatch):
    """Benchmarks import torch, numpy, asv_runner and, in devices.py alone, pynvml, which is optional. A question may
    ask about a DataFrame."""
    graph = grimp.build_graph("benchmarks", include_external_packages=True, cache_dir=None)
    others = {name for name in graph.modules if not name.startswith("benchmarks")} - sys.stdlib_module_names
    assert others == {"torch", "numpy", "asv_runner", "pynvml", "pandas"}
    assert graph.find_modules_that_directly_import("pandas") == {"benchmarks.core.question"}
    assert graph.find_modules_that_directly_import("pynvml") == {"benchmarks.core.driver"}
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(devices.torch.version, "hip", None)
    assert driver.ask_driver(SimpleNamespace(is_cuda=True), lambda *_: pytest.fail("it was asked")) is None


@pytest.mark.slow
def test_a_report_needs_no_torch(tmp_path):
    names = [".".join(path.relative_to(ROOT / "scripts").with_suffix("").parts) for path in SCRIPTS]
    code = "import sys\nsys.modules['torch'] = None\n" + "".join(f"import {name}\n" for name in names)
    done = run(sys.executable, "-c", code, home=tmp_path, cwd=tmp_path, PYTHONPATH=f"{ROOT}/scripts:{ROOT}")
    assert done.returncode == 0, done.stderr


HYGIENE = """
import json, os, signal, sys
import numpy, torch
from torch.utils._python_dispatch import TorchDispatchMode

class Watch(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), names=None):
        operations.append(str(function))
        return function(*arguments, **(names or {}))

operations, threads = [], len(os.listdir("/proc/self/task"))
with Watch():
    from asv_runner.discovery import disc_benchmarks
    found = len(list(disc_benchmarks(sys.argv[1])))
facts = {"found": found, "operations": operations, "cuda": torch.cuda.is_initialized()}
facts["threads"] = len(os.listdir("/proc/self/task")) - threads
# What the fork server does next: a child that runs an OpenMP operation. After one in the parent it would hang.
child = os.fork()
if not child:
    signal.alarm(30)
    torch.set_num_threads(2)
    total = torch.ones(2**20).add(1).sum().item()
    os._exit(0 if total == 2**21 else 1)
facts["child"] = os.waitpid(child, 0)[1]
print(json.dumps(facts))
"""


@pytest.mark.slow
def test_import_and_discovery_touch_nothing(tmp_path):
    command = (sys.executable, "-c", HYGIENE, ROOT / "benchmarks")
    done = run(*command, home=tmp_path, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="2")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts.pop("found") > 10
    assert facts == {"operations": [], "threads": 0, "cuda": False, "child": 0}
