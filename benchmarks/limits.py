"""What do the machine and the harness allow? Every other figure stands against these, measured in
the same run.
"""

import ctypes
import itertools

from .core import sources

control = True
section = "Limits"


class Memcpy:
    """C's memmove into a warm buffer: no copying route on one thread can be faster."""

    role = "memcpy"
    params = (sources.SIZES,)

    def setup(self, nbytes):
        sources.require_memory(4 * nbytes)
        # arrays kept alive by self; ctypes takes bare addresses, which cost less to pass than
        # objects
        names = sources.placed(
            {"a": sources.array("uint8", nbytes), "b": sources.array("uint8", nbytes, seed=1)}
        )
        self.source, self.target = names["a"], names["b"]
        copy = ctypes.memmove
        self.names = {
            "memmove": copy,
            "target": self.target.ctypes.data,
            "source": self.source.ctypes.data,
            "nbytes": nbytes,
        }

    def timeit_copy(self, nbytes):
        return "memmove(target, source, nbytes)", self.names


class Floor:
    """Overhead of the harness: an empty statement, a call of an empty function, taking the next
    rotated source.
    """

    role = "harness"
    statements = {
        "empty statement": "pass",
        "empty function": "nothing()",
        "rotated source": "a = rotate()",
    }
    params = (list(statements),)

    def timeit_floor(self, statement):
        names = {"nothing": lambda: None, "rotate": itertools.cycle([object(), object()]).__next__}
        return self.statements[statement], names
