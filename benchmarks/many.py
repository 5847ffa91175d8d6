"""How do many small tensors cross the link: one by one, in one call, or packed into one?"""

from . import routes, transfer
from .core import moving

needs_device = True
section = "Many small tensors"
about = (
    "To the device each has 4 KiB. Packed: they are written into one pinned tensor, which crosses "
    "at once and is split there. To the host each is a number, such as the losses of as many steps."
)
place = 24
across = "tensors"
has_panels = False
noise = "transfer"


class ToDevice(transfer._Transfer):
    """route × memory × tensors: the number of float32 tensors of 4 KiB."""

    role = "many"
    direction, each = routes.HOST_TO_DEVICE, moving.EACH
    param_names = ("route", "memory", "tensors")
    params = (
        routes.expressions(routes.MANY, direction),
        [routes.PAGEABLE, routes.PINNED],
        [64, 1000],
    )

    def setup(self, route, memory, tensors):
        super().setup(route, memory, "float32", tensors * self.each)


class ToHost(ToDevice):
    """The same for float32 numbers, each a tensor on the device."""

    direction, each = routes.DEVICE_TO_HOST, 4
    params = (routes.expressions(routes.MANY, direction), [routes.PAGEABLE], ToDevice.params[-1])
