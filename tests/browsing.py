"""What pages show in a browser."""

from urllib.parse import urlencode

from analysis.answers import answer
from pages import case_answer as words
from pages import show

MEMORIES = {"copy": "own", "alias": "share", "into": "into-buffer"}


def address(page, case):
    """Return the address of a page's answer to a case."""
    options = {"from": case.source, "to": case.target, "nbytes": case.nbytes, "dtype": case.dtype}
    options |= {"layout": case.layout, "memory": MEMORIES[case.memory], "source": case.host or "pageable"}
    options |= {"to-dtype": case.goal or "same", **({"threads": case.threads} if case.threads else {})}
    options |= {name: str(getattr(case, name)).lower() for name in ("grad", "batch", "enqueue")}
    return f"{page}#{urlencode(options)}"


SHOWN = "#choose .chosen :is(h3, ol li)"


def texts_of(case, known):
    """Return the answer of scripts/advise.py as a page shows it: a list of title and routes; the first route's code."""
    ranked = answer(case, known).ranked
    lines = [show.bare(words.route_line(each, case)) for each in ranked[: words.MAX_ROUTES]]
    return [words.case_title(case, words.case_threads(case, known)), *lines], words.snippet(case, ranked[0], known)
