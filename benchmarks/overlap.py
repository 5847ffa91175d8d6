"""How much of a transfer hides behind compute, and what does a training step cost from NumPy batch to NumPy loss?"""

import numpy as _np
import torch as _torch

from . import devices as _devices
from . import moving as _moving
from . import routes as _routes
from . import sources as _sources
from . import timing as _timing

needs_device = True
section = "A training step, a DataLoader"
place = 21
drawn = False
about = (
    "Host copies of a step or a batch use one thread (OMP_NUM_THREADS=1), and the DataLoader has no workers "
    "(num_workers=0)."
)

MATRIX = 4096  # rows and columns of the product that transfers hide behind


class Hidden:
    """A matrix product on a side stream and a transfer on the current one: each alone, and both at once.

    What hides is (product + transfer - both) / min(product, transfer).
    """

    role = "overlap"
    param_names = ("direction", "memory", "part", "nbytes")
    params = (
        [_routes.HOST_TO_DEVICE, _routes.DEVICE_TO_HOST],
        [_routes.PAGEABLE, _routes.PINNED],
        ["product", "transfer", "both"],
        [16 * 2**20, 64 * 2**20],
    )
    expressions = {
        _routes.HOST_TO_DEVICE: "d.copy_(t, non_blocking=True)",
        _routes.DEVICE_TO_HOST: "h.copy_(t, non_blocking=True)",
    }
    single_threaded = False
    timeout = 120

    def samples_for(self, direction, memory, part, nbytes):
        return _timing.samples_per_process(nbytes)

    @_devices.out_of_memory_skips()
    def setup(self, direction, memory, part, nbytes):
        device = _devices.find().use()
        device.require_streams()
        route = _routes.find(self.expressions[direction], direction)
        self.move = _moving.Move(route, memory, "float32", nbytes, device)
        self.move.verify()
        matrix = _torch.randn(MATRIX, MATRIX, device=device.device)
        result, stream = _torch.empty_like(matrix), device.stream()
        device.synchronize()  # the matrix was filled on another stream

        def product():
            with device.on(stream):
                _torch.mm(matrix, matrix, out=result)

        product()  # the first one makes the handles and the workspace of the library that multiplies
        device.synchronize()
        self.move.names["product"] = product

    def teardown(self, *cell):
        if hasattr(self, "move"):
            self.move.close()

    def timeit_completion(self, direction, memory, part, nbytes):
        transfer = self.expressions[direction]
        statements = {"product": "product()", "transfer": transfer, "both": f"product(); {transfer}"}
        return f"{statements[part]}; synchronize()", self.move.names


class _Step:
    """A small network's step: batch in, loss out."""

    def __init__(self, device, features):
        self.device = device
        self.model = _torch.nn.Sequential(
            _torch.nn.Linear(features, 1024), _torch.nn.ReLU(), _torch.nn.Linear(1024, 10)
        ).to(device.device)
        self.optimizer = _torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def __call__(self, batch):
        loss = self.model(batch).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class TrainingStep:
    """A step from NumPy batch to NumPy loss, over eight batches, by the batch.

    naive                torch.from_numpy(a).to(device)
    pinned               the batch is copied into pinned memory, and from there with a blocking copy
    pinned non_blocking  the same, and the copy does not wait
    prefetch             the next batch is copied on a side stream while the step runs
    """

    title = "From NumPy batch to NumPy loss"
    beside = {"form": "naive", "called": "naive"}
    param_names = ("form", "nbytes")
    params = (["naive", "pinned", "pinned non_blocking", "prefetch"], [2**20, 16 * 2**20])
    single_threaded = False
    features = 1024
    batches = 8
    timeout = 120

    @_devices.out_of_memory_skips()
    def setup(self, form, nbytes):
        device = _devices.find().use()
        rows = nbytes // 4 // self.features
        arrays = [_sources.array("float32", nbytes, seed).reshape(rows, self.features) for seed in range(self.batches)]
        step = _Step(device, self.features)
        loads = {"naive": self.naive, "pinned": self.pinned, "pinned non_blocking": self.pinned_non_blocking}
        if form == "prefetch":
            self.names = {"epoch": self.prefetch(device, step, arrays)}
        else:
            load = loads[form](device, arrays[0])
            self.names = {"epoch": lambda: [float(step(load(a)).cpu().numpy()) for a in arrays]}
        losses = self.names["epoch"]()
        if not _np.isfinite(losses).all():
            raise RuntimeError(f"{form}: the losses are not finite: {losses}")

    @staticmethod
    def naive(device, like):
        return lambda a: _torch.from_numpy(a).to(device.device)

    @staticmethod
    def pinned(device, like):
        staging = device.pinned(_torch.from_numpy(like))
        return lambda a: staging.copy_(_torch.from_numpy(a)).to(device.device)

    @staticmethod
    def pinned_non_blocking(device, like):
        # the loss read back at the end of the step waits for the copy, so the staging tensor may be refilled
        staging = device.pinned(_torch.from_numpy(like))
        return lambda a: staging.copy_(_torch.from_numpy(a)).to(device.device, non_blocking=True)

    @staticmethod
    def prefetch(device, step, arrays):
        device.require_streams()
        stream = device.stream()
        staging = [device.pinned(_torch.from_numpy(arrays[0])) for _ in range(2)]

        def load(index):
            host = staging[index % 2].copy_(_torch.from_numpy(arrays[index]))
            with device.on(stream):
                return host.to(device.device, non_blocking=True)

        def epoch():
            losses = []
            following = load(0)
            for index in range(len(arrays)):
                device.current_stream().wait_stream(stream)
                batch = following
                batch.record_stream(device.current_stream())
                loss = step(batch)
                if index + 1 < len(arrays):
                    following = load(index + 1)
                losses.append(float(loss.cpu().numpy()))  # waits for the step, and so for its batch's copy
            return losses

        return epoch

    def timeit_step(self, form, nbytes):
        return "epoch()", self.names, self.batches


class DataLoader:
    """Batches from a DataLoader to the device, by the batch, without pin_memory (pageable) and with it (pinned)."""

    title = "From a DataLoader to the device"
    beside = {"memory": "pageable", "called": "pageable"}
    param_names = ("memory",)
    params = ([_routes.PAGEABLE, _routes.PINNED],)
    single_threaded = False
    rows, features, batch = 4096, 1024, 256
    timeout = 120

    @_devices.out_of_memory_skips()
    def setup(self, memory):
        pin_memory = memory == _routes.PINNED
        device = _devices.find().use()
        device.check_synchronize()
        if pin_memory:
            device.pinned(_torch.empty(1))
        data = _torch.utils.data.TensorDataset(
            _sources.tensor("float32", 4 * self.rows * self.features).view(self.rows, -1)
        )
        loader = _torch.utils.data.DataLoader(data, batch_size=self.batch, pin_memory=pin_memory)

        def epoch():
            for (x,) in loader:
                moved = x.to(device.device, non_blocking=pin_memory)
            device.synchronize()
            return moved

        self.names = {"epoch": epoch}
        epoch()

    def timeit_batch(self, memory):
        return "epoch()", self.names, self.rows // self.batch
