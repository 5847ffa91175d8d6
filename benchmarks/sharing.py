"""What does it cost to put an array where other processes see it, and to hand it to one of them?"""

import contextlib
import multiprocessing
import os
import shutil
from multiprocessing import resource_sharer, shared_memory, util

import numpy as np
import torch

from . import routes
from .core import sources

section = "Between processes"
about = (
    "Numbers are float32. Answered: a worker that waits at a pipe has summed all of them and "
    "replied. A queue is such a pipe with a lock and a thread. The worker is forked before; "
    "starting it is not timed."
)
place = 13
noise = "processes"  # from two processes and the system between them

SIZES = [4 * 2**10, 2**20, 16 * 2**20, 64 * 2**20]
SHARED = "/dev/shm"  # where Linux keeps memory that processes share


class _Shared:
    """route × nbytes of float32."""

    direction = routes.PROCESS_TO_PROCESS
    timeout = 300

    def setup(self, route, nbytes):
        if not os.path.isdir(SHARED):
            raise NotImplementedError(f"needs {SHARED}, as Linux has it")
        sources.require_memory(8 * nbytes)
        sources.require_room(SHARED, 4 * nbytes, SHARED)
        a = sources.array("float32", nbytes)
        self.memory = shared_memory.SharedMemory(create=True, size=a.nbytes)
        block = np.ndarray(a.shape, a.dtype, buffer=self.memory.buf)
        block[...] = a
        self.names = {"np": np, "torch": torch, "a": a, "dtype": torch.float32}
        self.names.update(memory=self.memory, block=block)

    def teardown(self, route, nbytes):
        if hasattr(self, "memory"):
            self.memory.close()
            self.memory.unlink()


class Into(_Shared):
    title = "into shared memory, or a tensor over it"
    params = (routes.expressions(routes.SHARED), SIZES)
    contracts = routes.contracts_of(routes.SHARED)

    def timeit_convert(self, route, nbytes):
        return route, self.names


def _work(connection, other_end, block):
    """Sum each received object, or the block for None, until the other end closes."""
    other_end.close()
    with contextlib.suppress(EOFError, OSError):
        while True:
            came = connection.recv()
            connection.send(torch.as_tensor(block if came is None else came).sum().item())


class HandedOver(_Shared):
    title = "to a worker"
    single_threaded = False  # it waits for the worker
    params = (routes.expressions(routes.HANDED_OVER), SIZES)
    contracts = routes.contracts_of(routes.HANDED_OVER)

    def setup(self, route, nbytes):
        super().setup(route, nbytes)
        self.connection, worker_end = multiprocessing.Pipe()
        arguments = (worker_end, self.connection, self.names["block"])
        self.worker = multiprocessing.get_context("fork").Process(
            target=_work, args=arguments, daemon=True
        )
        self.worker.start()
        worker_end.close()
        shared = torch.from_numpy(self.names["a"]).share_memory_()
        self.names.update(connection=self.connection, shared=shared)

    def teardown(self, route, nbytes):
        if hasattr(self, "worker"):
            self.connection.close()  # which ends the worker
            self.worker.join()
            # torch hands over tensors by a socket that multiprocessing removes at exit, but asv's
            # processes skip that
            resource_sharer.stop()
            shutil.rmtree(util.get_temp_dir(), ignore_errors=True)
        super().teardown(route, nbytes)

    def timeit_answered(self, route, nbytes):
        return f"{route}; connection.recv()", self.names
