"""What a comparison says: on a terminal, in a comment, as JSON, drawn, and on a page."""

import dataclasses
import io
import json
import re

import pytest
from analysis import verdicts
from analysis.verdicts import FASTER, INCONCLUSIVE, NO_CHANGE, SLOWER, Reason
from pages import comparison_words, figures, machine, show
from sides import compared


def row(found, **changes):
    plain = found.cells.to_dict("records")[0]
    plain |= {"base_processes": 8, "new_processes": 8, "fresh": False, "reason": Reason()}
    return plain | changes


def test_the_wording(pair):
    found = dataclasses.replace(compared(*pair), interleaved=True)
    evidence = {"ratio": 1.08, "low95": 1.05, "high95": 1.11, "q": 0.003}
    slower = comparison_words.sentence(row(found, verdict=SLOWER, **evidence), found)
    assert slower == "1.08× slower (95 % CI 1.05–1.11; q = .003; 8 processes a side)"
    evidence = {"ratio": 1 / 1.08, "low95": 1 / 1.11, "high95": 1 / 1.05, "q": 0.0003}
    faster = comparison_words.sentence(row(found, verdict=FASTER, **evidence), found)
    assert faster == "1.08× faster (95 % CI 1.05–1.11; q < .001; 8 processes a side)"
    same = comparison_words.sentence(row(found, verdict=NO_CHANGE, low90=0.98, high90=1.03), found)
    assert same == "no change larger than 5 % (90 % CI .98–1.03)"
    open_ = comparison_words.sentence(row(found, verdict=INCONCLUSIVE, low95=0.93, high95=1.12, more=14.0), found)
    assert open_ == "inconclusive: .93–1.12; about 14 more processes would decide ±5 %"
    assert "significant" not in comparison_words.text(found, True)


def test_a_terminal_has_the_same_words_in_colour(pair, monkeypatch, snapshot):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    found, plain, terminal = compared(*pair), io.StringIO(), Terminal()
    comparison_words.terminal(found, False, plain)
    comparison_words.terminal(found, False, terminal)
    assert plain.getvalue() == snapshot
    assert re.findall(r"\x1b\[1;31m[\d.]+× (\w+)", terminal.getvalue()) == [SLOWER]
    assert re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue()) == plain.getvalue()


def test_markdown_fits_a_comment(pair, monkeypatch, snapshot):
    found = compared(*pair)
    text = comparison_words.markdown(found, True, "the command")
    assert text.startswith(comparison_words.MARKER)
    monkeypatch.setattr(comparison_words, "COMMENT_CHARACTERS", 2500)
    short = comparison_words.markdown(found, True, "the command")
    assert len(short) <= 2500 and short == snapshot


def test_json_has_everything(pair):
    found = json.loads(comparison_words.as_json(compared(*pair), "the command"))
    assert found["counts"][SLOWER] == 1 and found["exit_code"] == 1
    assert (found["decided"]["cells"], found["decided"]["of"], found["settings"]["min_decided"]) == (24, 24, 0.5)
    assert len(found["cells"]) == sum(found["counts"].values())
    for name in ("ratio", "low95", "high90", "p", "q", "p_equivalence", "base_seconds", "verdict", "sentence"):
        assert name in found["cells"][0]


REASONS = (verdicts.FAILED, verdicts.SKIPS, verdicts.NOT_RUN, verdicts.DIFFERS, verdicts.ACROSS, verdicts.SUITE)
REASONS += (verdicts.NO_RECORD, verdicts.OTHER_SPEED, verdicts.TOO_FEW, *verdicts.FINAL)


@pytest.mark.parametrize("what", REASONS)
def test_every_reason_has_words(what):
    words = comparison_words.why(Reason(what, "base", "cpu", (0.02, "another")))
    assert words and "{" not in words and words == words.strip()
    assert len(show._prose("comparison_reasons").blocks) == len(REASONS)


def test_the_figure_is_the_same_every_time(pair):
    import matplotlib

    found, drawn = compared(*pair), []
    for _ in range(2):
        drawn.append(figures.forest(found).file)
        matplotlib.rcParams["lines.linewidth"] = 3  # whatever was drawn before
    matplotlib.rcdefaults()
    one, other = drawn
    assert one == other
    assert 'role="img"' in one and "1.3" in one and "torch.from_numpy(a)" in one


def test_the_section_of_a_page(pair):
    found = compared(*pair)
    section = machine.comparison_section(found)
    assert section.intro[1:] == tuple(comparison_words.all_lines(found))
    (figure, table) = section.figures[0]
    assert "<svg" in figure.inline and len(table.rows) == 24 and section.after
