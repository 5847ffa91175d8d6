#!/bin/sh
# asv takes a module's constant SETUP for the function setup(), calls it, and the benchmark fails.
#
# Seen with asv_runner 0.3.2 (that asv 0.6.6 runs benchmarks with). It looks for the attributes "setup" and "teardown" of the
# benchmark, its class and its module without regard to capitals. So a text SETUP, as for timeit, ends each benchmark of the file
# with TypeError: 'str' object is not callable. A text TEARDOWN does so while it is timed. The same constants under
# other names are left alone.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet asv_runner==0.3.2
for constant in SETUP TEARDOWN PREPARE; do
    mkdir -p "$folder/$constant/suite"
    touch "$folder/$constant/suite/__init__.py"
    cat >"$folder/$constant/suite/sums.py" <<PYTHON
$constant = "numbers = [1, 2, 3]"


def time_sum():
    sum([1, 2, 3])
PYTHON
    "$folder/venv/bin/python" - "$folder/$constant/suite" $constant <<'PYTHON'
import sys

from asv_runner.discovery import get_benchmark_from_name

suite, constant = sys.argv[1:]
benchmark = get_benchmark_from_name(suite, "sums.time_sum")
steps = []
try:
    benchmark.do_setup()
    steps.append("set up")
    benchmark.do_run()
    steps.append("timed")
    benchmark.do_teardown()
    steps.append("torn down")
except TypeError as error:
    steps.append(f"TypeError: {error}")
print(f"with a constant {constant}: {', '.join(steps)}")
raised = "TypeError: 'str' object is not callable"
assert steps == {
    "SETUP": [raised],
    "TEARDOWN": ["set up", raised],
    "PREPARE": ["set up", "timed", "torn down"],
}[constant]
PYTHON
done
