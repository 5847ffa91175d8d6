"""Advice rests on significant differences: simulated runs, few processes, unequal variances."""

import contextlib
import math
import random
from dataclasses import replace

import accelerator
import made_up
import numpy as np
import pytest
import resultfiles
from analysis import ranking
from analysis.answers import answer
from analysis.cells import cells_of
from analysis.costs import load_machine, machine_answers
from analysis.needs import Case, Need, choices
from analysis.ranking import BEST, SLOWER, TIE, UNDECIDED, rank
from analysis.results import load
from cli import UserError
from measured_routes import FIRST, KIB, MIB, SECOND, SIZES, loaded
from noise import processes
from resultfiles import around, contract, conversion, every, memcpy, steady

from benchmarks import contracts


def weighed(logs, family="copy"):
    """Cells made from the log seconds of their processes."""
    logs = np.asarray(logs, dtype=float)
    return [*ranking.weigh(logs, np.full(len(logs), family)).assign(quiet=True).itertuples()]


# Pairs ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("watched", [True, False])
def test_processes_are_placed_by_their_round(tmp_path, watched):
    """Pairing by round cancels what a round shares, here a clock that drifts by 20 %.

    Three cells lost one of four rounds, two of them the same one. Pairing needs the recorded round numbers.
    """
    clock, rng = np.array([1.0, 1.2, 0.9, 1.1]), np.random.default_rng(5)
    times = {(f"torch.r{k}(a)", 8): list(1e-6 * clock * rng.normal(1, 0.002, 4)) for k in range(24)}
    times["torch.r0(a)", 8] = [1.12 * second for second in times["torch.r0(a)", 8]]
    results = loaded(tmp_path, times)
    table = results.processes
    lost = {"torch.r0(a)": 0, "torch.r1(a)": 0, "torch.r2(a)": 1}
    rows = table[[lost.get(route) != number for route, number in zip(table["route"], table["process"])]]
    if not watched:
        rows = rows.assign(process=rows.groupby("cell", observed=True).cumcount())
    cells = [*cells_of(replace(results, processes=rows.reset_index(drop=True))).itertuples()]
    assert ranking.differ_significantly(*cells[:2]) == watched
    assert not ranking.differ_significantly(*cells[1:3])
    assert not ranking.differ_significantly(*cells[3:5])


@pytest.mark.parametrize(
    ("clock", "nbytes", "ratio", "known"),
    [
        (None, 64 * KIB, 1.08, True),
        (1.12, 64 * KIB, 1.0, False),
        (1.12, 64 * KIB, 1.08, False),
        (1.12, 64 * KIB, 1.2, True),
        (1.12, 16 * MIB, 1.2, False),
    ],
)
def test_cells_of_two_runs_did_not_run_side_by_side(tmp_path, clock, nbytes, ratio, known):
    """Half of the routes take longer by ``ratio``; a second run measured them, on a machine slower by ``clock``."""
    rng, routes = np.random.default_rng(3), [f"torch.r{k}(a)" for k in range(24)]
    late, by = routes[12:], ratio * (clock or 1)
    times = {(route, nbytes): list(1e-6 * rng.normal(by if route in late else 1, 0.003, 4)) for route in routes}
    bench = conversion(times, [contract(route, "copy") for route in routes])
    resultfiles.write(tmp_path, [bench], clock=resultfiles.steady)

    def second(line):
        probes = [round(probe * clock) for probe in line["probes"]["processor"]]
        return {**line, "run": "2026-01-03T03:04:05+00:00", "probes": {"processor": probes}}

    if clock:
        resultfiles.mend(tmp_path, lambda line: second(line) if line["params"][0].strip("'") in late else line)
    cells = cells_of(load(tmp_path))
    assert set(ranking.significantly_slower(cells[12:], cells[:12])) == {known}


@pytest.mark.parametrize("families", [1, 2])
def test_no_more_pairs_are_decided_than_is_promised_where_variances_differ(families):
    """Of pairs that differ by 5 %, at most 1.3 times the promised share is decided.

    Variances are shrunk towards their family's; a pair of one family shares that estimate.
    """
    rng, slower, count = np.random.default_rng(6), [], 60
    names = np.repeat([f"family {number % families}" for number in range(2)], count)
    for _ in range(200):
        logs = rng.normal(0, 0.03 * np.exp(rng.normal(0, 0.5, (2 * count, 1))), (2 * count, 4))
        logs[count:] += np.log(1.05)
        cells = ranking.weigh(logs, names)
        slower.append(ranking.significantly_slower(cells[count:], cells[:count]))
    assert np.mean(slower) <= 1.3 * ranking.PROMISE


def test_families_share_nothing():
    """Cells of two families may respond differently to a round, so the error includes the round's variance."""
    rng = np.random.default_rng(2)
    logs = rng.normal(0, 0.005, (40, 4)) + np.array([0.0, 0.2, -0.1, 0.1])
    logs[:20] += np.log(1.12)
    cells = weighed(logs, np.repeat(["alias", "copy"], 20))
    assert not ranking.differ_significantly(cells[0], cells[-1])


@pytest.mark.parametrize(
    ("count", "ratio", "known"),
    [(1, 3.0, True), (1, 2.5, False), (2, 2.3, True), (2, 1.9, False), (3, 2.0, True)],
)
def test_few_processes_decide_large_differences_only(count, ratio, known):
    """Few processes of two cells say little about the spread, even if they agree to 0.1 %."""
    times = [around(1.0, count=count), around(ratio, count=count)] if count > 1 else [[1.0], [ratio]]
    assert ranking.differ_significantly(*weighed(np.log(times))) == known
    if count == 1:  # after a first round, more cells add no information
        assert ranking.differ_significantly(*weighed(np.log(times + [[1.0]] * 20))[:2]) == known


def test_two_processes_of_many_cells_decide_more():
    """With two processes per cell, the other cells of the family show how much processes differ."""
    logs = np.random.default_rng(3).normal(0, 0.01, (60, 2))
    logs[0] += np.log(1.3)
    cells = weighed(logs)
    assert ranking.differ_significantly(cells[0], cells[1]) and not ranking.differ_significantly(cells[1], cells[2])


@pytest.mark.parametrize(("ratio", "threads", "known"), [(2.5, "1", False), (3.0, "1", True), (1000, "all", False)])
def test_cells_that_were_never_quiet_decide_as_one_process_does(tmp_path, ratio, threads, known):
    """Cells without quiet samples count as one process.

    With all threads they decide nothing: torch's threads wait for each other, so a busy core costs any factor.
    """
    promises, times = [contract(route, "copy") for route in (FIRST, SECOND)], {FIRST: 1.0, SECOND: float(ratio)}
    name, cell = "parallel.NumpyToTorch.timeit_convert", {"threads": [threads], "nbytes": [8]}
    own = every(name, lambda route, *_: times[route], promises, **cell)

    def decided(slow):
        benches = [own, memcpy({8: around(1e-7)})]  # something is quiet
        results = load(resultfiles.write(tmp_path, benches, slow=slow, clock=steady))
        return ranking.differ_significantly(*cells_of(results).head(2).itertuples())

    assert decided(())
    assert decided([((route, threads, 8), process) for route in times for process in range(4)]) == known


# What is made of it --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "quiet, figures, expected",
    [
        (0.8, [1e-6], 0.0),
        (None, [1e-6], 0.0),
        (0.2, [1e-6], 1.645 * ranking.FEW_SD * math.sqrt(2)),
        (0.2, [1e-6, 1.02e-6], 1.645 * ranking.FEW_SD * math.sqrt(1.5)),
        # three degrees of freedom
        (0.8, [1e-6, 1e-6, 1.01e-6, 1.01e-6], 2.353 * math.log(1.01) / math.sqrt(3) * math.sqrt(1.25)),
    ],
)
def test_within_what_more_processes_would_lie(tmp_path, quiet, figures, expected):
    """``within`` of one process is 0 on a steady machine, or if that is unknown; else a default spread is used."""
    bench = conversion({(FIRST, 8): figures}, [contract(FIRST, "copy")])
    later = resultfiles.record([bench], quiet=0.5 if quiet == 0.2 else 0.1, started="2026-01-03T03:04:05+00:00")
    place = resultfiles.write(tmp_path, [bench], records=[resultfiles.record([bench], quiet=quiet, rounds=4), later])
    (cell,) = cells_of(load(place)).itertuples()
    assert cell.within == pytest.approx(expected, rel=0.01) and load_machine(place, "box").quiet == quiet


@pytest.mark.parametrize("profile", ["transfers", "transfers-full"])
def test_advice_between_the_sizes_of_a_profile_is_near_the_truth_or_its_range_holds_it(tmp_path, profile):
    """Transfers from 4 KiB to 1 GiB; reading back into fresh memory takes four times as long from 32 MiB."""
    benches = accelerator.transfers(profile=profile)
    known = load_machine(resultfiles.write(tmp_path, benches, records=made_up.glibc(benches)), "box")
    rng, judged = random.Random(1), 0
    for _ in range(100):
        nbytes = 4 * round(math.exp(rng.uniform(math.log(KIB), math.log(256 * MIB))))
        ends, enqueue = rng.choice([("torch", "device"), ("numpy", "device"), ("device", "torch")]), rng.random() < 0.25
        with contextlib.suppress(UserError):  # nothing was measured near it
            for row in answer(Case(*ends, nbytes, enqueue=enqueue), known).ranked[:3]:
                clock = "enqueue" if enqueue and row.contract.non_blocking else "completion"
                truth = accelerator.move_seconds(row.contract, row.host, nbytes, clock)
                near = abs(math.log(row.seconds / truth)) <= math.log(1.15)
                assert row.low <= truth <= row.high if row.is_range else near, (row.route, row.host, nbytes, clock)
                judged += 1
    assert judged > 150


def test_sizes_beyond_what_was_measured_and_results_of_another_size_than_the_source(known):
    """Aliases take the same time at any size; result memory is fresh by the result's bytes, not the source's."""
    shared = [answer(Case("numpy", "torch", n, layout="fortran", memory="alias"), known) for n in (MIB, 512 * MIB)]
    assert shared[0].ranked[0].seconds == shared[1].ranked[0].seconds
    cast = Need(contracts.NUMPY_TO_TORCH, "copy", "bfloat16", "float32", threads="1")
    assert known.jump_sizes(cast) == [16 * MIB] and known.jump_sizes(replace(cast, goal="")) == [32 * MIB]
    lists = replace(cast, dtype="float32", goal="", arrays=64)
    assert known.jump_sizes(lists) == [64 * 501 * 4, 32 * MIB], (
        "from 501 elements of each array on NumPy releases the GIL"
    )


def test_a_cast_moves_other_bytes_than_memcpy(known):
    (large,) = known.rows[(known.rows["goal"] == "float32") & (known.rows["nbytes"] == MIB)].itertuples()
    assert large.memory == "copy" and large.rate > 0 and not large.share > 0


@pytest.mark.parametrize(
    "ratios, busy, kinds",
    [
        ([1.0, 1.0], [], [TIE, TIE, TIE]),
        ([1.0, 1.5], [], [TIE, SLOWER, SLOWER]),
        ([2.0, 2.0], [(SECOND, KIB)], [UNDECIDED, UNDECIDED, SLOWER]),
    ],
)
def test_between_two_sizes_a_route_is_what_promises_least(tmp_path, ratios, busy, kinds):
    """Between two sizes, a route that is slower at either is no tie; one undecided at either is undecided."""
    times = {(FIRST, n): around(1e-6 * n / KIB, 0.02) for n in (KIB, MIB)}
    times |= {(SECOND, n): around(ratio * 1e-6 * n / KIB, 0.02) for n, ratio in zip((KIB, MIB), ratios)}
    results = loaded(tmp_path, times, busy=busy)
    cells = cells_of(results)
    known = machine_answers(results, "box", cells, choices(cells))
    for n, kind in zip((KIB, 8 * KIB, MIB), kinds):
        best, other = answer(Case("numpy", "torch", n, memory="copy"), known).ranked
        assert (best.route, best.kind, other.kind) == (FIRST, BEST, kind)


# The same run twice --------------------------------------------------------------------------------------------------

NEEDS, CANDIDATES = 40, 6


def simulated(rng, slowdown, sd):
    """Advised route by need and size of one simulated run. slowdown: of routes against the fastest."""
    needs, candidates, sizes = slowdown.shape
    effect, drift = np.log1p(slowdown).ravel(), rng.normal(0, 0.02, 4)
    logs = processes(rng, slowdown.size, sd, sd, effect=effect, drift=drift)
    found = ranking.weigh(logs, np.full(slowdown.size, "copy"))
    need, route, size = np.unravel_index(np.arange(slowdown.size), slowdown.shape)
    given = {"need": need, "route": route.astype(str), "order": route, "nbytes": size}
    promised = {"quiet": True, "keeps": True, "safe": True, "non_blocking": False, "excess_limit": 0.1}
    ranked = rank(found.assign(**given, **promised, seconds=np.exp(found["mean"])), ["need"])
    best = ranked[ranked["kind"] == BEST].sort_values(["need", "nbytes"])
    return best["order"].to_numpy().reshape(needs, sizes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sd", "disagree", "loss", "parts"),
    [(0.006, 0.06, 0.001, 0.01), (0.02, 0.12, 0.002, 0.03), (0.06, 0.35, 0.01, 0.2)],
)
def test_the_same_run_measured_twice_gives_the_same_advice(sd, disagree, loss, parts):
    """Routes are 0 to 30 % apart, equally at all sizes; each has four processes with the given sd.

    Over three pairs of runs, the two runs advise different routes at 3, 8 and 28 % of the sizes. The advised route
    takes 0.01, 0.04 and 0.2 % longer than the fastest on average. Advising the catalogue's first of all tied routes
    gave 4, 7 and 19 % of the sizes, and 1.2, 1.9 and 3.9 % longer. Then one of two routes is 30 % faster up to the
    middle size and 30 % slower beyond: both runs find these parts.
    """
    rng = np.random.default_rng(0)
    different, lost = [], []
    for _ in range(3):
        slowdown = np.repeat(rng.uniform(0, 0.3, (NEEDS, CANDIDATES, 1)), len(SIZES), axis=2)
        one, other = (simulated(rng, slowdown, sd) for _ in range(2))
        different.append(one != other)
        taken = np.take_along_axis(slowdown, one[:, None, :], axis=1)[:, 0]
        lost.append((1 + taken) / (1 + slowdown.min(axis=1)) - 1)
    assert np.mean(different) <= disagree
    assert np.mean(lost) <= loss
    step = np.where(np.arange(len(SIZES)) < 3, 0.0, 0.3)
    one, other = (simulated(rng, np.tile([step, 0.3 - step], (NEEDS, 1, 1)), sd) for _ in range(2))
    assert np.mean(one != other) <= parts
