"""A profile selects the cells that its rules say, and no others."""

import ast
import itertools
import re

import pytest
from measuring.profiles import CHOSEN, MIB, NOT_BY_ELEMENT, PROFILES, Profile, Rule, cells, names, select

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
    fields = ("name", "param_names", "params", "type", "needs_device")
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
            promised = benchmark["contracts"].get(ast.literal_eval(cell[0])) if rule.copies else None
            if promised and promised["memory"] == "alias":
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
def test_standard_has_float32_at_every_size(name, described):
    benchmark = described[name]
    cells = cells_by(PROFILES["standard"].rules, benchmark)
    for route, nbytes in itertools.product(benchmark["params"][0], benchmark["params"][2]):
        by_element = not re.fullmatch(NOT_BY_ELEMENT, route)
        assert ((route, "'float32'", nbytes) in cells) == (not by_element or int(nbytes) <= 64 * MIB), (route, nbytes)


@pytest.mark.parametrize("name", CONVERSION)
def test_standard_has_every_dtype_at_one_size(name, described):
    benchmark = described[name]
    cells = cells_by(PROFILES["standard"].rules, benchmark)
    assert set(itertools.product(*benchmark["params"][:2], [str(MIB)])) <= cells


def test_by_element_is_by_the_catalogue():
    """The profiles know the slow routes by their spelling, the catalogue by a field."""
    from benchmarks import routes

    for route in routes.select(routes.CONVERSION):
        assert route.per_element != bool(re.fullmatch(NOT_BY_ELEMENT, repr(route.expression))), route.expression


def transfer_cells(described):
    """Group, method, route of the catalogue and parameters of the profile's cells of transfers."""
    from benchmarks import routes, transfer

    for name, patterns in select(PROFILES["transfers"], described).items():
        family, group, method = name.split(".")
        if family == "transfer":
            for cell in cells_of(patterns, described[name]):
                made = dict(zip(described[name]["param_names"], map(ast.literal_eval, cell)))
                yield group, method, routes.find(made["route"], getattr(transfer, group).direction), made


def test_transfers_make_few_contexts(described):
    """Two processes of each make a context, by estimate 0.6 s on a server: that is what the minutes go into."""
    chosen = select(PROFILES["transfers"], described)
    others = sum(
        len(cells(patterns, described[name]))
        for name, patterns in chosen.items()
        if described[name]["needs_device"] and not name.startswith("transfer.")
    )
    run = [made for _, _, route, made in transfer_cells(described) if made["memory"] in route.host_memory]
    assert 230 < others + len(run) <= 270


def test_no_transfer_sets_up_only_to_skip(described):
    from benchmarks import routes

    for _, method, route, made in transfer_cells(described):
        if made["memory"] in route.host_memory:
            assert method != "timeit_enqueue" or route.non_blocking, made
            if method == "timeit_sustained":
                assert routes.SUSTAINED in route.families and made["memory"] != routes.PAGEABLE, made


def test_transfers_have_every_route_memory_and_dtype(described):
    from benchmarks import moving, routes

    completed = [(group, route, made) for group, method, route, made in transfer_cells(described) if "comp" in method]
    for route in routes.ROUTES:
        for memory in route.host_memory:
            sizes = {m["nbytes"] for _, other, m in completed if other is route and m["memory"] == memory}
            main = routes.TRANSFER in route.families
            chosen = memory != routes.REGISTERED or repr(route.expression) in map(repr, CHOSEN)
            assert len(sizes) >= (2 if main else 1) or not chosen, (route.expression, memory)
    for way in ("HostToDevice", "DeviceToHost"):
        assert {made["dtype"] for group, _, made in completed if group == way} == set(moving.DTYPES)


def test_everything_is_in_a_profile(described):
    """full has all that needs no accelerator; what does has a profile of its own, and between.py is chosen by runs."""
    full = set(select(PROFILES["full"], described))
    others = set().union(*(select(profile, described) for profile in PROFILES.values()))
    assert others == {name for name in described if not name.startswith("between.")}
    assert {name for name in described if name.split(".")[0] in ("conversion", "layout", "cold", "threads")} <= full
    for name in full:
        benchmark = described[name]
        assert len(cells(select(PROFILES["full"], described)[name], benchmark)) == len(list(names(benchmark)))
