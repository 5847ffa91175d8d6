"""Programs in sessions of their own: whatever ends us, nothing that we started runs on."""

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

# Like asv: a server and its child, each in a process group of its own, deaf to Ctrl-C
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(2):
    if not os.fork():
        os.setpgid(0, 0)
print("ready", flush=True)
time.sleep(60)
"""
OURS = f"""
import signal, subprocess, sys, time
from measuring import processes
import cli
processes.GRACE = 0.5
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever the tests were started by

def main(argv):
    with processes.session([sys.executable, "-c", {STUBBORN!r}], {str(ROOT)!r}, stdout=subprocess.PIPE) as process:
        for _ in range(4):
            process.stdout.readline()
        print(process.pid, flush=True)
        time.sleep(60)

cli.run(main)
"""


ENVIRONMENT = {**os.environ, "PYTHONPATH": PATH}


def check_gone(number):
    until(lambda: not processes.members(number), 5)


@pytest.mark.parametrize(
    "names, code",
    [(["SIGINT"], 130), (["SIGTERM"], 143), (["SIGHUP"], 129), (["SIGKILL"], -signal.SIGKILL), (["SIGINT"] * 2, 130)],
)
def test_nothing_runs_on(names, code):
    """Our program has started a session of four processes, and is ended."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with processes.session([sys.executable, "-c", OURS], ROOT, ENVIRONMENT, **pipes) as ours:
        number = int(ours.stdout.readline())
        assert len(processes.members(number)) == 4
        for name in names:
            ours.send_signal(getattr(signal, name))
            time.sleep(0.2 * (len(names) - 1))
        _, complaint = ours.communicate(timeout=10)
    assert ours.returncode == code
    check_gone(number)
    assert len(names) > 1 or complaint.split() == ([] if name == "SIGKILL" else ["-c:", "interrupted"])


def test_a_program_may_end_itself_by_ctrl_c_before_it_is_killed(tmp_path):
    code = "import pathlib, time\nprint('ready', flush=True)\n"
    code += "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    pathlib.Path('saved').touch()\n"
    command = [sys.executable, "-c", code]
    with pytest.raises(ValueError), processes.session(command, tmp_path, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        raise ValueError
    assert (tmp_path / "saved").exists()


def test_a_session_ends_without_its_watcher(tmp_path):
    """It may have been killed, too, as by a system that is out of memory."""
    with processes.session([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path) as process:
        for child in psutil.Process().children():
            if processes.__file__ in child.cmdline():
                child.kill()
    check_gone(process.pid)


def test_what_a_program_leaves_behind_goes_with_it():
    """It ended by itself, its children did not."""
    code = "import os, time\nif not os.fork():\n    os.setpgid(0, 0)\n    time.sleep(60)\n"
    with processes.session([sys.executable, "-c", code], ROOT) as process:
        assert process.wait(10) == 0
    check_gone(process.pid)


def test_apart_gives_what_was_printed(tmp_path):
    done = processes.apart([sys.executable, "-c", "import sys; print(1); sys.exit('a\\n\\nb\\n')"], tmp_path)
    assert (done.returncode, done.stdout, processes.last_line(done.stderr)) == (1, "1\n", "b")
    done = processes.apart([sys.executable, "-c", "import os; os._exit(3)"], tmp_path)
    assert (done.returncode, processes.last_line(done.stderr)) == (3, "stopped without a word")


def test_what_asks_torch_and_its_device_ends_with_us(tmp_path):
    """Importing torch takes seconds, and a driver may hang for ever: neither may outlive a run that was killed."""
    (tmp_path / "numpy.py").write_text("")
    asked = tmp_path / "asked"
    torch = f"import os, pathlib, time; pathlib.Path({str(asked)!r}).write_text(str(os.getsid(0))); time.sleep(60)"
    (tmp_path / "torch.py").write_text(torch)
    code = f"import os\nfrom measuring import machine\nos.environ['PYTHONPATH'] = {str(tmp_path)!r}; machine.settings()"
    ours = subprocess.Popen([sys.executable, "-c", code], env=ENVIRONMENT)
    number = int(until(lambda: ours.poll() is None and asked.is_file() and asked.read_text()))
    assert processes.members(number) and number != os.getsid(0)
    ours.kill()
    ours.wait()
    check_gone(number)
