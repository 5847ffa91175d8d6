"""report.py --check: what may not be published is refused with one line that says what to do."""

import json

import pytest
import report
import resultfiles
from analysis import submission
from conftest import ROOT
from pages import show
from pages.submission import sentence
from resultfiles import CLONE, FROM_NUMPY, MIB, around, conversion, memcpy

ASV_RUNNER = "0.3.2"


def submitted(root, fast=1.0, slow=(), machine="amd-epyc-2-cores", versions="v1"):
    """Results as somebody submits them, beside this suite's benchmarks.json; the directory of the machine.

    fast: by how much a copy is faster than it can be; slow: cells that never were calm
    """
    sizes = (8, MIB, 16 * MIB)
    bench = conversion(
        {(FROM_NUMPY["expression"], n): around(4e-7) for n in sizes}
        | {(CLONE["expression"], n): around((1e-6 + n / 4e10) / (fast if n > 8 else 1)) for n in sizes},
        [FROM_NUMPY, CLONE],
    )
    benches = [bench, memcpy({n: around(2e-7 + n / 5e10) for n in sizes})]
    plain = resultfiles.record(benches, machine=machine, rounds=4, planned=4)
    resultfiles.write(root, benches, machine, [plain])
    for one in benches:
        resultfiles.probed(root, one, slow=slow, machine=machine)
    described = json.loads((root / "benchmarks.json").read_text())
    for one in described.values():
        if isinstance(one, dict):
            one["version"] = versions
    (root / "benchmarks.json").write_text(json.dumps(described))
    return root / machine


def told(directory, capsys, code=1):
    """The lines that --check prints."""
    assert report.main(["--check", str(directory), "--results", str(directory.parent)]) == code
    return capsys.readouterr().out.splitlines()


def test_good_results_may_be_published(tmp_path, capsys):
    assert told(submitted(tmp_path), capsys, 0) == ["amd-epyc-2-cores may be published"]
    assert told(tmp_path / "amd-epyc-2-cores" / ".." / "amd-epyc-2-cores", capsys, 0)


FILE = "amd-epyc-2-cores/c0ffee00-toolchain-py3.11"


def planted(name, old, new):
    def spoil(directory):
        path = directory / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return spoil


RECORD, RESULT, SAMPLES = (f"c0ffee00-toolchain-py3.11{suffix}" for suffix in (".jsonl", ".json", ".jsonl.gz"))


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (
            planted("machine.json", '"version"', '"node": "janes-laptop.local", "version"'),
            "amd-epyc-2-cores/machine.json: 'janes-laptop.local' looks like the name or address of a host or a person: "
            "remove it",
        ),
        (
            planted("machine.json", '"version"', '"node": "x", "version"'),
            "amd-epyc-2-cores/machine.json: 'node' is no field that this suite writes: remove it",
        ),
        (
            planted(RECORD, "scripts/run.py", "scripts/run.py --report-with /home/jane/venv/bin/python"),
            f"{FILE}.jsonl: '/home/jane/venv/bin/python' is a path of a machine: remove it, it is nobody's business",
        ),
        (
            planted(RECORD, '"A CPU"', '"jane@example.org"'),
            f"{FILE}.jsonl: 'jane@example.org' looks like the name or address of a host or a person: remove it",
        ),
        (
            planted(RECORD, '"caches"', '"hostname": "x", "caches"'),
            f"{FILE}.jsonl: 'conditions.hostname' is no field that this suite writes: remove it",
        ),
        (
            planted(RESULT, '"python"', '"who": "x", "python"'),
            f"{FILE}.json: 'params.who' is no field that this suite writes: remove it",
        ),
        (
            planted(RECORD, '"asv_runner": "0.3.2"', '"asv_runner": "0.2.5"'),
            f"{FILE}.json: asv_runner 0.2.5, and the timing rests on {ASV_RUNNER}: pip install -r requirements.txt, "
            "then measure again with this revision of the suite",
        ),
        (
            planted(RECORD, '"machine": "amd-epyc-2-cores"', '"machine": "another"'),
            f"{FILE}.json: a run on another, filed under amd-epyc-2-cores: name the directory as the run does",
        ),
        (
            planted(RESULT, '"version"', '"who": "x", "version"'),
            f"{FILE}.json: 'who' is no field that this suite writes: remove it",
        ),
        (
            lambda directory: (directory / SAMPLES).unlink(),
            f"{FILE}.json: the samples (.jsonl.gz) are missing: add the file, or measure again with this revision of "
            "the suite",
        ),
        (
            lambda directory: (directory / "notes.txt").write_text("mine"),
            "amd-epyc-2-cores/notes.txt: no file of results: remove it",
        ),
        (
            lambda directory: (directory / "machine.json").unlink(),
            "amd-epyc-2-cores: machine.json is missing: add it, it lies beside the results",
        ),
        (
            lambda directory: (directory / RECORD).unlink(),
            f"{FILE}.json: there is no run record: submit what scripts/run.py or scripts/track.py filed, with all "
            "files",
        ),
        (
            planted(RESULT, '"conversion.', '"foreign.'),
            f"{FILE}.json: foreign.NumpyToTorch.timeit_convert is no benchmark of this suite: measure again with this "
            "revision of the suite",
        ),
    ],
)
def test_what_may_not_be_published(tmp_path, capsys, spoil, line):
    directory = submitted(tmp_path)
    spoil(directory)
    assert line in told(directory, capsys)


@pytest.mark.parametrize("name", [RESULT, RECORD, SAMPLES])
def test_a_truncated_file(tmp_path, capsys, name):
    directory = submitted(tmp_path)
    path = directory / name
    path.write_bytes(path.read_bytes()[:-40])
    (line,) = [one for one in told(directory, capsys) if "is broken" in one]
    assert line.startswith(f"{FILE}.json: {name} is broken (")
    assert line.endswith("): measure again with this revision of the suite, or copy the file again")
    assert str(tmp_path) not in line


def test_an_impossible_bandwidth(tmp_path, capsys):
    (line, _) = told(submitted(tmp_path, fast=100), capsys)
    assert line.startswith(
        f"{FILE}.json: 2 copies are above memcpy, most of all conversion.NumpyToTorch.timeit_convert("
    )
    assert line.endswith("measure again on a quieter machine")


def test_a_foreign_version(tmp_path, capsys):
    (line, _) = told(submitted(tmp_path, versions="v2"), capsys)
    assert line == (
        f"{FILE}.json: 2 of 2 benchmarks are of another version than this suite's, as conversion.NumpyToTorch."
        "timeit_convert: measure again with this revision of the suite"
    )


def test_what_a_node_measured_is_judged_as_well(tmp_path, capsys):
    directory = submitted(tmp_path, fast=100)
    node = directory / "node-a"
    node.mkdir()
    for name in (RECORD, RESULT, SAMPLES):
        (directory / name).rename(node / name)
    assert [line.partition(":")[0] for line in told(tmp_path / directory.name, capsys)] == [
        "amd-epyc-2-cores/node-a/c0ffee00-toolchain-py3.11.json",
        "amd-epyc-2-cores",
    ]


def test_too_few_processes_and_an_interrupted_run(tmp_path, capsys):
    directory = submitted(tmp_path)
    planted(RECORD, '"rounds": 4', '"rounds": 2')(directory)
    lines = told(directory, capsys)
    assert f"{FILE}.json: 2 of 4 rounds: run.py --resume completes them" in lines
    assert f"{FILE}.json: 2 processes a cell where 4 are needed: run.py --rounds 4" in lines


def test_a_busy_machine(tmp_path, capsys):
    every = [((CLONE["expression"], "float32", n), number) for n in (8, MIB, 16 * MIB) for number in range(4)]
    (line, _) = told(submitted(tmp_path, slow=every), capsys)
    assert line == (
        f"{FILE}.json: 33 % of the timed cells never were calm, at most 25 % may be: measure again on a quieter "
        "machine (run.py --check says what disturbs)"
    )


def test_this_machine_s_own_names_are_known(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(submission.platform, "node", lambda: "grendel")
    directory = submitted(tmp_path)
    planted(RECORD, "A CPU", "A CPU in grendel")(directory)
    assert f"{FILE}.jsonl: 'grendel' looks like the name or address of a host or a person: remove it" in told(
        directory, capsys
    )


def test_findings_as_a_comment(tmp_path):
    directory = submitted(tmp_path, versions="v2")
    report.main(["--check", str(directory), "--results", str(tmp_path), "--markdown", str(tmp_path / "said.md")])
    said = (tmp_path / "said.md").read_text()
    assert said.startswith("<!-- numpy-torch-conversion: submission -->\n### amd-epyc-2-cores: 1 finding\n\n- ")


def test_no_results_is_an_error(tmp_path, called):
    code, _, err = called(report, "--check", tmp_path)
    assert (
        code == 2
        and err == f"report.py: {tmp_path} holds no results: name reports/results/MACHINE, which run.py fills\n"
    )


@pytest.mark.slow
def test_committed_results_name_nobody(committed):
    """Of the committed ones, too: no path, no name, no field that nothing writes."""
    results = committed / "reports" / "results"
    found = [one for machine in results.glob("*/") for one in submission._of_files(machine)]
    assert not found


@pytest.mark.parametrize(
    "text",
    ["Linux 6.18.44-fc-v669", "torch.from_numpy(a) / b", "glibc 2.36", "2.13.0+cpu", "t.to('cpu')", "GB/s", "1/2"],
)
def test_what_is_nobody_s(text):
    assert not submission.PATHS.search(text) and not submission.NAMES.search(text)


def test_the_pin_is_the_suite_s():
    assert f"asv_runner=={submission._runner()}\n" in (ROOT / "requirements.txt").read_text()


def test_every_finding_has_words():
    kinds = {kind for name, kind in vars(submission).items() if kind == name.lower()} - {"conversion", "copy", "into"}
    assert len(kinds) == 21 and kinds == set(show._prose("submission").blocks)
    for kind in kinds:
        assert sentence(submission.Finding("file", kind, "about", (0.25, 0.5))).startswith("file: ")
