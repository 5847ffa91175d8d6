"""How much of a transfer hides behind compute, and what does a training step cost from NumPy batch
to NumPy loss?
"""

import os
import sys
import timeit
from functools import partial

import numpy as np
import torch

from . import link, routes, sharing
from .core import devices, moving, queued_work, sources, timing

needs_device = True
section = "A training step, a DataLoader"
place = 22
has_panels = False
about = (
    "Host copies of a step or a batch use one thread (OMP_NUM_THREADS=1). Workers are the "
    "DataLoader's num_workers, started before; with num_workers=0 the process itself makes each "
    "batch, of 16 samples of 1 MiB. The loss is read after each step, or the losses of all eight "
    "steps at their end: loss read once."
)

SIDES = [512, 1024, 2048, 4096, 8192]  # rows and columns of the matrices that transfers hide behind
LONGER = 1.5  # total time of the matrix products, over the time of the transfer
SAMPLES = 3  # of a DataLoader's epoch, per process: each takes most of a second
PINNED_BY_LOOP = "pinned by the loop"  # of batches
PARTS = 2  # a product takes at most 1 / PARTS of the transfer, so that the total time can be chosen


class Hidden(link._Ways):
    """Other work on a side stream and a transfer on the current stream: each alone and both at
    once, in turns.

    The other work is matrix products or, for both ways at once, a copy back. The hidden share is
    (other + transfer - both) / min(other, transfer), from the three times of one process.
    """

    role = "overlap"
    params = ([*link.WAYS.values(), link.BOTH_WAYS], routes.HOSTS, [16 * 2**20, 64 * 2**20])

    def samples_for(self, direction, memory, nbytes):
        return timing.SAMPLES

    def setup(self, direction, memory, nbytes):
        device = self.ready(direction, memory, "float32", nbytes)
        move, *reverse = self.moves
        transfer = move.route.expression
        self.names = names = {**move.names, "synchronize": device.synchronize}  # of both streams
        if reverse:
            names["other"] = _aside(device, device.stream(), reverse[0].call)
        else:
            names["other"] = _products(device, _seconds(f"{transfer}; synchronize()", names))
        self.statements = {"other": "other()", "transfer": transfer, "both": f"other(); {transfer}"}
        self.timed_by, self.parts = self, {part: [] for part in self.statements}

    def timeit_completion(self, direction, memory, nbytes):
        return self.statements["both"], self.names

    def timeit(self, number):
        """Time each alone, then both at once; return the seconds of both."""
        for part, statement in self.statements.items():
            seconds = timeit.timeit(
                f"{statement}; synchronize()", globals=self.names, number=number
            )
            self.parts[part].append(seconds / number)
        return seconds


def _products(device, transfer):
    """Return a function that multiplies matrices on its own stream, for LONGER times the
    ``transfer`` seconds.

    It uses the largest matrices of which several products fit: starting a product delays the host
    and so the transfer.
    """
    stream, repetition = device.stream(), None
    for side in SIDES:
        matrix = torch.randn(side, side, device=device.device)
        multiply = partial(torch.mm, matrix, matrix, out=torch.empty_like(matrix))
        device.synchronize()  # the matrix was filled on another stream
        names = {"multiply": _aside(device, stream, multiply), "synchronize": device.synchronize}
        seconds = _seconds("multiply(); synchronize()", names)
        if repetition and seconds > transfer / PARTS:
            break
        repetition = multiply, max(1, round(LONGER * transfer / seconds))
    return _aside(device, stream, *repetition)


def _aside(device, stream, work, count=1):
    """Return a function that calls ``work`` on a stream, ``count`` times."""

    def run():
        with device.on(stream):
            for _ in range(count):
                work()

    return run


def _seconds(statement, names):
    """Return the shortest of four times: the first call also allocates workspaces that a library
    keeps.
    """
    return min(timeit.repeat(statement, globals=names, number=1, repeat=4))


class _Step:
    """A small network's step: batch in, loss out."""

    def __init__(self, device, features):
        self.device = device
        self.model = torch.nn.Sequential(
            torch.nn.Linear(features, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)
        ).to(device.device)

    def __call__(self, batch):
        loss = self.model(batch).square().mean()
        loss.backward()
        with torch.no_grad():
            for weight in (
                self.model.parameters()
            ):  # torch.optim would import the compiler, which takes seconds
                weight.sub_(weight.grad, alpha=1e-3)
                weight.grad = None
        return loss.detach()


class TrainingStep:
    """A step from NumPy batch to NumPy loss: time per batch, over eight batches.

    naive                torch.from_numpy(a).to(device)
    pinned               the batch is copied into pinned memory, and from there with a blocking copy
    pinned non_blocking  like pinned, with a non-blocking copy
    prefetch             the next batch is copied on a side stream while the step runs
    already pinned       the batch lies in pinned memory, as from some DataLoaders; the copy is
                         non-blocking
    loss read once       like already pinned, with all losses read after the eight steps, not one
    after each step
    """

    title = "From NumPy batch to NumPy loss"
    reference = {"form": "naive", "called": "naive"}
    params = (
        ["naive", "pinned", "pinned non_blocking", "prefetch", "already pinned", "loss read once"],
        [2**20, 16 * 2**20],
    )
    features = 1024
    batches = 8

    def setup(self, form, nbytes):
        device = devices.find().use()
        queued_work.warm_up(device)
        arrays = [sources.array("float32", nbytes, seed) for seed in range(self.batches)]
        batches = [torch.from_numpy(a).view(-1, self.features) for a in arrays]
        step = _Step(device, self.features)
        if form in ("already pinned", "loss read once"):
            batches = [device.pinned(batch) for batch in batches]
        early = form not in ("naive", "pinned")
        # the loss read back at the end of the step waits for the copy, so the staging tensor may be
        # refilled
        stage = (
            device.pinned(batches[0]).copy_ if form.startswith("pinned") else lambda batch: batch
        )

        def losses():
            return (step(stage(batch).to(device.device, non_blocking=early)) for batch in batches)

        if form == "prefetch":
            losses = self.prefetch(device, step, batches)

        def epoch():
            if form == "loss read once":
                return torch.stack([*losses()]).tolist()
            return [float(loss.cpu().numpy()) for loss in losses()]

        self.names = {"epoch": epoch}
        losses_read = epoch()
        if not np.isfinite(losses_read).all():
            raise RuntimeError(f"{form}: the losses are not finite: {losses_read}")

    @staticmethod
    def prefetch(device, step, batches):
        device.require_streams()
        stream = device.stream()
        staging = [device.pinned(batches[0]) for _ in range(2)]

        def load(index):
            host = staging[index % 2].copy_(batches[index])
            with device.on(stream):
                return host.to(device.device, non_blocking=True)

        def losses():
            following = load(0)
            for index in range(len(batches)):
                device.current_stream().wait_stream(stream)
                batch = following
                batch.record_stream(device.current_stream())
                loss = step(batch)
                if index + 1 < len(batches):
                    following = load(index + 1)
                # read before the next step, which so waits for this step and the copy of its batch
                yield loss

        return losses

    def timeit_step(self, form, nbytes):
        return "epoch()", self.names, self.batches


class DataLoader:
    """Batches of 16 MiB from a DataLoader to the device, time per batch: without pin_memory
    (pageable), with it (a thread of the loader pins), and pinned by the loop, x.pin_memory().

    A worker process cannot pin for the loop: forked, it has no CUDA, and what it pins arrives in
    shared memory that is not pinned.
    """

    title = "From a DataLoader to the device"
    across = "memory"
    reference = {"memory": "pageable", "called": "pageable"}
    params = ([0, 2], [routes.PAGEABLE, routes.PINNED, PINNED_BY_LOOP])
    count, features, batch = 128, 2**18, 16
    epoch = (
        8  # passes over all samples per epoch: 64 batches, so the start of an epoch is a small part
    )
    timeout = 300

    def samples_for(self, workers, memory):
        return SAMPLES

    def setup(self, workers, memory):
        pin_memory = memory == routes.PINNED
        device = devices.find().use()
        queued_work.warm_up(device)
        queued_work.check_synchronize(device)
        nbytes = 4 * self.count * self.features
        moving.require_memory(4 * nbytes)
        if workers and os.path.isdir(sharing.SHARED):  # holds two batches per worker
            sources.require_room(sharing.SHARED, nbytes, sharing.SHARED)
        if memory != routes.PAGEABLE:
            device.pinned(torch.empty(1))
        data = sources.tensor("float32", nbytes).view(self.count, -1)
        data += torch.arange(self.count)[:, None]  # no two samples alike
        loader = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(data),
            batch_size=self.batch,
            sampler=[*range(self.count)] * self.epoch,
            pin_memory=pin_memory,
            num_workers=workers,
            persistent_workers=workers > 0,
            # Linux's default before Python 3.14; other methods import the main module again, which
            # is asv's
            multiprocessing_context="fork"
            if workers and sys.platform.startswith("linux")
            else None,
        )

        def epoch():
            for (x,) in loader:
                if memory == PINNED_BY_LOOP:
                    x = x.pin_memory()
                moved = x.to(device.device, non_blocking=memory != routes.PAGEABLE)
            device.synchronize()
            return x, moved

        self.names = {"epoch": epoch}
        batch, moved = epoch()
        if memory != routes.PAGEABLE:
            device.require_pinned(batch)
        if not moving.is_equal(moved, moving.Held(data[-self.batch :])):
            raise RuntimeError("DataLoader: what arrived is not what was sent")

    def teardown(self, workers, memory):
        getattr(self, "names", {}).clear()  # deletes the DataLoader, which ends its workers

    def timeit_batch(self, workers, memory):
        return "epoch()", self.names, self.epoch * self.count // self.batch
