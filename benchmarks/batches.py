"""What do many small arrays cost: a list of them into one tensor, of tensors into one array, a
nested container?
"""

import numpy as np
import torch

from . import contracts, routes
from .core import sources, timing

section = "Many small arrays"
about = (
    "Measured in a program that has freed a large array before. In a fresh program, malloc may "
    "return memory to the system at every call, which takes several times as long. Uneven: the "
    "size of each is no multiple of 64 bytes."
)
place = 6

COUNT = 64  # arrays in a list
_LISTS = [size for size in sources.SIZES if 4 * 2**10 <= size <= 64 * 2**20]
# Arrays of 4 bytes to 16 MiB, where the numbers are 4, 1,024 and 16,384
_NUMBER_SIZES = [64 * 2**10, 2**20, 16 * 2**20, 64 * 2**20]
# Each array ends 16 bytes into a cache line, so the next copy begins there
_UNEVEN = [size + 16 * COUNT for size in _LISTS if size >= 256 * 2**10]


class ArraysToTensor:
    """A list of 64 float32 arrays, ``nbytes`` bytes together, into one tensor."""

    role = "lists"
    title = "A list of arrays into one tensor"
    arrays = COUNT
    params = (routes.expressions(routes.BATCHES), _LISTS)
    contracts = routes.contracts_of(routes.BATCHES)
    timeout = 300

    def samples_for(self, route, nbytes):
        slow = routes.find(route, routes.NUMPY_TO_TORCH).per_element and nbytes >= timing.LARGE
        return 2 if slow else timing.samples_per_process(nbytes)

    def setup(self, route, nbytes, count=COUNT):
        sources.require_memory(6 * nbytes)
        sources.settle_heap()
        arrays = [sources.array("float32", nbytes // count, seed) for seed in range(count)]
        self.names = {"np": np, "torch": torch, "arrays": arrays}

    def timeit_convert(self, route, nbytes):
        return route, self.names


class TensorsToArray:
    """A list of 64 float32 tensors, ``nbytes`` bytes together, into one array."""

    title = "A list of tensors into one array"
    arrays = COUNT
    params = (routes.expressions(routes.STACKS), _LISTS)
    contracts = routes.contracts_of(routes.STACKS)

    def samples_for(self, route, nbytes):
        return timing.samples_per_process(nbytes)

    def setup(self, route, nbytes, count=COUNT):
        sources.require(routes.find(route, routes.TORCH_TO_NUMPY).needs)
        sources.require_memory(6 * nbytes)
        sources.settle_heap()
        tensors = [sources.tensor("float32", nbytes // count, seed) for seed in range(count)]
        self.names = {"np": np, "torch": torch, "tensors": tensors}

    def timeit_convert(self, route, nbytes):
        return route, self.names


class _Uneven:
    """The same family for arrays whose size is not a multiple of 64 bytes; adds the parameter
    ``layout``.
    """

    has_panels = False

    def samples_for(self, route, layout, nbytes):
        return super().samples_for(route, nbytes)

    def setup(self, route, layout, nbytes):
        super().setup(route, nbytes)

    def timeit_convert(self, route, layout, nbytes):
        return super().timeit_convert(route, nbytes)


class UnevenArraysToTensor(_Uneven, ArraysToTensor):
    params = (routes.expressions(routes.BATCHES), [contracts.UNEVEN], _UNEVEN)


class UnevenTensorsToArray(_Uneven, TensorsToArray):
    params = (routes.expressions(routes.STACKS), [contracts.UNEVEN], _UNEVEN)


class _Numbers:
    """The same family for lists of other numbers of arrays; adds the parameter ``arrays``."""

    param_names = ("route", "arrays", "nbytes")
    has_panels = False

    def samples_for(self, route, arrays, nbytes):
        return super().samples_for(route, nbytes)

    def setup(self, route, arrays, nbytes):
        super().setup(route, nbytes, arrays)

    def timeit_convert(self, route, arrays, nbytes):
        return super().timeit_convert(route, nbytes)


class NumbersToTensor(_Numbers, ArraysToTensor):
    title = "A list of few or many arrays into one tensor"
    params = (routes.expressions(routes.BATCHES), [4, 1024, 16384], _NUMBER_SIZES)


class NumbersToArray(_Numbers, TensorsToArray):
    title = "A list of few or many tensors into one array"
    params = (routes.expressions(routes.STACKS), [4, 1024, 16384], _NUMBER_SIZES)


class _Tree:
    """A nested container of four float32 leaves, ``nbytes`` bytes together."""

    has_panels = False

    def setup(self, route, nbytes):
        leaves = [self.make("float32", nbytes // 4, seed) for seed in range(4)]
        tree = {
            "image": leaves[0],
            "targets": [leaves[1], {"boxes": leaves[2], "labels": leaves[3]}],
        }
        self.names = {"np": np, "torch": torch, "map_tree": sources.map_tree, "tree": tree}

    def timeit_convert(self, route, nbytes):
        return route, self.names


class TreeToNumpy(_Tree):
    title = "A nested container of tensors"
    make = staticmethod(sources.tensor)
    params = (routes.expressions(routes.TREES, routes.TORCH_TO_NUMPY), [4 * 2**10, 2**20])
    contracts = routes.contracts_of(routes.TREES, routes.TORCH_TO_NUMPY)


class TreeToTorch(_Tree):
    title = "A nested container of arrays"
    make = staticmethod(sources.array)
    params = (routes.expressions(routes.TREES, routes.NUMPY_TO_TORCH), [4 * 2**10, 2**20])
    contracts = routes.contracts_of(routes.TREES, routes.NUMPY_TO_TORCH)
