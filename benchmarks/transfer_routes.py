"""The catalogue's routes from files, between processes, to and from a device."""

from functools import partial

from .contracts import (
    ALIAS,
    COPY,
    DEVICE_TO_HOST,
    ENDS,
    FILE_TO_TENSOR,
    HOST_TO_DEVICE,
    INTO,
    PAGEABLE,
    PINNED,
    PROCESS_TO_PROCESS,
    REGISTERED,
    Does,
    Promises,
    Route,
)
from .outcomes import (
    DETACHED,
    DEVICE_TREES,
    FILES,
    HANDED_OVER,
    LEGACY_DATA,
    MANY,
    NUMPY,
    RAISES,
    SCALAR,
    SHARED,
    SUSTAINED,
    TO_DLPACK,
    TRANSFER,
    TRANSFER_BFLOAT16,
    TRANSFER_CASTING,
    TRANSFER_LAYOUT,
    TRANSFER_UINT8,
    by_source,
    replaced,
)

HOSTS = (PAGEABLE, PINNED)
ANY_HOST = (*HOSTS, REGISTERED)
# Autograd records a transfer between tensors like any other operation: a loop that refills the same
# buffer needs detach() first
MOVED, FILLED = {"requires grad": Does.FOLLOWS}, {"requires grad": Does.ACCUMULATES}
# file→tensor. If the file does not store the count of its numbers, a truncated file seems complete.
READ = by_source(
    {
        "FileNotFoundError": ["missing"],
        "ValueError": ["cut short"],
        Does.WORKS: ["cut short in use", "written to"],
    }
)
MAPPED = {source: does for source, does in READ.items() if source != "cut short in use"}
MAPPED_RAW = {**MAPPED, "cut short": Does.FEWER}
UNWRITTEN = {"missing": "FileNotFoundError", "cut short": "ValueError"}
UNWRITTEN_RAW = {**UNWRITTEN, "cut short": Does.FEWER}
FROM_FILE = replaced(MAPPED, {RAISES: ["missing", "cut short"]})
_SOURCE_IN_FLIGHT = (
    "from pinned memory, changing the source before a synchronize changes what arrives"
)
_PINS_EACH_CALL = (
    "copies on the calling thread at every call, and page-locks memory where torch's pinned cache "
    "has none to reuse: can be slower than a plain .to(device)"
)
_PINS_BY_THREADS = _PINS_EACH_CALL.replace("the calling thread", "several threads")
_WAIT_BEFORE_REFILL = (
    "wait for the copy before the next refill of the staging tensor, or what arrives is mixed"
)
_TEMPORARY = "not contiguous: goes through a pageable temporary even when pinned"
_READ_TOO_EARLY = "reading the result before a synchronize gives garbage"
_SHOWS_THE_BUFFER = "the array shows what h holds: the next copy into h changes it"
_NEXT_BUT_ONE = (
    "the second start() after its own overwrites the array, also while it is read: "
    "copy what is to stay"
)
_CASTS_THERE = "converts on the device, so the wider bytes cross the link"
_MAP_ENDS = f"{ENDS}, where a file shrinks while it is mapped: use torch.from_numpy(np.load(path))"
_READ_ONLY_MAP = f"{ENDS}: use mode 'c' if the tensor is written to; warns, once a process"
_WRITES_THROUGH = "a write to the tensor is a write to the file"
_MAKES_A_FILE = (
    f"{_WRITES_THROUGH}, and one that is missing or too short is made as long as asked for, "
    "with zeros"
)
_CLOSED_BELOW = (
    f"{ENDS}: use np.frombuffer(memory.buf), which keeps memory open as long as the tensor lives"
)
_from_file = partial(Route, direction=FILE_TO_TENSOR, families=(FILES,))
_mapped = partial(_from_file, inputs=MAPPED, hazard=_MAP_ENDS)
_mapped_raw = partial(_mapped, inputs=MAPPED_RAW)
_read_only = partial(_mapped, memory=ALIAS, hazard=_READ_ONLY_MAP)
_shared = partial(Route, direction=PROCESS_TO_PROCESS, families=(SHARED,))
_over_block = partial(_shared, memory=ALIAS, hazard=_CLOSED_BELOW)
_handed_over = partial(Route, direction=PROCESS_TO_PROCESS, families=(HANDED_OVER,))
_to_device = partial(Route, direction=HOST_TO_DEVICE, host_memory=ANY_HOST, families=(TRANSFER,))
_early_to_device = partial(_to_device, non_blocking=True)
# bytes in pageable memory have left their source when the call returns
_in_flight = partial(_early_to_device, hazard=_SOURCE_IN_FLIGHT, hazard_memory=(PINNED, REGISTERED))
_staged = partial(
    _early_to_device, memory=INTO, host_memory=(PAGEABLE,), hazard=_WAIT_BEFORE_REFILL
)
_to_host = partial(Route, direction=DEVICE_TO_HOST, host_memory=(PAGEABLE,), families=(TRANSFER,))
_early_to_host = partial(
    _to_host, non_blocking=True, families=(TRANSFER, SUSTAINED), hazard=_READ_TOO_EARLY
)
_to_array = partial(_to_host, inputs=NUMPY, array=True)
CASTS: Promises = {"casts_to": "float32", "families": (TRANSFER_CASTING, TRANSFER_UINT8)}
FROM_UINT8: Promises = {"casts_to": "float32", "families": (TRANSFER_UINT8,)}
TREES_THERE: Promises = {"host_memory": HOSTS, "families": (DEVICE_TREES,)}
MANY_THERE: Promises = {"host_memory": HOSTS, "families": (MANY,)}
CASTS_TO_BFLOAT16: Promises = {
    "casts_to": "bfloat16",
    "host_memory": HOSTS,
    "families": (TRANSFER_BFLOAT16,),
}

TRANSFER_ROUTES = (
    # Files
    _read_only(
        "torch.from_numpy(np.memmap(path, dtype=np.float32, mode='r'))",
        inputs=UNWRITTEN_RAW,
    ),
    _mapped_raw("torch.from_numpy(np.memmap(path, dtype=np.float32, mode='c'))"),
    _mapped_raw(
        "torch.from_numpy(np.memmap(path, dtype=np.float32, mode='r+'))",
        ALIAS,
        caution=_WRITES_THROUGH,
    ),
    _read_only("torch.from_numpy(np.load(path, mmap_mode='r'))", inputs=UNWRITTEN),
    _mapped("torch.from_numpy(np.load(path, mmap_mode='c'))"),
    _mapped(
        "torch.from_numpy(np.load(path, mmap_mode='r+'))",
        ALIAS,
        inputs={**MAPPED, "cut short": Does.EXTENDS},
        hazard=(
            f"{_MAP_ENDS}; {_WRITES_THROUGH}, "
            "and one that is too short is made as long as its header says, with zeros"
        ),
    ),
    _mapped("torch.from_file(path, size=size, dtype=torch.float32)", inputs=FROM_FILE),
    _mapped(
        "torch.from_file(path, shared=True, size=size, dtype=torch.float32)",
        ALIAS,
        inputs=replaced(MAPPED, {Does.EXTENDS: ["missing", "cut short"]}),
        hazard=f"{_MAP_ENDS}; {_MAKES_A_FILE}",
    ),
    _mapped(
        "torch.load(path, mmap=True, weights_only=True)",
        inputs={**MAPPED, "cut short": "OSError"},
        needs="torch>=2.1",
    ),
    _from_file(
        "torch.from_numpy(np.fromfile(path, dtype=np.float32))",
        inputs={**READ, "cut short": Does.FEWER},
    ),
    _from_file("torch.from_numpy(np.load(path))", inputs=READ),
    _from_file("torch.load(path, weights_only=True)", inputs={**READ, "cut short": "OSError"}),
    # Between processes
    _shared("np.copyto(block, a)", INTO),
    _shared(
        "torch.from_numpy(a).share_memory_()",
        COPY,
        caution=(
            "moves the tensor's memory: a, which NumPy owns, stays where it is, but an array over "
            "a tensor's own memory is invalid then"
        ),
    ),
    _over_block("torch.from_numpy(np.ndarray(a.shape, a.dtype, buffer=memory.buf))"),
    _over_block("torch.frombuffer(memory.buf, dtype=dtype)"),
    _shared(
        "torch.from_numpy(np.frombuffer(memory.buf, dtype=a.dtype))",
        ALIAS,
        inputs={"closed in use": "BufferError"},
    ),
    _handed_over("connection.send(a)", COPY),
    _handed_over("connection.send(torch.from_numpy(a))", COPY),
    _handed_over(
        "connection.send(shared)",
        ALIAS,
        caution="what the worker writes shows here, too, and the other way round",
    ),
    _handed_over(
        "np.copyto(block, a); connection.send(None)",
        INTO,
        caution="wait for the answer before the next one",
    ),
    # Host to device
    _to_device("t.to(device)", inputs=MOVED),
    _in_flight("t.to(device, non_blocking=True)", inputs=MOVED, families=(TRANSFER, SUSTAINED)),
    _to_device("t.cuda()", inputs=MOVED, needs="cuda"),
    _to_device("d.copy_(t)", INTO, inputs=FILLED),
    _in_flight(
        "d.copy_(t, non_blocking=True)", INTO, inputs=FILLED, families=(TRANSFER, SUSTAINED)
    ),
    _early_to_device(
        "t.pin_memory().to(device, non_blocking=True)",
        host_memory=(PAGEABLE,),
        hazard=_PINS_EACH_CALL,
    ),
    _staged("s.copy_(t); d.copy_(s, non_blocking=True)"),
    _staged(
        "copy_in_chunks(d, t, stages)",
        needs="streams",
        hazard="the copy runs on a side stream: the current stream waits for it, the host does not",
    ),
    _to_device("torch.from_numpy(a).to(device)", array=True),
    _in_flight("torch.from_numpy(a).to(device, non_blocking=True)", array=True),
    _to_device("torch.tensor(a, device=device)", array=True),
    _to_device("torch.as_tensor(a, device=device)", array=True),
    _to_device("torch.asarray(a, device=device)", array=True),
    _to_device("torch.from_dlpack(a, device=device)", array=True, needs="torch>=2.11"),
    _to_device("d.copy_(torch.from_numpy(a))", INTO, array=True),
    _staged("s.numpy()[:] = a; d.copy_(s, non_blocking=True)", array=True),
    _to_device("t.to(device, torch.float32)", **CASTS),
    _in_flight("t.to(device, torch.float32, non_blocking=True)", caution=_CASTS_THERE, **CASTS),
    _to_device("t.float().to(device)", **CASTS),
    # the copy waits, and the cast is queued behind it
    _to_device("t.to(device).float()", non_blocking=True, **FROM_UINT8),
    _in_flight("t.to(device, non_blocking=True).float()", **FROM_UINT8),
    _to_device("t.to(device, torch.bfloat16)", **CASTS_TO_BFLOAT16),
    _to_device("t.bfloat16().to(device)", **CASTS_TO_BFLOAT16),
    # the copy waits, and the cast is queued behind it
    _to_device(
        "t.to(device).bfloat16()", non_blocking=True, caution=_CASTS_THERE, **CASTS_TO_BFLOAT16
    ),
    _in_flight(
        "t.to(device, torch.bfloat16, non_blocking=True)", caution=_CASTS_THERE, **CASTS_TO_BFLOAT16
    ),
    # .to keeps the strides of a transpose: its bytes cross in memory order. A row-major destination
    # has another order.
    _to_device("m.to(device)", families=(TRANSFER_LAYOUT,)),
    _in_flight("m.to(device, non_blocking=True)", families=(TRANSFER_LAYOUT,)),
    _to_device("d.copy_(m)", INTO, families=(TRANSFER_LAYOUT,), hazard=_TEMPORARY),
    _early_to_device(
        "d.copy_(m, non_blocking=True)", INTO, families=(TRANSFER_LAYOUT,), hazard=_TEMPORARY
    ),
    _to_device("m.contiguous().to(device)", families=(TRANSFER_LAYOUT,)),
    # Device to host
    _to_host("t.cpu()", inputs=MOVED),
    _to_host("t.to('cpu')", inputs=MOVED),
    _early_to_host("t.to('cpu', non_blocking=True)", COPY, inputs=MOVED, host_memory=(PINNED,)),
    _to_host("h.copy_(t)", INTO, inputs=FILLED, host_memory=HOSTS),
    _early_to_host("h.copy_(t, non_blocking=True)", INTO, inputs=FILLED, host_memory=HOSTS),
    _to_array("t.cpu().numpy()"),
    _to_array("t.to('cpu').numpy()"),
    _to_array("t.detach().cpu().numpy()", inputs=DETACHED),
    _to_array("t.cpu().detach().numpy()", inputs=DETACHED),
    _to_array("t.detach().to('cpu').numpy()", inputs=DETACHED),
    _to_array("t.cpu().data.numpy()", inputs=DETACHED, hazard=LEGACY_DATA),
    _to_array("t.numpy(force=True)", inputs=DETACHED, needs="torch>=1.13"),
    _to_array(
        "np.from_dlpack(t, device='cpu')",
        inputs={source: does for source, does in TO_DLPACK.items() if source != "negative view"},
        needs="torch>=2.11 numpy>=2.1",
        hazard="a negative view may get the wrong sign, as it does without a device",
    ),
    _to_array(
        "t.cpu().numpy().copy()", hazard="t.cpu() is a copy already: this makes a second one"
    ),
    _to_array(
        "t.cpu().detach().numpy().copy()", inputs=DETACHED, hazard="t.cpu() is a copy already"
    ),
    _to_array("h.copy_(t).numpy()", INTO, host_memory=HOSTS, caution=_SHOWS_THE_BUFFER),
    _to_array(
        "buffers.start(t); buffers.read()",
        INTO,
        host_memory=(PINNED,),
        needs="streams",
        hazard=_NEXT_BUT_ONE,
    ),
    _to_host("t.item()", families=(SCALAR,), hazard="waits for all work queued on the stream"),
    _to_host(
        "t.cpu().numpy()[()]", families=(SCALAR,), hazard="waits for all work queued on the stream"
    ),
    _to_array("t.cpu().float().numpy()", casts_to="float32", families=(TRANSFER_BFLOAT16,)),
    _to_array(
        "t.float().cpu().numpy()",
        casts_to="float32",
        families=(TRANSFER_BFLOAT16,),
        caution=_CASTS_THERE,
    ),
    _to_host(
        "[x.item() for x in numbers]",
        families=(MANY,),
        casts_to="python",
        hazard="waits for the device at each",
    ),
    _to_host("torch.stack(numbers).tolist()", families=(MANY,), casts_to="python"),
    _to_host("map_tree(lambda x: x.cpu().numpy(), tree)", families=(DEVICE_TREES,)),
    _to_device("map_tree(lambda x: x.to(device), tree)", **TREES_THERE),
    _in_flight("map_tree(lambda x: x.to(device, non_blocking=True), tree)", **TREES_THERE),
    _to_device("[x.to(device) for x in tensors]", **MANY_THERE),
    _in_flight("[x.to(device, non_blocking=True) for x in tensors]", **MANY_THERE),
    _in_flight(
        "torch._foreach_copy_(ds, tensors, non_blocking=True)",
        INTO,
        needs="torch>=2.1",
        caution="a private function of torch, which may change without notice",
        **MANY_THERE,
    ),
    _early_to_device(
        "torch.cat(tensors, out=s); "
        "s.to(device, non_blocking=True).split([len(x) for x in tensors])",
        hazard=_WAIT_BEFORE_REFILL,
        **MANY_THERE,
    ),
    _early_to_device(
        "[x.to(device, non_blocking=True) for x in pin_by_threads(tensors, pool)]",
        families=(MANY,),
        host_memory=(PAGEABLE,),
        hazard=_PINS_BY_THREADS,
    ),
)
