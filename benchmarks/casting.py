"""What does a change of dtype on the way cost, and where is it cheapest?"""

from . import conversion as _conversion
from . import routes as _routes
from . import sources as _sources

role = "casting"
section = "Casting on the way"
place = 4
across = "dtype"


class NumpyToFloat32(_conversion._Conversion):
    drawn = False
    direction = _routes.NUMPY_TO_TORCH
    params = (_routes.expressions(_routes.CASTING), ["float64", "float16", "int64", "uint8"], _sources.SIZES[:-1])


class Bfloat16ToNumpy(_conversion._Conversion):
    """NumPy has no bfloat16: widen it, or take its bits."""

    drawn = False
    direction = _routes.TORCH_TO_NUMPY
    params = (_routes.expressions(_routes.BFLOAT16), ["bfloat16"], _sources.SIZES[:-1])


class NumpyToFloat16(_conversion._Conversion):
    title = "to float16"
    direction = _routes.NUMPY_TO_TORCH
    params = (_routes.expressions(_routes.TO_FLOAT16, direction), ["float32"], _sources.SIZES[:-1])


class NumpyToBfloat16(_conversion._Conversion):
    title = "to bfloat16"
    direction = _routes.NUMPY_TO_TORCH
    params = (_routes.expressions(_routes.TO_BFLOAT16), ["float32"], _sources.SIZES[:-1])


class TensorToFloat16(_conversion._Conversion):
    title = "to float16"
    direction = _routes.TORCH_TO_NUMPY
    params = (_routes.expressions(_routes.TO_FLOAT16, direction), ["float32"], _sources.SIZES[:-1])
