"""A complete quick run and its page, with the installed torch and numpy: make test-oldest, make test-newest.

The run takes minutes, so pytest collects this file only when it is named.
"""

import subprocess
import sys

from analysis.results import load
from conftest import environment
from store import files


def test_a_quick_run_measures_and_builds_its_page(checkout):
    command = [sys.executable, "scripts/run.py", "--profile", "quick", "--machine", "tester"]
    own = environment(checkout.home)
    del own["OMP_NUM_THREADS"], own["MKL_NUM_THREADS"]  # set for tests; a run uses torch's default number of threads
    subprocess.run(command, cwd=checkout.root, env=own, check=True)
    (path,) = (checkout.results / "tester").glob("*.jsonl")
    (record,) = files.read_records(path)
    results = load(checkout.results)
    assert not record.failures
    assert 0 < record.rounds <= record.planned  # a run ends sooner on a machine that is hardly ever quiet
    assert set(results.missing["status"]) <= {"skipped"}
    for reason in set(results.missing["reason"]):
        refused = "no dtype" in reason or ": raises " in reason  # as the route's contract says
        assert refused or reason.startswith(("needs ", "torch takes 1 thread here")), reason
    assert {"conversion", "limits"} <= set(results.processes["family"])
    page = checkout.root / "reports" / "tester" / "index.html"
    assert record.toolchain.torch in page.read_text(encoding="utf-8")
