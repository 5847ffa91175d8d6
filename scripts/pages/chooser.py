"""What a page's chooser ranks by: the figures that scripts/advise.py has, as data for templates/advise.js.

What does not depend on the case is said here, in Python, so that the script says it in the same words.
"""

import json
from typing import Any

from analysis.case import AROUND, CHUNKS, CUDA, LARGEST, MAPPED, WAYS, Known
from analysis.curves import BY_BYTES, Point

from benchmarks.contracts import Route

from . import case


def embedded(known: Known) -> str:
    """JSON that may stand in a script element: all that templates/advise.js needs to know of a machine.

    Points are rows of what ``know`` there takes apart, their words places in a list: most of them are said often.
    """
    words: dict[str, int] = {}

    def row(point: Point) -> list[Any]:
        said = (point.route, point.direction, point.clock, point.host, point.dtype, point.layout)
        numbers = (point.nbytes, point.seconds, point.low, point.high)
        flags = (int(point.grad), point.arrays, int(point.calm), point.order)
        return [*(words.setdefault(word, len(words)) for word in said), *numbers, *flags, point.behind]

    points = [row(point) for point in known.points]
    document = {
        "machine": known.machine,
        "whose": case.whose(known),
        "kind": known.device.partition(":")[0] or CUDA,
        "glibc": known.conditions.libc.startswith("glibc"),
        "ways": {" ".join(ends): direction for ends, (direction, _) in WAYS.items()},
        "byBytes": BY_BYTES,
        "around": AROUND,
        "mapped": MAPPED,
        "chunks": CHUNKS,
        "largest": LARGEST,
        "shown": case.SHOWN,
        "memories": case.MEMORY,
        "dtypes": known.dtypes,
        "lacking": known.lacking,
        "contracts": [_contract(contract) for contract in known.contracts],
        "gains": [vars(gain) for gain in known.gains],
        "slowed": [vars(slowed) for slowed in known.slowed],
        "words": list(words),
        "points": points,
    }
    # "</script>" would end the element, and "<!--" begin a comment, wherever a text has them
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _contract(contract: Route) -> dict[str, Any]:
    names = ("expression", "direction", "memory", "casts_to", "view", "copies", "non_blocking", "array")
    return {
        **{name: getattr(contract, name) for name in (*names, "needs", "hazard", "caution", "safe", "takes_grad")},
        **({"hazard_memory": contract.hazard_memory} if contract.hazard_memory else {}),
        "refuses": list(contract.refuses),
        "quiet": case.silent(contract),
    }
