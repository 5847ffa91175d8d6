"""Serve the measurements of questions: the source that a user described, and the routes for it.

scripts/measuring/question.py runs ``main`` in a process of its own. Each line of its input is a
request, answered by a line of JSON: a question first, then what is to be
done with its source. The source is made once, with one torch thread. Each measurement runs in a
process of its own, forked from this one, as asv's fork server does it. Needs torch and numpy.

    {"source": "numpy", "dtype": "uint8", "shape": [1080, 1920, 3], "layout": "contiguous", ...}
    {"device": true}                             why no transfer is measured
    {"check": ["torch.from_numpy(a)"]}           what each route returns, see ``check_routes``
    {"routes": ["torch.from_numpy(a)"], "round": 0}  for each a record of samples that are taken in
                                                 turns, see timing.Timing.take
"""

import contextlib
import json
import math
import os
import re
import select
import signal
import sys
import tempfile
import time
import timeit
from functools import partial

import numpy as np
import torch

from .. import contracts
from . import devices, sources, timing, turns
from .timing import first_sentence

# Layouts of a source of a given shape; others are those of sources.laid_out
FLIPPED, READ_ONLY, MEMMAP = "flipped", "read-only", "memmap"
MATRICES = ("transposed", "fortran", "power of two", "5-d")  # of sources without a shape
CHANNELS_LAST, PANDAS = "channels_last", "pandas"
MORE_SAMPLES = 2  # times as many as the suite takes, of sources below LARGE bytes
CHECK_SECONDS, PROCESS_SECONDS = 300.0, 120.0  # after which a forked process is killed
MAX_REASON_LENGTH = 200  # letters of the reason of a failure


def expression_names(expression=""):
    """Return the names that a user's expression may use: np and torch; pd if it names that."""
    names = {"np": np, "numpy": np, "torch": torch}
    if re.search(r"\b(pd|pandas)\b", expression):  # importing it takes as long as a measurement
        import pandas

        names |= {"pd": pandas, "pandas": pandas}
    return names


# --- source ---------------------------------------------------------------------------------------


def make_source(question):
    """Return the source of a question: an array, a tensor, or a list of either.

    NotImplementedError if there is no such source.
    """
    if question["expression"]:
        source = eval(
            question["expression"], expression_names(question["expression"])
        )  # the user's own, in their shell
        if not isinstance(source, (np.ndarray, torch.Tensor, list)):
            raise TypeError(
                f"the source is a {type(source).__name__}, not an array, tensor or list"
            )
        return source
    if question["batch"]:
        return [make_array(question, seed) for seed in range(question["batch"])]
    return make_array(question, 0)


def make_array(question, seed):
    """Return an array or a tensor of random numbers, as the question describes it."""
    dtype, shape, layout = question["dtype"], tuple(question["shape"]), question["layout"]
    is_tensor = question["source"] == "torch"
    if dtype == "bfloat16":
        return make_array({**question, "dtype": "float32"}, seed).to(torch.bfloat16)
    if is_tensor and layout in (FLIPPED, READ_ONLY, MEMMAP, PANDAS):
        raise NotImplementedError(f"a tensor cannot be {layout}")
    array = lay_out(dtype, shape, layout, seed)
    if not is_tensor:
        return array
    tensor = torch.from_numpy(array)
    if array.flags.c_contiguous:  # in memory that torch allocates
        tensor = tensor.clone()
    return tensor.requires_grad_() if question["grad"] else tensor


def lay_out(dtype, shape, layout, seed):
    """Return an array of random numbers of that shape and layout; elements are written.

    shape  of the array, whatever its order in memory
    """
    itemsize = np.dtype(dtype).itemsize

    def dense(*lengths):
        return sources.array(dtype, math.prod(lengths) * itemsize, seed)[
            : math.prod(lengths)
        ].reshape(lengths)

    if len(shape) == 1 and layout in MATRICES:
        return sources.laid_out(dtype, shape[0] * itemsize, layout)
    *outer, last = shape or (1,)
    if layout in ("strided", FLIPPED):
        step = 2 if layout == "strided" else -1
        return dense(*outer, last * abs(step))[..., ::step]
    if layout == "transposed":
        return dense(*shape[::-1]).T
    if layout == "fortran":
        return np.asfortranarray(dense(*shape))
    if layout == CHANNELS_LAST:
        if len(shape) not in (3, 4):
            raise NotImplementedError("channels_last needs a shape of three or four sizes")
        moved = (*shape[:-3], *shape[-2:], shape[-3])
        return np.moveaxis(dense(*moved), -1, -3)
    if layout == MEMMAP:
        file = tempfile.TemporaryFile()  # noqa: SIM115  the array keeps it open
        file.write(dense(*shape).tobytes())
        file.flush()
        return np.memmap(file, dtype, "r", shape=shape)
    if layout == PANDAS:
        import pandas

        if len(shape) > 2:
            raise NotImplementedError("a DataFrame has two dimensions")
        return pandas.DataFrame(dense(*shape)).to_numpy()
    if layout not in ("contiguous", "0-d", READ_ONLY):
        raise NotImplementedError(f"no layout {layout} of the shape {shape}")
    array = dense(*shape)
    array.setflags(write=layout != READ_ONLY)
    return array


def describe_source(source):
    """Return what a source is: library, dtype, shape, bytes, number of arrays, contiguity, and
    whether it is a list of Python numbers. Such a list is described by the tensor that torch makes
    of it."""
    if is_values(source):
        return {**describe_source(torch.tensor(source)), "library": "numpy", "values": True}
    arrays = source if isinstance(source, list) else [source]
    first = arrays[0]
    is_array = isinstance(first, np.ndarray)
    dense = first.flags.c_contiguous if is_array else first.is_contiguous()
    return {
        "library": "numpy" if is_array else "torch",
        "dtype": first.dtype.name if is_array else str(first.dtype).partition(".")[2],
        "shape": longest(arrays),
        "nbytes": int(sum(array.nbytes for array in arrays)),
        "elements": int(sum(math.prod(array.shape) for array in arrays)),
        "arrays": len(source) if isinstance(source, list) else 0,
        "contiguous": bool(dense),
        "values": False,
        "grad": not is_array and first.requires_grad,
        "versions": sources.VERSIONS,
        "threads": sources.DEFAULT_THREADS,
    }


def is_values(source):
    """Whether a source is a list of Python numbers, or of such lists; also if it is empty."""
    if not isinstance(source, list):
        return False
    return not any(isinstance(each, (np.ndarray, torch.Tensor)) for each in source[:1])


def longest(arrays):
    """Return the lengths of the shape that holds each array of a list, padded; [] if the number of
    their dimensions differs."""
    shapes = [tuple(array.shape) for array in arrays]
    is_alike = len({len(shape) for shape in shapes}) == 1
    return [max(lengths) for lengths in zip(*shapes)] if is_alike else []


def names_of(source, goal="", expression=""):
    """Return the names for routes of the catalogue: the source, a buffer for the result, packages.

    goal        dtype of the buffer; "": that of the source
    expression  of the routes
    """
    names = expression_names(expression)
    if isinstance(source, list):
        return {**names, **names_of_list(source)}
    is_array = isinstance(source, np.ndarray)
    names["a" if is_array else "t"] = source
    dtype = goal or (source.dtype.name if is_array else str(source.dtype).partition(".")[2])
    if is_array and hasattr(torch, dtype):
        names["dtype"] = getattr(torch, source.dtype.name, None)
        names["b"] = torch.ones(source.shape, dtype=getattr(torch, dtype))
    elif not is_array and dtype != "bfloat16":
        names["b"] = np.ones(tuple(source.shape), dtype)
    return sources.placed(names)


def names_of_list(source):
    """Return the list under its name and, for arrays, a buffer for the batch."""
    if is_values(source):
        return {"values": source}
    if not isinstance(source[0], np.ndarray):
        return {"tensors": source}
    names = {"arrays": source}
    dtype = source[0].dtype.name
    if hasattr(torch, dtype):
        names["b"] = torch.ones(len(source), *longest(source), dtype=getattr(torch, dtype))
    return names


# --- what a route returns -------------------------------------------------------------------------


def extent(values):
    """Return the first address of an array or a tensor, and the one after its last."""
    is_array = isinstance(values, np.ndarray)
    item = values.itemsize if is_array else values.element_size()
    steps = values.strides if is_array else [step * item for step in values.stride()]
    spans = [(length - 1) * step for length, step in zip(values.shape, steps)]
    address = sources.address(values)
    if 0 in values.shape:
        return address, address
    begin = address + sum(min(0, span) for span in spans)
    return begin, address + item + sum(max(0, span) for span in spans)


def overlaps(one, other):
    """Whether two arrays or tensors share memory."""
    (begin, end), (other_begin, other_end) = extent(one), extent(other)
    return begin < other_end and other_begin < end


def memory_of(result, names):
    """Return alias, copy or into, as found: whose memory the result has."""
    if "b" in names and overlaps(result, names["b"]):
        return contracts.INTO
    if "values" in names:
        return contracts.COPY
    values = names.get("arrays") or names.get("tensors")
    values = values or [names["a"] if "a" in names else names["t"]]
    shared = any(overlaps(result, each) for each in values[:64])
    return contracts.ALIAS if shared else contracts.COPY


def check_route(names, route):
    """Take a route once, and once more for its time. Return memory, dtype, shape, seconds; or why
    it fails."""
    try:
        result = eval(route, names)
        start = time.perf_counter()
        eval(route, names)
        seconds = time.perf_counter() - start
        if result is None or isinstance(result, list) and "b" in names:  # np.copyto, a loop
            result = names["b"]
        if not isinstance(result, (np.ndarray, torch.Tensor)):
            return {"fails": f"gives a {type(result).__name__}, not an array or a tensor"}
        dtype = str(result.dtype).rpartition(".")[2]
        returned = {"dtype": dtype, "shape": list(result.shape), "seconds": seconds}
        return {**returned, "memory": memory_of(result, names)}
    except Exception as error:
        return {"fails": explain(error)}


def explain(error):
    """Return Python's message of an exception, in one line."""
    text = " ".join(f"{type(error).__name__}: {first_sentence(error)}".split())
    return text[:MAX_REASON_LENGTH]


def check_routes(source, request, question):
    """Return route -> what it returns, see ``check_route``."""
    names = names_of(source, question["goal"], " ".join(request["check"]))
    return {route: check_route(names, route) for route in request["check"]}


# --- measurement ----------------------------------------------------------------------------------


def sample_routes(source, described, request, question):
    """Take the samples of routes in turns, each in a process of its own. Return their records."""
    threads = question["threads"]
    number = sources.DEFAULT_THREADS if threads == contracts.ALL_THREADS else int(threads)
    spreads = number > 1 and described["elements"] >= contracts.PARALLEL
    cores = (
        [] if spreads or not hasattr(os, "sched_setaffinity") else sorted(os.sched_getaffinity(0))
    )

    def sample(route, turn):
        began = time.perf_counter()
        if cores:  # all on one core, whose speed is the same for all
            os.sched_setaffinity(0, {cores[request["round"] % len(cores)]})
        torch.set_num_threads(number)
        if described["arrays"]:
            sources.settle_heap()
        timed = sample_route(source, described, route, question["goal"], spreads, turn)
        return {**timed, "took": round(time.perf_counter() - began, 4)}

    return in_turns([partial(sample, route) for route in request["routes"]], PROCESS_SECONDS)


def sample_route(source, described, route, goal, spreads, turn):
    """Take the samples of a route in this process, by the suite's own timing. Return the record."""
    nbytes = described["nbytes"]
    many = timing.samples_per_process(nbytes) * (1 if nbytes >= timing.LARGE else MORE_SAMPLES)
    _, _, record = timing.Timing(
        timeit.Timer(route, globals=names_of(source, goal, route)),
        # watching all cores takes some milliseconds a sample
        count=timing.SAMPLES_LARGE if spreads else many,
        nbytes=nbytes,
        on_all_cores=spreads,
        partner=turn,
    ).take()
    return record


# --- forked processes -----------------------------------------------------------------------------


class Turn:
    """The turns of a forked process: timing.Timing takes each sample in one, as with a
    turns.Partner. The processes of other routes sleep meanwhile.

    allowed  pipe from the parent: a byte allows the next turn
    ended    pipe to the parent: a line says that a turn has ended
    """

    samples = 1

    def __init__(self, allowed, ended):
        self.allowed = allowed
        self.ended = ended
        self.turns = 0

    def wait(self):
        """Wait for this process's turn; end the process if its parent is gone."""
        if not os.read(self.allowed, 1):
            os._exit(1)
        time.sleep(turns.SETTLE)

    def meet(self):
        """Return that there are other processes."""
        return True

    @contextlib.contextmanager
    def turn(self):
        """End the last turn, and wait for the next."""
        os.write(self.ended, b"\n")
        self.wait()
        yield
        self.turns += 1


class Child:
    """A forked process that works in turns with others.

    work     called with a Turn; what it returns is the answer of the process
    seconds  of its own turns, after which it is killed
    """

    def __init__(self, work, seconds):
        self.seconds = self.left = seconds
        self.answer = b""
        allowed, self.allow = os.pipe()
        self.ended, ended = os.pipe()
        self.process = os.fork()
        if not self.process:
            os.close(self.allow)
            os.close(self.ended)
            self._run(work, Turn(allowed, ended))
        os.close(allowed)
        os.close(ended)

    def _run(self, work, turn):
        """Do the work, write its answer, and end this process."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # warnings of routes; answers have the errors
        turn.wait()
        try:
            answer = work(turn)
        except BaseException as error:
            answer = {"fails": explain(error)}
        with os.fdopen(turn.ended, "w") as file:
            json.dump(answer, file)
        os._exit(0)

    def take_turn(self):
        """Let the process work until its turn ends. Return its answer, or why it did not end well;
        None if it has further turns.
        """
        start = time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # it died between two turns
            os.write(self.allow, b".")
        while select.select([self.ended], [], [], max(0.0, self._left(start)))[0]:
            chunk = os.read(self.ended, 2**16)
            if chunk == b"\n":
                self.left = self._left(start)
                return None
            if not chunk:
                return self._result()
            self.answer += chunk
        os.kill(self.process, signal.SIGKILL)
        self._result()
        return {"fails": f"took more than {self.seconds:.0f} s"}

    def _left(self, start):
        return self.left - (time.monotonic() - start)

    def _result(self):
        """Return the answer of a process that has ended, or why it did not end well."""
        os.close(self.allow)
        os.close(self.ended)
        _, status = os.waitpid(self.process, 0)
        if os.WIFSIGNALED(status):
            return {"fails": f"died with {signal.Signals(os.WTERMSIG(status)).name}"}
        return json.loads(self.answer) if self.answer else {"fails": "ended the process"}


def in_turns(works, seconds):
    """Return what each of ``works`` returns, or why its process did not end well, see Child."""
    children = [Child(work, seconds) for work in works]
    answers = {}
    while len(answers) < len(children):
        for child in children:
            if child not in answers and (answer := child.take_turn()) is not None:
                answers[child] = answer
    return [answers[child] for child in children]


def in_fork(work, seconds):
    """Return what ``work`` returns in a forked process, or why that process did not end well."""
    return in_turns([lambda turn: work()], seconds)[0]


# --- server ---------------------------------------------------------------------------------------


def refuse_transfers():
    """NotImplementedError: there is no device, or transfers are measured in another way."""
    device = devices.find()
    raise NotImplementedError(f"for {device} use scripts/run.py --profile transfers")


def serve(lines, answers):
    """Answer requests until the input ends."""
    question = source = described = None
    for line in lines:
        request = json.loads(line)
        if "source" in request:
            question = request
            try:
                source = make_source(question)
                answer = described = describe_source(source)
            except Exception as error:
                answer = {"fails": explain(error)}
        elif "device" in request:
            answer = in_fork(refuse_transfers, CHECK_SECONDS)
        elif "check" in request:
            answer = in_fork(partial(check_routes, source, request, question), CHECK_SECONDS)
        else:
            answer = sample_routes(source, described, request, question)
        print(json.dumps(answer), file=answers, flush=True)


def main():
    """Serve standard input."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an import prints is no answer
    serve(sys.stdin, output)
