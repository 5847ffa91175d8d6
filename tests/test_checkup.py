"""run.py --check: what is to be changed about a machine is said, what is fine is not."""

import itertools

import pytest
from conftest import Checkout
from measuring import machine

FINE = {
    "cores": 8,
    "cores_allowed": 8,
    "governor": "performance",
    "load_average": 0.2,
    "quota": None,
    "memory_available": 8 * machine.GIB,
    "disk_free": 100 * machine.GIB,
    "quiet": 0.99,
}


def test_nothing_to_change():
    unknown = dict.fromkeys(("governor", "load_average", "quota"))
    assert not any(machine.findings(FINE).values()) and not any(machine.findings(FINE | unknown).values())


@pytest.mark.parametrize(
    "change, what, advice",
    [
        ({"load_average": 5.0}, "load average 5.0", "end what else runs"),
        ({"cores_allowed": 1}, "1 of 8 cores", "allow two"),
        ({"quota": 1.5}, "a quota of 1.5 processors", "--cpus"),
        ({"governor": "powersave"}, "frequency governor powersave", "cpupower frequency-set"),
        ({"memory_available": machine.GIB}, "1.0 GiB of memory free", "will be skipped"),
        ({"disk_free": machine.GIB}, "1 GiB of disk free", "6 GiB a release"),
        ({"quiet": 0.5}, "quiet 50% of the time", "twice as long"),
    ],
)
def test_what_is_to_be_changed(change, what, advice):
    found = machine.findings(FINE | change)
    assert advice in found.pop(what) and not any(found.values())


def test_quiet_is_near_the_fastest_level_that_probes_hold(monkeypatch):
    probes = itertools.cycle([25, 25, 26, 40])
    monkeypatch.setattr(machine, "probe", lambda: next(probes))
    assert machine.quiet_now(0.05) == pytest.approx(0.75, abs=0.05)


def test_on_this_machine(checkout):
    done = checkout.run("scripts/run.py", "--check")
    assert done.returncode in (0, 1), done.stderr
    assert done.returncode == any(said.startswith("! ") for said in done.stdout.splitlines())
    assert not checkout.results.exists() or not list(checkout.results.glob(f"{Checkout.machine}/*"))
