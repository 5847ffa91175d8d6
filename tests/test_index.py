"""The page over all machines links to the pages of each machine and shows where their answers agree and differ."""

import re
from types import SimpleNamespace

import pandas
import report
import resultfiles
from pages import build, show
from resultfiles import AS_TENSOR, CLONE, FROM_NUMPY, MIB, TENSOR, around, conversion

from benchmarks.contracts import ALL_THREADS, ONE_THREAD


def machine(results, name, clone):
    """Write results of a machine. Only ``clone``, the seconds of one of two copies, differs between machines."""
    times = {"torch.from_numpy(a)": 4e-7, "torch.as_tensor(a)": 8e-7}
    times |= {"torch.from_numpy(a).clone()": clone, "torch.tensor(a)": 2e-5}
    cells = {(route, n): around(times[route]) for route in times for n in (8, MIB)}
    resultfiles.write(results, [conversion(cells, [FROM_NUMPY, AS_TENSOR, TENSOR, CLONE])], name)


def test_machines_side_by_side(tmp_path, snapshot):
    for name, clone in (("one", 1e-5), ("other", 9e-5)):
        machine(tmp_path / "results", name, clone)
    out = tmp_path / "out"
    assert report.main(["--results", str(tmp_path / "results"), "--output", str(out)]) == 0
    text = (out / "README.md").read_text(encoding="utf-8")
    own, _, rest = text.partition("## From what you have\n")
    libraries, _, rest = rest.partition("</details>\n")
    assert re.sub(r"[0-9a-f]{64}", "SHA", own + rest) == snapshot
    assert "| h5py dataset | `x[:]`" in libraries
    page = (out / "index.html").read_text(encoding="utf-8")
    assert {"one/index.html", "other/index.html"} <= {*re.findall(r'href="([^"]+)"', page)}
    assert (out / "answers.csv").read_text(encoding="utf-8") == snapshot
    assert not list(out.rglob("*.json")), "what this page says is made of the results"


def test_machines_stand_at_the_sizes_that_all_have():
    """Answers are shown at the usual sizes common to all machines that have an answer. If none of these sizes is usual,
    the largest common size is shown. A noisy figure is marked. One thread gives way to torch's default number."""

    def page(name, *rows, quiet=0.95, threads=1):
        columns = ["question", "nbytes", "route", "seconds", "quiet", "threads"]
        best = pandas.DataFrame(rows, columns=columns).assign(address="", memory="copy")
        return SimpleNamespace(machine=name, best_routes=best, quiet=quiet, threads=threads)

    one, default = ONE_THREAD, ALL_THREADS
    rows = [("all", 8, "f", 1e-6, True, one), ("all", MIB, "f", 2e-6, True, one), ("own", 64, "g", 1e-6, True, one)]
    other = [
        ("all", 8, "k", 1e-7, True, one),
        ("all", 8, "h", 1e-6, False, default),
        ("all", 4096, "f", 3e-6, True, ""),
    ]
    machines = [page("one", *rows), page("other", *other, quiet=0.5, threads=2)]
    best = pandas.concat([each.best_routes.assign(machine=each.machine) for each in machines])
    table = build.side_by_side(build.shown_answers(best), machines)
    heads = [[show.bare(line) for line in head] for head in table.columns[1:]]
    assert heads == [["one", "1 torch thread"], ["other", "2 torch threads", "quiet 50 % of the time (~ upper bound)"]]
    absent = [*"not measured"]  # a line, not a list of lines
    shown = {row[0]: [[show.bare(line) for line in entry] for entry in row[1:]] for row in table.rows}
    assert shown == {
        "all": [["8 B: 1.00 µs f"], ["8 B: 1.00 µs ~ h"]],
        "own": [["64 B: 1.00 µs g"], absent],
    }


def test_nobodys_own_run_changes_it(tmp_path):
    machine(tmp_path / "results", "mine", 1e-5)
    report.main(["--machine", "mine", "--results", str(tmp_path / "results"), "--output", str(tmp_path / "out")])
    assert not (tmp_path / "out" / "index.html").exists() and (tmp_path / "out" / "mine" / "index.html").is_file()
