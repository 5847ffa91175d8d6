"""A case as somebody types it, and its answer: in words, as code to paste and as JSON."""

import argparse
import json
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from analysis import case as cases
from analysis.case import (
    CUDA,
    EXTRAPOLATED,
    INTERPOLATED,
    NUMPY,
    TORCH,
    Answer,
    Candidate,
    Case,
    Known,
    gains_of,
    itemsize,
    slowed_of,
    uses,
)
from cli import UserError

from benchmarks.contracts import ALIAS, ALL_THREADS, CONTIGUOUS, COPY, INTO, PINNED, Route

from . import show
from .show import code

MEMORY = {ALIAS: "shares memory", COPY: "fresh memory", INTO: "into the buffer"}
LIKENESS = {"cpu": "CPU", "cores": "number of cores", "caches": "caches"}
SHOWN = 5  # routes


# --- in words ---------------------------------------------------------------------------------------------------------


def words(answer: Answer, differs: Sequence[str] = (), asked: bool = False) -> Iterator[str]:
    """Lines for a terminal. differs: in what the machine is not this one; asked: for its results."""
    case, known, best = answer.case, answer.known, answer.ranked[0]
    yield show.to_plain(whose(known))
    if differs and not asked:
        unlike = show.join([LIKENESS[name] for name in differs])
        yield f"Warning: this machine has no results, and differs from that one in {unlike}; scripts/run.py makes some."
    yield ""
    yield show.to_plain(title(case, threads_of(case, known)))
    for place, candidate in enumerate(answer.ranked[:SHOWN], 1):
        yield show.to_plain(f"  {place}. {line_of(candidate, case)}")
    rest = len(answer.ranked) - SHOWN
    if rest > 0:
        yield f"  and {rest} more"
    for note in notes(answer):
        yield show.to_plain(f"  - {note}")
    yield ""
    yield from snippet(case, best, known)


def whose(known: Known) -> str:
    """The machine, toolchain and day that an answer is about."""
    conditions = known.conditions
    parts = [f"torch {known.torch}" if known.torch else known.toolchain, f"numpy {known.numpy}" if known.numpy else ""]
    parts += [f"{conditions.cpu}, {conditions.cores} cores" if conditions.cpu else "", known.device_name]
    parts += [f"measured {known.day}" if known.day else ""]
    return f"{known.machine}: {' · '.join(part for part in parts if part)}"


def title(case: Case, threads: int = 0) -> str:
    """A case in words. threads: that torch has; 0: nobody asks."""
    size = show.size(case.nbytes)
    kind = f"{'' if case.layout == CONTIGUOUS else f'{case.layout} '}{case.dtype}"
    kind += f", to {case.goal}" if case.goal else ""
    source = f"{case.batch} arrays of {size} each of {kind}" if case.batch else f"{size} of {kind}"
    wants = {ALIAS: "shares its memory", COPY: "owns its memory", INTO: "is a buffer that exists"}.get(case.memory, "")
    extra = [f"the result {wants}"] if wants else []
    extra += ["the source requires grad"] if case.grad else []
    extra += [show.threads(threads)] if threads else []
    extra += [f"{case.host} host memory"] if case.host else []
    extra += ["ranked by how long the caller is held"] if case.enqueue else []
    extra += [f"{case.count:,} times"] if case.count > 1 else []
    return "; ".join([f"From {case.source} to {case.target}, {source}", *extra])


def threads_of(case: Case, known: Known) -> int:
    """How many threads torch has in a case; 0 where that is no question."""
    threads = case.threads_in(known)
    return known.threads if threads == ALL_THREADS else int(threads or 0)


def line_of(candidate: Candidate, case: Case) -> str:
    """A route with its time and what else there is to know of it in a line."""
    return f"{code(candidate.route)}, {cost_of(candidate, case.device, case.count)}"


def cost_of(candidate: Candidate, device: bool, count: int = 1) -> str:
    figure = candidate.figure
    said = [f"{show.seconds(figure.seconds, candidate.quiet)} ({show.interval(figure.low, figure.high)})"]
    if candidate.rate:
        said.append(show.bandwidth(candidate.rate))
    if candidate.share:
        said.append(f"{show.percent(candidate.share)} of {'the link' if device else 'memcpy'}")
    said.append(MEMORY[candidate.memory])
    if candidate.host == PINNED:
        said.append("pinned host memory")
    if candidate.once is not None:
        said.append(f"and {show.seconds(candidate.once)} once, {show.seconds(candidate.total)} per transfer")
    if count > 1:
        said.append(f"{show.seconds(candidate.total * count)} for all")
    return ", ".join(said) + (" (tie)" if candidate.tie else "")


def notes(answer: Answer) -> tuple[str, ...]:
    """What the answer rests on, hazards, settings, and what is missing: a sentence each."""
    case, best = answer.case, answer.ranked[0]
    shown = answer.ranked[:SHOWN]
    slowed = slowed_of(case, answer.known, best.route) if best.memory != ALIAS else None
    return show.prose(
        "case",
        answer=answer,
        case=case,
        best=best,
        shown=shown,
        ties=[best.route, *(each.route for each in answer.ranked if each.tie)],
        rests=_routes_by((_rests_on(each, case), each.route) for each in shown),
        one_thread=not (case.device or case.threads or answer.known.spreads) and best.memory != ALIAS,
        promises=_routes_by((text, each.route) for each in shown for text in promises(each.contract)),
        unpriced=[each.route for each in shown if each.unpriced],
        unusual=unusual(best.contract),
        why_unsafe=why_unsafe,
        gains=gains_of(case, answer.known, best),
        slowed=slowed,
    )


def _routes_by(said: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Each text with the routes that it is about."""
    routes: dict[str, list[str]] = {}
    for text, route in said:
        if text:
            routes.setdefault(text, []).append(route)
    return routes


def unusual(contract: Route) -> tuple[str, ...]:
    """What a route does with unusual inputs, in a sentence; none where it simply takes or refuses them all."""
    return show.prose("unusual_inputs", contract=contract)


def _rests_on(candidate: Candidate, case: Case) -> str:
    """How a figure came about that was not measured as it stands; "" of one that was."""
    figure, sizes, at = candidate.figure, show.sizes(candidate.figure.sizes), show.size(case.total)
    if figure.how == INTERPOLATED:
        return f"{at}: interpolated between {sizes}"
    return f"{at}: extrapolated from {sizes}" if figure.how == EXTRAPOLATED else ""


def why_unsafe(contract: Route) -> str:
    """Why a route is not recommended."""
    return contract.hazard or "it gets some inputs wrong without an exception"


def promises(contract: Route) -> Iterator[str]:
    """What somebody who takes the route is to know."""
    yield from filter(None, (contract.hazard, contract.caution))
    if contract.needs:
        yield f"needs {show.join(contract.needs.split())}"


# --- code to paste ----------------------------------------------------------------------------------------------------


def snippet(case: Case, best: Candidate, known: Known) -> list[str]:
    """Lines of Python that make all names a route needs, take it, and wait where it may return early."""
    route, contract = best.route, best.contract
    kind = known.device.partition(":")[0] or CUDA
    made = ["import numpy as np", "import torch", ""]
    if case.device:
        made.append(f'device = torch.device("{kind}")')
    made += list(_source(case, best))
    made += list(_buffers(case, best))
    result = "a" if case.target == NUMPY else "t"
    result = f"new_{result}" if uses(route, result) else result
    given = best.memory != INTO or (contract.array and case.target == NUMPY)  # the array is the buffer's
    last = route.rfind("; ") + 2 if "; " in route else 0  # a route's result is that of its last statement
    made.append(f"{route[:last]}{result} = {route[last:]}" if given else route)
    if contract.non_blocking:
        before = "before the source changes" if case.target == CUDA else "before the result is read"
        made.append(f"torch.{kind}.synchronize()  # {before}")
    return made


def _source(case: Case, best: Candidate) -> Iterator[str]:
    """The line that stands for what somebody has."""
    count = case.nbytes // itemsize(case.dtype)
    arrays = case.source == NUMPY
    library = "np" if arrays else "torch"
    dtype = _dtype(library, case)
    rows = min(1024, count & -count)  # a power of two
    shape = {"0-d": "()", "strided": f"{2 * count}", "5-d": f"({count}, 1, 1, 1, 1)"}.get(case.layout, f"{count}")
    after = {"strided": "[::2]", "transposed": ".T", "fortran": ".T"}.get(case.layout, "")
    if case.layout in ("transposed", "fortran"):
        shape = f"({count // rows}, {rows})"
    options = ", requires_grad=True" if case.grad else ""
    if case.source == CUDA:
        yield f"t = torch.ones({shape}, dtype={dtype}, device=device{options}){after}  # yours"
    elif case.batch:
        name = "arrays" if arrays else "tensors"
        yield f"{name} = [{library}.ones({shape}, dtype={dtype}) for _ in range({case.batch})]  # yours"
    elif arrays and best.host == PINNED:
        yield f"a = torch.ones({shape}, dtype=torch.{case.dtype}).pin_memory().numpy(){after}  # yours, pinned once"
    else:
        name = next((name for name in ("a", "m") if uses(best.route, name)), "t")
        pinned = ".pin_memory()" if best.host == PINNED else ""
        once = ", pinned once" if pinned else ""
        yield f"{name} = {library}.ones({shape}, dtype={dtype}{options}){pinned}{after}  # yours{once}"


def _dtype(library: str, case: Case) -> str:
    """The name of the dtype there; not all of NumPy's releases have np.bool."""
    return "np.bool_" if (library, case.dtype) == ("np", "bool") else f"{library}.{case.dtype}"


def _buffers(case: Case, best: Candidate) -> Iterator[str]:
    """The lines that make what else the route uses, once."""
    route, source = best.route, "m" if uses(best.route, "m") else "t"
    if uses(route, "dtype") and "dtype=dtype" in route:
        yield f"dtype = torch.{case.dtype}"
    if uses(route, "b"):
        shape, library = ("a.shape", "torch") if case.target == TORCH else ("tuple(t.shape)", "np")
        what = "the buffer" if best.memory == INTO else "one of yours"
        yield f"b = {library}.empty({shape}, dtype={_dtype(library, case)})  # {what}"
    if uses(route, "h"):
        pinned = ", pin_memory=True" if best.host == PINNED else ""
        yield f"h = torch.empty(t.shape, dtype=t.dtype{pinned})  # the buffer"
    like = f"a.shape, dtype=torch.{case.dtype}" if uses(route, "a") else f"{source}.shape, dtype={source}.dtype"
    if uses(route, "d"):
        yield f"d = torch.empty({like}, device=device)  # the buffer"
    if uses(route, "s"):
        yield f"s = torch.empty({like}, pin_memory=True)  # pinned once"
    if uses(route, "buffers"):
        yield "from benchmarks import devices  # of this suite's checkout"
        yield "from benchmarks.moving import Buffers"
        yield "buffers = Buffers(devices.find().use(), torch.empty(t.shape, dtype=t.dtype))  # pinned once"
    if uses(route, "stages"):
        yield "from benchmarks import devices  # of this suite's checkout"
        yield "from benchmarks.moving import Stages, copy_in_chunks"
        yield "stages = Stages(devices.find().use(), t.dtype)  # pinned once"


# --- JSON -------------------------------------------------------------------------------------------------------------


def as_json(answer: Answer, differs: Sequence[str] = ()) -> str:
    """The answer with everything it rests on; seconds and bytes."""
    known = answer.known

    def plain(candidate: Candidate) -> dict[str, Any]:
        fields = {name: value for name, value in asdict(candidate).items() if name != "contract"}
        contract = {name: getattr(candidate.contract, name) for name in ("hazard", "caution", "needs", "non_blocking")}
        return {**fields, **contract, "code": "\n".join(snippet(answer.case, candidate, known))}

    document = {
        "case": asdict(answer.case),
        "machine": {name: getattr(known, name) for name in ("machine", "toolchain", "torch", "numpy", "day")},
        "differs": list(differs),
        "ranked": [plain(candidate) for candidate in answer.ranked],
        "conditional": [plain(candidate) for candidate in answer.conditional],
        "unsafe": [plain(candidate) for candidate in answer.unsafe],
        "unmeasured": list(answer.unmeasured),
        "instead": answer.instead,
        "arrays": answer.arrays,
        "notes": [show.to_plain(note) for note in notes(answer)],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


# --- a case as somebody types it --------------------------------------------------------------------------------------


UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
ENDS = ", ".join(cases.ENDS)
# Asked one at a time: the option, the question, what Enter says
QUESTIONS = (
    ("from", f"What have you got? ({ENDS})", "numpy"),
    ("to", f"Where do you want it? ({ENDS})", "torch"),
    ("nbytes", "How large is it? (such as 4096, 3MiB)", "1MiB"),
    ("dtype", "Of which dtype?", "float32"),
    ("layout", "In which layout? (contiguous, strided, transposed, fortran, 5-d, 0-d)", CONTIGUOUS),
    ("memory", "Must the result own its memory, share it, or be a buffer that exists? (any, own, share, into)", "any"),
    ("count", "How many times?", "1"),
)
MEMORIES = ("any", "own", "share", "into")


def size(text: str) -> int:
    """Bytes of "3MiB", "3 MB" or "4096"; UserError where that is no whole number of them."""
    matched = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*(|[kmg]i?)b?\s*", text, re.IGNORECASE)
    nbytes = Fraction(matched[1]) * UNITS[matched[2].lower()] if matched else Fraction(1, 2)
    if nbytes.denominator != 1:
        raise UserError(f"--nbytes {text!r}: write bytes such as 4096, 3MiB or 3MB")
    return int(nbytes)


def whole(option: str, text: str) -> int:
    """A whole number; UserError where it is none."""
    try:
        return int(text)
    except ValueError:
        raise UserError(f"{option} {text!r} is no whole number") from None


def case_of(chosen: argparse.Namespace) -> Case:
    """The case that was typed; UserError where it contradicts itself."""
    if chosen.host not in ("", *cases.HOSTS):
        raise UserError(f"--source {chosen.host}: {' or '.join(cases.HOSTS)}")
    case = Case(
        chosen.source,
        chosen.target,
        size(chosen.nbytes),
        chosen.dtype,
        chosen.layout,
        chosen.memory or "",
        chosen.host,
        chosen.grad,
        whole("--batch", chosen.batch),
        chosen.enqueue,
        whole("--count", chosen.count),
        chosen.goal,
        chosen.threads,
    )
    cases.check(case)
    return case


def ask() -> list[str]:
    """The arguments that answers to questions make; UserError where the input ends."""
    given: list[str] = []
    for option, question, usual in QUESTIONS:
        while True:
            print(f"{question} [{usual}] ", end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
            if not line:
                raise UserError("no more answers; python scripts/advise.py --help lists the options")
            said = line.strip() or usual
            wrong = _why_wrong(option, said)
            if not wrong:
                break
            print(wrong, file=sys.stderr)
        if option != "memory":
            given += [f"--{option}", said]
        elif said != "any":
            given.append("--into-buffer" if said == "into" else f"--{said}")
    print(f"\n{shlex.join(['python', 'scripts/advise.py', *given])}\n", file=sys.stderr)
    return given


def _why_wrong(option: str, said: str) -> str:
    """Why this cannot be the answer to a question; "" where it can."""
    try:
        if option in ("from", "to") and said not in cases.ENDS:
            return f"one of {', '.join(cases.ENDS)}"
        if option == "memory" and said not in MEMORIES:
            return f"one of {', '.join(MEMORIES)}"
        if option == "nbytes" and size(said) < 1:
            return "one byte at least"
        if option == "count" and whole("--count", said) < 1:
            return "once at least"
    except UserError as error:
        return str(error)
    return ""
