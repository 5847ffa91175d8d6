"""What do the machine and the harness allow? Every other figure stands against these, measured in the same run."""

import ctypes as _ctypes
import itertools as _itertools

from . import sources as _sources

control = True
section = "Limits"


class Memcpy:
    """C's memmove into a warm buffer: no copying route on one thread can be faster."""

    role = "memcpy"
    params = (_sources.SIZES,)

    def setup(self, nbytes):
        _sources.require_memory(4 * nbytes)
        # arrays kept alive by self; ctypes takes bare addresses, which cost less to pass than objects
        names = _sources.placed({"a": _sources.array("uint8", nbytes), "b": _sources.array("uint8", nbytes, seed=1)})
        self.source, self.target = names["a"], names["b"]
        copy = _ctypes.memmove
        self.names = {
            "memmove": copy,
            "target": self.target.ctypes.data,
            "source": self.source.ctypes.data,
            "nbytes": nbytes,
        }

    def timeit_copy(self, nbytes):
        return "memmove(target, source, nbytes)", self.names


class Floor:
    """Overhead of the harness: an empty statement, a call of an empty function, taking the next rotated source."""

    role = "harness"
    statements = {
        "empty statement": "pass",
        "empty function": "nothing()",
        "rotated source": "a = rotate()",
    }
    params = (list(statements),)

    def timeit_floor(self, statement):
        names = {"nothing": lambda: None, "rotate": _itertools.cycle([object(), object()]).__next__}
        return self.statements[statement], names
