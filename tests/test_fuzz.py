"""Bad input: any result file or command line is either accepted or refused in one line.

FUZZ_EXAMPLES sets the number of examples of all properties together; if set, each run draws new examples.
"""

import contextlib
import json
import os
import re
import unittest.mock
import warnings
from pathlib import Path

import advise
import check
import cli
import compare
import fleet
import pytest
import report
import resultfiles
import run
import scan
import sides
import track
from analysis import results, submission
from checking import advice, history, planted
from cli import MAX_TEXT_LENGTH, UserError, one_line
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from measuring import campaign as campaigns
from measuring import fleet as campaign
from pages import build, show
from resultfiles import edited
from store import files
from store.files import harmless
from store.frames import Cell, frame_columns
from store.schema import TimedProcess
from submissions import submitted
from toolchains import plugin, selection
from untrusted import MARKDOWN, WORDS, shown

pytestmark = pytest.mark.slow

# Glob patterns of result files
KINDS = ("*-*.json", "*.jsonl", f"*{files.MEASUREMENTS}", "machine.json", "benchmarks.json")
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "1500"))
PAGES = 40  # one example in this many also builds a page, which takes thirty times as long


def examples(share):
    """Settings of a property that gets this share of the examples."""
    return settings(
        max_examples=max(20, int(share * EXAMPLES)),
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
        derandomize="FUZZ_EXAMPLES" not in os.environ,
    )


NASTY = st.one_of(
    st.sampled_from(
        [None, True, [], {}, "", "x", -1, 0, 1.5, 10**400, -(10**400), 1e400, float("nan"), [None], {"a": None}]
        + ["\ud800", "a\nb", "\x1b[31m", "x" * 5000, [[]], {"": {}}, "NaN", 2**63, "ａ", "\u2028"]
        + ["[" * 300, "(" * 5000 + ")" * 5000, "'\\x1b'", "b''", "{1: 2}", {"a\n": 1, "a\r": 2}]
        + [
            "seconds",
            "cell",
            "file",
            "process",
            json.loads("[" * 50 + "]" * 50),
            *TimedProcess.__struct_fields__,
            *frame_columns(Cell),
        ]
        + WORDS
    ),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda s: st.lists(s, max_size=3)),
)


SIGNS = st.text(st.sampled_from("|`\\\\[]()<>!*_~#-+=&:;$./ w1a\n\x1b\u202e\ud800"), max_size=12)
ACTIONS = st.sampled_from(["put", "put", "put", "remove", "twice", "bytes"])


def places(value, path=()):
    """Every place in a JSON value, as the keys that lead there."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def small(root):
    """A small results directory with probes and a skipped cell."""
    times = {(route, n): [1e-6] * 4 for route in sides.ROUTES for n in (8, 4096)}
    sides.write(root, times | {(sides.ROUTES[1], 4096): resultfiles.SKIPPED}, clock=resultfiles.steady)
    return root


@contextlib.contextmanager
def spoilt(root, data, kinds):
    """Spoil a file of one of these kinds while the block runs.

    Random bytes are inserted, possibly replacing the rest, or one value in its JSON is replaced, duplicated or removed.
    """
    (path,) = root.rglob(data.draw(st.sampled_from(kinds)))
    held, action = path.read_bytes(), data.draw(ACTIONS)
    try:
        if action == "bytes":
            at, between = data.draw(st.integers(0, len(held))), data.draw(st.binary(max_size=8))
            path.write_bytes(held[:at] + between + (held[at:] if data.draw(st.booleans()) else b""))
        else:
            with edited(path) as holder:
                *above, last = data.draw(st.sampled_from([*places(holder)][1:]))
                for key in above:
                    holder = holder[key]
                if action == "put":
                    holder[last] = data.draw(NASTY)
                elif action == "remove":
                    del holder[last]
                elif isinstance(holder, list):
                    holder.insert(last, holder[last])
                else:
                    holder[f"{last}2"] = holder[last]
        yield
    finally:
        path.write_bytes(held)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = small(tmp_path_factory.mktemp("fuzz") / "results")
    build.build(root, "box", root.parent / "out")
    return root


@examples(0.3)
@given(data=st.data())
def test_results_are_read_or_refused(whole, data):
    """Spoilt results are loaded and their page is built, or a UserError says how to fix them."""
    with spoilt(whole, data, KINDS):
        try:
            results.load(whole)
            if data.draw(st.integers(1, PAGES)) == PAGES:
                for _, page in build.build(whole, "box", whole.parent / "out").pages:
                    assert shown(page.with_name("README.md").read_text(encoding="utf-8"))
        except UserError as error:
            assert str(error), "an error without words"


# Submissions --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def offered(tmp_path_factory):
    """A submission without findings."""
    directory = submitted(tmp_path_factory.mktemp("offered"))
    assert not submission.findings(directory, directory.parent / "benchmarks.json")
    return directory


@examples(0.3)
@given(data=st.data())
def test_a_submission_is_refused_or_stops_nobody(offered, data):
    """Any submission is refused, or can be read by the loader and by the asv plugin."""
    with spoilt(offered, data, KINDS[:-1]):
        try:
            sentences = build.submission(offered.name, submission.findings(offered, offered.parent / "benchmarks.json"))
            assert all(map(shown, map(show.to_plain, sentences))) and len(build.comment(sentences)) < 65_536
            if len(sentences) == 1:  # the last step of the findings has loaded it
                with unittest.mock.patch.object(plugin.log, "warning") as warned:
                    plugin.read_other_toolchains(offered.parent)
                assert not warned.called
        except UserError as error:
            assert "figures" in str(error) or "asv's format" in str(error)


@examples(0.1)
@given(
    st.one_of(
        SIGNS, st.text(max_size=70), st.from_regex(files.MACHINE_NAME), st.sampled_from([*WORDS, *files.RESERVED_NAMES])
    )
)
def test_a_name_of_a_machine_is_one_everywhere(name):
    """A machine name is a directory, a Markdown word and not reserved; else --machine and the loader refuse it."""
    if files.machine_name_problem(name):
        with pytest.raises(UserError):
            selection.check_machine_name(name)
    else:
        selection.check_machine_name(name)
        assert Path("reports", name).name == name and name.isascii() and name.casefold() not in files.RESERVED_NAMES
        assert show.to_markdown(show.code(name)) == f"`{name}`" and name == one_line(name)


# Text ---------------------------------------------------------------------------------------------------------------

TEXT = st.one_of(SIGNS, st.text(max_size=30), st.sampled_from([*WORDS, "", " ", "a\\|b", "-", "# x", "f(a)", "``"]))


def read(markdown):
    """Markdown's block types in order, and its text without white space. Only <code> is allowed as HTML."""
    tokens = MARKDOWN.parse(markdown)
    inside = [child for token in tokens for child in token.children or ()]
    assert {child.type for child in inside} <= {"text", "text_special", "code_inline", "html_inline"}
    assert {child.content for child in inside if child.type == "html_inline"} <= {"<code>", "</code>"}
    said = "".join(child.content for child in inside if child.type != "html_inline")
    return [token.type for token in tokens], re.sub(r"\s", "", said)


@examples(0.15)
@given(TEXT, TEXT)
def test_texts_stay_what_they_are(one, other):
    """Text made harmless keeps its content as text and as code, in a Markdown table cell and at the start of a line."""
    word, code = harmless([one, other])
    assert shown(word + code) and len(word) <= MAX_TEXT_LENGTH and harmless([word, code]) == [word, code]
    sentence = show.to_markdown(f"a {word} b{show.code(code)}c")
    kinds, said = read(f"| x |\n| --- |\n| {sentence} |\n")
    assert (kinds.count("td_open"), kinds.count("tr_open")) == (1, 2)
    assert said == re.sub(r"\s", "", f"xa {word} b{code}c")
    for piece in (word, show.code(word)):
        if re.match(r"\s*\d+[.)](\s|$)", piece):  # a leading number may start a list, as in our own sentences
            continue
        kinds, said = read(show.to_markdown(piece))
        assert {*kinds} <= {"paragraph_open", "paragraph_close", "inline"} and said == re.sub(r"\s", "", word)
    fence, *inside, end = show.fenced(one).split("\n")
    assert fence == end and "\n".join(inside) == one and all(fence not in each for each in inside)
    raw = one.replace(show.BEGIN, "").replace(show.END, "")
    assert list(show.spans(f"a {show.code(one)} b")) == [("a ", False), (raw, True), (" b", False)]
    for parser in (cli.parse_share, lambda only: cli.matcher(only, [])):
        with contextlib.suppress(UserError):
            parser(one)


# Command lines ------------------------------------------------------------------------------------------------------

VERBS = {module.__name__: module for module in (advise, run, track, fleet, compare, report, scan, check)}
OPTIONS = {
    name: re.findall(r'(?:add_argument|option)\(\s*"(--[a-z-]+)', Path(module.__file__).read_text(encoding="utf-8"))
    for name, module in VERBS.items()
} | {"check": ["timing", "noise", "advice", "history", "--only", "--cases", "--processes", "--condition"]}
# Arguments hold no NUL, which would end them
VALUES = st.one_of(
    st.sampled_from(
        ["quick", "1%", "0.5", "0", "-1", "3", "2.6.0", "torch", "box", "base", "new", "--", "-", ".", "a.svg"]
    ),
    st.sampled_from([word for word in WORDS if "\0" not in word]),
    st.text(st.characters(exclude_characters="\0"), max_size=10),
)


# Where the work of a verb begins
WORK = [(compare, "measure"), (run, "check_asv"), (selection, "update_releases"), (track, "track")]
WORK += [(campaign, "measure"), (campaign, "report"), (planted, "copy_code"), (advice, "measure"), (history, "main")]
WORK += [(scan, "scan")]


@pytest.fixture
def nothing_begins(tmp_path, monkeypatch):
    """Verbs have results to load and compare, but stop before they measure."""
    for side in ("base", "new"):
        small(tmp_path / side)
    for module in (advise, compare, report):
        monkeypatch.setattr(module, "RESULTS", tmp_path / "base")
    for module, name in WORK:
        monkeypatch.setattr(module, name, unittest.mock.Mock(side_effect=UserError("it would begin")))
    monkeypatch.setattr(report, "REPORTS", tmp_path / "out")
    monkeypatch.setattr(
        build, "build", lambda found, name, _: results.load(found, name) and build.Built(name, [], None)
    )
    monkeypatch.setattr(build, "over_machines", lambda built, output: None)
    monkeypatch.setattr(track, "ROOT", tmp_path)
    monkeypatch.setattr(campaigns, "FLEET", tmp_path)


@examples(0.15)
@given(data=st.data(), verb=st.sampled_from(sorted(VERBS)))
def test_any_command_line_ends_in_at_most_one_line(nothing_begins, called, data, verb):
    """Any command line ends with exit code 0, 1 or 2; with 2 it prints one line."""
    token = st.one_of(st.sampled_from(OPTIONS[verb]), VALUES)
    given = data.draw(st.lists(token, max_size=6))
    if verb == "compare" and data.draw(st.booleans()):
        given = ["base", "new", *given]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it would be more lines
        code, printed, said = called(VERBS[verb], *given)
    assert code in (0, 1, 2)
    assert "defect" not in said, said
    assert shown(printed) and shown(said)
    if code == 2:
        assert re.fullmatch(r".+\n", said) and len(said) < MAX_TEXT_LENGTH + 100
