"""Programs run in sessions of their own. However our process ends, no process that it started runs on."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from conftest import PATH, ROOT, until
from measuring import processes

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="asks /proc what runs")

# Four processes that ignore Ctrl-C, each in a group of its own, like asv's server. Each makes a file named by its pid
STUBBORN = """
import os, pathlib, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(2):
    if not os.fork():
        os.setpgid(0, 0)
pathlib.Path(str(os.getpid())).touch()
time.sleep(60)
"""
OURS = f"""
import signal, sys
from measuring import processes
import cli
processes.GRACE = 0.5
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever the tests were started by
cli.run(lambda argv: processes.run_in_session([sys.executable, "-c", {STUBBORN!r}], "."))
"""


def check_gone(number):
    until(lambda: not processes.session_members(number), 5)


@pytest.mark.parametrize(
    "names, code",
    [(["SIGINT"], 130), (["SIGTERM"], 143), (["SIGHUP"], 129), (["SIGKILL"], -signal.SIGKILL), (["SIGINT"] * 2, 130)],
)
def test_no_process_of_a_session_outlives_its_program(names, code, tmp_path):
    """Our program is ended after it started a session of four processes. None of them is left."""
    environment, pipe = {**os.environ, "PYTHONPATH": PATH}, subprocess.PIPE
    with processes.os_session([sys.executable, "-c", OURS], tmp_path, environment, stderr=pipe) as ours:
        until(lambda: len(os.listdir(tmp_path)) == 4)
        number = os.getsid(int(os.listdir(tmp_path)[0]))
        assert len(processes.session_members(number)) == 4
        for name in names:
            ours.send_signal(getattr(signal, name))
            time.sleep(0.2 * (len(names) - 1))
        _, complaint = ours.communicate(timeout=10)
    assert ours.returncode == code
    check_gone(number)
    assert len(names) > 1 or complaint.split() == ([] if name == "SIGKILL" else ["-c:", "interrupted"])


def test_a_program_may_end_itself_by_ctrl_c_before_it_is_killed():
    command = [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(60)"]
    with pytest.raises(ValueError), processes.os_session(command, ROOT, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        raise ValueError
    assert process.returncode == -signal.SIGINT


def test_children_that_a_program_leaves_are_killed():
    """A program ended by itself and left a child, which is killed. This also holds if the session's watcher is gone,
    killed by a system that is out of memory."""
    code = "import os, time\nif not os.fork():\n    os.setpgid(0, 0)\n    time.sleep(60)\n"
    with processes.os_session([sys.executable, "-c", code], ROOT) as process:
        assert process.wait(10) == 0
        for child in psutil.Process().children():
            if processes.__file__ in child.cmdline():
                child.kill()
    check_gone(process.pid)


def test_run_in_session_returns_output_and_exit_code(tmp_path):
    done = processes.run_in_session([sys.executable, "-c", "import sys; print(1); sys.exit('a\\n\\nb\\n')"], tmp_path)
    assert (done.returncode, done.stdout, processes.last_line(done.stderr)) == (1, "1\n", "b")
    done = processes.run_in_session([sys.executable, "-c", "import os; os._exit(3)"], tmp_path)
    assert (done.returncode, processes.last_line(done.stderr)) == (3, "stopped without a word")
