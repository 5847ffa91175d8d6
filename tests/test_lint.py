"""Style, types, and which room imports which: what `make lint` checks, beside other tests and not before them."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT


@pytest.mark.slow
def test_nothing_is_found():
    command = ["make", "lint", "--old-file=.venv/installed-dev", f"BIN={Path(sys.executable).parent}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
