"""What users need: a source with a wanted result, and the ranked routes for every need at every measured size.

``choices`` is that table. A page's answers and tables, its form and scripts/advise.py are views of it. The candidates of
a need are the routes that produce its result. A case is a need for an array of a given size.
"""

import itertools
import re
from dataclasses import dataclass, replace

import pandas as pd
from store.frames import Choice, check_frame

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

NUMPY, TORCH, CUDA = ENDS = ("numpy", "torch", "cuda")
ZERO_D, TRANSPOSED = (
    "0-d",
    "m",
)  # a layout, and the name of a transposed source in routes that cross a link
# Source and target -> direction, and whether the host's end of a link is a NumPy array
DIRECTION_OF_ENDS = {
    (NUMPY, TORCH): (contracts.NUMPY_TO_TORCH, False),
    (TORCH, NUMPY): (contracts.TORCH_TO_NUMPY, False),
    (NUMPY, CUDA): (HOST_TO_DEVICE, True),
    (TORCH, CUDA): (HOST_TO_DEVICE, False),
    (CUDA, NUMPY): (DEVICE_TO_HOST, True),
    (CUDA, TORCH): (DEVICE_TO_HOST, False),
}


def uses(route: str, name: str) -> bool:
    """Whether a route's expression uses a name of the catalogue."""
    return re.search(rf"\b{name}\b", route) is not None


@dataclass(frozen=True)
class Need:
    """A source and the wanted result. Routes of one need are ranked against each other.

    memory   alias, copy or into
    goal     dtype of the result; "": that of the source
    batch    several arrays become one
    threads  torch threads: ONE_THREAD, another number, or ALL_THREADS; "" where a link is crossed
    host     memory at the host's end of a link; array: the host's end is a NumPy array, else a tensor
    enqueue  ranked by enqueue time, else by completion time
    """

    direction: str
    memory: str
    dtype: str
    goal: str = ""
    layout: str = CONTIGUOUS
    grad: bool = False
    batch: bool = False
    threads: str = ""
    host: str = ""
    array: bool = False
    enqueue: bool = False

    @property
    def plain(self) -> bool:
        """Whether it is one array or tensor that keeps its dtype and requires no grad."""
        return not (self.goal or self.grad or self.batch)

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

    @property
    def device(self) -> bool:
        return CUDA in (self.source, self.target)

    @property
    def total(self) -> int:
        """Bytes that are moved."""
        return self.nbytes * max(1, self.batch)

    @property
    def layouts(self) -> list[str]:
        """Layouts whose times can be used, the best first: those of even arrays may be used for uneven ones."""
        uneven = self.batch and self.layout == CONTIGUOUS and self.nbytes % contracts.LINE
        return [contracts.UNEVEN, CONTIGUOUS] if uneven else [self.layout]


def choices(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the ranked routes of every need in the cells, with the columns of ``rank`` and Need, and the need."""
    needed = _needed(cells)
    kept = needed.groupby([*NEED_FIELDS])["keeps"].transform("any")
    table = rank(needed[kept | (needed["goal"] != "")], NEED_FIELDS)  # else all change it
    needs = [Need(*need) for need in table[[*NEED_FIELDS]].itertuples(index=False)]
    return check_frame(table.assign(need=needs), Choice)


def _needed(cells: pd.DataFrame) -> pd.DataFrame:
    """Select the cells that answer a need, with the columns NEED_FIELDS. Enqueue time is a need of its own; there the caller
    is taken to heed the hazard."""
    numbers = sorted({ONE_THREAD, *cells.loc[~cells["device"], "threads"]})
    on_host = (with_threads(cells, threads).assign(threads=threads) for threads in numbers)
    cells = pd.concat([*on_host, cells[cells["device"]].assign(threads="")], ignore_index=True)
    transposed = cells["device"] & cells["route"].map(lambda route: uses(route, TRANSPOSED)).astype(
        bool
    )
    moved = transposed | (cells["role"] == Role.TRANSFER)
    arrays = cells["declared"].map(lambda declared: declared.arrays > 0).astype(bool)
    # families of layouts have a contiguous source, too, to compare theirs with
    roles = (Role.CONVERSION, Role.GRAD, Role.LISTS, Role.CASTING)
    plain = cells["role"].isin(roles) | arrays | (cells["layout"] != "")
    clocked = cells["method"].isin((contracts.COMPLETION, contracts.ENQUEUE))
    asked = clocked.where(moved, plain & (cells["layout"] != CONTIGUOUS))
    named = (cells["route"] != "") & (cells["memory"] != "") & cells["direction"].isin(DIRECTIONS)
    cast = (cells["role"] == Role.CASTING) & ~cells["keeps"]
    needed = cells.assign(
        dtype=cells["dtype"].replace("", DEFAULT_DTYPE),
        goal=cells["contract"].map(lambda contract: contract.casts_to).where(cast, ""),
        layout=cells["layout"]
        .replace("", CONTIGUOUS)
        .mask(moved, CONTIGUOUS)
        .mask(transposed, "transposed"),
        grad=cells["role"] == Role.GRAD,
        batch=arrays,
        array=cells["contract"].map(lambda contract: contract.array).astype(bool),
        enqueue=False,
    )[asked & named]
    crosses = needed["device"] & needed["direction"].isin(LINK)
    early = crosses & (needed["method"] == contracts.ENQUEUE)
    heeded = needed["contract"].map(lambda contract: replace(contract, hazard="").safe).astype(bool)
    held = needed.assign(enqueue=True, safe=heeded.where(early, needed["safe"]))
    both = pd.concat(
        [needed[~early], held[early | (crosses & ~needed["non_blocking"])]], ignore_index=True
    )
    # routes that torch does not spread may also have been measured with several threads: then those cells count
    return both.drop_duplicates([*NEED_FIELDS, "nbytes", "route"], keep="last", ignore_index=True)


def rows_per_answer(table: pd.DataFrame, threads: str) -> list[pd.DataFrame]:
    """Return the rows of each answer on a page: alias, copy and into in either direction for the usual dtype; sources
    that require grad; lists; and casts, where dtypes with one recommendation share an answer."""
    here = table[
        (table["threads"] == threads) & (table["layout"] == CONTIGUOUS) & (table["host"] == "")
    ]
    grad, batch, goal = here["grad"].astype(bool), here["batch"].astype(bool), here["goal"] != ""
    plain = here[~(grad | batch | goal)]
    plain = plain[plain["dtype"] == usual_dtype(plain)]
    ways = itertools.product(contracts.MEMORIES, plain["direction"].unique())
    found = [
        plain[(plain["memory"] == memory) & (plain["direction"] == way)] for memory, way in ways
    ]
    found += [
        here[grad & (here["memory"] == ALIAS)],
        here[batch & (here["direction"] == contracts.NUMPY_TO_TORCH)],
    ]
    casts: dict[tuple[str, ...], list[pd.DataFrame]] = {}
    for need, rows in here[goal].groupby("need", sort=False):
        best = rows[rows["kind"] == BEST]
        if best["safe"].all():
            routes = best.drop_duplicates("part")["route"]
            casts.setdefault((need.direction, need.goal, *routes), []).append(rows)
    found += [
        pd.concat(casts[key]) for key in sorted(casts, key=lambda key: DIRECTIONS.index(key[0]))
    ]
    return [rows for rows in found if len(rows)]
