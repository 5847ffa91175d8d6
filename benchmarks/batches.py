"""What do many small arrays cost: a list of them into one tensor, of tensors into one array, a nested container?"""

import numpy as _np
import torch as _torch

from . import contracts as _contracts
from . import routes as _routes
from . import sources as _sources
from . import timing as _timing

section = "Many small arrays"
about = (
    "Measured in a program that has freed a large array before. In a fresh program, malloc may return memory to the "
    "system at every call, which takes several times as long. Uneven: the size of each is no multiple of 64 bytes."
)
place = 6

COUNT = 64  # arrays in a list
_LISTS = [size for size in _sources.SIZES if 4 * 2**10 <= size <= 64 * 2**20]
# Each array ends 16 bytes into a cache line, so the next copy begins there
_UNEVEN = [size + 16 * COUNT for size in _LISTS if size >= 256 * 2**10]


def map_tree(convert, tree):
    """Apply ``convert`` to every leaf of nested dicts, lists and tuples."""
    if isinstance(tree, dict):
        return {key: map_tree(convert, value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_tree(convert, value) for value in tree)
    return convert(tree)


class ArraysToTensor:
    """A list of 64 float32 arrays, ``nbytes`` bytes together, into one tensor."""

    role = "lists"
    title = "A list of arrays into one tensor"
    arrays = COUNT
    params = (_routes.expressions(_routes.BATCHES), _LISTS)
    contracts = _routes.contracts_of(_routes.BATCHES)
    timeout = 300

    def samples_for(self, route, nbytes):
        slow = _routes.find(route, _routes.NUMPY_TO_TORCH).per_element and nbytes >= _timing.LARGE
        return 2 if slow else _timing.samples_per_process(nbytes)

    def setup(self, route, nbytes):
        _sources.require_memory(6 * nbytes)
        _sources.settle_heap()
        arrays = [_sources.array("float32", nbytes // COUNT, seed) for seed in range(COUNT)]
        self.names = {"np": _np, "torch": _torch, "arrays": arrays}

    def timeit_convert(self, route, nbytes):
        return route, self.names


class TensorsToArray:
    """A list of 64 float32 tensors, ``nbytes`` bytes together, into one array."""

    title = "A list of tensors into one array"
    arrays = COUNT
    params = (_routes.expressions(_routes.STACKS), _LISTS)
    contracts = _routes.contracts_of(_routes.STACKS)

    def samples_for(self, route, nbytes):
        return _timing.samples_per_process(nbytes)

    def setup(self, route, nbytes):
        _sources.require(_routes.find(route, _routes.TORCH_TO_NUMPY).needs)
        _sources.require_memory(6 * nbytes)
        _sources.settle_heap()
        tensors = [_sources.tensor("float32", nbytes // COUNT, seed) for seed in range(COUNT)]
        self.names = {"np": _np, "torch": _torch, "tensors": tensors}

    def timeit_convert(self, route, nbytes):
        return route, self.names


class _Uneven:
    """The same family for arrays whose size is not a multiple of 64 bytes; adds the parameter ``layout``."""

    drawn = False

    def samples_for(self, route, layout, nbytes):
        return super().samples_for(route, nbytes)

    def setup(self, route, layout, nbytes):
        super().setup(route, nbytes)

    def timeit_convert(self, route, layout, nbytes):
        return super().timeit_convert(route, nbytes)


class UnevenArraysToTensor(_Uneven, ArraysToTensor):
    params = (_routes.expressions(_routes.BATCHES), [_contracts.UNEVEN], _UNEVEN)


class UnevenTensorsToArray(_Uneven, TensorsToArray):
    params = (_routes.expressions(_routes.STACKS), [_contracts.UNEVEN], _UNEVEN)


class _Tree:
    """A nested container of four float32 leaves, ``nbytes`` bytes together."""

    drawn = False

    def setup(self, route, nbytes):
        leaves = [self.make("float32", nbytes // 4, seed) for seed in range(4)]
        tree = {"image": leaves[0], "targets": [leaves[1], {"boxes": leaves[2], "labels": leaves[3]}]}
        self.names = {"np": _np, "torch": _torch, "map_tree": map_tree, "tree": tree}

    def timeit_convert(self, route, nbytes):
        return route, self.names


class TreeToNumpy(_Tree):
    title = "A nested container of tensors"
    make = staticmethod(_sources.tensor)
    params = (_routes.expressions(_routes.TREES, _routes.TORCH_TO_NUMPY), [4 * 2**10, 2**20])
    contracts = _routes.contracts_of(_routes.TREES, _routes.TORCH_TO_NUMPY)


class TreeToTorch(_Tree):
    title = "A nested container of arrays"
    make = staticmethod(_sources.array)
    params = (_routes.expressions(_routes.TREES, _routes.NUMPY_TO_TORCH), [4 * 2**10, 2**20])
    contracts = _routes.contracts_of(_routes.TREES, _routes.NUMPY_TO_TORCH)
