"""report.py --check refuses unpublishable results, at little cost. One line per finding says what to do.

SUBMISSION_PARTS divides the heaviest submissions, and what their check may take; with 1 they reach the limits.
"""

import gzip
import itertools
import json
import os
import re
import statistics
import sys

import pytest
import report
import resultfiles
from analysis import submission
from conftest import ROOT, run
from pages import build, show
from resultfiles import CLONE, MIB, RUN, SUITE
from store import files, schema
from submissions import COMMIT, MACHINE, changed, planted, submitted
from toolchains.ledger import Toolchain

from benchmarks.core import probes

STEM = f"{COMMIT[:8]}-toolchain-py3.11"
RECORD, RESULT, SAMPLES = (f"{STEM}{suffix}" for suffix in (".jsonl", ".json", ".jsonl.gz"))


def checked(directory, capsys, code=1):
    """Return the lines that --check prints after the first."""
    assert report.main(["--check", str(directory), "--results", str(directory.parent)]) == code
    return capsys.readouterr().out.splitlines()[1:]


def record(old, new):
    return planted(RECORD, old, new)


def made(name, content=b"x"):
    """Return a function that adds a file."""
    return lambda directory: (directory / name).write_bytes(content)


def linked(name, target):
    """Return a function that puts a link in place of a file."""

    def spoil(directory):
        (directory / name).unlink(missing_ok=True)
        (directory / name).symlink_to(target)

    return spoil


def gone(name):
    return lambda directory: (directory / name).unlink()


def without_limits(content):
    """Return the measurements without the lines of memcpy."""
    return b"\n".join(line for line in content.splitlines() if b"limits" not in line)


def toolchain(torch):
    return record('"torch": "2.0", "numpy"', f'"torch": {torch}, "numpy"')


MANY = json.dumps(["a"] * 9000)
BUSY = [((CLONE["expression"], "float32", n), number) for n in (8, MIB, 16 * MIB) for number in range(4)]
# A fault of a submission -> how to make it; the snapshot holds the findings
REFUSED = {
    "nothing": lambda directory: None,
    "an older catalogue": planted("../benchmarks.json", '"params": [[', '"params": [["\'torch.new(a)\'", '),
    # entries that are not files of results
    "a link to a directory": linked("sub", "/etc"),
    "a link to a file": linked(RESULT, "/proc/self/environ"),
    "a link to nothing": linked("0123abcd-toolchain-py3.11.json", "nowhere"),
    "a link to itself": linked("machine.json", "machine.json"),
    "a directory": lambda directory: (directory / "node-a").mkdir(),
    "a pipe": lambda directory: os.mkfifo(directory / "pipe.json"),
    "a page": made("evil.html"),
    "a hidden file": made(".hidden"),
    "a name that a log obeys": made("x\n::error::y.json"),
    "a name that no text holds": made(b"\xff.json".decode(errors="surrogateescape")),
    "too many files": lambda directory: [made(f"{n:08x}-toolchain-py3.11.json")(directory) for n in range(301)],
    # missing files
    "no record": gone(RECORD),
    "no result": gone(RESULT),
    "no machine": gone("machine.json"),
    "a long text of the machine": planted("machine.json", '"machine"', f'"cpu": "{"x" * 1001}", "machine"'),
    "no samples": gone(SAMPLES),
    # too many files, or too much content
    "endless samples": changed(SAMPLES, lambda content: content * 10_000),
    "a zip bomb": made(SAMPLES, gzip.compress(bytes(2**28))),
    "endless lines": made(SAMPLES, gzip.compress(b"\n" * 2**25)),
    "many zips in one": made(SAMPLES, gzip.compress(b"") * 100_000),
    "a long line": made(RECORD, b'"' + b"x" * 5_000_000),
    "many runs": changed(RECORD, lambda content: content * 21),
    "lists in lists": made(RECORD, b"[" * 100_000),
    "many empty lists": planted(SAMPLES, '"waits": []', f'"waits": [{",".join(["[]"] * 100_000)}]'),
    "many sizes in few words": planted(RESULT, '[["8", ', f"[{MANY}, {MANY}, [" + '"8", '),
    "a number of 5,000 digits": record('"rounds": 4', f'"rounds": {"9" * 5000}'),
    # toolchains that asv cannot handle; tests/test_toolchains.py has more
    "two dots": toolchain('"2..0"'),
    "a version as long as a name of a file": toolchain(f'"{"2." * 200}0"'),
    "no version": toolchain("[]"),
    "another toolchain": toolchain('"2.1"'),
    "another commit": planted(RESULT, COMMIT, COMMIT[:8] + "0" * 32),
    # fields and cells that this suite does not write
    "a field of the machine": planted("machine.json", '"version"', '"node": "x", "version"'),
    "a field of the record": record('"caches"', '"hostname": "x", "caches"'),
    "a field of the result": planted(RESULT, '"python"', '"who": "x", "python"'),
    "a field of a line": planted(SAMPLES, '"took"', '"who": 1, "took"'),
    "another benchmark": planted(RESULT, '"conversion.', '"foreign.'),
    "another cell": planted(SAMPLES, "'float32'", "'float33'"),
    "a cell that was skipped elsewhere": record('"noisy_cells": []', '"noisy_cells": ["x"]'),
    "a cell that has no name": record('"noisy_cells": []', '"noisy_cells": [null]'),
    "a run without a record": planted(SAMPLES, RUN, "2026-01-02T03:04:06+00:00"),
    "figures that nobody measured": changed(SAMPLES, without_limits),
    # private data
    "a host": record("A CPU", "A CPU in janes-laptop.local"),
    "a path": record("scripts/run.py", "scripts/run.py --report-with /home/jane/python"),
    "a path of Windows": record("A CPU", r"C:\\Users\\jane"),
    "a home": record("A CPU", "~/venv"),
    "an address of the network": record("A CPU", "at 10.0.0.17"),
    "an escape": record("A CPU", r"\u001b[31m"),
    "a letter that turns others around": record("A CPU", r"A\u202eCPU"),
    "half of a letter": record("A CPU", r"A\ud800CPU"),
    # results of another machine, or of other code
    "another version": planted("../benchmarks.json", '"version": "v1"', '"version": "v2"'),
    "another asv_runner": record('"0.3.2"', '"0.2.5"'),
    "another machine": record(f'"{MACHINE}"', '"another"'),
    "asv's of another machine": planted(RESULT, f'"{MACHINE}"', '"another"'),
    # measurements that are not good enough
    "an interrupted run, of too few processes": record('"rounds": 4', '"rounds": 2'),
    "an impossible bandwidth": lambda directory: submitted(directory.parent, fast=100),
    "a busy machine": lambda directory: submitted(directory.parent, slow=BUSY),
}


@pytest.mark.parametrize("attack", REFUSED)
def test_what_may_not_be_published(attack, tmp_path, capsys, snapshot):
    """Each line names the file and says what to do. The reason for broken JSON is cut: it depends on the Python."""
    directory = submitted(tmp_path)
    REFUSED[attack](directory)
    lines = checked(directory / ".." / MACHINE, capsys, int(attack not in ("nothing", "an older catalogue")))
    assert [re.sub(r"is broken \((?!it ).*\)`", "is broken (…)`", line) for line in lines] == snapshot
    assert all(line.isprintable() and len(line) < 700 for line in lines) and str(tmp_path) not in "".join(lines)


NO_NAMES = ["history", "Results", "index.html", "feed.xml", "asv", "node-1", "a b", "-x", "a\n::b"]


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_that_no_machine_has(name, tmp_path, capsys):
    """The name of a directory follows the same rule as --machine."""
    directory = submitted(tmp_path).rename(tmp_path / name)
    assert "this cannot be the name of a machine: " in checked(directory, capsys)[0]


@pytest.mark.parametrize("where", ["node", "USER"])
def test_this_machine_s_own_names_are_known(where, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(submission.platform, "node", lambda: "grendel" if where == "node" else "")
    monkeypatch.setenv("USER", "grendel" if where == "USER" else "")
    directory = submitted(tmp_path)
    record("A CPU", "A CPU in grendel")(directory)
    (line,) = checked(directory, capsys)
    assert "grendel" in line


def test_findings_as_a_comment(tmp_path):
    directory = submitted(tmp_path)
    text = json.dumps({f"@everyone [x](javascript:alert) <b> {'x' * 900}": 1})
    for name, held in itertools.product(range(25), ("json", "jsonl")):
        made(f"{name:08x}-toolchain-py3.11.{held}", text.encode())(directory)
    report.main(["--check", str(directory), "--results", str(tmp_path), "--markdown", str(tmp_path / "said.md")])
    text = (tmp_path / "said.md").read_text()
    assert re.match(rf"<!-- .* -->\n- `{MACHINE}`: 20 \w+\n- ", text)
    assert len(text) < 65_536 / 4 and all("`" in line or "<code>" in line for line in text.splitlines()[1:])
    assert not re.search(r"(?<!`)@everyone", text)


@pytest.mark.parametrize("place", [".", "reports", "reports/results", "nowhere", "README.md"])
def test_no_results_is_an_error(place, refusal):
    """--check refuses these places at once, because reading a whole checkout would take long."""
    said = f"{place} holds no results: name reports/results/MACHINE, which run.py fills"
    assert refusal(report, "--check", ROOT / place).endswith(said.lstrip("."))


# The heaviest submissions that keep the limits, divided
PARTS = int(os.environ.get("SUBMISSION_PARTS", "3"))
EVERY = [(name, list(words)) for name, one in SUITE.items() for words in itertools.product(*one["params"])]
TIMED = [(name, words) for name, words in EVERY if SUITE[name]["type"] == "time"]
SHORT = sorted(TIMED, key=str)[:1]


def line_of(name, params, number=0, run=RUN, samples=1, **more):
    about = {"run": run, "benchmark": name, "params": params, "version": SUITE[name]["version"], "at": 1.0, "wanted": 1}
    taken = {"round": number, "number": 1, "seconds": [1e-6] * samples, "disturbed": [], "waits": [], "waiting": []}
    taken |= {"waited": 0.0, "took": 0.1}
    return json.dumps({**about, **taken, "probes": {"processor": [25] * (samples + 1)}, **more})


def some(lines, share):
    """Return the first lines that fit into this share of the largest submission (MAX_BYTES), over PARTS."""
    found, room = [], share * submission.MAX_BYTES / PARTS
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        found.append(line)
    return found


def rows_of(value):
    count = {name: len(schema.cell_names(name, one["params"])) for name, one in SUITE.items()}
    return {name: [[value] * count[name], one["params"], one["version"]] for name, one in SUITE.items()}


STATE = {"link generation": 5, "clock": 1980, "slowed by": []}
RUNS = [f"2026-01-02T03:04:{n:02d}+00:00" for n in range(submission.MAX_RUNS)]
NAMES = schema.cell_names("limits.Memcpy.timeit_copy", SUITE["limits.Memcpy.timeit_copy"]["params"]) * 8_000
# Number of results, and for each: more fields of its record, its lines, and the rows of asv's file. Files are divided,
# or where there are many of them, their number is
DIVIDED = ("every cell", "one cell again and again", "one file", "many lists")
HEAVY = {
    "every cell": lambda: (8, {}, some((line_of(*one, n) for n in range(4) for one in TIMED), 0.12), {}),
    "one cell again and again": lambda: (2, {}, some((line_of(*SHORT[0], n) for n in range(90_000)), 0.49), {}),
    "one file": lambda: (1, {}, some((line_of(*SHORT[0], n, samples=300_000) for n in range(19)), 0.98), {}),
    "many lists": lambda: (2, {}, some((line_of(*SHORT[0], n, device=[STATE] * 27) for n in range(50_000)), 0.49), {}),
    "many runs": lambda: (100 // PARTS, {}, [line_of(*one, run=run) for run in RUNS for one in SHORT * 60], {}),
    "many figures": lambda: (100 // PARTS, {}, [], rows_of(1e-6)),
    "many failures": lambda: (30 // PARTS, {"failures": {"x": NAMES}}, [line_of(*SHORT[0])], {}),
    "many fields": lambda: (10 // PARTS, {f"f{n}": 1 for n in range(250_000)}, [line_of(*SHORT[0])], {}),
    "many texts": lambda: (10 // PARTS, {"command": " /x" * 1_000_000}, [line_of(*SHORT[0])], {}),
    "one text": lambda: (10 // PARTS, {"command": "a-" * 1_900_000}, [line_of(*SHORT[0])], {}),
}


# Run a command and print its usage. A forked process starts as large as its parent, so this parent is small.
USED = """import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)
sys.exit(code)"""


def slowdown():
    """Return the time of a speed probe now over its time on a quiet Zen 3 (25 µs), at least 1."""
    return max(1.0, statistics.median(probes.probe() for _ in range(200)) / 25e-6)


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    """A function that checks a directory, and returns what that printed, seconds and KiB of its largest process.

    The KiB are those of the submission: an interpreter with pandas, which refuses an empty place, is subtracted.
    """
    home = tmp_path_factory.mktemp("home")

    def used(directory):
        command = (sys.executable, ROOT / "scripts" / "report.py", "--check", directory, "--results", directory.parent)
        done = run(sys.executable, "-c", USED, *command, home=home, timeout=100)
        return done, *map(float, done.stderr.split()[-2:])

    _, _, idle = used(home / "nowhere")

    def check(directory):
        done, seconds, memory = used(directory)
        return done, seconds, memory - idle

    return check


@pytest.mark.slow
@pytest.mark.parametrize("what", HEAVY)
def test_no_submission_within_the_limits_takes_long(what, tmp_path, check):
    """The limits are 1 GB and 10 s on two quiet cores. The test allows 20 s of processor time, as other processes run.

    A neighbour may slow the processor down. Probes before and after the check show by how much.
    """
    count, more, lines, rows = HEAVY[what]()
    directory, runs = tmp_path / MACHINE, RUNS if what == "many runs" else [RUN]
    samples = gzip.compress("\n".join(lines).encode(), 1)
    for number in range(count):
        toolchain = Toolchain(f"2.0.{number}", "1.26")
        named = {"tag": toolchain.tag, "torch": toolchain.torch, "numpy": toolchain.numpy}
        plain = resultfiles.record([], toolchain=named, machine=MACHINE, rounds=4, planned=4, noisy_cells=[]) | more
        resultfiles.write(tmp_path, [], MACHINE, [plain | {"started": run} for run in runs], toolchain.commit)
        asv = directory / f"{toolchain.commit[:8]}-toolchain-py3.11.json"
        if lines:
            asv.with_suffix(".jsonl.gz").write_bytes(samples)
        held = {"result_columns": ["result", "params", "version"], "results": rows}
        asv.write_text(json.dumps(json.loads(asv.read_text()) | held))
    (tmp_path / "benchmarks.json").write_text(json.dumps(resultfiles.DESCRIBED))
    before = slowdown()
    done, seconds, memory = check(directory)
    assert done.returncode in (0, 1) and "broken" not in done.stdout, done.stdout[:1000] + done.stderr
    assert seconds < 20 / PARTS * max(before, slowdown())
    # an interpreter with pandas is not the submission's: 120 MiB of Python 3.11, more of others
    limit = (2**20 / min(count, 2) - 120 * 2**10) / (PARTS if what in DIVIDED else 1)
    assert memory < limit, "KiB of the largest process, of two where there are several files"


@pytest.mark.slow
@pytest.mark.parametrize(
    "machine", [f"{name}-2-core-vm" for name in ("amd-epyc-genoa", "amd-epyc-turin", "intel-emerald-rapids")]
)
def test_committed_results_may_be_published(machine, committed):
    results = committed / "reports" / "results"
    assert submission.findings(results / machine, results / files.BENCHMARKS) == []


NOBODYS = ["Linux 6.18.44-fc-v669", "torch.from_numpy(a) / b", "glibc 2.36", "2.13.0+cpu", "t.to('cpu')", "GB/s", "1/2"]
NOBODYS += ["5.15.167.4-microsoft-standard-WSL2", "Intel(R) Xeon(R) CPU @ 2.80GHz", r"\b131072\b"]


@pytest.mark.parametrize("text", [*NOBODYS, "https://pytorch.org/docs/"])
def test_what_is_nobody_s(text):
    assert not re.search(submission.PRIVATE, json.dumps({"a": [text]}, ensure_ascii=False))


def test_every_finding_has_words():
    sources = [(ROOT / "scripts" / "analysis" / f"{name}.py").read_text() for name in ("submission", "transfers")]
    blocks = set(show._environment().get_template("submission").blocks)
    kinds = set(re.findall(r'"([a-z_]+)"', "".join(sources))) & blocks
    assert len(kinds) == 24 and kinds == blocks
    for kind in kinds:
        head, line = build.submission("box", [submission.Finding("file", kind, "about", (0.25, 0.5, 9), 1)])
        assert show.to_plain(line).startswith("`file`: ") and build.comment([line])
