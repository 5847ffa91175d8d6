"""What users ask about conversions and transfers, answered from the figures and contracts of one run.

Every sentence is made from data: where a run lacks the figures for a question, the question says so.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from analysis.answers import Segment, choose, decisions
from analysis.cells import Cell, conversions, from_lists, method, requires_grad, usual_size
from analysis.choice import decided
from analysis.findings import Semantics, slowed
from analysis.results import Results
from analysis.transfers import Transfers, asynchronous

from benchmarks.contracts import (
    ALIAS,
    COMPLETION,
    DEVICE_TO_HOST,
    ENQUEUE,
    GRAD,
    INTO,
    NONE,
    PAGEABLE,
    PINNED,
    REGISTERED,
    TORCH_TO_NUMPY,
    Route,
)
from benchmarks.families import CASTING, CONTEXT, CONVERSION, PINNING, PLACEMENT
from benchmarks.families import GRAD as REQUIRES_GRAD

from . import show
from .advice import between_neighbours, takes
from .show import code
from .tables import Entry, Table, catalogue, compared, measured_memory
from .transfers import cost_words

TITLES = {
    1: "Which call, and does it share memory?",
    2: "Why is torch.tensor(list of arrays) slow?",
    3: "Why is .cpu() slow?",
    4: "“can't convert cuda tensor”, “requires grad”: what then?",
    5: "Does the order of .detach().cpu() matter?",
    6: "How does bfloat16 get to NumPy?",
    7: "Does pin_memory help, and why is it slower?",
    8: "Should I always use non_blocking?",
    9: "Why garbage after a non-blocking copy to the host?",
    10: "Can I pin an existing array?",
    11: "Why is the first use slow?",
    12: "NumPy 2: “Numpy is not available”, warnings about copies?",
    13: "Why does the same copy sometimes take many times as long?",
}
ON_DEVICE = (3, 7, 8, 9, 10, 11)  # questions about an accelerator alone
NEEDS_TRANSFERS = "not measured here: needs the transfers profile"
NOT_MEASURED = "not measured here"
TO_DEVICE, TO_DEVICE_EARLY = "t.to(device)", "t.to(device, non_blocking=True)"
INTO_HOST, INTO_HOST_EARLY, FRESH_HOST = "h.copy_(t)", "h.copy_(t, non_blocking=True)", "t.cpu()"
PIN_FIRST = "t.pin_memory().to(device, non_blocking=True)"
PLAIN = "t.numpy()"  # what people write first, and what the errors are about
NOT_EARLY = (
    "But the call takes no less than until the bytes have arrived: here this copy is not asynchronous, and the run "
    "shows nothing of that."
)
CONSTRUCTED = "np.array(t)"  # what the warnings about copies are about

Wanted = Callable[[Route], bool]  # what a contract is to promise
array, takes_grad = attrgetter("array"), attrgetter("takes_grad")


class Questions:
    """The questions' answers: a method each, which yields sentences, none where the run lacks the figures."""

    def __init__(self, results: Results, cells: Sequence[Cell], transfers: Transfers) -> None:
        self.results, self.cells, self.transfers = results, cells, transfers
        self.semantics = Semantics(results)

    def table(self, without_device: str = "") -> Table:
        """All questions. ``without_device``: why there is no accelerator, where there is none."""
        rows: list[tuple[Entry, ...]] = []
        unanswered: list[int] = []
        for number, title in TITLES.items():
            lines = list(getattr(self, f"answer_{number}")())
            if number in ON_DEVICE and not self.transfers:
                unanswered.append(number)
                continue
            why = NEEDS_TRANSFERS if number in ON_DEVICE else NOT_MEASURED
            rows.append((f"{number}. {title}", lines or [f"{why}."]))
        if unanswered:
            why = f" on a machine with an accelerator ({without_device})" if without_device else ""
            names = show.join([str(number) for number in unanswered])
            rows.append((f"{names}: about accelerators", f"{NEEDS_TRANSFERS}{why}."))
        return Table("What users ask, answered by this run", ("question", "answer"), tuple(rows), numeric=False)

    # The answers

    def answer_1(self) -> Iterator[str]:
        for answered in decisions(self.cells):
            if answered.need.memory == ALIAS:
                for segment in answered.segments:
                    yield self._call(answered.need.direction, segment)

    def answer_2(self) -> Iterator[str]:
        lists = from_lists(self.cells)
        slow = [cell for cell in lists if cell.contract.per_element]
        if slow:
            worst = max(slow, key=lambda cell: cell.nbytes)
            rest = [c for c in lists if c.nbytes == worst.nbytes and not c.contract.per_element]
            why = f": it {worst.contract.hazard}" if worst.contract.hazard else ""
            yield f"{_timed(worst)}{why}."
            if rest:
                yield f"{_compared(choose(rest)[0].choices[0].cell, worst)}."

    def answer_3(self) -> Iterator[str]:
        fresh = self.transfers.find(COMPLETION, FRESH_HOST, PAGEABLE)
        if fresh is None:
            return
        yield f"{code(FRESH_HOST)} into fresh pageable memory takes {self._cost_at(fresh)}."
        others = [(INTO_HOST, PAGEABLE), (INTO_HOST, PINNED), (INTO_HOST_EARLY, PINNED)]
        cells = [self.transfers.find(COMPLETION, route, host, fresh.nbytes) for route, host in others]
        for cell in cells:
            if cell is not None:
                into = f", into a {cell.host} tensor that exists: {cost_words(cell, self.transfers)}"
                yield f"{_compared(cell, fresh)}{into}{_condition(cell)}."

    def answer_4(self) -> Iterator[str]:
        plain = self.results.contracts.get((TORCH_TO_NUMPY, PLAIN), NONE)
        how = plain.inputs.get(GRAD)
        if how and not plain.takes_grad:
            yield f"{code(PLAIN)} refuses a tensor that requires grad ({how})."
        grad = [cell for cell in requires_grad(self.cells) if cell.safe]
        if grad:
            yield from (f"This takes it: {take.sentence}." for take in takes(choose(grad)))
        else:
            route = self._promising(TORCH_TO_NUMPY, takes_grad, shares)
            if route:
                yield f"This takes it, by its contract (not timed here): {code(route)}."
        yield from self._from_device()

    def _from_device(self) -> Iterator[str]:
        """From a device to an array: the plain route, then one that detaches, too. A figure only of a device's cell."""
        arrays = [c for c in self.transfers.of(COMPLETION, DEVICE_TO_HOST, PAGEABLE) if c.contract.array and c.safe]
        moved = [c for c in arrays if c.memory != INTO]  # which takes a buffer that exists
        wanted: dict[str, Wanted] = {"From a device": array, "From a device, where it requires grad": takes_grad}
        named: list[str] = []
        for what, wants in wanted.items():
            cells = [cell for cell in moved if wants(cell.contract)]
            nbytes = usual_size(cells)
            here = [cell for cell in cells if cell.nbytes == nbytes]
            if here:
                cell = choose(here)[0].choices[0].cell
                route, line = cell.route, f"{what}: {code(cell.route)}, {self._cost_at(cell)}."
            else:
                route = self._promising(DEVICE_TO_HOST, array, wants)
                line = f"{what}, by its contract (not measured here): {code(route)}."
            if route and route not in named:
                named.append(route)
                yield line

    def answer_5(self) -> Iterator[str]:
        pair = ("t.detach().cpu().numpy()", "t.cpu().detach().numpy()")
        device = self.transfers.of(COMPLETION, DEVICE_TO_HOST)
        for where, cells in (("on the CPU", conversions(self.cells)), ("on the device", device)):
            here = [cell for cell in cells if cell.route in pair]
            nbytes = usual_size(here)
            both = sorted((cell for cell in here if cell.nbytes == nbytes), key=lambda cell: cell.seconds)
            if len(both) == 2:
                first, last = both
                gain = f"the first takes {show.ratio(first.seconds / last.seconds)} the time"
                words = compared(first, last, gain, tie="a tie")
                if not decided(first, last):
                    first, last = sorted(both, key=lambda cell: pair.index(cell.route))
                times = f"{show.time(first)} and {show.time(last)} at {show.size(nbytes)}"
                yield f"Tensor {where}: {show.codes([first.route, last.route])}: {times}, {words}."

    def answer_6(self) -> Iterator[str]:
        cells = [c for c in self.cells if c.dtype == "bfloat16" and c.role == CASTING and c.direction == TORCH_TO_NUMPY]
        refusing = self.results.contracts.get((TORCH_TO_NUMPY, PLAIN), NONE).refuses.get("bfloat16")
        if cells and refusing:
            yield f"{code(PLAIN)} of bfloat16: {refusing}."
        nbytes = usual_size(cells)
        for cell in sorted((cell for cell in cells if cell.nbytes == nbytes), key=lambda cell: not cell.safe):
            hazard = f": {cell.contract.hazard}" if cell.contract.hazard else ""
            gives = f", gives {cell.contract.casts_to}" if cell.contract.casts_to else ""
            yield f"{_timed(cell)}{gives}{hazard}."

    def answer_7(self) -> Iterator[str]:
        plain = self.transfers.find(COMPLETION, TO_DEVICE, PAGEABLE)
        if plain is None:
            return
        n = plain.nbytes
        yield f"From pageable memory {code(TO_DEVICE)} takes {self._cost_at(plain)}."
        for route in (TO_DEVICE, TO_DEVICE_EARLY):
            pinned = self.transfers.find(COMPLETION, route, PINNED, n)
            if pinned is not None:
                takes = f": {cost_words(pinned, self.transfers)}{_condition(pinned)}"
                yield f"From memory that is pinned already {_compared(pinned, plain)}{takes}."
        pinning = self.transfers.find(COMPLETION, PIN_FIRST, PAGEABLE, n)
        if pinning is not None:
            why = f": it {pinning.contract.hazard}" if pinning.contract.hazard else ""
            yield f"Pinning at every call: {_compared(pinning, plain)}{why}."

    def answer_8(self) -> Iterator[str]:
        for host in (PINNED, PAGEABLE):
            early = self.transfers.find(COMPLETION, TO_DEVICE_EARLY, host)
            if early is None:
                continue
            blocking = self.transfers.find(COMPLETION, TO_DEVICE, host, early.nbytes)
            queued = self.transfers.find(ENQUEUE, TO_DEVICE_EARLY, host, early.nbytes)
            size = show.size(early.nbytes)
            words = f"From {host} memory, {size}: the bytes arrive after {show.time(early)}"
            against = f", blocking after {show.time(blocking)}" if blocking else ""
            part = " of that" if queued and asynchronous(early, queued) else ""
            held = f", and the call holds its caller for {show.time(queued)}{part}" if queued else ""
            yield f"{words}{against}{held}."
            if host == PINNED and early.contract.hazard:
                yield f"Its condition: {early.contract.hazard}."
                if queued and not asynchronous(early, queued):
                    yield NOT_EARLY

    def answer_9(self) -> Iterator[str]:
        for cell in self.transfers.of(COMPLETION, DEVICE_TO_HOST, PINNED):
            hazard = cell.contract.hazard
            if hazard and cell.route == INTO_HOST_EARLY:
                done = self.transfers.find(COMPLETION, cell.route, PINNED) or cell
                queued = self.transfers.find(ENQUEUE, cell.route, PINNED, done.nbytes)
                yield f"{code(cell.route)}: {hazard}."
                if queued is not None and not asynchronous(done, queued):
                    yield NOT_EARLY
                elif queued is not None:
                    times = f"{show.time(queued)}, {show.size(done.nbytes)} have arrived"
                    yield f"The call returns after {times} after {show.time(done)}."
                return

    def answer_10(self) -> Iterator[str]:
        pinned = self.transfers.role(PINNING)
        size = usual_size(pinned)
        words = {
            "pin_copy": "A pinned copy, t.pin_memory(), takes",
            "register": "Registering its memory in place takes",
        }
        for name, what in words.items():
            for cell in pinned:
                if method(cell) == name and cell.nbytes == size:
                    yield f"{what} {show.time(cell)} the first time, at {show.size(size)}."
        why = self.transfers.why_not(role=PINNING, method="timeit_register")
        if pinned and why:
            yield f"Registering in place: {why}."
        registered = self.transfers.find(COMPLETION, TO_DEVICE, REGISTERED)
        if registered is not None:
            same = self.transfers.find(COMPLETION, TO_DEVICE, PINNED, registered.nbytes)
            beside = f", from pinned memory {cost_words(same, self.transfers)}" if same else ""
            at = show.size(registered.nbytes)
            cost = cost_words(registered, self.transfers)
            yield f"From registered memory {code(TO_DEVICE)} then takes {cost}{beside} at {at}."

    def answer_11(self) -> Iterator[str]:
        for cell in self.transfers.role(CONTEXT):
            yield f"The first tensor on the device makes its context: {show.time(cell)} once a process."
        allocated = [c for c in self.transfers.role(PINNING) if method(c) == "allocate"]
        if allocated:
            cell = max(allocated, key=lambda cell: cell.nbytes)
            per_gib = show.significant(cell.seconds / cell.nbytes * 2**30)
            took = f"{show.time(cell)}, {per_gib} s/GiB"
            yield f"The first {show.size(cell.nbytes)} of pinned memory take {took}."

    def answer_12(self) -> Iterator[str]:
        at, toolchain = self.results.last.settings, self.results.last.toolchain
        torch, numpy = at.torch or toolchain.torch, at.numpy or toolchain.numpy
        roles = (CONVERSION, REQUIRES_GRAD)
        timed = [cell for cell in self.cells if cell.role in roles]
        if timed and torch and numpy:
            missing = [self.results.of_role(self.results.missing, role) for role in roles]
            failed = sum((table["status"] == "failed").sum() for table in missing)
            counts = "1 conversion was timed" if len(timed) == 1 else f"{len(timed):,} conversions were timed"
            counts += f", {failed:,} failed" if failed else ""
            if numpy.startswith("1."):
                yield f"This run has numpy {numpy}: it tells nothing of NumPy 2."
            else:
                yield f"torch {torch} and numpy {numpy}{'' if failed else ' work together'}: {counts}."
        hazard = self.results.contracts.get((TORCH_TO_NUMPY, CONSTRUCTED), NONE).hazard
        if hazard:
            yield f"{code(CONSTRUCTED)}: {hazard}{self._seconds_of(TORCH_TO_NUMPY, CONSTRUCTED)}."

    def answer_13(self) -> Iterator[str]:
        copies = slowed(self.cells)
        if copies:
            yield "By where its arrays lie: the target begins 1 to 31 bytes further on in its page than the source."
        elif any(cell.role == PLACEMENT for cell in self.cells):
            yield "Not by where its arrays lie: no copy is decided to take half as long again here between neighbours."
        yield from (f"{between_neighbours(each)}." for each in copies)

    # Pieces

    def _call(self, direction: str, segment: Segment) -> str:
        cell = segment.choices[-1].cell
        measured = measured_memory(self.semantics, cell.contract)
        does = f"shares memory (measured: {measured})" if measured else "shares memory by its contract"
        hazard = f"; {cell.contract.hazard}" if cell.contract.hazard else ""
        at = f"{show.time(cell)} at {show.size(cell.nbytes)}"
        return f"{direction}: {code(cell.route)} {does}, {at}{hazard}."

    def _promising(self, direction: str, *wanted: Wanted) -> str:
        """The catalogue's first safe route whose contract is wanted; "" where there is none."""
        promises = ((key, self.results.contracts[key]) for key in catalogue(self.results) if key[0] == direction)
        return next(
            (route for (_, route), contract in promises if contract.safe and all(holds(contract) for holds in wanted)),
            "",
        )

    def _cost_at(self, cell: Cell) -> str:
        return f"{cost_words(cell, self.transfers)} at {show.size(cell.nbytes)}"

    def _seconds_of(self, direction: str, route: str) -> str:
        """Time of a conversion at the usual size of what was measured of it, in brackets; "" where nothing was."""
        same = [cell for cell in conversions(self.cells) if (cell.direction, cell.route) == (direction, route)]
        nbytes = usual_size(same)
        for cell in same:
            if cell.nbytes == nbytes:
                return f" ({show.time(cell)} at {show.size(nbytes)})"
        return ""


def shares(contract: Route) -> bool:
    """Whether a route promises to share memory and to keep every dtype."""
    return contract.keeps_dtype("") and contract.memory_for("") == ALIAS


def _condition(cell: Cell) -> str:
    """The hazard of a route that is shown as faster: whoever takes it has to heed that."""
    return f" (its condition: {cell.contract.hazard})" if cell.contract.hazard else ""


def _timed(cell: Cell) -> str:
    return f"{code(cell.route)} takes {show.time(cell)} at {show.size(cell.nbytes)}"


def _compared(cell: Cell, other: Cell) -> str:
    """A route against another at the same size."""
    if not (cell.calm and other.calm):
        return f"{code(cell.route)} against {show.time(other)}, not decided: the machine was busy"
    if not decided(cell, other):
        return f"{code(cell.route)} ties{f' with {code(other.route)}' if cell.route != other.route else ''}"
    if cell.seconds <= other.seconds:
        return f"{code(cell.route)} is {show.ratio(other.seconds / cell.seconds)} as fast"
    return f"{code(cell.route)} takes {show.ratio(cell.seconds / other.seconds)} the time"
