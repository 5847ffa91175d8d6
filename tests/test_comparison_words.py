"""What a comparison says: on a terminal, in a comment, as JSON, drawn, and on a page."""

import io
import json
import re

import pytest
import resultfiles
from analysis import verdicts
from analysis.verdicts import SLOWER, Reason
from pages import comparison_words, figures, machine, show
from sides import NOISE, ROUTES, SIZES, cells, compared, together, write


@pytest.fixture
def found(tmp_path):
    """A comparison with every verdict but "not comparable", of sides that ran in turns."""
    base, new = cells(0), cells(1, {(ROUTES[0], 8): 1.3, (ROUTES[1], 4): 0.7})
    noisy = cells(2, sd=NOISE)
    new |= {cell: noisy[cell] for cell in noisy if cell[1] >= 2**10} | {
        (ROUTES[0], 1): None,
        (ROUTES[0], 2): [1e-6] * 2,
    }
    new[ROUTES[1], 1] = resultfiles.SKIPPED
    del base[ROUTES[0], 16]
    sides = {"base": base, "new": new}
    return compared(*(write(tmp_path / side, own, record=together(side)) for side, own in sides.items()))


def test_the_wording(found, snapshot):
    assert comparison_words.text(found, True) == snapshot
    assert comparison_words.markdown(found, True, "the command") == snapshot


def test_a_terminal_has_the_same_words_in_colour(found, monkeypatch):
    terminal, plain = io.StringIO(), io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    comparison_words.terminal(found, False, plain)
    comparison_words.terminal(found, False, terminal)
    assert re.search(r"\x1b\[1;31m1\.\d\d× slower \(95 % CI", terminal.getvalue())
    assert re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue()) == plain.getvalue()


def test_markdown_fits_a_comment(found, monkeypatch):
    monkeypatch.setattr(comparison_words, "COMMENT_CHARACTERS", 2500)
    short = comparison_words.markdown(found, True, "the command")
    assert len(short) <= 2500 and re.search(r"\d+ more\b", short)


def test_json_has_everything(found):
    document = json.loads(comparison_words.as_json(found, "the command"))
    assert document["counts"] == found.counts and document["exit_code"] == found.exit_code == 1
    assert (document["decided"]["cells"], document["decided"]["of"]) == (found.decided, found.comparable)
    row = next(row for row in document["cells"] if row["verdict"] == SLOWER)
    figures = ("ratio", "low95", "high95", "low90", "high90", "p", "q", "p_equivalence", "base_seconds", "new_seconds")
    assert all(isinstance(row[name], float) for name in figures) and row["sentence"].startswith("1.3")
    assert len(document["cells"]) == len(SIZES) * len(ROUTES)


REASONS = (verdicts.FAILED, verdicts.SKIPS, verdicts.NOT_RUN, verdicts.DIFFERS, verdicts.ACROSS, verdicts.SUITE)
REASONS += (verdicts.NO_RECORD, verdicts.OTHER_SPEED, verdicts.TOO_FEW, *verdicts.FINAL)


@pytest.mark.parametrize("what", REASONS)
def test_every_reason_has_words(what):
    words = comparison_words.why(Reason(what, "base", "cpu", (0.02, "another")))
    assert words and "{" not in words and words == words.strip()
    assert len(show._prose("comparison_reasons").blocks) == len(REASONS)


def test_the_figure_and_the_section_of_a_page(found):
    """Whatever was drawn before, the figure is the same."""
    import matplotlib

    one = figures.forest(found).file
    with matplotlib.rc_context({"lines.linewidth": 3}):
        assert figures.forest(found).file == one
    assert 'role="img"' in one and "1.3" in one and "torch.from_numpy(a)" in one
    section = machine.comparison_section(found)
    assert re.search(r"\b1 \w+ and 1 \w+ of 24 ", section.intro[0])
    ((figure, table),) = section.figures
    assert "<svg" in figure.inline and len(table.rows) == len(figures.chosen(found)) and section.after
