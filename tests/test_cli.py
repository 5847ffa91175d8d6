"""Errors of every verb: one line that says what to do, and an unambiguous exit code."""

import re
import shutil
import sys

import cli
import pytest
import report
import track
from cli import matcher
from conftest import PATH, ROOT, piped, run
from toolchains import ledger

VERBS = sorted(path.name for path in (ROOT / "scripts").glob("*.py") if path.name != "cli.py")
MAIN = """
import sys
sys.argv[0] = "verb.py"
import cli

def main(argv):
    {}
    return 0

cli.run(main)
"""


def ran(main, home, streams="", **more):
    """Run a program whose ``main`` has this body, see ``piped``."""
    return piped(streams, sys.executable, "-c", MAIN.format(main), home=home, PYTHONPATH=PATH, **more)


def test_an_error_nobody_foresaw_is_no_verdict(tmp_path):
    """An unexpected error exits with 2, since 1 means that something is slower."""
    done = ran("raise KeyError('x\\ny')", tmp_path, TMPDIR=str(tmp_path))
    (details,) = tmp_path.glob("numpy-torch-*.txt")
    assert done.returncode == 2 and re.fullmatch(rf"verb\.py: .*KeyError.*{details}.*\n", done.stderr)
    assert "KeyError" in details.read_text()
    body = "import tempfile; tempfile._candidate_tempdir_list = lambda: ['/nowhere']; raise KeyError('x')"
    done = ran(body, tmp_path)
    assert done.returncode == 2 and re.fullmatch(r"verb\.py: .*set TMPDIR.*\n", done.stderr)


@pytest.mark.parametrize("more", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0"}])
def test_letters_that_the_terminal_lacks(tmp_path, more):
    done = ran(r"print('\xb5s \u2192'); raise cli.UserError('74 \xb5s')", tmp_path, PYTHONCOERCECLOCALE="0", **more)
    assert done.returncode == 2 and done.stdout and re.fullmatch(r"verb\.py: 74 .+\n", done.stderr)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_error(tmp_path, closed):
    body = "print('x'); print(sys.stdout.isatty()); print('y', file=sys.stderr)"
    assert ran(body, tmp_path, closed).returncode == 0
    assert ran("print('x'); raise cli.UserError('z')", tmp_path, closed).returncode == 2


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_reader_that_has_gone_gets_no_verdict(tmp_path, lines):
    """`compare A B | true` exits with 141: 0 would mean that nothing is slower."""
    body = f"import time; time.sleep(.3)\n    for _ in range({lines}): print('x')"
    done = ran(body, tmp_path, "| true", PYTHONUNBUFFERED="")
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(("words", "code"), [("--help", 141), ("--nonsense", 2)])
def test_help_and_a_refusal_that_nobody_reads(words, code, tmp_path):
    """The exit code is not 120, with which Python ends if it cannot flush."""
    command = (sys.executable, ROOT / "scripts" / "report.py", words)
    assert piped("2>&1 | true", *command, home=tmp_path, PYTHONUNBUFFERED="").returncode == code


@pytest.mark.parametrize(("error", "code"), [("KeyboardInterrupt", 130), ("ImportError('no pandas')", 2)])
def test_what_happens_while_a_verb_imports_is_one_line(error, code, tmp_path):
    """Ctrl-C and missing packages before ``main`` starts."""
    shutil.copy(ROOT / "scripts" / "cli.py", tmp_path)
    (tmp_path / "verb.py").write_text(f"import cli\nraise {error}\n")
    done = run(sys.executable, tmp_path / "verb.py", home=tmp_path)
    assert done.returncode == code and re.fullmatch(r"\n?verb\.py: .+\n", done.stderr)


@pytest.mark.parametrize("verb", VERBS)
def test_a_python_without_packages(verb, tmp_path):
    """Missing packages are reported in one line that says what to do: verbs import cli before any package."""
    # check.py imports nothing before it knows what to check
    done = run(sys.executable, "-S", ROOT / "scripts" / verb, "timing", home=tmp_path)
    assert re.fullmatch(rf"{verb}: needs \w+: use .venv/bin/python, .*\n", done.stderr) and done.returncode == 2


CELL = "conversion.NumpyToTorch.timeit_convert('torch.tensor(a)', 'float32', 8)"


OTHER = "conversion.TorchToNumpy.timeit_convert('t.numpy(force=True)', 'float32', 8)"
THIRD = OTHER.replace("force=True", "")
# --only -> the cells that it chooses: a text that is part of a name is no regular expression
CHOSEN = {None: (CELL, OTHER, THIRD), "NumpyToTorch": (CELL,), "torch.tensor(a)": (CELL,), "no such": ()}
CHOSEN |= {
    "t.numpy()": (THIRD,),
    "t.numpy": (OTHER, THIRD),
    THIRD[:-12]: (THIRD,),
    r"(tensor|force).*, 8\)$": (CELL, OTHER),
}


@pytest.mark.parametrize("only", CHOSEN)
def test_only_is_a_part_of_a_name_or_else_an_expression(only):
    assert tuple(filter(matcher(only, (CELL, OTHER, THIRD)), (CELL, OTHER, THIRD))) == CHOSEN[only]


@pytest.mark.parametrize("only", ["([", "a{99999999999}", f"a{{{'9' * 5000}}}", "(" * 5000 + ")" * 5000])
def test_only_that_no_machine_can_match(only):
    with pytest.raises(cli.UserError):
        matcher(only, [CELL])


def test_a_value_that_ends_options(refusal):
    assert refusal(report, "--help=--") == "argument --help: -- is no value (see report.py --help)"


def test_options_that_contradict_check(tmp_path, refusal):
    for option in ("--machine", "--output"):
        line = refusal(report, "--check", tmp_path, option, "x")
        assert line == "--check builds nothing: it takes no --machine and no --output"


@pytest.mark.parametrize("text", ["{", "[]", '{"torch": {"x": 1}}', '{"torch": {"2.0": "2020-99-99"}}', "[" * 100_000])
def test_a_broken_list_of_releases_is_an_error_of_one_line(text, ledger_of, refusal):
    ledger_of(text)
    assert refusal(track, "--releases", "2.6.0") == f"is broken, restore it from git: {ledger.RELEASES}"


def test_a_backend_that_is_none(tmp_path):
    """An invalid MPLBACKEND is ignored: figures are files and need no window."""
    done = run(sys.executable, "-c", "import pages.figures", home=tmp_path, PYTHONPATH=PATH, MPLBACKEND="junk")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_verbs_work_where_python_leaves_out_their_directory(verb, tmp_path):
    """Verbs work under `python -P` in any directory; a traceback would exit with 1, compare.py's code for slower."""
    done = run(sys.executable, ROOT / "scripts" / verb, "--help", home=tmp_path, cwd=tmp_path, PYTHONSAFEPATH="1")
    assert (done.returncode, done.stderr) == (0, "") and f"usage: {verb}" in done.stdout
