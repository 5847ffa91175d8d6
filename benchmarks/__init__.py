"""What is timed: NumPy and PyTorch conversions, as asv benchmarks.

Importing this package runs no tensor operation and touches no device: asv's fork server imports it once and forks a
process for every cell, and a fork after an OpenMP operation or a CUDA initialisation hangs or cannot use the device.
"""

from asv_runner import benchmarks as _asv_types

from .families import CountBenchmark as _CountBenchmark
from .statement import StatementBenchmark as _StatementBenchmark

# asv_runner finds benchmark types by walking its own package or any distribution named asv_bench*. A suite that is not
# an installed distribution registers its types here, which asv imports before it looks at any benchmark.
for _kind in (_CountBenchmark, _StatementBenchmark):
    if _kind not in _asv_types.benchmark_types:
        _asv_types.benchmark_types.insert(0, _kind)
