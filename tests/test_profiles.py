"""A profile selects exactly the cells that its rules name."""

import ast
import itertools
import re
from pathlib import Path

import pytest
import yaml
from cli import UserError
from measuring import profiles
from measuring.profiles import PROFILES, Profile, Rule, select
from resultfiles import KIB, MIB, SUITE, Bench, contract
from store import files
from store.schema import cell_names

from benchmarks import busy, overlap, routes, transfer

SHARED = yaml.safe_load(Path(profiles.__file__).with_suffix(".yaml").read_text(encoding="utf-8"))["shared"]
EVERY_MEMORY = (*routes.ANY_HOST, overlap.PINNED_BY_LOOP)
CHOSEN, INTO = (profiles.flatten(SHARED[name]) for name in ("chosen", "into"))
COUNT = "instructions.NumpyToTorch.track_instructions"
CONVERSION = ("conversion.NumpyToTorch.timeit_convert", "conversion.TorchToNumpy.timeit_convert")
KINDS, SIZES = {"f(a, b)": "alias", "g(a)": "copy", "h('x')": "into"}, [8, 80, 256 * MIB]
CONTRACTS = [contract(route, memory) for route, memory in KINDS.items()]
TOY = Bench("toy.Toy.timeit_it", {"route": [*KINDS], "nbytes": SIZES}, {}, CONTRACTS).description()
WITHOUT = Bench("toy.timeit_one", {}, {}).description()


def values(cells, benchmark):
    """Return each cell's parameters as a dict by name."""
    named = dict(zip(cell_names(benchmark["name"], benchmark["params"]), itertools.product(*benchmark["params"])))
    return [dict(zip(benchmark["param_names"], map(ast.literal_eval, named[cell]))) for cell in cells]


# Rules --------------------------------------------------------------------------------------------------------------


def toy(**chosen):
    return [tuple(made.values()) for made in values(Rule(r"toy\.Toy\..*", **chosen).cells(TOY), TOY)]


def test_a_rule_selects_the_values_that_it_names():
    """A rule matches whole values, not their beginnings, and takes listed expressions literally."""
    assert toy() == list(itertools.product(KINDS, SIZES)) and len(toy()) == 9
    assert toy(nbytes=[8]) == [(route, 8) for route in KINDS] and toy(nbytes=[7]) == []
    assert toy(route=["f(a, b)"]) == [("f(a, b)", size) for size in SIZES]
    assert toy(route=["h('x')"], nbytes=[8, 80]) == [("h('x')", 8), ("h('x')", 80)]
    assert toy(route=r"'g.*") == [("g(a)", size) for size in SIZES]
    assert toy(copies=True, nbytes=[8]) == [("g(a)", 8), ("h('x')", 8)]
    assert Rule("toy").cells(TOY) == Rule(r"other\..*").cells(TOY) == []
    assert Rule(r"toy\..*", nbytes=[8]).cells(WITHOUT) == ["toy.timeit_one"]
    both = Profile(1, 1.0, (Rule(r"toy\..*", nbytes=[8]), Rule(r"toy\..*"), Rule(r"toy\..*", nbytes=[7])))
    assert len(select(both, {TOY["name"]: TOY})[TOY["name"]]) == 9, "of cells, not of rules"
    chosen = select(both, {TOY["name"]: TOY}, matches=lambda name: "g(a)', 8" in name)[TOY["name"]]
    assert chosen == ["toy.Toy.timeit_it('g(a)', 8)", "toy.Toy.timeit_it('g(a)', 80)"]
    assert select(Profile(1, 1.0, both.rules[2:]), {TOY["name"]: TOY}) == {}


# Profiles -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("title", PROFILES)
def test_no_rule_is_idle_and_limits_are_in_every_profile(title):
    """Every profile measures the machine's limits, because a page compares figures with limits of the same run."""
    for rule in PROFILES[title].rules:
        assert any(map(rule.cells, SUITE.values())), f"{rule.benchmark} {rule.values} selects nothing"
    assert {"limits.Memcpy.timeit_copy", "limits.Floor.timeit_floor"} <= set(select(PROFILES[title], SUITE))


@pytest.mark.parametrize("name", CONVERSION)
def test_standard_has_copies_of_float32_at_every_size(name):
    """Two kinds of routes have few sizes: sharing memory takes the same time at any size, and routes that go element by
    element take too long at large ones. Profiles list these slow routes by expression, the catalogue by a field.
    """
    slow = {route.expression for route in routes.select(routes.CONVERSION) if route.per_element}
    benchmark = SUITE[name]
    cells = {tuple(made.values()) for made in values(select(PROFILES["standard"], SUITE)[name], benchmark)}
    every, dtypes, sizes = (list(map(ast.literal_eval, spellings)) for spellings in benchmark["params"])
    for route, nbytes in itertools.product(every, sizes):
        alias = benchmark["contracts"][route]["memory"] == "alias"
        wanted = nbytes in ((8, MIB, 64 * MIB) if alias else (8, 4 * KIB, 64 * KIB, MIB))
        assert ((route, "float32", nbytes) in cells) == (wanted or not (alias or route in slow)), (route, nbytes)
        assert alias or {(route, dtype, MIB) for dtype in dtypes} <= cells, "copies of every dtype at one size"


def transfer_cells(title):
    """Yield group, method, catalogue route and parameters of each transfer cell of a profile."""
    for name, chosen in select(PROFILES[title], SUITE).items():
        family, group, method = name.split(".")
        if family == "transfer":
            for made in values(chosen, SUITE[name]):
                yield group, method, routes.find(made["route"], getattr(transfer, group).direction), made


def contexts(title, number):
    """Return the number of processes of a round that make a context on the device."""
    found = 0
    for name, chosen in select(PROFILES[title], SUITE, number).items():
        benchmark = SUITE[name]
        if benchmark["needs_device"] and not (number and benchmark["type"] == "track"):
            for made in values(chosen, benchmark):
                taken = benchmark.get("contracts", {}).get(made.get("route"), {}).get("host_memory", EVERY_MEMORY)
                found += made.get("memory", routes.PAGEABLE) in taken or "memory" not in made
    return found


@pytest.mark.parametrize("title, minutes", [("transfers", 8), ("transfers-full", 20)])
def test_transfers_take_their_estimated_minutes(title, minutes):
    """On a real device, a process with a context takes an estimated 0.6 to 1.3 s, and 0.3 s to warm up."""
    taken = sum(contexts(title, number) for number in range(PROFILES[title].rounds))
    assert minutes - 1.5 < (1.6 * taken + 30) / 60 <= minutes == PROFILES[title].minutes


@pytest.mark.parametrize("title", ["transfers", "transfers-full"])
def test_no_transfer_sets_up_only_to_skip(title):
    for _, method, route, made in transfer_cells(title):
        if made["memory"] in route.host_memory:
            assert method != "timeit_enqueue" or route.non_blocking, made
            if method == "timeit_sustained":
                assert routes.SUSTAINED in route.families and made["memory"] != routes.PAGEABLE, made


def test_transfers_have_every_route_and_memory():
    cells = transfer_cells("transfers-full")
    completed = [(route, made) for _, method, route, made in cells if method == "timeit_completion"]
    timed = [route for route in routes.ROUTES if routes.MANY not in route.families]
    for route in (route for route in timed if route.direction in (routes.HOST_TO_DEVICE, routes.DEVICE_TO_HOST)):
        for memory in route.host_memory:
            sizes = {m["nbytes"] for other, m in completed if other is route and m["memory"] == memory}
            chosen = memory != routes.REGISTERED or route.expression in CHOSEN
            least = 2 if routes.TRANSFER in route.families else 1
            assert len(sizes) >= least or not chosen, (route.expression, memory)


def test_the_short_profile_has_the_common_choices():
    """The short profile covers common choices: copies that stall, reused buffers, many small copies, a loader's
    batches, casts on the way, and the size where staging ends."""
    cells = list(transfer_cells("transfers"))
    plain = {(route.expression, made["memory"]) for group, _, route, made in cells if group.endswith("Device")}
    assert {("d.copy_(torch.from_numpy(a))", "pageable"), ("d.copy_(t, non_blocking=True)", "registered")} <= plain
    sizes = {made["nbytes"] for *_, route, made in cells if route.expression in INTO}
    assert {4 * KIB, 64 * KIB, 256 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB} == sizes
    chosen = select(PROFILES["transfers"], SUITE)
    for name in ("busy.Call.timeit_call", "overlap.DataLoader.timeit_batch"):
        assert sorted(chosen[name]) == sorted(cell_names(name, SUITE[name]["params"])), name
    assert {"many.ToDevice.timeit_completion", "transfer.ToBfloat16.timeit_completion"} <= set(chosen)


def test_each_call_on_a_busy_device_is_also_timed_on_an_idle_one():
    """The profile times each call on a busy and on an idle device. Pages compare both to see if the call waits."""
    found = transfer_cells("transfers")
    cells = {(method, route.expression, made["memory"], made["nbytes"]) for _, method, route, made in found}
    for expression, memory, nbytes in itertools.product(*busy.Call.params):
        clock = "timeit_enqueue" if transfer.find(expression).non_blocking else "timeit_completion"
        assert (clock, expression, memory, nbytes) in cells


def test_everything_is_in_a_profile():
    """The profile full has all benchmarks that need no accelerator, except instructions and settings. Those, and
    benchmarks that need an accelerator, have profiles of their own."""
    chosen = {title: select(profile, SUITE) for title, profile in PROFILES.items()}
    assert set().union(*chosen.values()) == set(SUITE)
    totals = [sum(map(len, chosen[title].values())) for title in ("quick", "standard", "full")]
    assert totals == sorted(totals), "quick is the smallest"
    host = {name: cell_names(name, made["params"]) for name, made in SUITE.items() if not made["needs_device"]}
    apart = ("instructions.", "settings.")
    assert chosen["full"] == {name: cells for name, cells in host.items() if not name.startswith(apart)}


def test_results_of_each_profile_stay_within_the_limits_of_readable_files(committed):
    """Even with three times the processes, results stay within the limits of readable files. Users may ask for more
    rounds, and noisy cells are measured again."""
    held = files.result_files(committed / "reports" / "results", suffix=files.MEASUREMENTS)
    counted, timed = [], []  # mean length of a file's lines; a count has its functions, and is taken once
    for text in map(files.read_content, held):
        lines = text.splitlines()
        for means, kind in ((counted, True), (timed, False)):
            lengths = [len(line) + 1 for line in lines if (b'"functions"' in line) == kind]
            means.append(sum(lengths) / max(len(lengths), 1))
    for title, profile in PROFILES.items():
        cells = profiles.select_cells(title, SUITE, "")
        processes, counts = 3 * cells.total(profile.rounds), 3 * len(cells.counted)
        assert processes + counts < files.MAX_LINES, title
        assert processes * max(timed) + counts * max(counted) < files.MAX_FILE_BYTES, title


def test_an_estimate_of_a_few_cells_has_the_start_of_asv_in_each_round():
    few = r"t\.numpy\(\)', 'float32', 8\)$"
    whole, every, one = (profiles.estimate_minutes("quick", only, 4, SUITE) for only in ("", ".", few))
    assert every == pytest.approx(whole) and whole == PROFILES["quick"].minutes
    assert 4 * profiles.ASV_START_SECONDS < 60 * one < 4 * profiles.ASV_START_SECONDS + 2
    assert profiles.estimate_minutes("quick", "", 2) == whole / 2


def test_a_gate_times_what_moves_bytes_and_counts_calls():
    gate = select(PROFILES["gate"], SUITE)
    found = gate[CONVERSION[0]]
    assert any("'torch.tensor(a)', 'float32', 1048576" in cell for cell in found)
    assert not any("'torch.from_numpy(a)'," in cell or "tolist" in cell for cell in found)
    assert any("'torch.from_numpy(a)', 'uint8', 4096" in cell for cell in gate[COUNT])


def test_benchmarks_without_their_program_or_device_are_left_out_with_the_reason(monkeypatch):
    """If no cell is left, such as for transfers on a laptop without an accelerator, the error gives the reasons."""
    described = {name: SUITE[name] for name in (COUNT, CONVERSION[0])}
    monkeypatch.setattr("shutil.which", lambda name: None)
    found = profiles.select_cells("tracking", described, "")
    reason = "needs valgrind: apt-get install valgrind"
    assert found.unavailable == {reason: (COUNT,)}
    assert {cell.partition("(")[0] for cell in found.names} == {CONVERSION[0]}
    away = {COUNT: SUITE[COUNT], CONVERSION[0]: {**SUITE[CONVERSION[0]], "needs_device": True}}
    with pytest.raises(UserError, match=f"^nothing that was asked for can be measured here: {reason}; no device$"):
        profiles.select_cells("tracking", away, "", no_device="no device")
    route = "torch.from_numpy(a)"
    for only, near in {
        "nosuch": "",
        f"'{route}', 'float32', 8)": "; --profile quick or standard .* has such cells",
        "torch.fromnumpy(a)": f"; near are: {re.escape(route)};",
    }.items():
        said = f"^--only {re.escape(repr(only))} matches no cell of the profile tracking{near}"
        with pytest.raises(UserError, match=said if near else f"{said}$"):
            profiles.select_cells("tracking", described, only)
    monkeypatch.setattr("shutil.which", lambda name: name)
    assert not profiles.select_cells("instructions", described, "").unavailable
    counted = {only: bool(profiles.select_cells("tracking", described, only).counted) for only in ("", route, "instr")}
    assert counted == {"": True, route: False, "instr": True}, "counting takes minutes: with --only it is named"
