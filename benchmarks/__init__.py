"""What is timed: NumPy and PyTorch conversions, as asv benchmarks.

Importing this package runs no tensor operation and touches no device: asv's fork server imports it
once and forks a process for every cell, and a fork after an OpenMP operation or a CUDA
initialisation hangs or cannot use the device.
"""

import sys

# Register the benchmark types only where asv discovers benchmarks: importing contracts alone needs
# no torch
if "asv_runner.discovery" in sys.modules:
    from .core import statement as statement
