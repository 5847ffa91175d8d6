"""What users need: a source with a wanted result, and the ranked routes for every need.

``choices`` is their table at every measured size. A page's answers and tables, its form and
scripts/advise.py are views of it. The candidates of a need are the routes that produce its result.
A case is a need for an array of a given size.
"""

import itertools
import re
from dataclasses import dataclass, replace

import numpy as np
from pandas import DataFrame, concat
from store.frames import Choice, check_frame, rows_of

from benchmarks import contracts
from benchmarks.contracts import (
    ALIAS,
    CONTIGUOUS,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    ONE_THREAD,
    Role,
)

from .cells import DEFAULT_DTYPE, DIRECTIONS, LINK, usual_dtype, with_threads
from .ranking import BEST, rank
from .results import where

NUMPY, TORCH, DEVICE = ENDS = ("numpy", "torch", "device")
# Source and target -> direction, and whether the host's end of a link is a NumPy array
DIRECTION_OF_ENDS = {
    (NUMPY, TORCH): (contracts.NUMPY_TO_TORCH, False),
    (TORCH, NUMPY): (contracts.TORCH_TO_NUMPY, False),
    (NUMPY, DEVICE): (HOST_TO_DEVICE, True),
    (TORCH, DEVICE): (HOST_TO_DEVICE, False),
    (DEVICE, NUMPY): (DEVICE_TO_HOST, True),
    (DEVICE, TORCH): (DEVICE_TO_HOST, False),
}
ZERO_D = "0-d"  # a layout
TRANSPOSED = "m"  # name of a transposed source in routes that cross a link
CONVERSION_ROLES = (Role.CONVERSION, Role.GRAD, Role.LISTS, Role.CASTING)


def uses(route: str, name: str) -> bool:
    """Whether a route's expression uses a name of the catalogue."""
    return re.search(rf"\b{name}\b", route) is not None


@dataclass(frozen=True)
class Need:
    """A source and the wanted result. Routes of one need are ranked against each other.

    memory   alias, copy or into
    goal     dtype of the result; "": that of the source
    arrays   number of arrays that become one; 0: a single source
    threads  torch threads: ONE_THREAD, another number, or ALL_THREADS; "" where a link is crossed
    host     memory at the host's end of a link; array: the host's end is a NumPy array, else a
             tensor
    enqueue  ranked by enqueue time, else by completion time
    """

    direction: str
    memory: str
    dtype: str
    goal: str = ""
    layout: str = CONTIGUOUS
    grad: bool = False
    arrays: int = 0
    threads: str = ""
    host: str = ""
    array: bool = False
    enqueue: bool = False

    @property
    def plain(self) -> bool:
        """Whether it is one array or tensor that keeps its dtype and requires no grad."""
        return not (self.goal or self.grad or self.arrays)

    @property
    def crosses(self) -> bool:
        """Whether it crosses the link to a device."""
        return self.direction in LINK


NEED_FIELDS = tuple(Need.__dataclass_fields__)


@dataclass(frozen=True)
class Case:
    """A source of a given size and the wanted result.

    nbytes   of the source; per array if there are several
    memory   alias, copy or into; "": alias where possible, else copy
    host     memory at the host's end of a link; "": pageable, or pinned once by the caller
    batch    number of arrays that become one; 0: a single source
    enqueue  rank by enqueue time
    count    number of transfers over which one-time costs are amortised
    goal     dtype of the result; "": that of the source
    threads  of torch; "": its default number, or one if no other was measured
    shape    of the source, of each source if there are several; (): one dimension
    values   the source is a list of Python numbers, or of such lists
    expression  Python that makes the source; "": random numbers of that dtype and layout
    read_only   the source lies in read-only memory; writable: the result will be written to
    """

    source: str
    target: str
    nbytes: int
    dtype: str = "float32"
    layout: str = CONTIGUOUS
    memory: str = ""
    host: str = ""
    grad: bool = False
    batch: int = 0
    enqueue: bool = False
    count: int = 1
    goal: str = ""
    threads: str = ""
    shape: tuple[int, ...] = ()
    expression: str = ""
    read_only: bool = False
    writable: bool = False
    values: bool = False

    @property
    def direction(self) -> str:
        """Direction of the conversion or transfer; source and target differ."""
        return DIRECTION_OF_ENDS[self.source, self.target][0]

    @property
    def has_host_array(self) -> bool:
        """Whether a link is crossed whose host's end is a NumPy array."""
        return DIRECTION_OF_ENDS[self.source, self.target][1]

    @property
    def device(self) -> bool:
        """Whether a link is crossed."""
        return DEVICE in (self.source, self.target)

    @property
    def total(self) -> int:
        """Bytes that are moved."""
        return self.nbytes * max(1, self.batch)

    @property
    def layouts(self) -> list[str]:
        """Layouts whose times can be used, the best first: those of even arrays may be used for
        uneven ones."""
        uneven = self.batch and self.layout == CONTIGUOUS and self.nbytes % contracts.LINE
        return [contracts.UNEVEN, CONTIGUOUS] if uneven else [self.layout]


def choices(cells: DataFrame) -> DataFrame:
    """Return the ranked routes of every need in the cells, with the columns of ``rank`` and Need,
    and the need: see store.frames.Choice."""
    cells = _with_enqueue_needs(_with_needs(_per_thread_count(cells)))
    # routes that torch does not spread may also have been measured with several threads: then
    # those cells count
    cells = cells.drop_duplicates([*NEED_FIELDS, "nbytes", "route"], keep="last", ignore_index=True)
    keeps_dtype = cells.groupby([*NEED_FIELDS])["keeps"].transform("any")
    # a need without a goal is none if all its routes change the dtype
    table = rank(cells[keeps_dtype | (cells["goal"] != "")], NEED_FIELDS)
    fields = rows_of(table[[*NEED_FIELDS]])
    return check_frame(table.assign(need=[Need(*need) for need in fields]), Choice)


def _per_thread_count(cells: DataFrame) -> DataFrame:
    """Return the host's cells for each number of threads that was measured, then the device's."""
    on_device = cells["device"]
    thread_counts = sorted({ONE_THREAD, *cells.loc[~on_device, "threads"]})
    frames = [with_threads(cells, threads).assign(threads=threads) for threads in thread_counts]
    return concat([*frames, cells[on_device].assign(threads="")], ignore_index=True)


def _with_needs(cells: DataFrame) -> DataFrame:
    """Select the cells that answer a need, with the columns NEED_FIELDS."""
    uses_transposed = np.array([uses(route, TRANSPOSED) for route in cells["route"]], dtype=bool)
    is_transposed = cells["device"] & uses_transposed
    is_transfer = is_transposed | (cells["role"] == Role.TRANSFER)
    is_cast = (cells["role"] == Role.CASTING) & ~cells["keeps"]
    is_list = cells["arrays"] > 0
    layout = cells["layout"].replace("", CONTIGUOUS).mask(is_transfer, CONTIGUOUS)
    has_route = (cells["route"] != "") & (cells["memory"] != "")
    has_direction = cells["direction"].isin(DIRECTIONS)
    # families of layouts have a contiguous source, too, to compare theirs with
    is_conversion = cells["role"].isin(CONVERSION_ROLES) | is_list | (cells["layout"] != "")
    is_conversion &= cells["layout"] != CONTIGUOUS
    is_clocked = cells["method"].isin((contracts.COMPLETION, contracts.ENQUEUE))
    return cells.assign(
        dtype=cells["dtype"].replace("", DEFAULT_DTYPE),
        goal=cells["casts_to"].where(is_cast, ""),
        layout=layout.mask(is_transposed, "transposed"),
        grad=cells["role"] == Role.GRAD,
        enqueue=False,
    )[is_clocked.where(is_transfer, is_conversion) & has_route & has_direction]


def _with_enqueue_needs(cells: DataFrame) -> DataFrame:
    """Add the cells of the needs that are ranked by enqueue time. The caller of a non-blocking
    route is taken to heed its hazard. A blocking route takes its completion time."""
    crosses = cells["device"] & cells["direction"].isin(LINK)
    is_enqueue = crosses & (cells["method"] == contracts.ENQUEUE)
    is_blocking = crosses & ~cells["non_blocking"]
    early = cells[is_enqueue | is_blocking]
    safe = [
        replace(cell.contract, hazard="").safe if cell.method == contracts.ENQUEUE else cell.safe
        for cell in rows_of(early)
    ]
    early = early.assign(enqueue=True, safe=np.array(safe, dtype=bool))
    return concat([cells[~is_enqueue], early], ignore_index=True)


def rows_per_answer(table: DataFrame, threads: str) -> list[DataFrame]:
    """Return the rows of each answer on a page: alias, copy and into in either direction for the
    usual dtype; sources that require grad; lists of the number with the most sizes; and casts,
    where dtypes with one recommendation share an answer."""
    is_contiguous = (table["layout"] == CONTIGUOUS) & (table["host"] == "")
    table = table[is_contiguous & (table["threads"] == threads)]
    is_cast = table["goal"] != ""
    is_list = table["arrays"] > 0
    lists = table[is_list & (table["direction"] == contracts.NUMPY_TO_TORCH)]
    sizes_of_count = lists.groupby("arrays")["nbytes"].nunique()
    plain = table[~(table["grad"] | is_list | is_cast)]
    plain = where(plain, dtype=usual_dtype(plain))
    directions = plain["direction"].unique()
    answers = [
        where(plain, memory=memory, direction=direction)
        for memory, direction in itertools.product(contracts.MEMORIES, directions)
    ]
    answers += [
        where(table, grad=True, memory=ALIAS),
        where(lists, arrays=sizes_of_count.idxmax()) if len(lists) else lists,
        *_cast_answers(table[is_cast]),
    ]
    return [rows for rows in answers if not rows.empty]


def _cast_answers(table: DataFrame) -> list[DataFrame]:
    """Return the rows of each answer on casts, without those that have no safe route."""
    answers: dict[tuple[str, ...], list[DataFrame]] = {}
    for need, rows in table.groupby("need", sort=False):
        best = where(rows, kind=BEST)
        if best["safe"].all():
            routes = best.drop_duplicates("part")["route"]
            answers.setdefault((need.direction, need.goal, *routes), []).append(rows)
    in_order = sorted(answers, key=lambda answer: DIRECTIONS.index(answer[0]))
    return [concat(answers[answer]) for answer in in_order]
