"""Arrays of other libraries become tensors as the table says: make test-libraries.

A case whose library is not installed, or is older than the case needs, is skipped with the reason.
"""

import numpy as np
import pytest
import torch
from checking import libraries as checked
from cli import UserError
from pages import libraries
from store.questions import read_header

CASES = libraries.library_cases()
EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: case.have)
pytestmark = pytest.mark.filterwarnings("ignore")
NUMBERS = 6


@pytest.fixture
def names(case):
    """The names of a case's expressions, with x."""
    if reason := checked.why_not_here(case):
        pytest.skip(reason)
    return checked.namespace(case, NUMBERS)


def address(values):
    return values.ctypes.data if isinstance(values, np.ndarray) else values.data_ptr()


def is_shared(expression, names):
    """Whether two results, both alive, lie at one address: then it is the source's."""
    first, second = (eval(expression, names) for _ in range(2))
    return address(first) == address(second)


def test_docs_have_the_cases():
    """PYTHONPATH=scripts python -m pages.libraries writes them."""
    assert libraries.DOCS.read_text("utf-8") == libraries.document()


@EACH
def test_what_a_library_gives(case, names):
    if not case.array:
        return
    array = eval(case.array, names)
    memory, *others = case.gives.split(", ")
    assert array.dtype == case.dtype
    assert is_shared(case.array, names) == (memory == "view")
    assert array.flags.writeable == ("writable" in others) != case.read_only
    assert any(stride < 0 for stride in array.strides) == ("negative" in others)
    assert (array.ndim > 1 and array.flags.f_contiguous) == ("column-major" in others)


@EACH
def test_how_it_becomes_a_tensor(case, names):
    wanted = np.asarray(eval(case.wanted, names))
    for route in filter(None, (case.route, case.copy, *case.slow, *case.slow.values())):
        tensor = eval(route, names)
        np.testing.assert_array_equal(tensor.double().numpy(), wanted)
        assert tensor.dtype == getattr(torch, case.result or case.dtype)
    assert is_shared(case.route, names) == (not case.copies and "view" in case.gives)


@EACH
def test_a_conversion_that_fails_raises_what_the_table_says(case, names):
    for expression, error in case.fails.items():
        with pytest.raises(Exception) as raised:
            eval(expression, names)
        assert raised.type.__name__ == error, expression


def test_times_what_costs_more(capsys, monkeypatch):
    """By element takes far longer on any machine; what is not installed is left out, with the reason."""
    by_element = [case for case in CASES if "torch.tensor(x)" in case.slow]
    monkeypatch.setattr(checked, "library_cases", lambda: by_element)
    monkeypatch.setattr(checked, "COUNT", 2**10)
    assert checked.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= len(by_element) > 2
    assert all("left out, h5py" in line or "× as long as" in line for line in lines)


@pytest.mark.parametrize("library, name", [("h5py", "x.h5:group/a"), ("zarr", "x.zarr:a"), ("zarr", "x.zarr")])
def test_like_reads_the_header_of_a_dataset(tmp_path, library, name):
    """advise.py --like takes shape and dtype of it; a group is refused."""
    module, (file, _, member) = pytest.importorskip(library), name.partition(":")
    values = np.ones((3, 4), np.int16)
    if library == "h5py":
        with module.File(tmp_path / file, "w") as archive:
            archive[member] = values
    else:
        module.save(f"{tmp_path / file}", **{member: values}) if member else module.save(f"{tmp_path / file}", values)
    assert read_header(f"{tmp_path / name}")[:2] == (values.dtype, values.shape)
    if member:
        with pytest.raises(UserError, match="cannot be read as an array"):
            read_header(f"{tmp_path / file}")
