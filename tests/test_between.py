"""More sizes around crossovers and breaks: which cells a run chooses, and what is said of them."""

import json
import math
import re
from dataclasses import replace

import measuring.rounds
import pytest
import resultfiles
from analysis import answers
from analysis.case import MEASURED, POINT, Case, answer
from analysis.cells import cells_of
from analysis.choices import known_of
from analysis.results import load
from conftest import build
from measuring.between import BREAK, NARROW, choose, middle_of, refine
from measuring.rounds import START
from measuring.state import State
from resultfiles import CLONE, FROM_NUMPY, KIB, MIB, TENSOR, Bench, around, contract, conversion
from store import files
from store.records import Toolchain, Unfinished, name_of, with_samples

PLAIN, BETWEEN = "conversion.NumpyToTorch.timeit_convert", "between.NumpyToTorch.timeit_convert"
FIRST, SECOND, THIRD = "torch.tensor(a)", "torch.from_numpy(a).clone()", "torch.from_numpy(a.copy())"
SIZES = [8, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB]
FINER = sorted({step * 2**power for step in (16, 20, 25) for power in range(2, 24)} - set(SIZES))
ROUNDS = 2


def described(memory="copy"):
    """The two families as asv describes them, of three routes."""
    shared = {
        "type": "time",
        "direction": "numpy→torch",
        "param_names": ["route", "dtype", "nbytes"],
        "contracts": {route: contract(route, memory) for route in (FIRST, SECOND, THIRD)},
    }
    routes = [repr(FIRST), repr(SECOND), repr(THIRD)]
    dtypes = ["'float32'", "'int64'"]
    return {
        PLAIN: {**shared, "role": "conversion", "params": [routes, dtypes, list(map(str, SIZES))]},
        BETWEEN: {**shared, "role": "between", "params": [routes, dtypes[:1], list(map(str, FINER))]},
    }


def logged(cell, seconds, slow=False, number=0):
    """What a process of a cell logs."""
    name, _, params = cell[:-1].partition("(")
    route, dtype, nbytes = params.rsplit(", ", 2)
    return {
        "benchmark": name,
        "params": [route, dtype, nbytes],
        "at": 0.0,
        "round": number,
        "wanted": 4,
        "number": 10,
        "seconds": [seconds] * 4,
        "disturbed": [],
        "version": "v1",
        "probes": {"processor": [50_000 if slow else 25_000] * 5},
        "waits": [],
        "waiting": [],
        "waited": 0.0,
        "took": 0.5,
    }


def spelled(name, route, nbytes, dtype="float32"):
    return f"{name}({route!r}, {dtype!r}, {nbytes})"


def lines_of(times, slow=()):
    """A log of plain conversions. times: (route, nbytes) -> seconds of each process; slow: those never calm."""
    found = [
        logged(spelled(PLAIN, *key), seconds, key in slow, number)
        for key, each in times.items()
        for number, seconds in enumerate(each)
    ]
    return found + [logged(spelled(PLAIN, FIRST, 8, "int64"), 1.0)] * 20  # of the machine at full speed


def straight(latency, bandwidth):
    return lambda n: latency + n / bandwidth


def grid(**routes):
    """Two processes of each size. routes: first, second, third -> seconds by bytes."""
    names = {"first": FIRST, "second": SECOND, "third": THIRD}
    return {(names[name], n): around(made(n), count=ROUNDS) for name, made in routes.items() for n in SIZES}


SHORT, LONG = straight(1e-6, 1e10), straight(5e-6, 1.2e10)  # they cross at 240,000 bytes
CROSSING = 240_000


# Which cells ----------------------------------------------------------------------------------------------------------


def chosen(times, benchmarks=None, slow=(), **more):
    """What is chosen, and the size of each middle with the routes that it is measured of."""
    found = choose(lines_of(times, slow), benchmarks or described(), **more)
    return [(middle.what, size_of(middle.cells[0]), routes_of(middle.cells)) for middle in found]


def size_of(cell):
    return int(cell[:-1].rpartition(" ")[2])


def routes_of(cells):
    return {route for route in (FIRST, SECOND, THIRD) for cell in cells if repr(route) in cell}


def test_the_middle_of_a_crossover():
    """Of every route: a third may be the fastest there, and advice compares at sizes that routes have in common."""
    times = grid(first=SHORT, second=LONG, third=lambda n: 3 * LONG(n))
    assert chosen(times) == [("crossover", 256 * KIB, {FIRST, SECOND, THIRD})]
    (middle,) = choose(lines_of(times), described())
    assert middle.cells[0] == spelled(BETWEEN, FIRST, 256 * KIB) and middle.took == 1.5


def test_the_middle_of_a_break():
    def broken(n):
        return SHORT(n) * (3 if n > 20 * MIB else 1)

    found = chosen(grid(first=broken, second=lambda n: 2 * broken(n)))
    assert found == [("break", 32 * MIB, {FIRST, SECOND})]
    assert chosen(grid(first=SHORT, second=lambda n: 2 * broken(n))) == [], "nobody takes the route that breaks"


def test_a_call_hides_no_break():
    """The time of a small size is half call: of its bytes alone the next takes more than twice as long a byte."""

    def broken(n):
        return 1e-6 + n * (1e-11 if n < 500 * KIB else 2.5e-11)

    assert broken(MIB) / broken(64 * KIB) < 16 * BREAK, "of the times nothing is seen"
    times = {(FIRST, n): around(broken(n), count=ROUNDS) for n in (8, 64 * KIB, MIB)}
    assert chosen(times) == [("break", 256 * KIB, {FIRST})]
    assert chosen({(FIRST, n): around(1e-6 + n * 1e-11, count=ROUNDS) for n in (8, 64 * KIB, MIB)}) == []


def test_crossovers_come_first():
    def broken(n):
        return SHORT(n) * (3 if n > 500 * KIB else 1)

    found = chosen(grid(first=lambda n: broken(n) * (3 if n > 20 * MIB else 1), second=lambda n: 2 * broken(n)))
    assert [(what, n) for what, n, _ in found] == [("crossover", 32 * MIB), ("break", 256 * KIB)]


def test_a_bandwidth_and_a_latency_are_no_break():
    assert chosen(grid(first=SHORT)) == []


@pytest.mark.parametrize("factor", [1.04, 1 / 1.04])
def test_ties_are_no_crossover(factor):
    def turned(n):
        return SHORT(n) * (factor if n < MIB else 1 / factor)

    assert chosen(grid(first=SHORT, second=turned)) == []


def test_processes_that_overlap_decide_nothing():
    times = grid(first=lambda n: SHORT(n) * (1.1 if n < MIB else 1.0), second=SHORT)
    times |= {key: [s * 1.1 for s in each] for key, each in times.items() if key[0] == SECOND and key[1] >= MIB}
    assert [what for what, _, _ in chosen(times)] == ["crossover"]
    assert chosen({key: [each[0] / 1.1, each[1] * 1.1] for key, each in times.items()}) == []


def test_a_size_at_which_they_tie_lies_inside_the_crossover():
    """It belongs to neither side, so the ends of the tie are looked for on both."""
    factors = dict(zip(SIZES, (0.5, 0.5, 0.5, 1.01, 2.0, 2.0)))
    times = {(FIRST, n): around(SHORT(n) * factors[n], count=ROUNDS) for n in SIZES} | grid(second=SHORT)
    assert [(what, n) for what, n, _ in chosen(times)] == [("crossover", 256 * KIB), ("crossover", 4 * MIB)]


def test_what_a_third_route_beats_crosses_nothing():
    assert chosen(grid(first=SHORT, second=LONG, third=lambda n: SHORT(n) / 2)) == []


def test_a_cell_that_was_not_calm_decides_nothing():
    """Without the size below the crossover the interval is the wider one."""
    times = grid(first=SHORT, second=LONG)
    slow = {(route, 64 * KIB) for route in (FIRST, SECOND)}
    assert [n for _, n, _ in chosen(times, slow=slow)] == [middle_of(4 * KIB, MIB, FINER)]
    assert chosen(times, slow={(FIRST, n) for n in SIZES}) == []


def test_routes_that_do_another_thing_with_memory_do_not_cross():
    benchmarks = described()
    benchmarks[BETWEEN]["contracts"][SECOND] = contract(SECOND, "into")
    assert chosen(grid(first=SHORT, second=LONG), benchmarks) == []


def test_what_was_asked_and_what_is_not_wanted_is_left_out():
    times = grid(first=SHORT, second=LONG)
    asked = spelled(BETWEEN, FIRST, 256 * KIB)
    assert chosen(times, asked={asked}) == [("crossover", 256 * KIB, {SECOND})]
    assert chosen(times, only=FIRST) == [("crossover", 256 * KIB, {FIRST})]
    assert chosen(times, only="conversion") == []


def test_the_family_has_a_size_inside_every_interval_that_is_too_wide():
    from benchmarks import between, sources

    every = sorted({*between.SIZES, *sources.SIZES})
    wide = [(low, high) for low in every for high in every if high >= NARROW * low and low >= 64]
    assert all(middle_of(low, high, every) for low, high in wide)
    assert middle_of(16 * MIB, 20 * MIB, every) == 0
    assert not set(between.SIZES) & set(sources.SIZES) and all(n % 4 == 0 for n in between.SIZES)


def test_the_family_has_none_of_the_sizes_that_advice_is_checked_at():
    from checking import advice

    from benchmarks import between

    assert not set(between.SIZES) & set(advice.SIZES)


# A run ----------------------------------------------------------------------------------------------------------------


class Interrupted(Exception):
    """In place of Ctrl-C."""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A function: refine what a run has measured by an asv that takes what ``times`` say; the cells of each call."""
    state = State(tmp_path / "state")

    def take(times, minutes=3.0, stop=None):
        calls = []

        def round_of(patterns, machine, state, advance, commit="", patience=(0.0, 0)):
            if len(calls) == stop:
                raise Interrupted
            names = [spelled(BETWEEN, route, n) for route in times for n in FINER]
            selected = [cell for cell in names if any(re.search(pattern, cell) for pattern in patterns)]
            calls.append(selected)
            with state.log.open("a", encoding="utf-8") as file:
                for cell in selected:
                    (route,) = routes_of([cell])
                    line = logged(cell, times[route](size_of(cell)))
                    del line["round"]
                    file.write(json.dumps(line) + "\n")
            advance()

        monkeypatch.setattr(measuring.rounds, "round_of", round_of)
        record = state.load()
        if record is None:
            record = Unfinished(Toolchain(""), {}, machine="box", planned=ROUNDS, rounds=ROUNDS)
            record = replace(record, seconds=100.0, patience=20.0, waited=5.0)
            state.start(record)
            state.begin()
            plain = {(route, n): around(made(n), count=ROUNDS) for route, made in times.items() for n in SIZES}
            state.log.write_text("".join(json.dumps(line) + "\n" for line in lines_of(plain)), encoding="utf-8")
            state.save(record)
        return calls, state, refine(record, state, described(), minutes)

    return take


def around_crossing(lines):
    """The nearest sizes on both sides of the crossing at which the first two routes were measured."""
    sizes = {int(line["params"][2]) for line in lines if line["benchmark"] == BETWEEN} | set(SIZES)
    return max(n for n in sizes if n < CROSSING), min(n for n in sizes if n > CROSSING)


def test_halved_until_it_is_narrow(machine, capsys):
    calls, state, record = machine({FIRST: SHORT, SECOND: LONG})
    low, high = around_crossing(state.lines())
    assert high / low < NARROW
    steps = [set(calls[at]) for at in range(0, len(calls), ROUNDS)]
    assert all(set(calls[at]) == steps[at // ROUNDS] for at in range(len(calls))), "all processes of a step"
    assert 3 <= len(steps) <= math.ceil(math.log2(math.log(16) / math.log(NARROW))) + 1
    assert record.rounds == ROUNDS and len(record.between) == len(steps)
    rounds = {line["round"] for line in state.lines() if line["benchmark"] == BETWEEN}
    assert rounds == set(range(ROUNDS, ROUNDS * (1 + len(steps)))), "rounds of their own"
    printed = capsys.readouterr().out
    assert printed.startswith("2 cells between sizes, around 1 crossover\n")
    assert printed.count(" cells between sizes, around ") == len(steps)
    assert printed.count("between sizes: 100 %, 0 s left") == len(steps)


def test_nothing_to_choose_between_takes_nothing(machine, capsys):
    calls, _, record = machine({FIRST: SHORT})
    assert not calls and record.rounds == ROUNDS and not capsys.readouterr().out


def test_time_that_is_spent(machine, capsys):
    """A round of two cells takes asv's start and a second. Both or none: of one alone advice would know less."""
    calls, _, _ = machine({FIRST: SHORT, SECOND: LONG}, minutes=ROUNDS * (START + 0.9) / 60)
    assert not calls
    calls, _, _ = machine({FIRST: SHORT, SECOND: LONG}, minutes=ROUNDS * (START + 1.1) / 60)
    assert set(calls[0]) == {spelled(BETWEEN, route, 256 * KIB) for route in (FIRST, SECOND)}
    assert "2 cells between sizes, around 1 crossover; there is time for" not in capsys.readouterr().out


def test_time_for_some(machine, capsys):
    """Of two crossovers for the one."""
    factors = dict(zip(SIZES, (0.5, 0.5, 0.5, 2.0, 0.5, 0.5)))

    def turning(n):
        return SHORT(n) * factors.get(n, 2.0)

    calls, _, _ = machine({FIRST: turning, SECOND: SHORT}, minutes=ROUNDS * (START + 1.1) / 60)
    assert len(calls[0]) == 2
    said = "4 cells between sizes, around 2 crossovers; there is time for 2 of them\n"
    assert capsys.readouterr().out.startswith(said)


def test_an_interrupted_run_goes_on_in_the_middle_of_a_step(machine):
    with pytest.raises(Interrupted):
        machine({FIRST: SHORT, SECOND: LONG}, stop=3)
    calls, state, record = machine({FIRST: SHORT, SECOND: LONG})
    low, high = around_crossing(state.lines())
    assert high / low < NARROW and record.rounds == ROUNDS
    taken = {}
    for line in state.lines():
        if line["benchmark"] == BETWEEN:
            taken.setdefault(name_of(line), []).append(line["round"])
    assert all(len(rounds) == len(set(rounds)) == ROUNDS for rounds in taken.values())
    assert len(calls) == ROUNDS * len(record.between) - 3


def test_a_small_run(checkout):
    """Through asv, every interval taken for a break and every sample for calm: it is the machinery that is tried."""

    def changed(file, old, new):
        path = checkout.root / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")

    changed("scripts/measuring/between.py", "BREAK = 1.2", "BREAK = 0.0")
    changed("scripts/measuring/profiles.py", "refine_minutes=3.0", "refine_minutes=0.1")
    changed("benchmarks/probes.py", "PROCESSOR: math.log(1.1)", "PROCESSOR: math.log(1e9)")
    changed("scripts/store/quiet.py", "LEAST = 0.4", "LEAST = 0.0")
    chosen = r"\.NumpyToTorch\.timeit_convert\('torch.from_numpy\(a.copy\(\)\)', 'float32', \d{1,5}\)"
    arguments = ("--profile", "standard", "--rounds", "1", "--only", chosen, "--no-report")
    done = checkout.run("scripts/run.py", *arguments, "--machine", checkout.machine)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "then up to 6 s of cells between sizes, around crossovers and breaks" in done.stdout
    assert "2 cells between sizes, around 2 breaks" in done.stdout
    (record,) = map(json.loads, checkout.result_file().with_suffix(".jsonl").read_text(encoding="utf-8").splitlines())
    assert record["rounds"] == record["planned"] == 1 and not {"between", "worked"} & set(record)
    assert record["failures"] == {}
    results = load(checkout.results)
    assert {200, 16 * KIB} <= set(results.of_role(results.processes, "between")["nbytes"])
    taken = with_samples(files.read_measurements(checkout.result_file()))
    rounds = {}
    for line in taken:
        rounds.setdefault(name_of(line), set()).add(line["round"])
    assert {len(own) for own in rounds.values()} == {1}
    assert record["samples"] == sum(line["wanted"] for line in taken)


# What is said of them -------------------------------------------------------------------------------------------------


def crossing(finer):
    """Copies that cross at 22 MiB, with cells between the sizes where ``finer``."""

    def slow(n):
        return around(n / 1e10)

    def fast(n):
        return around(n / (2e10 if n < 22 * MIB else 5e9))

    sizes = [MIB, 16 * MIB, 64 * MIB]
    times = {(FIRST, n): slow(n) for n in sizes} | {(SECOND, n): fast(n) for n in sizes}
    times |= {(FROM_NUMPY["expression"], n): around(4e-7) for n in sizes}
    benches = [conversion(times, [FROM_NUMPY, CLONE, TENSOR])]
    if finer:
        middles = [20 * MIB, 25 * MIB, 32 * MIB]
        cells = {(FIRST, "float32", n): slow(n) for n in middles} | {(SECOND, "float32", n): fast(n) for n in middles}
        params = {"route": [SECOND, FIRST], "dtype": ["float32"], "nbytes": [*middles, 128 * MIB]}
        benches.append(Bench(BETWEEN, params, cells, [CLONE, TENSOR]))
    return benches


def test_a_crossover_is_told_by_the_sizes_between(tmp_path):
    told = []
    for finer in (False, True):
        results = load(resultfiles.write(tmp_path / str(finer), crossing(finer)))
        (copy,) = (found for found in answers.answers(cells_of(results)) if found.need.memory == "copy")
        assert [segment.sizes for segment in copy.segments] == [[MIB, 16 * MIB], [64 * MIB]]
        told += answers.crossovers(copy.segments, copy.between)
    assert told == [
        answers.Crossover(16 * MIB, 64 * MIB, ()),
        answers.Crossover(20 * MIB, 25 * MIB, ()),
    ]


def test_a_size_between_at_which_they_tie_is_undecided(tmp_path):
    benches = crossing(True)
    benches[1].cells[FIRST, "float32", 25 * MIB] = benches[1].cells[SECOND, "float32", 25 * MIB]
    results = load(resultfiles.write(tmp_path, benches))
    (copy,) = (found for found in answers.answers(cells_of(results)) if found.need.memory == "copy")
    expected = answers.Crossover(20 * MIB, 32 * MIB, (25 * MIB,))
    assert answers.crossovers(copy.segments, copy.between) == [expected]


def test_cases_are_answered_by_them(tmp_path):
    loaded = load(resultfiles.write(tmp_path, crossing(True)))
    known = known_of(loaded, "box", cells_of(loaded))
    found = {(row.route, row.nbytes): row for row in known.rows}
    assert {20 * MIB, 25 * MIB, 32 * MIB} <= {n for route, n in found if route == FIRST}
    assert {row.kind for (_, n), row in found.items() if n == 25 * MIB} == {POINT}
    assert found[SECOND, 25 * MIB].need == found[SECOND, 16 * MIB].need
    figure = answer(Case("numpy", "torch", 25 * MIB, memory="copy"), known).ranked[0].figure
    assert (figure.how, figure.seconds) == (MEASURED, found[FIRST, 25 * MIB].seconds)


def test_a_page_has_a_section_of_them_and_says_the_rest_as_before(tmp_path):
    pages = {}
    for finer in (False, True):
        root = tmp_path / str(finer)
        pages[finer] = (build(resultfiles.write(root / "results", crossing(finer)), root / "out")) / "README.md"
    before, after = (pages[finer].read_text(encoding="utf-8") for finer in (False, True))
    title = "## Between the sizes"
    assert title not in before
    section = after[after.index(title) :].split("\n## ")[0]
    assert "| route | 20 MiB | 25 MiB | 32 MiB |" in section and f"`{FIRST}`" in section
    assert "The crossover lies between 16 MiB and 64 MiB" in before
    assert "The crossover lies between 20 MiB and 25 MiB" in after
    for same in ("## Decision table", "## Time against size"):
        one, other = (text[text.index(same) :].split("\n## ")[0] for text in (before, after))
        assert re.sub("[0-9a-f]{64}", "", one) == re.sub("[0-9a-f]{64}", "", other)
