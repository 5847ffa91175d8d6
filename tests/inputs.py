"""Behaviour of routes on unusual sources. Each case runs in its own forked process: some warn once in a process.

As a program, it reads one case per line, ``[function, arguments...]`` in JSON, and answers with one line: the
function's return value, or how its process ended.
"""

import json
import os
import signal
import sys
import warnings
from functools import partial
from multiprocessing import util
from pathlib import Path

import numpy as np
import torch

from benchmarks import contracts, files, routes, semantics, sharing

SECONDS = 20  # after which a case is stopped
NBYTES = 4096


def _numbers(route):
    """A small array of the dtype the route is for."""
    return np.arange(1, 9, dtype="float64" if routes.CASTING in route.families else "float32")


def _complex(route):
    return torch.tensor([1 + 2j, 3 - 4j, -5 + 6j], dtype=torch.complex64)


def _tensor(route):
    return torch.arange(1.0, 9.0).to(torch.bfloat16 if routes.BFLOAT16 in route.families else torch.float32)


def _unaligned(route):
    """Numbers that begin one byte after an aligned address, as behind a header in a file."""
    numbers = _numbers(route)
    # not np.frombuffer(bytearray), which torch 1.13.1 does not release well where DLPack took it
    a = np.zeros(numbers.nbytes + 1, "uint8")[1:].view(numbers.dtype)
    a[...] = numbers
    assert not a.flags.aligned
    return a


def _record_field(route):
    """A column of packed records, whose stride is no multiple of the item size."""
    numbers = _numbers(route)
    records = np.zeros(len(numbers), dtype=[("tag", "i1"), ("number", numbers.dtype)])
    records["number"] = numbers
    return records["number"]


def _ml_dtypes(route):
    import ml_dtypes

    return _numbers(route).astype(ml_dtypes.bfloat16)


def _quantized(route):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch always warns of its planned removal: pytorch#184982
        return torch.quantize_per_tensor(torch.arange(1.0, 9.0), 0.5, 0, torch.quint8)


SOURCES = {
    routes.NUMPY_TO_TORCH: {
        "ordinary": _numbers,
        "broadcast": lambda route: np.broadcast_to(_numbers(route)[:1], 8),
        "byte-swapped": lambda route: _numbers(route).astype(_numbers(route).dtype.newbyteorder()),
        "complex": lambda route: _complex(route).numpy(),
        "datetime64": lambda route: np.array(["2020-01-01T00:00:01", "2021-01-01"], "datetime64[s]"),
        "empty": lambda route: _numbers(route)[:0],
        "longdouble": lambda route: _numbers(route).astype(np.longdouble),
        "masked": lambda route: np.ma.array(_numbers(route), mask=[False, True] * 4),
        "ml_dtypes": _ml_dtypes,
        "negative strides": lambda route: _numbers(route)[::-1],
        "object": lambda route: np.array([1, "x", None], dtype=object),
        "object of numbers": lambda route: np.array([1.0, 2.0, 3.0], dtype=object),
        "read-only": lambda route: np.frombuffer(_numbers(route).tobytes(), _numbers(route).dtype),
        "record field": _record_field,
        "strided": lambda route: _numbers(route)[::2],
        "strings": lambda route: np.array(["1.5", "2"]),
        "strings, 0-d": lambda route: np.array("1.5"),
        "structured": lambda route: np.ones(8, dtype=[("x", "f4"), ("y", "i4")]),
        "ulonglong": lambda route: np.arange(8, dtype=np.ulonglong),
        "unaligned": _unaligned,
        "negative strides, length 1": lambda route: _numbers(route).reshape(_one_of(route))[::-1][:1],
        "record field, length 1": lambda route: _record_field(route)[:1],
        "read-only, strided": lambda route: np.broadcast_to(_numbers(route), (2, 8))[:, ::2],
        "read-only, 0-d": lambda route: np.broadcast_to(_numbers(route)[0], ()),
    },
    routes.TORCH_TO_NUMPY: {
        "ordinary": _tensor,
        "complex": _complex,
        "conjugate view": lambda route: _complex(route).conj(),
        "empty": lambda route: _tensor(route)[:0],
        "expanded": lambda route: _tensor(route)[:1].expand(8),
        "float8": lambda route: torch.arange(1.0, 9.0).to(torch.float8_e4m3fn),
        "negative view": lambda route: _complex(route).conj().imag,
        "quantized": _quantized,
        "requires grad": lambda route: _tensor(route).requires_grad_(),
        "sparse": lambda route: _tensor(route).to_sparse(),
        "strided": lambda route: _tensor(route)[::2],
        "conjugate view, strided": lambda route: _complex(route)[::2].conj(),
        "negative view, length 1": lambda route: _complex(route)[:1].conj().imag,
    },
}


def plain(values):
    """Return the numbers of an array or tensor, of any view or layout, as a NumPy array."""
    if not isinstance(values, torch.Tensor):
        return np.asarray(values)
    values = values.detach().resolve_conj().resolve_neg()
    if values.is_quantized:
        values = values.dequantize()
    if values.layout != torch.strided:
        values = values.to_dense()
    # NumPy lacks both dtypes, and old releases of torch lack one
    without = semantics.dtype_name(values).startswith(("bfloat16", "float8"))
    return (values.float() if without else values).numpy()


def _equal(numbers, found):
    """Whether two arrays hold the same numbers, whatever their dtypes."""
    try:
        wide = "complex128" if numbers.dtype.kind == "c" else "float64"
        return np.array_equal(numbers.astype(wide), found)
    except (TypeError, ValueError):  # not numbers
        return False


def _one_of(route):
    """Return the shape of eight numbers whose first axis has one; torch.frombuffer flattens what has two axes."""
    return (8,) if "frombuffer" in route.expression else (1, 8)


def _lost(route, source, result):
    """Return how the result differs from the source's numbers, in the catalogue's words; "" if it does not."""
    if result is source:
        return routes.Does.UNCONVERTED
    numbers, found = plain(source), plain(result)
    if route.view:
        same = source.shape == found.shape and _equal(source.detach().view(torch.int16).numpy(), found)
        return "" if same else routes.Does.WRONG
    if isinstance(source, np.ma.MaskedArray) and _equal(numbers, found):
        return routes.Does.UNMASKED
    if numbers.dtype.kind == "M" and _equal(numbers.astype("int64").astype(found.dtype), found):
        return routes.Does.INFINITE if np.isinf(found).all() else routes.Does.COUNTS
    if numbers.dtype.kind == "U" != found.dtype.kind and _equal(numbers.astype(found.dtype), found):
        return routes.Does.PARSES
    if numbers.dtype.kind == "c" != found.dtype.kind and _equal(numbers.real, found):
        return routes.Does.REAL_PART
    return "" if _equal(numbers, found) else routes.Does.WRONG


def _case(expression, direction, kind):
    """Return a route, a source of this kind and the names in the route's expression."""
    route = routes.find(expression, direction)
    names = {"np": np, "torch": torch}
    if "arrays" in expression:
        return route, None, {**names, "arrays": [np.arange(4.0), np.arange(4.0)]}
    source = SOURCES[direction][kind](route)
    dtype = semantics.dtype_name(source)
    empty = np.zeros(tuple(source.shape), dtype if dtype == "complex64" else "float32")
    names["b"] = torch.from_numpy(empty) if direction == routes.NUMPY_TO_TORCH else empty
    taken = {"ml_dtypes": torch.bfloat16, "ulonglong": getattr(torch, "uint64", None)}.get(kind, names["b"].dtype)
    return route, source, {**names, "a": source, "t": source, "dtype": taken}


def _memory(values):
    """Return the address of the first byte that an array or tensor may use, and the address after the last."""
    if isinstance(values, torch.Tensor):
        storage = values.untyped_storage() if hasattr(values, "untyped_storage") else values.storage()  # before torch 2
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    return getattr(np.lib, "array_utils", np).byte_bounds(values)  # in np before NumPy 2


def _shares(source, result):
    """Return whether the result lies in the source's memory, by address: neither need be contiguous or writable."""
    (first, beyond), (start, end) = _memory(source), _memory(result)
    return first < end and start < beyond


def _twice(convert):
    """Call twice: return the result and the warnings, in the catalogue's words; or None and an exception's name."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = convert()
            result = convert()  # again, as some warn once per process, while the first result exists
        except Exception as error:
            return None, type(error).__name__
    return result, [routes.Does.WORKS, routes.Does.WARNS, routes.Does.WARNS_EACH_TIME][len(caught)]


def outcome(expression, direction, kind):
    """Return what a route does with this kind of source, in the catalogue's words.

    If the route converts, the source's dtype follows, and whether the result shares the source's memory.
    """
    route, source, names = _case(expression, direction, kind)
    # no lambda: it would keep the names. On torch 1.13 no result of DLPack may be the last owner of the array
    result, warned = _twice(partial(semantics.result_of, route, names))
    if result is None or source is None:
        return [warned]
    lost = _lost(route, source, result)
    if lost and (warned == routes.Does.WORKS) == (contracts.Does.KINDS[lost] == "warns"):
        return [f"{lost}, but {warned}"]  # an outcome that counts as silent warned, or the reverse
    does = lost or warned
    if isinstance(source, torch.Tensor) and source.requires_grad and not lost:
        does = routes.Does.DETACHES if isinstance(result, np.ndarray) else "loses requires_grad"
    return [does] if does == routes.Does.WRONG else [does, semantics.dtype_name(source), _shares(source, result)]


def registered():
    """Register bfloat16 with NumPy 2.5 as ml_dtypes after 0.6.0 does; return what DLPack then does with it."""
    import ml_dtypes

    np.dtypes.register_dlpack_dtype((4, 16), np.dtype(ml_dtypes.bfloat16))  # DLPack's code of bfloat, and its bits
    tensor = torch.arange(4.0).bfloat16()
    array = np.from_dlpack(tensor)
    back = torch.from_dlpack(array)
    shares = array.ctypes.data == tensor.data_ptr() == back.data_ptr()
    return [array.dtype.name, array.tolist(), array.flags.writeable, str(back.dtype), shares]


def file_outcome(expression, kind, directory):
    """Return what a route does with this kind of file, in the catalogue's words.

    If the route converts, the result's dtype follows, and whether the file has changed.
    """
    numbers = np.arange(1, 2**15 + 1, dtype="float32")  # of several pages
    names = files.written(routes.find(expression, routes.FILE_TO_TENSOR), numbers, directory)
    path = Path(names["path"])
    if kind == "cut short":
        os.truncate(path, path.stat().st_size // 2)
    before = path.read_bytes()
    if kind == "missing":
        path.unlink()
    result, does = _twice(lambda: eval(expression, names))
    if result is None:
        return [does]
    if kind == "cut short in use":
        os.truncate(path, 0)
    if kind == "written to":
        result[-1] = numbers[-1] = 7
    found = result.numpy().copy()  # touches every page
    if len(found) < len(numbers):
        does = routes.Does.FEWER
    elif not np.array_equal(found, numbers):
        does = routes.Does.EXTENDS if path.stat().st_size > len(before) or not found.any() else routes.Does.WRONG
    return [does, semantics.dtype_name(result), path.read_bytes() != before]


def shared(expression, closed):
    """Return whether a route's result has the numbers in shared memory, then the names where a write to it shows.

    closed: return instead how the memory refuses to close while the result is used.
    """
    made = sharing.Into()
    made.setup(expression, NBYTES)
    numbers, block = made.names["a"].copy(), made.names["block"]
    if expression.startswith("np.copyto"):
        block[...] = 0
    result = eval(expression, made.names)
    if closed:
        made.memory.unlink()
        try:
            made.memory.close()
        except BufferError as error:
            return [type(error).__name__]
        return ["closes"]
    result = torch.from_numpy(block) if result is None else result
    has = np.array_equal(result.numpy(), numbers) and (result.is_shared() or np.shares_memory(result.numpy(), block))
    result += 1
    shows = [name for name in ("a", "block") if np.array_equal(made.names[name], numbers + 1)]
    return [has, shows]


def handed_over(expression):
    """Hand numbers to the timed worker, which writes to them.

    Return whether the worker adds them up, the names on this side where its writes show, and whether anything is left.
    """
    add_up = torch.Tensor.sum
    torch.Tensor.sum = lambda numbers: add_up(numbers.add_(1))  # in the worker, forked below: it writes before it adds
    made = sharing.HandedOver()
    made.setup(expression, NBYTES)
    written = made.names["a"] + 1
    made.names["block"][...] = 0
    statement, names = made.timeit_answered(expression, NBYTES)
    exec(statement.replace("connection.recv()", "total = connection.recv()"), names)
    shows = [name for name in ("a", "block", "shared") if np.array_equal(names[name], written)]
    made.teardown(expression, NBYTES)
    left = Path(util.get_temp_dir()).exists() or Path(sharing.SHARED, made.memory.name).exists()
    return [names["total"] == add_up(torch.from_numpy(written)).item(), shows, left or made.worker.is_alive()]


def _answer(case):
    """Print the answer to one case, from its own process."""
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)
        function, *arguments = json.loads(case)
        try:
            answer = globals()[function](*arguments)
        except BaseException as error:
            answer = [f"the test itself failed: {error!r}"]
        print(json.dumps(answer), flush=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        print(json.dumps([f"its process ended with status {status}"]), flush=True)


if __name__ == "__main__":
    for line in sys.stdin:
        _answer(line)
