"""What a route does with an awkward source, each case in a forked process of its own: some abort it, some warn once.

Run as a program it reads one case a line, ``[function, arguments...]`` in JSON, and answers with one line: what the
function returned, or how its process ended.
"""

import json
import os
import resource
import signal
import sys
import warnings

import numpy as np
import torch

from benchmarks import routes, semantics

SECONDS = 20  # after which a case is stopped


def _numbers(route):
    """A small array of the dtype the route is for."""
    return np.arange(1, 9, dtype="float64" if routes.CASTING in route.families else "float32")


def _complex(route):
    return torch.tensor([1 + 2j, 3 - 4j, -5 + 6j], dtype=torch.complex64)


def _tensor(route):
    return torch.arange(1.0, 9.0).to(torch.bfloat16 if routes.BFLOAT16 in route.families else torch.float32)


def _read_only(route):
    a = _numbers(route)
    a.flags.writeable = False
    return a


SOURCES = {
    routes.NUMPY_TO_TORCH: {
        "ordinary": _numbers,
        "read-only": _read_only,
        "negative strides": lambda route: _numbers(route)[::-1],
        "byte-swapped": lambda route: _numbers(route).astype(_numbers(route).dtype.newbyteorder()),
        "structured": lambda route: np.ones(8, dtype=[("x", "f4"), ("y", "i4")]),
        "object": lambda route: np.array([1, "x", None], dtype=object),
    },
    routes.TORCH_TO_NUMPY: {
        "ordinary": _tensor,
        "requires grad": lambda route: _tensor(route).requires_grad_(),
        "conjugate view": lambda route: _complex(route).conj(),
        "negative view": lambda route: _complex(route).conj().imag,
    },
}


def plain(values):
    """An array or tensor as a NumPy array of its numbers, whatever view it is."""
    if not isinstance(values, torch.Tensor):
        return np.asarray(values)
    values = values.detach().resolve_conj().resolve_neg()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()


def _same(source, result):
    """Whether the result holds the source's numbers: those of a complex64 cannot be in a float32."""
    source, result = plain(source), plain(result)
    return source.dtype.kind in "fc" and source.shape == result.shape and bool(np.array_equal(source, result))


def outcome(expression, direction, kind):
    """What the route does with that kind of source, in the catalogue's words."""
    route = routes.find(expression, direction)
    if "arrays" in expression:
        source, names = None, {"arrays": [np.arange(4.0), np.arange(4.0)]}
    else:
        source = SOURCES[direction][kind](route)
        names = {"a": source, "t": source, "dtype": torch.float32}
        empty = np.zeros(tuple(source.shape), "complex64" if kind == "conjugate view" else "float32")
        names["b"] = torch.from_numpy(empty) if direction == routes.NUMPY_TO_TORCH else empty
    names.update(np=np, torch=torch)
    grad = isinstance(source, torch.Tensor) and source.requires_grad
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = semantics.result_of(route, names)
            result = semantics.result_of(route, names)  # a second time, for what warns once a process
        except Exception as error:
            return type(error).__name__
    if caught and len(caught) != 1:
        return f"warns {len(caught)} times in 2: {caught[0].category.__name__}"
    if source is not None and "int16" not in expression and not _same(source, result):
        return routes.WRONG
    if grad:
        return routes.DETACHES if isinstance(result, np.ndarray) and source.requires_grad else "loses requires_grad"
    return routes.WARNS if caught else routes.WORKS


def _answer(case):
    """The line for one case, from a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what libtorch prints when it aborts
        signal.alarm(SECONDS)
        function, *arguments = json.loads(case)
        try:
            answer = globals()[function](*arguments)
        except BaseException as error:
            answer = f"the test itself failed: {error!r}"
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        ended = os.WTERMSIG(status)
        return json.dumps(routes.ABORTS if ended == signal.SIGABRT else signal.Signals(ended).name)
    return answer


if __name__ == "__main__":
    for line in sys.stdin:
        print(_answer(line), flush=True)
