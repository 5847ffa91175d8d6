"""Write the figures of README.md: the text between two marks, from the pages of a machine.

<!-- answers of MACHINE -->                       facts, and the needs with a time at each size
<!-- releases of MACHINE: torch 2.10.0, ... -->   what these releases changed, a line each
<!-- end -->
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from analysis.history import History
from cli import UserError

from .build import Built
from .page import Page, anchor, render_markdown
from .release_news import release_news

BLOCK = re.compile(
    r"(?P<mark><!-- (?P<kind>answers|releases) of (?P<machine>[\w.-]+)"
    r"(?:: (?P<names>[^>]+))? -->\n)"
    r".*?(?P<end><!-- end -->)",
    re.DOTALL,
)


def update_figures(text: str, built: Sequence[Built]) -> str:
    """Return README's text with the blocks of these machines written anew. Others stay."""
    machines = {each.machine: each for each in built}

    def write_block(block: re.Match[str]) -> str:
        each = machines.get(block["machine"])
        if each is None:
            return block[0]
        if block["kind"] == "answers":
            content = answers(each.pages[0][0])
        else:
            content = releases(each.histories, (block["names"] or "").split(", "))
        return f"{block['mark']}{content}{block['end']}"

    return BLOCK.sub(write_block, text)


def answers(page: Page) -> str:
    """The facts of a machine's page, and those of its answers that have a time at each size."""
    assert page.answers
    rows = tuple(row for row in page.answers.rows if all(row))
    table = replace(page.answers, rows=rows)
    return render_markdown("readme_answers.md.jinja", page=page, answers=table)


def releases(histories: Sequence[History], names: Sequence[str]) -> str:
    """What releases such as "torch 2.10.0" changed, in the order of ``names``. UserError if one of
    them was not measured."""
    news = {each.release.name: each for each in chain.from_iterable(map(release_news, histories))}
    if unknown := [name for name in names if name not in news]:
        raise UserError(f"README.md: no history has {', '.join(unknown)}: correct its mark")
    named = [news[name] for name in names]
    return render_markdown("readme_releases.md.jinja", news=named, anchor=anchor)
