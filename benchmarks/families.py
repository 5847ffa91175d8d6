"""What a family says of itself for those who read its results; it travels with every benchmark to benchmarks.json.

An attribute of a file, a class or a method; the nearest counts.
"""

from asv_runner.benchmarks._base import _get_first_attr
from asv_runner.benchmarks.track import TrackBenchmark

DECLARED = {
    "needs_device": False,  # an accelerator takes part: left out where there is none
    "control": False,  # no toolchain can change it: memcpy and the like
    "noise": "",  # what its noise is called, and shared with; "": as what its routes do with memory, else as the family
}


def declare(benchmark, attr_sources):
    """Give a benchmark of asv's what its family declares."""
    for name, default in DECLARED.items():
        setattr(benchmark, name, _get_first_attr(attr_sources, name, default))


class CountBenchmark(TrackBenchmark):
    """asv's own for what is counted and not timed, with what its family declares."""

    def __init__(self, name, func, attr_sources):
        super().__init__(name, func, attr_sources)
        declare(self, attr_sources)
