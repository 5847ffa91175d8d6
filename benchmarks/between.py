"""Where does one copy overtake another, and where does a copy begin to cost more a byte?

The plain conversions at the sizes between those of ``conversion.py``, in a family of its own because asv keeps a place
for every cell, measured or not. Which of them a run takes is decided by what it has measured: measuring/between.py.
"""

from . import conversion as _conversion
from . import routes as _routes
from . import sources as _sources

role = "between"
section = "Between the sizes"
about = (
    "Sizes that the run chose by what it had measured, halving the distance of two around a crossover and around a "
    "break: the safe routes whose result owns its memory or fills a buffer, from float32."
)
place = 4  # with casts, and listed before them
drawn = False  # a line through so few points would pass by the sizes that other sections have

# 64 B to 200 MiB. Neighbours are less than 1.3 times apart, so that an interval can be halved until it is narrower than
# 1.4; none is among those that scripts/check_advice.py asks for because nobody measured them
SIZES = sorted({step * 2**power for step in (16, 20, 25) for power in range(2, 24)} - set(_sources.SIZES))


def _params(direction):
    routes = _routes.select(_routes.CONVERSION, direction)
    return [r.expression for r in routes if r.safe and r.memory != _routes.ALIAS], ["float32"], SIZES


class NumpyToTorch(_conversion._Conversion):
    direction = _routes.NUMPY_TO_TORCH
    params = _params(direction)


class TorchToNumpy(_conversion._Conversion):
    direction = _routes.TORCH_TO_NUMPY
    params = _params(direction)
