"""What does a change of dtype on the way cost, and where is it cheapest?"""

from . import conversion, routes
from .core import sources

role = "casting"
section = "Casting on the way"
place = 4
across = "dtype"


class NumpyToFloat32(conversion._Conversion):
    has_panels = False
    direction = routes.NUMPY_TO_TORCH
    params = (
        routes.expressions(routes.CASTING),
        ["float64", "float16", "int64", "uint8"],
        sources.SIZES[:-1],
    )


class Bfloat16ToNumpy(conversion._Conversion):
    """NumPy has no bfloat16: widen it, or take its bits."""

    has_panels = False
    direction = routes.TORCH_TO_NUMPY
    params = (routes.expressions(routes.BFLOAT16), ["bfloat16"], sources.SIZES[:-1])


class NumpyToFloat16(conversion._Conversion):
    title = "to float16"
    direction = routes.NUMPY_TO_TORCH
    params = (routes.expressions(routes.TO_FLOAT16, direction), ["float32"], sources.SIZES[:-1])


class NumpyToBfloat16(conversion._Conversion):
    title = "to bfloat16"
    direction = routes.NUMPY_TO_TORCH
    params = (routes.expressions(routes.TO_BFLOAT16), ["float32"], sources.SIZES[:-1])


class TensorToFloat16(conversion._Conversion):
    title = "to float16"
    direction = routes.TORCH_TO_NUMPY
    params = (routes.expressions(routes.TO_FLOAT16, direction), ["float32"], sources.SIZES[:-1])
