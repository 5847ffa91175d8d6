"""With Valgrind, instruction counts of a call are reproducible. Without it, the cell names the missing requirement."""

import pytest

from benchmarks import instructions
from benchmarks.core import callgrind

FEWER = """
import sys
from benchmarks import instructions

def namespace(route, source, made=instructions.sources.namespace):
    if route.expression == "torch.as_tensor(a)":
        raise TypeError("it dies")
    return made(route, source)

instructions.sources.namespace = namespace
routes = ["torch.from_numpy(a)", "torch.tensor(a)", "torch.as_tensor(a)"]
instructions.NumpyToTorch.params = (routes, ["float32"], [8, 4096])
instructions.TorchToNumpy.params = (["t.numpy()"], ["float32", "bfloat16"], [8])
instructions.dump_all(sys.argv[1])
"""


@pytest.fixture(scope="module")
def counts():
    """Instruction counts of a few cells by one process, which takes a quarter of a minute."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(instructions, "REPEATS", 1)
        found = instructions.NumpyToTorch().setup_cache(FEWER)
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.mark.slow
def test_counts_are_those_of_a_call(counts):
    view, copy = (counts[f"numpy→torch {route} float32 8"] for route in ("torch.from_numpy(a)", "torch.tensor(a)"))
    for one in (view, copy):
        kept = sum(one["functions"].values())
        assert 0.96 * min(one["samples"]) < kept < 1.01 * max(one["samples"])
    assert any(name.endswith(":torch::utils::tensor_from_numpy") for name in view["functions"])
    (taken,), (larger,) = view["samples"], counts["numpy→torch torch.from_numpy(a) float32 4096"]["samples"]
    assert taken == pytest.approx(larger, rel=0.05), (
        "a view takes as many at every size, and another count repeats them"
    )
    assert 1_000 < taken < copy["samples"][0] / 2, "a view of an array takes less than a copy of it"
    assert counts["torch→numpy t.numpy() bfloat16 8"] == "bfloat16: raises TypeError"
    assert counts["numpy→torch torch.as_tensor(a) float32 8"] == {"failed": "TypeError: it dies"}


@pytest.mark.parametrize("built_for_it", [True, False])
def test_without_valgrind_the_cell_says_what_it_needs(built_for_it, monkeypatch):
    """A build of torch without support for Valgrind skips the cell, too, and is not a failure."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(instructions.torch._C, "_valgrind_supported_platform", lambda: built_for_it, raising=False)
    made = instructions.TorchToNumpy()
    with pytest.raises(NotImplementedError, match="needs Valgrind" if built_for_it else "Valgrind"):
        made.setup(made.setup_cache(), "t.numpy()", "float32", 8)


def test_a_cell_has_its_repeats_or_the_reason_why_it_has_none():
    made, cell = instructions.TorchToNumpy(), ("t.numpy()", "bfloat16", 8)
    for found, error in (("it dies", NotImplementedError), ({"failed": "it dies"}, RuntimeError)):
        with pytest.raises(error, match="^it dies$"):
            made.setup({made.key(*cell): found}, *cell)
    repeats = [[count, {"libc:free": round(count)}] for count in (5100.0, 5000.0, 5010.0)]
    joined = {"samples": [5100.0, 5000.0, 5010.0], "number": 1, "functions": {"libc:free": 5010}}
    made.setup({made.key(*cell): instructions._joined(repeats)}, *cell)
    assert made.track_instructions(None, *cell) == joined


DUMP = """summary: 1000
ob=(1) /usr/lib/libc-2.31.so
fn=(1) malloc
0 100
cob=(2) /lib/libtorch_cpu.so
cfn=(2) void at::(anonymous namespace)::run<X, int (*)(int)>(X const&)::{lambda(int)#1}::operator()(int) const
calls=50 0
0 7000
-3 300

ob=(2)
fn=(2)
+5 560
fn=(3) run'2
* 40
"""


def test_a_dump_has_what_each_function_takes_itself():
    costs = callgrind.functions(DUMP)
    of_lambda = "libtorch_cpu:at::{anonymous}::run::{lambda#1}::operator_call"
    assert costs == {"libc:malloc": 400, of_lambda: 560, "libtorch_cpu:run": 40}
    assert callgrind.largest(costs, 1000) == {"libc:malloc": 400, of_lambda: 560, "libtorch_cpu:run": 40}
    assert callgrind.largest(costs, 960) == {"libc:malloc": 400, of_lambda: 560}
    names = {"std::ostream& c10::operator<< <char>(X)": "c10::operator_ltlt", "0x3f": "?", "memcpy@@GLIBC_2": "memcpy"}
    names |= {
        "bool c10::x<a<b> >::y() const [clone .cold]": "c10::x::y",
        "f.isra.0'3": "f",
        "A::operator bool()": "A::operator_bool",
    }
    assert {name: callgrind.fold(name) for name in names} == names
