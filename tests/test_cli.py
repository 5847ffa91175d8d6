"""What every verb does with errors: one line that says what to do, and an exit code that cannot be mistaken."""

import os
import re
import subprocess
import sys

import cli
import pytest
import report
import track
from cli import matcher, put
from conftest import ROOT, environment
from tiny import Project
from toolchains import ledger

# Programs in scripts/ that take options: session.py takes none and imports nothing of ours, interleave.py takes one job
VERBS = sorted(
    path.name
    for path in (ROOT / "scripts").glob("*.py")
    if 'if __name__ == "__main__":\n    cli.run(main)' in path.read_text(encoding="utf-8")
)
CODE = f"""
import sys
sys.path[:0] = {[str(ROOT / "scripts"), str(ROOT)]!r}
sys.argv[0] = "verb.py"
import cli
"""


def ran(main, home, *options, closed=(), **more):
    """A program whose ``main`` has this body."""
    body = "".join(f"    {line}\n" for line in main.splitlines())
    code = f"{CODE}def main(argv):\n{body}    return 0\ncli.run(main)\n"

    def close():
        for number in closed:
            os.close(number)

    return subprocess.run(
        [sys.executable, *options, "-c", code],
        env=environment(home, **more),
        stdout=None if closed else subprocess.PIPE,
        stderr=None if closed else subprocess.PIPE,
        text=True,
        preexec_fn=close,
        timeout=20,
    )


def test_an_error_nobody_foresaw_is_no_verdict(tmp_path):
    """1 means that something is slower."""
    done = ran("raise KeyError('x\\ny')", tmp_path, TMPDIR=str(tmp_path))
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    (details,) = tmp_path.glob("numpy-torch-*.txt")
    assert done.stderr.startswith("verb.py: ") and "KeyError" in done.stderr and str(details) in done.stderr
    assert "KeyError" in details.read_text()
    body = "import tempfile; tempfile._candidate_tempdir_list = lambda: ['/nowhere']; raise KeyError('x')"
    done = ran(body, tmp_path)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "set TMPDIR" in done.stderr


@pytest.mark.parametrize("more", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0"}])
def test_letters_that_the_terminal_lacks(tmp_path, more):
    done = ran(r"print('\xb5s \u2192'); raise cli.UserError('74 \xb5s')", tmp_path, PYTHONCOERCECLOCALE="0", **more)
    assert done.returncode == 2 and done.stdout and done.stderr.startswith("verb.py: 74 ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("closed", [(1,), (2,), (1, 2)])
def test_closed_streams(tmp_path, closed):
    assert (
        ran("print('x'); print(sys.stdout.isatty()); print('y', file=sys.stderr)", tmp_path, closed=closed).returncode
        == 0
    )
    assert ran("print('x'); raise cli.UserError('z')", tmp_path, closed=closed).returncode == 2


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_reader_that_has_gone_gets_no_verdict(tmp_path, lines):
    """compare A B | true: 0 would mean that nothing is slower."""
    body = f"import time; time.sleep(.3)\n    for _ in range({lines}): print('x')\n    return 0"
    code = f"{CODE}def main(argv):\n    {body}\ncli.run(main)\n"
    writer = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(tmp_path)
    )
    writer.stdout.close()
    assert writer.wait(20) == 141 and not writer.stderr.read()
    writer.stderr.close()


@pytest.mark.parametrize(("words", "code"), [("--help", 141), ("--nonsense", 2)])
def test_help_and_a_refusal_that_nobody_reads(words, code, tmp_path):
    """120 is what Python says where it cannot flush."""
    more = {"env": environment(tmp_path, PYTHONUNBUFFERED=""), "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    writer = subprocess.Popen([sys.executable, str(ROOT / "scripts" / "report.py"), words], **more)
    writer.stdout.close()
    assert writer.wait(20) == code


@pytest.mark.parametrize(("error", "code"), [("KeyboardInterrupt", 130), ("ImportError('no pandas')", 2)])
def test_what_happens_while_a_verb_imports_is_one_line(error, code, tmp_path):
    """Before main: Ctrl-C, and what is missing."""
    for name in ("cli.py", "verb.py"):
        text = (ROOT / "scripts" / "cli.py").read_text() if name == "cli.py" else f"import cli\nraise {error}\n"
        (tmp_path / name).write_text(text)
    command = [sys.executable, str(tmp_path / "verb.py")]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=20)
    (said,) = filter(None, done.stderr.splitlines())
    assert done.returncode == code and said.startswith("verb.py: ")


@pytest.mark.parametrize("verb", ["advise.py", "compare.py", "run.py"])
def test_a_python_without_packages(verb):
    """It is no defect of the suite, and the message says what to do."""
    done = subprocess.run([sys.executable, "-S", ROOT / "scripts" / verb, "x"], capture_output=True, text=True)
    assert re.fullmatch(rf"{verb}: needs \w+: use .venv/bin/python, .*\n", done.stderr) and done.returncode == 2


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_import_cli_before_what_takes_long(verb):
    text = (ROOT / "scripts" / verb).read_text(encoding="utf-8")
    modules = re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)
    assert next(module for module in modules if module not in sys.stdlib_module_names) == "cli"


def test_a_file_is_whole_or_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "a.svg"
    put(path, "old\n")

    def full(self, *arguments, **more):
        with open(self, "w") as file:
            file.write("ne")
        raise OSError("No space left on device")

    with monkeypatch.context() as patched, pytest.raises(OSError):
        patched.setattr(type(path), "write_bytes", full)
        put(path, "new\n")
    assert path.read_text() == "old\n" and list(tmp_path.iterdir()) == [path]
    put(path, "new\n")
    assert path.read_text() == "new\n" and list(tmp_path.iterdir()) == [path]


CELL = "conversion.NumpyToTorch.timeit_convert('torch.tensor(a)', 'float32', 8)"


def test_two_may_put_a_file_at_a_time(tmp_path):
    """As two fleets do that file what describes the benchmarks. What a process left that was killed is gone."""
    path, code = tmp_path / "file", "import cli, pathlib, sys; path = pathlib.Path(sys.argv[1])\n"
    code += "for number in range(300):\n    cli.put(path, sys.argv[2] * 5000)\n"
    (tmp_path / f".file.{2**22 + 1}.new").touch()  # no process has such a number
    both = [subprocess.Popen([sys.executable, "-c", code, path, word], cwd=ROOT / "scripts") for word in "ab"]
    assert [process.wait() for process in both] == [0, 0]
    assert path.read_text() in ("a" * 5000, "b" * 5000) and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "only", [None, "", "NumpyToTorch", "torch.tensor(a)", r"tensor\(a\).*, 8\)$", "', 8", "no such"]
)
def test_only_is_found_in_the_name_of_a_cell(only):
    assert matcher(only)(CELL) == (only != "no such")


@pytest.mark.parametrize("only", ["(", "a{99999999999}", f"a{{{'9' * 5000}}}", "(" * 5000 + ")" * 5000])
def test_only_that_no_machine_can_match(only):
    with pytest.raises(cli.UserError):
        matcher(only)


def test_a_value_that_ends_options(called):
    code, _, err = called(report, "--help=--")
    assert code == 2 and err == "report.py: argument --help: -- is no value (see report.py --help)\n"


def test_options_that_contradict_check(tmp_path, called):
    for option in ("--machine", "--output"):
        code, _, err = called(report, "--check", tmp_path, option, "x")
        assert code == 2 and err == "report.py: --check builds nothing: it takes no --machine and no --output\n"


@pytest.mark.parametrize("text", ["{", "[]", '{"torch": {"x": 1}}', '{"torch": {"2.0": "2020-99-99"}}', "[" * 100_000])
def test_broken_releases(text, tmp_path, monkeypatch, called):
    for known in (ledger._releases, ledger.history, ledger.commits):
        known.cache_clear()
        monkeypatch.setattr(ledger, "RELEASES", tmp_path / "releases.json")
    (tmp_path / "releases.json").write_text(text)
    code, _, err = called(track, "--releases", "2.6.0")
    assert code == 2 and err == f"track.py: is broken, restore it from git: {tmp_path / 'releases.json'}\n"


def test_a_backend_that_is_none(tmp_path):
    """Figures are files: whatever shows windows elsewhere."""
    code = f"import sys; sys.path[:0] = {[str(ROOT / 'scripts'), str(ROOT)]!r}; import pages.figures"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path, MPLBACKEND="junk"), capture_output=True
    )
    assert done.returncode == 0, done.stderr


SAFE = {"PYTHONSAFEPATH": "1"}
safe_path = pytest.mark.skipif(sys.version_info < (3, 11), reason="python -P came with 3.11")


@pytest.mark.slow
@safe_path
@pytest.mark.parametrize("verb", VERBS)
def test_verbs_work_where_python_leaves_out_their_directory(verb, tmp_path):
    """By python -P, from anywhere: a traceback's exit code is 1, which compare.py has another meaning for."""
    command = [sys.executable, "-P", str(ROOT / "scripts" / verb), "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "") and f"usage: {verb}" in done.stdout


@safe_path
@pytest.mark.slow
def test_what_verbs_start_works_there_too(tmp_path):
    """asv, its plugin and its processes."""
    project = Project(tmp_path)
    options = ("--profile", "tracking", "--only", "conversion", "--rounds", "1", "--no-report")
    done = project.verb("run", *options, **SAFE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(project.sessions().values()) == [1]
    done = project.verb("run", "--describe", **SAFE)
    assert done.returncode == 0, done.stderr
