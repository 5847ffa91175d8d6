"""run.py --check: what is to be changed about a machine is said, what is fine is not."""

import itertools
import math
from dataclasses import replace

import pytest
from conftest import Checkout
from measuring import machine
from store.records import Conditions

FINE = Conditions(cores=8, cores_allowed=8, governor="performance", load_average=0.2)


@pytest.mark.parametrize("known", [FINE, replace(FINE, governor="", load_average=None)])
def test_nothing_to_change(known):
    assert not any(machine.findings(known, 0.99, math.inf).values())


@pytest.mark.parametrize(
    "change, quiet, quota, what, advice",
    [
        ({"load_average": 5.0}, 0.99, 8, "load average 5.0", "end what else runs"),
        ({"cores_allowed": 1}, 0.99, 8, "1 of 8 cores", "allow two"),
        ({}, 0.99, 1.5, "a quota of 1.5", "--cpus"),
        ({"governor": "powersave"}, 0.99, 8, "frequency governor powersave", "cpupower frequency-set"),
        ({}, 0.5, 8, "quiet 50% of the time", "twice as long"),
    ],
)
def test_what_is_to_be_changed(change, quiet, quota, what, advice):
    found = machine.findings(replace(FINE, **change), quiet, quota)
    assert advice in found.pop(what) and not any(found.values())


def test_quiet_is_near_the_fastest_level_that_probes_hold(monkeypatch):
    probes = itertools.cycle([25, 25, 26, 40])
    monkeypatch.setattr(machine, "probe", lambda: next(probes))
    assert machine.quiet_now(0.05) == pytest.approx((0.75, 1.16), abs=0.05)


def test_on_this_machine(checkout):
    done = checkout.run("scripts/run.py", "--check")
    assert done.returncode in (0, 1), done.stderr
    assert done.returncode == any(said.startswith("! ") for said in done.stdout.splitlines())
    assert not checkout.results.exists() or not list(checkout.results.glob(f"{Checkout.machine}/*"))
