"""Transfers between host and device: sources, destinations, staging, and a check that the bytes
arrive.

Nothing here measures time. So tests run all of it on a device that only moves bytes
(tests/test_moving.py).
"""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from .. import routes
from . import queued_work, sources

DTYPES = ["uint8", "float16", "float32", "float64", "int64"]
# From a loss value to more than any cache holds; a source has at least one element
SIZES = [4, 4 * 2**10, 64 * 2**10, 256 * 2**10, 2**20, 16 * 2**20, 64 * 2**20, 256 * 2**20, 2**30]
CHUNK = 4 * 2**20  # bytes of each of the two staging buffers of a copy in chunks
EACH = 4 * 2**10  # bytes of each of many small tensors
POOL_THREADS = 4  # that pin many tensors
VERIFY_ALL = 16 * 2**20  # bytes up to which all are compared
SLICES = 9  # beyond: number of slices, including first, middle and last
SLICE = 4096  # least elements of each
RUBBISH = 99  # content of a destination before a transfer
# Each page of a source begins with its number: MARKS digits to the base MARK, so that every dtype
# holds them exactly. A source of one repeated tile would hide a chunk that arrives in place of
# another.
PAGE, MARKS, MARK = 4096, 3, 64
CONTAINERS = Path("/sys/fs/cgroup")


def uses(route, name):
    """Whether a route's expression uses a name of the catalogue."""
    return re.search(rf"\b{name}\b", route.expression) is not None


class Buffers:
    """Two pinned tensors that take turns as targets of copies from the device, each with an event.

    A read waits for the event of its own copy, not for work queued behind it.
    """

    def __init__(self, device, like):
        device.require_streams()
        self.tensors = [device.pinned(like) for _ in range(2)]
        self.events = [device.event() for _ in range(2)]
        self.started = self.finished = 0

    def start(self, t):
        """Queue a copy of a device tensor to the next buffer, without waiting."""
        turn = self.started % 2
        self.tensors[turn].copy_(t, non_blocking=True)
        self.events[turn].record()
        self.started += 1

    def read(self):
        """Wait for the oldest unread copy and return its array; RuntimeError without an unread
        copy.
        """
        if self.finished == self.started:
            raise RuntimeError("no copy was started that is not read yet")
        turn = self.finished % 2
        self.events[turn].synchronize()
        self.finished += 1
        return self.tensors[turn].numpy()


class Stages(Buffers):
    """Buffers for chunks, and a side stream: the state of ``copy_in_chunks`` between calls."""

    def __init__(self, device, dtype):
        super().__init__(device, torch.empty(CHUNK, dtype=torch.uint8).view(dtype))
        self.device, self.stream = device, device.stream()


def copy_in_chunks(d, t, stages):
    """Copy a pageable host tensor to the device through two pinned buffers; host and device copy at
    the same time.
    """
    size = len(stages.tensors[0])
    stages.stream.wait_stream(stages.device.current_stream())
    with stages.device.on(stages.stream):
        for index, (source, target) in enumerate(
            zip(t.view(-1).split(size), d.view(-1).split(size))
        ):
            buffer, event = stages.tensors[index % 2][: len(source)], stages.events[index % 2]
            event.synchronize()  # the buffer's last chunk has left it
            buffer.copy_(source)
            target.copy_(buffer, non_blocking=True)
            event.record(stages.stream)
    stages.device.current_stream().wait_stream(stages.stream)
    return d


def pin_by_threads(tensors, pool):
    """Return pinned copies of tensors, in order, made by the threads of a pool."""
    return [*pool.map(torch.Tensor.pin_memory, tensors)]


def host_tensor(device, dtype, nbytes, memory, seed=0):
    """Return a host tensor, in pinned memory if ``memory`` is PINNED."""
    tensor = sources.tensor(dtype, nbytes, seed)
    each = PAGE // tensor.element_size()
    pages = torch.arange(seed + 1, seed + 1 + tensor.numel() // each)
    for place in range(MARKS):
        tensor[place::each][: len(pages)].copy_(pages // MARK**place % MARK)
    return device.pinned(tensor) if memory == routes.PINNED else tensor


def require_memory(nbytes):
    """Skip the cell unless ``nbytes`` bytes are free, on the machine and in this process's
    container.

    The check of the machine is in sources.require_memory, since it is part of the version of every
    benchmark without a device. The container's limit matters here, because pinned memory cannot be
    swapped.
    """
    sources.require_memory(nbytes)
    room = room_in_container()
    if room is not None and room < nbytes:
        raise NotImplementedError(
            f"needs {nbytes / 2**30:.1f} GiB of free memory in this container"
        )


def room_in_container(membership=Path("/proc/self/cgroup")):
    """Return the bytes that this process may still take in its control groups (v1 or v2); None
    without a limit.
    """
    rooms = []
    for line in membership.read_text(encoding="utf-8").splitlines() if membership.is_file() else ():
        _, kinds, path = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        root = CONTAINERS / "memory" if kinds else CONTAINERS
        limit, used = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes")
            if kinds
            else ("memory.max", "memory.current")
        )
        group = root / path.strip("/")
        # a container may see its own group as the root, and list it by a path that does not exist
        # there
        for each in [group, *group.parents][: len(group.relative_to(root).parts) + 1]:
            try:
                numbers = dict(
                    row.split()
                    for row in (each / "memory.stat").read_text(encoding="utf-8").splitlines()
                )
                cached = int(
                    numbers.get("total_inactive_file", numbers.get("inactive_file", 0))
                )  # given back if asked
                most, now = (
                    int((each / name).read_text(encoding="utf-8")) for name in (limit, used)
                )
            except (OSError, ValueError):  # no such group, or its limit is the word max
                continue
            rooms.append(most - now + cached)
    return min(rooms, default=None)


def require(route, memory, device):
    """Skip the cell if the route does not take this host memory, or the toolchain or device does
    not support it.
    """
    if memory not in route.host_memory:
        raise NotImplementedError(f"for {' or '.join(route.host_memory)} memory only")
    sources.require(route.needs)
    if "cuda" in route.needs.split() and not device.is_cuda:
        raise NotImplementedError(f"needs CUDA, this is {device}")


class Move:
    """A prepared route: ``names`` for its expression, ``run``, ``verify`` for the bytes that
    arrive, ``close``.

    NotImplementedError if the toolchain, the device or the memory cannot do it.
    """

    def __init__(self, route, memory, dtype, nbytes, device):
        require(route, memory, device)
        device.use()
        # the source, a buffer, a staging copy, and memory for verifying
        require_memory(4 * nbytes)
        self.route, self.device, self.memory = route, device, memory
        self.names = {"torch": torch, "np": np, "device": device.device, "synchronize": device.wait}
        self.names.update(map_tree=sources.map_tree, copy_in_chunks=copy_in_chunks)
        self.names.update(pin_by_threads=pin_by_threads)
        statements, _, last = route.expression.rpartition("; ")
        self.statements, self.last = (
            compile(statements, "<route>", "exec"),
            compile(last, "<route>", "eval"),
        )
        self._prepare(dtype, nbytes)

    def _prepare(self, dtype, nbytes):
        route, device, names = self.route, self.device, self.names
        to_device = route.direction == routes.HOST_TO_DEVICE
        device.require_dtype(route.result_dtype(dtype) if to_device else dtype)
        if uses(route, "pin_memory") or uses(route, "pool"):
            device.pinned(torch.empty(1))
        memory = self.memory if to_device else routes.PAGEABLE
        name = next(
            name for name in ("tensors", "numbers", "tree", "m", "a", "t") if uses(route, name)
        )
        host = self._host_source(name, dtype, nbytes, memory)
        self.source = host if to_device else sources.map_tree(lambda x: x.to(device.device), host)
        names[name] = self.source.numpy() if name == "a" else self.source
        if uses(route, "d"):
            # row-major whatever the source is: empty_like would keep the strides of a transpose
            names["d"] = torch.empty(
                self.source.shape, dtype=self.source.dtype, device=device.device
            )
        if uses(route, "ds"):
            names["ds"] = [torch.empty_like(each, device=device.device) for each in host]
        if uses(route, "s"):
            names["s"] = device.pinned(torch.cat(host) if name == "tensors" else host)
        if uses(route, "h"):
            empty = torch.empty_like(host)
            names["h"] = device.pinned(empty) if self.memory == routes.PINNED else empty
        if uses(route, "stages"):
            names["stages"] = Stages(device, host.dtype)
        if uses(route, "pool"):
            names["pool"] = ThreadPoolExecutor(POOL_THREADS)
        if uses(route, "buffers"):
            names["buffers"] = Buffers(device, host)
        # last, because nothing undoes it if a later step fails
        self.release = device.registered(host) if memory == routes.REGISTERED else None

    def _host_source(self, name, dtype, nbytes, memory):
        """Return the source on the host: what the route's expression calls ``name``."""
        if name == "tensors":
            count = max(1, nbytes // EACH)
            return [host_tensor(self.device, dtype, EACH, memory, seed) for seed in range(count)]
        host = host_tensor(self.device, dtype, nbytes, memory)
        if name == "numbers":  # such as the losses of many steps
            return list(host)
        if name == "tree":
            image, target, boxes, labels = host.tensor_split(4)
            return {"image": image, "targets": [target, {"boxes": boxes, "labels": labels}]}
        if name == "m":
            columns = min(1024, max(1, int(host.numel() ** 0.5)))
            return host[: host.numel() // columns * columns].view(-1, columns).t()
        return host[0] if routes.SCALAR in self.route.families else host

    def call(self):
        """Run the route once; return its result or the buffer that it writes into."""
        exec(self.statements, self.names)
        result = eval(self.last, self.names)
        if self.route.memory == routes.INTO:
            return next(
                (self.names[name] for name in ("d", "ds", "h") if name in self.names), result
            )
        return result

    def run(self):
        """Run the route once and wait for it; return as ``call`` does."""
        result = self.call()
        self.names["synchronize"]()
        return result

    def ready(self):
        """Finish a setup: raise the device's clocks, and check that the sent values arrive."""
        queued_work.warm_up(self.device)
        self.verify()

    def written(self):
        """Return the tensors that the route writes into: staging buffers and destinations."""
        targets = [self.names[name] for name in ("d", "ds", "h", "s") if name in self.names]
        return leaves_of(
            [*targets, self.names["buffers"].tensors if "buffers" in self.names else []]
        )

    def verify(self):
        """Run the route once; RuntimeError unless the sent values have arrived when the route is
        said to be done.

        Between the route and the comparison, only the timed statement may wait for the device: the
        check must find a copy that is still on its way when its time is taken. Work is queued
        first, so that a route that does not wait returns long before its bytes arrive. The sent
        values are on the host beforehand. A result on the host is compared where it lies; for one
        on the device its stream is checked first. The last leaf is compared first.
        """
        expression = self.route.expression
        work = queued_work.check_synchronize(self.device)
        sent = [Held(leaf) for leaf in leaves_of(self.source)]
        for buffer in self.written():
            spoil(buffer)
        self.device.synchronize()
        work.queue_before(expression)
        result = self.call()
        if self.route.non_blocking:
            self.names["synchronize"]()
        self.device.require_idle(
            f"{expression}; synchronize()" if self.route.non_blocking else expression
        )
        arrived = leaves_of(result)
        if not all(is_equal(got, held) for got, held in reversed([*zip(arrived, sent)])):
            raise RuntimeError(f"{expression}: what arrived is not what was sent")
        if self.memory == routes.PINNED and self.route.direction == routes.DEVICE_TO_HOST:
            for leaf in arrived:
                self.device.require_pinned(as_tensor(leaf))

    def close(self):
        """Release all buffers; unregister memory once no transfer uses it."""
        if self.release is not None:
            self.device.synchronize()
            self.release()
            self.release = None
        if "pool" in self.names:
            self.names["pool"].shutdown()
        self.names.clear()


def leaves_of(tree):
    """Return the leaves of nested dicts, lists and tuples, in order."""
    leaves = []
    sources.map_tree(leaves.append, tree)
    return leaves


def as_tensor(value):
    """Return a tensor, an array or a number as a tensor, without moving it."""
    return (
        value.detach() if isinstance(value, torch.Tensor) else torch.from_numpy(np.asarray(value))
    )


def parts_of(tensor):
    """Return the indices to compare: all of a small tensor, slices along the first dimension of a
    large one.
    """
    if tensor.numel() * tensor.element_size() <= VERIFY_ALL:
        return [...]
    rows = -(-SLICE * len(tensor) // tensor.numel())
    last = len(tensor) - rows
    return [
        slice(start, start + rows)
        for start in (last * place // (SLICES - 1) for place in range(SLICES))
    ]


def spoil(buffer):
    """Fill the compared parts of a destination with RUBBISH, by copies alone, which every device
    supports.
    """
    for part in parts_of(buffer):
        buffer[part].copy_(torch.full(buffer[part].shape, RUBBISH, dtype=buffer.dtype))


class Held:
    """Host copy of the compared values of a tensor, an array or a number: see ``parts_of``."""

    def __init__(self, value):
        tensor = as_tensor(value)
        self.shape, self.parts = tensor.shape, parts_of(tensor)
        self.values = [tensor[part].to("cpu", copy=True) for part in self.parts]


def is_equal(got, held):
    """Whether a tensor, an array or a number, on any device, has the values of ``held``.

    The parts move to the host one by one: moving a large tensor back would take longer than the
    measurement.
    """
    got = as_tensor(got)
    if got.shape != held.shape:
        return False
    parts = zip(held.parts, held.values)
    return all(torch.equal(got[part].to("cpu"), values.to(got.dtype)) for part, values in parts)
