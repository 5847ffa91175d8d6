"""How do many small tensors get to the device: one by one, in one call, or packed into one and split there?"""

from . import moving as _moving
from . import routes as _routes
from . import transfer as _transfer

needs_device = True
section = "Many small tensors to the device"
about = "Each has 4 KiB. Packed: they are written into one pinned tensor, which crosses at once and is split there."
place = 24
across = "tensors"
drawn = False
noise = "transfer"


class ToDevice(_transfer._Transfer):
    """route × memory × tensors: how many float32 tensors of 4 KiB."""

    role = "many"
    direction = _routes.HOST_TO_DEVICE
    param_names = ("route", "memory", "tensors")
    params = (_transfer._family(_routes.MANY, direction), [_routes.PAGEABLE, _routes.PINNED], [64, 1000])

    def setup(self, route, memory, tensors):
        super().setup(route, memory, "float32", tensors * _moving.EACH)
