"""A profile selects the cells that its rules say, and no others."""

import ast
import itertools
import re

import pytest
from cli import UserError
from measuring import profiles
from measuring.profiles import CHOSEN, INTO, KIB, MIB, NOT_BY_ELEMENT, PROFILES, Profile, Rule, cells, names, select

pytest.importorskip("torch")

CONVERSION = ("conversion.NumpyToTorch.timeit_convert", "conversion.TorchToNumpy.timeit_convert")
TOY = {
    "name": "toy.Toy.timeit_it",
    "param_names": ["route", "nbytes"],
    "params": [["'f(a, b)'", "'g(a)'", "\"h('x')\""], ["8", "80", "268435456"]],
}
WITHOUT = {"name": "toy.timeit_one", "param_names": [], "params": []}


@pytest.fixture(scope="session")
def described(suite):
    """The benchmarks as asv writes them into benchmarks.json."""
    fields = ("name", "param_names", "params", "type", "needs_device", "setup_cache_key")
    return {
        name: {field: getattr(made, field) for field in fields} | {"contracts": getattr(made, "contracts", {})}
        for name, made in suite.items()
    }


def cells_by(rules, benchmark):
    """The cells that rules select, worked out value by value."""
    found = set()
    for rule in rules:
        if not re.fullmatch(rule.benchmark, benchmark["name"]) or (rule.host and benchmark["needs_device"]):
            continue
        for cell in itertools.product(*benchmark["params"]):
            promised = benchmark["contracts"].get(ast.literal_eval(cell[0])) if rule.copies is not None else None
            if promised and (promised["memory"] != "alias") != rule.copies:
                continue
            wanted = (rule.values.get(name, ".*") for name in benchmark["param_names"])
            if all(
                re.fullmatch(want, value) if isinstance(want, str) else value in map(repr, want)
                for want, value in zip(wanted, cell)
            ):
                found.add(cell)
    return found


def cells_of(patterns, benchmark):
    """The cells that asv runs for these patterns."""
    return {
        cell
        for cell, name in zip(itertools.product(*benchmark["params"]), names(benchmark))
        if any(re.search(pattern, name) for pattern in patterns)
    }


# Rules --------------------------------------------------------------------------------------------------------------


def toy(**values):
    return cells_of([Rule(r"toy\.Toy\..*", **values).pattern(TOY)], TOY)


def test_value_is_not_matched_by_its_beginning():
    assert {cell[1] for cell in toy(nbytes=[8])} == {"8"}
    assert len(toy(nbytes=[8])) == 3


def test_free_parameter():
    assert len(toy()) == 9


def test_expression_is_taken_literally():
    assert toy(route=["f(a, b)"]) == {("'f(a, b)'", size) for size in TOY["params"][1]}
    assert toy(route=["h('x')"], nbytes=[8, 80]) == {("\"h('x')\"", "8"), ("\"h('x')\"", "80")}


def test_regular_expression():
    assert {cell[0] for cell in toy(route=r"'g.*")} == {"'g(a)'"}


def test_value_that_the_benchmark_has_not():
    assert toy(nbytes=[7]) == set()
    assert select(Profile(1, 1.0, (Rule(r"toy\..*", nbytes=[7]),)), {TOY["name"]: TOY}) == {}


def test_other_benchmark():
    assert Rule("toy").pattern(TOY) == ""
    assert Rule(r"other\..*").pattern(TOY) == ""


def test_benchmark_without_parameters():
    rule = Rule(r"toy\..*", nbytes=[8])
    assert select(Profile(1, 1.0, (rule,)), {"toy.timeit_one": WITHOUT}) == {"toy.timeit_one": [r"^toy\.timeit_one$"]}
    assert cells([r"^toy\.timeit_one$"], WITHOUT) == ["toy.timeit_one"]


def test_what_is_timed_once_is_no_part_of_later_rounds():
    profile = Profile(2, 1.0, (Rule(r"toy\.Toy\..*", nbytes=[8]), Rule(r"toy\.Toy\..*", rounds=1, nbytes=[80])))
    first, later = (select(profile, {TOY["name"]: TOY}, number)[TOY["name"]] for number in range(2))
    assert {cell[1] for cell in cells_of(first, TOY)} == {"8", "80"}
    assert {cell[1] for cell in cells_of(later, TOY)} == {"8"}


def test_where_nothing_is_left_the_reasons_are_said():
    """A laptop without an accelerator is asked for transfers alone."""
    away = {TOY["name"]: {**TOY, "type": "time", "needs_device": True}}
    profile = Profile(1, 1.0, (Rule(r"toy\.Toy\..*"),))
    assert profiles.cells_of(profile, away, "", "toy").processes == 9
    with pytest.raises(UserError, match="nothing that was asked for can be measured here: no device"):
        profiles.cells_of(profile, away, "", "toy", no_device="no device")


def test_count_is_of_cells_not_of_rules():
    patterns = [Rule(r"toy\..*", nbytes=[8]).pattern(TOY), Rule(r"toy\..*").pattern(TOY)]
    assert len(cells(patterns, TOY)) == 9


# Profiles -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("title", PROFILES)
def test_profile_selects_what_its_rules_say(title, described):
    profile = PROFILES[title]
    chosen = select(profile, described)
    for name, benchmark in described.items():
        wanted = cells_by(profile.rules, benchmark)
        assert cells_of(chosen.get(name, ()), benchmark) == wanted, name
        assert len(cells(chosen.get(name, ()), benchmark)) == len(wanted)


@pytest.mark.parametrize("title", PROFILES)
def test_no_rule_is_idle(title, described):
    for rule in PROFILES[title].rules:
        cells = [cells_by([rule], benchmark) for benchmark in described.values()]
        assert any(cells), f"{rule.benchmark} {rule.values} selects nothing"


@pytest.mark.parametrize("title", PROFILES)
def test_limits_are_in_every_profile(title, described):
    """Every figure stands against what the machine allows, measured in the same run."""
    assert {"limits.Memcpy.timeit_copy", "limits.Floor.timeit_floor"} <= set(select(PROFILES[title], described))


def test_quick_is_the_smallest(described):
    totals = {
        title: sum(len(cells(found, described[name])) for name, found in select(profile, described).items())
        for title, profile in PROFILES.items()
    }
    assert totals["quick"] < totals["standard"] < totals["full"]


@pytest.mark.parametrize("name", CONVERSION)
def test_standard_has_copies_of_float32_at_every_size(name, described):
    """What shares memory takes no longer for more bytes, and what goes element by element too long for many."""
    benchmark = described[name]
    cells = cells_by(PROFILES["standard"].rules, benchmark)
    for route, nbytes in itertools.product(benchmark["params"][0], benchmark["params"][2]):
        alias = benchmark["contracts"][ast.literal_eval(route)]["memory"] == "alias"
        by_element = not re.fullmatch(NOT_BY_ELEMENT, route)
        wanted = int(nbytes) in (8, MIB, 64 * MIB) if alias else int(nbytes) in (8, 4 * KIB, 64 * KIB, MIB)
        assert ((route, "'float32'", nbytes) in cells) == (wanted or not (alias or by_element)), (route, nbytes)


@pytest.mark.parametrize("name", CONVERSION)
def test_standard_has_copies_of_every_dtype_at_one_size(name, described):
    benchmark = described[name]
    cells = cells_by(PROFILES["standard"].rules, benchmark)
    copying = [route for route, promised in benchmark["contracts"].items() if promised["memory"] != "alias"]
    assert set(itertools.product(map(repr, copying), benchmark["params"][1], [str(MIB)])) <= cells


def test_by_element_is_by_the_catalogue():
    """The profiles know the slow routes by their spelling, the catalogue by a field."""
    from benchmarks import routes

    for route in routes.select(routes.CONVERSION):
        assert route.per_element != bool(re.fullmatch(NOT_BY_ELEMENT, repr(route.expression))), route.expression


TRANSFERS = pytest.mark.parametrize("title", ["transfers", "transfers-full"])


def transfer_cells(described, title):
    """Group, method, route of the catalogue and parameters of a profile's cells of transfers."""
    from benchmarks import routes, transfer

    for name, patterns in select(PROFILES[title], described).items():
        family, group, method = name.split(".")
        if family == "transfer":
            for cell in cells_of(patterns, described[name]):
                made = dict(zip(described[name]["param_names"], map(ast.literal_eval, cell)))
                yield group, method, routes.find(made["route"], getattr(transfer, group).direction), made


def contexts(described, title, number):
    """How many processes of a round make a device's context."""
    from benchmarks import routes

    found = 0
    for name, patterns in select(PROFILES[title], described, number).items():
        benchmark = described[name]
        if benchmark["needs_device"] and not (number and benchmark["type"] == "track"):
            asked_at_once = benchmark["setup_cache_key"] is not None
            for cell in list(cells_of(patterns, benchmark))[: 1 if asked_at_once else None]:
                made = dict(zip(benchmark["param_names"], map(ast.literal_eval, cell)))
                taken = benchmark["contracts"].get(made.get("route"), {}).get("host_memory", routes.ANY_HOST)
                found += made.get("memory", routes.PAGEABLE) in taken or "memory" not in made
    return found


@pytest.mark.parametrize("title, minutes", [("transfers", 8), ("transfers-full", 20)])
def test_transfers_take_the_minutes_that_they_say(title, minutes, described):
    """A process with a context takes 0.6 to 1.3 s on a real device by estimate, and warms up for 0.3 s."""
    taken = sum(contexts(described, title, number) for number in range(PROFILES[title].rounds))
    assert minutes - 1.5 < (1.6 * taken + 30) / 60 <= minutes == PROFILES[title].minutes


@TRANSFERS
def test_no_transfer_sets_up_only_to_skip(title, described):
    from benchmarks import routes

    for _, method, route, made in transfer_cells(described, title):
        if made["memory"] in route.host_memory:
            assert method != "timeit_enqueue" or route.non_blocking, made
            if method == "timeit_sustained":
                assert routes.SUSTAINED in route.families and made["memory"] != routes.PAGEABLE, made


def test_transfers_have_every_route_and_memory(described):
    from benchmarks import routes

    cells = list(transfer_cells(described, "transfers-full"))
    completed = [(route, made) for _, method, route, made in cells if method == "timeit_completion"]
    timed = [route for route in routes.ROUTES if routes.MANY not in route.families]
    for route in (route for route in timed if route.direction in (routes.HOST_TO_DEVICE, routes.DEVICE_TO_HOST)):
        for memory in route.host_memory:
            sizes = {m["nbytes"] for other, m in completed if other is route and m["memory"] == memory}
            main = routes.TRANSFER in route.families
            chosen = memory != routes.REGISTERED or repr(route.expression) in map(repr, CHOSEN)
            assert len(sizes) >= (2 if main else 1) or not chosen, (route.expression, memory)


def test_what_people_choose_by_is_in_the_short_profile(described):
    """What stalls, what persists, many small ones, a loader's batches, a cast on the way, and where staging ends."""
    cells = list(transfer_cells(described, "transfers"))
    plain = {(route.expression, made["memory"]) for group, _, route, made in cells if group.endswith("Device")}
    assert {("d.copy_(torch.from_numpy(a))", "pageable"), ("d.copy_(t, non_blocking=True)", "registered")} <= plain
    sizes = {made["nbytes"] for *_, route, made in cells if route.expression in INTO}
    assert {4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB} == sizes
    chosen = select(PROFILES["transfers"], described)
    for name in ("busy.HostToDevice.timeit_call", "busy.DeviceToHost.timeit_call", "overlap.DataLoader.timeit_batch"):
        assert len(cells_of(chosen[name], described[name])) == len(list(names(described[name]))), name
    assert {"many.ToDevice.timeit_completion", "transfer.ToBfloat16.timeit_completion"} <= set(chosen)


def test_a_call_on_a_busy_device_stands_beside_the_same_on_an_idle_one(described):
    """The page tells by both whether it waits."""
    cells = {
        (method, route.expression, made["memory"], made["nbytes"])
        for _, method, route, made in transfer_cells(described, "transfers")
    }
    from benchmarks import busy, routes

    for benchmark in (busy.HostToDevice, busy.DeviceToHost):
        for expression, memory, nbytes in itertools.product(*benchmark.params):
            early = routes.find(expression, benchmark.direction).non_blocking
            assert ("timeit_enqueue" if early else "timeit_completion", expression, memory, nbytes) in cells


def test_everything_is_in_a_profile(described):
    """full has all that needs no accelerator; what does has a profile of its own."""
    full = set(select(PROFILES["full"], described))
    others = set().union(*(select(profile, described) for profile in PROFILES.values()))
    assert others == set(described)
    assert {name for name in described if name.split(".")[0] in ("conversion", "layout", "cold", "parallel")} <= full
    for name in full:
        benchmark = described[name]
        assert len(cells(select(PROFILES["full"], described)[name], benchmark)) == len(list(names(benchmark)))
