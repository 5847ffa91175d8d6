"""run.py --check: what is to be changed about a machine is said, what is fine is not."""

import numpy as np
import pytest
from analysis import statistics
from analysis.verdicts import Settings
from conftest import Checkout
from measuring import checkup
from scipy import special

FINE = {
    "cores": 8,
    "cores_allowed": 8,
    "governor": "performance",
    "load_average": 0.2,
    "quota": None,
    "memory_available": 8 * checkup.GIB,
    "disk_free": 100 * checkup.GIB,
    "virtual": False,
}


def line(at, figure, slow=False, share=1.0):
    """A process whose samples read ``figure`` where the machine is calm, for that share of them."""
    pulses = [25_000 if not slow and k < 21 * share else 50_000 for k in range(21)]
    return {
        "at": at,
        "version": "v1",
        "probes": {"processor": pulses},
        "seconds": [figure if pulse == 25_000 else 2 * figure for pulse in pulses[:-1]],
        "waits": [],
        "waiting": [],
        "disturbed": [],
        "wanted": 20,
        "number": 10,
        "took": 0.1,
    }


def test_nothing_to_change():
    assert not any(checkup.of_system(FINE).values())
    unknown = dict.fromkeys(("governor", "load_average", "quota"))
    assert not any(checkup.of_system(FINE | unknown).values())


@pytest.mark.parametrize(
    "change, what, advice",
    [
        ({"load_average": 5.0}, "load average 5.0", "end what else runs"),
        ({"cores_allowed": 1}, "1 of 8 cores", "allow two"),
        ({"quota": 1.5}, "a quota of 1.5 processors", "--cpus"),
        ({"governor": "powersave"}, "frequency governor powersave", "cpupower frequency-set"),
        ({"memory_available": checkup.GIB}, "1.0 GiB of memory free", "will be skipped"),
        ({"disk_free": checkup.GIB}, "1 GiB of disk free", "6 GiB a release"),
    ],
)
def test_what_is_to_be_changed(change, what, advice):
    found = checkup.of_system(FINE | change)
    assert advice in found.pop(what) and not any(found.values())


def test_effects_that_a_calm_machine_resolves():
    steady = [line(k, 1e-6 * (1 + 0.001 * (-1) ** k)) for k in range(8)]
    wild = [line(k + 0.5, 1e-3 * (1 + 0.1 * (-1) ** k)) for k in range(8)]
    lines = {"a call": steady, "a copy": wild}
    call, copy = checkup.of_effects(lines)
    assert call == "a call: changes from about 1% on are found with four processes a side"
    assert int(copy.partition("about ")[2].partition("%")[0]) > 30
    assert not any(checkup.of_quiet(lines).values())


def test_it_asks_for_what_a_comparison_asks_for():
    asked = Settings()
    assert (statistics.MIN_PROCESSES, asked.min_effect) == (checkup.SIDE, checkup.MIN_EFFECT)
    quantile = statistics.student_quantile(1 - asked.promise / 2, np.array([2.0 * (checkup.SIDE - 1)]))
    assert pytest.approx(quantile[0] + special.ndtri(statistics.POWER), abs=1e-3) == checkup.LEVEL


def test_effects_that_a_busy_machine_hides():
    lines = {"a call": [line(k, 1e-6) for k in range(8)], "a copy": [line(k, 1e-3, slow=True) for k in range(8)]}
    (_, call), copy = checkup.of_effects(lines).items()
    assert not call
    assert copy == (
        "a copy: 0 of 8 processes were quiet",
        "no change of these would stand out from noise now",
    )
    ((what, advice),) = checkup.of_quiet(lines).items()
    assert what.startswith("quiet ") and "twice as long" in advice


def test_on_this_machine(checkout):
    done = checkout.run("scripts/run.py", "--check")
    assert done.returncode in (0, 1), done.stderr
    assert sum("a call: " in said or "a copy of " in said for said in done.stdout.splitlines()) == 3
    assert done.returncode == any(said.startswith("! ") for said in done.stdout.splitlines())
    assert not checkout.results.exists() or not list(checkout.results.glob(f"{Checkout.machine}/*"))
