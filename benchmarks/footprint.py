"""How many bytes does a route allocate and how many pages does it fault in, per call?"""

import tracemalloc

from torch.autograd import profiler

from . import conversion, routes
from .core import sources

try:
    import resource
except ImportError:  # Windows
    resource = None

section = "Memory"
place = 10
about = "Sources are float32. Bytes are multiples of the source's size; pages are a number."

CALLS = 8  # counted calls, after as many uncounted ones that let the allocators settle


class _Footprint:
    """route × nbytes of float32."""

    timeout = 300

    def setup(self, route, nbytes):
        catalogued = routes.find(route, self.direction)
        self.names = sources.namespace(catalogued, sources.source(catalogued, "float32", nbytes))
        self.statement = compile(route, "<route>", "exec")
        for _ in range(CALLS):
            exec(self.statement, self.names)

    def track_bytes(self, route, nbytes):
        """Bytes that one call allocates, freed or not: the peak for NumPy and Python, the sum for
        torch.
        """
        tracemalloc.start()
        start = tracemalloc.get_traced_memory()[0]
        exec(self.statement, self.names)
        python = tracemalloc.get_traced_memory()[1] - start
        tracemalloc.stop()
        with profiler.profile(profile_memory=True) as profile:
            exec(self.statement, self.names)
        events = profile.function_events or ()
        tensors = sum(max(0, getattr(event, "self_cpu_memory_usage", 0)) for event in events)
        # Less than a kilobyte is not the array's bytes but views, frames of the call, strings
        return tensors + (python if python >= min(nbytes, 1024) else 0)

    track_bytes.unit = "bytes"
    track_bytes.multiple_of = "nbytes"

    def track_page_faults(self, route, nbytes):
        """Pages of memory faulted in by one call, in steady state."""
        if resource is None:
            raise NotImplementedError("this system does not count page faults")
        start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(CALLS):
            exec(self.statement, self.names)
        return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start) / CALLS

    track_page_faults.unit = "pages"


SIZES = [4 * 2**10, 2**20, 64 * 2**20]


class NumpyToTorch(_Footprint):
    direction = routes.NUMPY_TO_TORCH
    params = (conversion.NumpyToTorch.params[0], SIZES)


class TorchToNumpy(_Footprint):
    direction = routes.TORCH_TO_NUMPY
    params = (conversion.TorchToNumpy.params[0], SIZES)
