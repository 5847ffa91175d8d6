"""report.py: its output on a terminal, the pages that it builds, and its error messages."""

import shutil
import sys
from pathlib import Path

import pytest
import report
from conftest import ROOT, build, piped, run
from store.files import put

pytestmark = pytest.mark.slow  # builds pages, some in a process of its own


def test_terminal_says_the_answers_and_where_the_page_is(rich_results, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build(rich_results, tmp_path / "out")
    said = capsys.readouterr().out
    assert "torch.from_numpy(a), 400 ns" in said
    assert said.splitlines()[-1] == str(Path("out", "box", "index.html"))


def test_all_pages_are_built_whoever_reads(rich_results, tmp_path):
    """With `report.py | head -1` the reader of the pipe is gone before the first page is built."""
    shutil.copytree(rich_results / "box", rich_results / "box-2")
    for path in (rich_results / "box-2").glob("*-*.json"):
        path.write_text(path.read_text().replace('"machine": "box"', '"machine": "box-2"'))
    command = (sys.executable, ROOT / "scripts" / "report.py", "--results", rich_results, "--output", "out")
    done = piped("| true", *command, home=Path.home(), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (141, "")
    assert all((tmp_path / "out" / place / "index.html").is_file() for place in ("box", "box-2", ""))


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--machine", "nowhere"], "no results of nowhere; it knows box"),
        (["--machine", "../../etc"], "use letters, digits"),
        (["--results", "absent"], "absent: no such directory"),
        (["--results", "empty"], "empty holds no results;"),
        (["--results", "foreign"], "no results of this suite; box/0-env.json is of another configuration of asv"),
        (["--output", "blocked"], "cannot write"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(rich_results, tmp_path, refusal, arguments, said):
    (tmp_path / "empty").mkdir()
    put(tmp_path / "foreign" / "box" / "0-env.json", "{}")
    (tmp_path / "blocked").write_text("a file")
    assert said in refusal(report, "--results", rich_results, "--output", "out", *arguments)


def test_where_a_page_cannot_be_built_the_results_are_saved_all_the_same(refusal, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pages.build", None)
    told = "no page: needs pages.build. python scripts/report.py builds it where requirements.txt is installed"
    assert refusal(report) == told
    assert report.after_run("box") == 0
    assert capsys.readouterr().out == f"results saved; {told}\n"


def test_a_report_imports_neither_torch_nor_asv(rich_results, tmp_path):
    code = "import sys, report; report.main(sys.argv[1:])\n"
    code += "assert not {'torch', 'asv', 'asv_runner'} & sys.modules.keys()"
    command = [sys.executable, "-c", code, "--results", rich_results, "--output", tmp_path / "out"]
    assert run(*command, home=Path.home(), cwd=ROOT / "scripts").returncode == 0
