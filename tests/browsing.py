"""What pages show in a browser."""

from analysis.answers import answer
from pages import case_answer as words
from pages import show
from pages.case_answer import case_address


def address(page, case):
    """Return the address of a page's answer to a case."""
    return f"{page}#{case_address(case)}"


SHOWN = "#choose .chosen :is(h3, ol li)"


def texts_of(case, known):
    """Return the answer of scripts/advise.py as a page shows it: a list of title and routes; the first route's code."""
    ranked = answer(case, known).ranked
    lines = [show.bare(words.route_line(each, case)) for each in ranked[: words.MAX_ROUTES]]
    return [words.case_title(case, words.case_threads(case, known)), *lines], words.snippet(case, ranked[0], known)
