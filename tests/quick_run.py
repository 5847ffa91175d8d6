"""A whole quick run and its page, with whatever torch and numpy this Python has: make test-oldest, make test-newest.

Takes minutes, so pytest collects it only where it is named.
"""

import json
import subprocess
import sys

from analysis.results import load
from conftest import environment


def test_quick_run(checkout):
    command = [sys.executable, "scripts/run.py", "--profile", "quick", "--machine", checkout.machine]
    own = environment(checkout.home)
    del own["OMP_NUM_THREADS"], own["MKL_NUM_THREADS"]  # of the tests: a run has as many threads as torch takes
    subprocess.run(command, cwd=checkout.root, env=own, check=True)
    (path,) = (checkout.results / checkout.machine).glob("*.jsonl")
    (record,) = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    results = load(checkout.results)
    assert record["failures"] == {}
    assert 0 < record["rounds"] <= record["planned"]  # on a machine that is hardly ever quiet it ends sooner
    assert set(results.missing["status"]) <= {"skipped"}
    for reason in set(results.missing["reason"]):
        assert reason.startswith("needs ") or "no dtype" in reason, reason
    assert {"conversion", "limits"} <= set(results.processes["family"])
    page = checkout.root / "reports" / checkout.machine / "index.html"
    assert str(record["toolchain"]["torch"]) in page.read_text(encoding="utf-8")
