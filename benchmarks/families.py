"""What a family says of itself for those who read its results; it travels with every benchmark to benchmarks.json.

An attribute of a file, a class or a method; the nearest counts.
"""

import inspect
import math
import time

from asv_runner.benchmarks._base import _get_first_attr
from asv_runner.benchmarks.track import TrackBenchmark

from . import said, version

DECLARED = {
    "needs_device": False,  # an accelerator takes part: left out where there is none
    "needs_programs": {},  # program -> how to get it: left out where it is not found
    "asleep": False,  # it times how an accelerator wakes: nothing else of the run may use one meanwhile
    "control": False,  # no toolchain can change it: memcpy and the like
    "noise": "",  # what its noise is called, and shared with; "": as what its routes do with memory, else as the family
    "direction": "",  # which way it converts or transfers, where its parameters and routes do not say
    "role": "",  # what reports do with its figures beside showing them; analysis/roles.py lists the roles
    "section": "",  # the title it has on a page; "": the family's name
    "place": 99,  # of the section among the others
    "about": "",  # sentences below the section's question
    "title": "",  # what its figures are, in the title of a table; "": the direction
    "across": "nbytes",  # the parameter whose values are a table's columns
    "down": "",  # the parameter whose values are a table's rows; "": the route, or else the first that is no size
    "drawn": True,  # a panel of time against nbytes for every combination of the other parameters
    "beside": {},  # what a figure is compared with: parameter or "role" -> its value there, "called" -> a name for it
    "stands_for": [],  # what a count stands for, where it is a place among these names
    "repeated": False,  # a count is the median of several: compared by their spread, and followed along histories
    "settings": {},  # values of a parameter `setting` that advice may name -> what their user must know
    "speaks_for": "",  # a promise of contracts: what a setting gains here is gained by all routes that make it
    "multiple_of": "",  # the parameter that a count is shown as a multiple of
    "arrays": 0,  # how many arrays make its source; 0: it is one
}
SPOKEN = tuple(name for name in DECLARED if name != "direction")  # what decides no figure


def declare(benchmark, attr_sources):
    """Give a benchmark what its family declares; its question is the first paragraph of its file's docstring."""
    for name, default in DECLARED.items():
        setattr(benchmark, name, _get_first_attr(attr_sources, name, default))
    text = inspect.getdoc(inspect.getmodule(version.owner(benchmark.func))) or ""
    benchmark.question = " ".join(text.split("\n\n")[0].split())


class CountBenchmark(said.Aloud, TrackBenchmark):
    """asv's own for what is counted and not timed, with what its family declares and the version of what decides it."""

    def __init__(self, name, func, attr_sources):
        super().__init__(name, func, attr_sources)
        declare(self, attr_sources)
        self.version, self.version_alts = version.version_of(func, spoken=SPOKEN), ()

    def run(self, *params):
        """The count, or ``{"samples": [counts], "number": 1}`` of a repeated one; logged like the samples of a time."""
        began = time.perf_counter()
        result = super().run(*params)
        values = result["samples"] if isinstance(result, dict) else [result]
        if all(isinstance(value, (int, float)) and math.isfinite(value) for value in values):
            took, text = round(time.perf_counter() - began, 4), self.params_text()
            about = {"benchmark": self.name, "params": text, "version": self.version, "at": round(time.time(), 3)}
            said.log(**about, values=values, took=took)
        return result
