"""The catalogue's routes of lists of arrays and tensors, and of nested containers."""

from functools import partial

from .contracts import ALIAS, INTO, NUMPY_TO_TORCH, TORCH_TO_NUMPY, Does, Route
from .outcomes import (
    BATCHES,
    BOTH_DEFAULTS,
    BUFFERED_BATCHES,
    CASTS_TO_BUFFER,
    DEVICE,
    FROM_NUMPY,
    LISTS_BY_ELEMENT,
    LISTS_BY_NUMPY,
    LISTS_BY_NUMPY_ARRAY,
    LISTS_BY_TORCH,
    LISTS_COLLATED,
    LISTS_INTO_BUFFER,
    LISTS_INTO_BUFFER_BY_TORCH,
    NO_BFLOAT16,
    NUMPY,
    PADDED_BATCHES,
    PYTHON_LISTS,
    STACKS,
    TENSORS_BY_NUMPY,
    TENSORS_BY_TORCH,
    TREES,
    VALUES_BY_NUMPY,
    VALUES_BY_TORCH,
    VALUES_CAST_BY_NUMPY,
    VALUES_CAST_BY_TORCH,
)

_batch = partial(Route, direction=NUMPY_TO_TORCH, inputs=LISTS_BY_NUMPY_ARRAY, families=(BATCHES,))
_into_batch = partial(
    Route,
    direction=NUMPY_TO_TORCH,
    memory=INTO,
    inputs=LISTS_INTO_BUFFER_BY_TORCH,
    families=(BUFFERED_BATCHES,),
)
_values = partial(Route, direction=NUMPY_TO_TORCH, families=(PYTHON_LISTS,))
_cast_values = partial(_values, casts_to="float32")
_stack = partial(
    Route,
    direction=TORCH_TO_NUMPY,
    inputs={**TENSORS_BY_NUMPY, "empty list": "ValueError"},
    refuses=NO_BFLOAT16,
    families=(STACKS,),
)

LIST_ROUTES = (
    _batch(
        "torch.tensor(arrays)",
        inputs=LISTS_BY_ELEMENT,
        follows=DEVICE,
        refuses={"uint64": "TypeError"},
        per_element=True,
        hazard="converts element by element and warns once a process",
    ),
    _batch("torch.from_numpy(np.stack(arrays))", inputs=LISTS_BY_NUMPY),
    _batch("torch.stack([torch.from_numpy(x) for x in arrays])", inputs=LISTS_BY_TORCH),
    _batch("torch.tensor(np.array(arrays))", follows=DEVICE),
    _batch("torch.from_numpy(np.array(arrays))"),
    _batch(
        "torch.utils.data.default_collate(arrays)",
        inputs=LISTS_COLLATED,
        follows=DEVICE,
        needs="torch>=1.11",
    ),
    _batch(
        "torch.nn.utils.rnn.pad_sequence([torch.from_numpy(x) for x in arrays], batch_first=True)",
        inputs={**LISTS_BY_TORCH, "ragged": Does.PADS},
        families=(PADDED_BATCHES,),
    ),
    _into_batch("np.stack(arrays, out=b.numpy())", inputs=LISTS_INTO_BUFFER),
    _into_batch("torch.stack([torch.from_numpy(x) for x in arrays], out=b)"),
    _into_batch(
        "[row.copy_(torch.from_numpy(x)) for row, x in zip(b, arrays)]",
        inputs={
            **LISTS_INTO_BUFFER_BY_TORCH,
            **{"mixed-dtype, unsigned": Does.BUFFER_DTYPE, "ragged": Does.REPEATS},
            "empty list": Does.WORKS,
        },
        caution=CASTS_TO_BUFFER,
    ),
    _values(
        "torch.tensor(values)", casts_to="python", inputs=VALUES_BY_TORCH, follows=BOTH_DEFAULTS
    ),
    _values(
        "torch.as_tensor(values)", casts_to="python", inputs=VALUES_BY_TORCH, follows=BOTH_DEFAULTS
    ),
    _cast_values(
        "torch.tensor(values, dtype=torch.float32)", inputs=VALUES_CAST_BY_TORCH, follows=DEVICE
    ),
    _cast_values(
        "torch.from_numpy(np.array(values, dtype=np.float32))", inputs=VALUES_CAST_BY_NUMPY
    ),
    _cast_values(
        "torch.tensor(np.array(values, dtype=np.float32))",
        inputs=VALUES_CAST_BY_NUMPY,
        follows=DEVICE,
    ),
    _values("torch.from_numpy(np.array(values))", inputs=VALUES_BY_NUMPY),
    _stack("torch.stack(tensors).numpy()", inputs=TENSORS_BY_TORCH),
    _stack("np.stack([t.numpy() for t in tensors])"),
    _stack("np.stack(tensors)"),
    _stack(
        "np.array(tensors)",
        inputs={**TENSORS_BY_NUMPY, "empty list": Does.NOTHING},
        needs="numpy>=1.25",
        caution="before NumPy 1.25 it gives an array of objects, or raises",
    ),
    Route(
        "map_tree(torch.Tensor.numpy, tree)",
        ALIAS,
        TORCH_TO_NUMPY,
        inputs=NUMPY,
        refuses=NO_BFLOAT16,
        families=(TREES,),
    ),
    Route(
        "map_tree(torch.from_numpy, tree)",
        ALIAS,
        NUMPY_TO_TORCH,
        inputs=FROM_NUMPY,
        families=(TREES,),
    ),
)
