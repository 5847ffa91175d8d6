"""Why a case has no answer, in one line. This module words errors only: answers.py finds them."""

from collections.abc import Sequence

from cli import UserError, size

from benchmarks.contracts import ALIAS, COPY, INTO

from .cells import itemsize
from .estimates import MAX_EXTRAPOLATION
from .needs import DEVICE, NUMPY, TORCH, ZERO_D, Case

FLOATS = ("float", "bfloat", "complex")  # beginnings of dtypes that can require grad
OPTIONS = {"arrays": "batch", "goal": "to-dtype", "host": "source"}  # of fields with another name
MEMORY = {ALIAS: " that shares memory", COPY: " that copies", INTO: " into a buffer"}
MEASURE = "make bench-here PYTHON=python3 PROFILE=transfers"
# Source and target -> what docs/gpu.md advises where no transfer was measured
UNMEASURED_RULES = {
    (NUMPY, DEVICE): "torch.from_numpy(a).to(device)",
    (TORCH, DEVICE): "t.to(device)",
    (DEVICE, NUMPY): "t.cpu().numpy()",
    (DEVICE, TORCH): "t.cpu()",
}


class NotMeasured(UserError):
    """A case without an answer that a measurement would have."""


def contradiction(case: Case) -> str:
    """Return why the case is impossible with any route; "" if it is not."""
    if case.source == case.target:
        return f"--from {case.source} --to {case.target}: name two different ones"
    if case.grad and case.source == NUMPY:
        return "--grad: arrays require no grad, leave it out"
    if case.read_only and case.source != NUMPY:
        return f"--read-only: only arrays are read-only, leave it out with --from {case.source}"
    if case.read_only and case.writable and case.memory == ALIAS:
        return "--share: a write would reach the read-only source; take --own, or drop --writable"
    if (case.source, case.dtype) == (NUMPY, "bfloat16"):
        return (
            "--dtype bfloat16: NumPy has no such dtype; for such a tensor use --to-dtype bfloat16"
        )
    if case.goal == case.dtype:
        return f"--to-dtype {case.goal}: the source has it, leave it out"
    return ""


def impossible_source(case: Case) -> str:
    """Return why no source is of this dtype and size; "" if there are some."""
    item = itemsize(case.dtype)
    is_scalar = case.layout == ZERO_D
    if case.nbytes % item or (is_scalar and case.nbytes != item):
        nbytes = f"{item}" if is_scalar else f"a multiple of {item}"
        return f"--nbytes {case.nbytes}: a {case.layout} source of {case.dtype} has {nbytes}"
    if case.grad and not case.dtype.startswith(FLOATS):
        return f"--grad: floating point and complex tensors require grad, {case.dtype} does not"
    return ""


def direction_not_measured(case: Case, machine: str) -> str:
    """Nothing was measured in this direction."""
    text = f"--from {case.source} --to {case.target}: not measured on {machine}"
    if case.device:
        rule = UNMEASURED_RULES[case.source, case.target]
        text += f"; until then take {rule} (a rule, see docs/gpu.md); {MEASURE} measures it"
    return text


def value_not_measured(
    field: str, value: str | int, case: Case, alternatives: Sequence[str]
) -> str:
    """Nothing was measured with this value of a field, in this direction.

    alternatives: the values that were measured
    """
    option = f"--{OPTIONS.get(field, field)}"
    if not value:
        option = f"no {option}"
    elif value is not True:
        option = f"{option} {value}"
    goal = f" to {case.goal}" if field == "dtype" else ""
    remedy = f"there are {', '.join(alternatives)}" if alternatives else "leave it out"
    return f"{option}: not measured {case.direction}{goal}; {remedy}"


def dtype_not_timed(case: Case, dtypes: Sequence[str]) -> str:
    """The suite does not time this dtype in this direction. dtypes: those that it does."""
    return f"--dtype {case.dtype}: not timed {case.direction}; there are {', '.join(dtypes)}"


def dtype_refused(case: Case, goals: Sequence[str]) -> str:
    """Every route raises an exception for this dtype. goals: dtypes to which it was cast."""
    casts = " or ".join(f"--to-dtype {goal}" for goal in goals) or "--to-dtype"
    return f"--dtype {case.dtype}: every route {case.direction} refuses it; add {casts}"


def grad_refused(case: Case) -> str:
    """Every route raises an exception for a tensor that requires grad."""
    remedy = "leave it out, and detach first"
    return f"--grad: every such route {case.direction} refuses it; {remedy}"


def no_route(case: Case, sizes: Sequence[int], jump: int = 0) -> str:
    """No route was measured near this size.

    sizes  those that were measured
    jump   size at which times jump, between them and the case; 0: none does
    """
    memory = MEMORY.get(case.memory, "")
    grad = " and takes a tensor that requires grad" if case.grad else ""
    source = f"a batch of {case.dtype}" if case.batch else f"{case.layout} {case.dtype}"
    goal = f" to {case.goal}" if case.goal else ""
    reason = f"no route {case.direction}{memory}{grad} was measured for {source}{goal}"
    if not sizes:
        return reason
    measured = ", ".join(map(size, sizes))
    reason += f" near {size(case.total)}"
    if jump:
        return f"{reason}: times jump at {size(jump)}, and only {measured} were measured"
    reach = f"answers reach {MAX_EXTRAPOLATION:.0f} times beyond the sizes measured"
    return f"{reason}; {reach}: {measured}"


def other_count(case: Case, counts: Sequence[int]) -> str:
    """As many arrays were not measured. counts: those that were."""
    reach = f"answers reach {MAX_EXTRAPOLATION:.0f} times as many or as few"
    return f"--batch {case.batch}: {', '.join(map(str, counts))} arrays were measured, and {reach}"
