"""What users ask about conversions and transfers, answered from the figures and contracts of one run.

The questions and the words are in templates/prose/questions.md.jinja; here is which cells each answer is about.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pandas as pd
from analysis.case import BEST
from analysis.cells import Cell, conversions, decided, method, usual_size
from analysis.choices import rank
from analysis.findings import Semantics, slowed
from analysis.results import Results
from analysis.transfers import Transfers

from benchmarks import families as roles
from benchmarks.contracts import ALIAS, COMPLETION, DEVICE_TO_HOST, INTO, NONE, PAGEABLE, TORCH_TO_NUMPY

from . import show
from .advice import takes
from .tables import Entry, Table, compared, measured_memory
from .transfers import best, cost_words

ORDERS = ("t.detach().cpu().numpy()", "t.cpu().detach().numpy()")
PLAIN = "t.numpy()"  # what people write first, and what the errors are about
CONSTRUCTED = "np.array(t)"  # what the warnings about copies are about


def table(results: Results, cells: Sequence[Cell], asked: Sequence[pd.DataFrame], moved: Transfers) -> Table:
    """The questions that the run has figures or contracts for; a question without a sentence is left out."""
    plain, constructed = (results.contracts.get((TORCH_TO_NUMPY, route), NONE) for route in (PLAIN, CONSTRUCTED))
    grad = [rows for rows in asked if rows["need"].iloc[0].grad and rows["cell"].iloc[0].safe]
    casts = (cell for cell in cells if cell.role == roles.CASTING and cell.direction == TORCH_TO_NUMPY)
    bfloat16 = [cell for cell in casts if cell.dtype == "bfloat16"]
    pinned = moved.role(roles.PINNING)
    allocated = [cell for cell in pinned if method(cell) == "allocate"]
    found: list[tuple[Entry, list[str]]] = []
    for said in show.prose(
        "questions",
        moved=moved,
        cost=partial(cost_words, moved=moved),
        decided=decided,
        memory=partial(measured_memory, Semantics(results)),
        sharing=[
            cell
            for rows in asked
            for cell in rows[rows["kind"] == BEST].drop_duplicates("part", keep="last")["cell"]
            if rows["need"].iloc[0].plain and cell.memory == ALIAS
        ],
        lists=_lists([cell for rows in asked if rows["need"].iloc[0].batch for cell in rows["cell"]]),
        plain=plain,
        takes_grad=[take for rows in grad for take in takes(rows)],
        from_device=list(_from_device(moved)),
        orders=list(_orders(cells, moved)),
        bfloat16=sorted(_usual(bfloat16), key=lambda cell: not cell.safe),
        pinned=_usual(pinned),
        allocated=[max(allocated, key=lambda cell: cell.nbytes)] if allocated else [],
        timed_cells=sum(cell.role in (roles.CONVERSION, roles.GRAD) for cell in cells),
        failed=sum(
            (results.of_role(results.missing, role)["status"] == "failed").sum()
            for role in (roles.CONVERSION, roles.GRAD)
        ),
        run=results.last,
        constructed=constructed,
        timed_so=_usual([c for c in conversions(cells) if (c.direction, c.route) == (TORCH_TO_NUMPY, CONSTRUCTED)]),
        copies=slowed(cells),
        placed=any(cell.role == roles.PLACEMENT for cell in cells),
    ):
        if said.startswith("# "):
            found.append((said[2:], []))
        else:
            found[-1][1].append(said)
    rows = tuple((question, answer) for question, answer in found if answer)
    return Table("What users ask", ("question", "answer"), rows, numeric=False)


def _usual(cells: Sequence[Cell]) -> list[Cell]:
    """The cells at the size that most routes were measured at."""
    nbytes = usual_size(cells)
    return [cell for cell in cells if cell.nbytes == nbytes]


def _lists(cells: Sequence[Cell]) -> Mapping[str, Cell | None]:
    """The slowest way of making a tensor of a list, by its largest size, and the best one there."""
    slow = max((cell for cell in cells if cell.contract.per_element), key=lambda cell: cell.nbytes, default=None)
    rest = [cell for cell in cells if slow and cell.nbytes == slow.nbytes and not cell.contract.per_element]
    return {"slow": slow, "best": best(rank(rest)) if rest else None}


def _from_device(moved: Transfers) -> Iterator[tuple[bool, Cell]]:
    """From a device to an array: the plain route, then one that takes what requires grad, where that is another."""
    arrays = [c for c in moved.of(COMPLETION, DEVICE_TO_HOST, PAGEABLE) if c.contract.array and c.safe]
    fresh = [cell for cell in arrays if cell.memory != INTO]
    named: set[str] = set()
    for grad in (False, True):
        here = _usual([cell for cell in fresh if cell.contract.takes_grad or not grad])
        cell = best(rank(here)) if here else None
        if cell and cell.route not in named:
            named.add(cell.route)
            yield grad, cell


def _orders(cells: Sequence[Cell], moved: Transfers) -> Iterator[tuple[str, Cell, Cell, str]]:
    """Both orders where both were measured: the faster first, or the catalogue's and how they tie."""
    for where, those in (("CPU", conversions(cells)), ("device", moved.of(COMPLETION, DEVICE_TO_HOST))):
        both = _usual([cell for cell in those if cell.route in ORDERS])
        if len(both) == 2:
            tie = compared(both[0], both[1], "", tie="no significant difference")
            first, last = sorted(both, key=lambda cell: ORDERS.index(cell.route) if tie else cell.seconds)
            yield where, first, last, tie
