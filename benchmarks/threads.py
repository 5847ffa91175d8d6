"""Does a copying route gain from more than one thread? Every other family runs on one."""

import os as _os

import torch as _torch

from . import conversion as _conversion
from . import routes as _routes

section = "More threads"
place = 9
about = "The sources are float32, and all threads are as many as the process may use cores."
drawn = False
beside = {"threads": "one", "called": "one thread"}


class _Threads(_conversion._Conversion):
    """route × threads × nbytes of float32; threads is "one" or "all" (the cores this process may use)."""

    param_names = ("route", "threads", "nbytes")
    single_threaded = False

    def samples_for(self, route, threads, nbytes):
        return super().samples_for(route, "float32", nbytes)

    def setup(self, route, threads, nbytes):
        cores = len(_os.sched_getaffinity(0)) if hasattr(_os, "sched_getaffinity") else _os.cpu_count()
        _torch.set_num_threads(cores if threads == "all" else 1)
        super().setup(route, "float32", nbytes)

    def timeit_convert(self, route, threads, nbytes):
        return route, self.names


def _copying(direction):
    routes = _routes.select(_routes.CONVERSION, direction)
    return [r.expression for r in routes if r.memory != _routes.ALIAS and not r.per_element]


class NumpyToTorch(_Threads):
    direction = _routes.NUMPY_TO_TORCH
    params = (_copying(_routes.NUMPY_TO_TORCH), ["one", "all"], [2**20, 16 * 2**20, 64 * 2**20])


class TorchToNumpy(_Threads):
    direction = _routes.TORCH_TO_NUMPY
    params = (_copying(_routes.TORCH_TO_NUMPY), ["one", "all"], [2**20, 16 * 2**20, 64 * 2**20])
