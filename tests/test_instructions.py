"""With Valgrind, instruction counts of a call are reproducible. Without it, the cell names the missing requirement."""

import pytest

from benchmarks import instructions

FEWER = """
import sys
from benchmarks import instructions

def namespace(route, source, made=instructions.sources.namespace):
    if route.expression == "torch.as_tensor(a)":
        raise TypeError("it dies")
    return made(route, source)

instructions.sources.namespace = namespace
routes = ["torch.from_numpy(a)", "torch.tensor(a)", "torch.as_tensor(a)"]
instructions.NumpyToTorch.params = (routes, ["float32"], [8])
instructions.TorchToNumpy.params = (["t.numpy()"], ["float32", "bfloat16"], [8])
instructions.count_all(sys.argv[1])
"""


@pytest.fixture(scope="module")
def counts():
    """Instruction counts of a few cells by two processes, which take a quarter of a minute each."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(instructions, "REPEATS", 2)
        found = instructions.NumpyToTorch().setup_cache(FEWER)
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.mark.slow
def test_counts_are_those_of_a_call(counts):
    view, copy = (counts[f"numpy→torch {route} float32 8"] for route in ("torch.from_numpy(a)", "torch.tensor(a)"))
    assert len(view) == 2 and max(view) < 1.05 * min(view)
    assert 1_000 < min(view) < min(copy) / 2, "a view of an array takes less than a copy of it"
    assert max(copy) < 1.05 * min(copy), "where its memory lies decides a little"
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
    made.setup({made.key(*cell): [5000.0, 5010.0, 5100.0]}, *cell)
    assert made.track_instructions(None, *cell) == {"samples": [5000.0, 5010.0, 5100.0], "number": 1}
