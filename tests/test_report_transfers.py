"""The page of a machine with an accelerator: advice by completion, three clocks kept apart, what is missing said.

Machine and seconds are made up (tests/accelerator.py); benchmarks and contracts are the suite's own.
"""

import re
from dataclasses import replace

import accelerator
import pytest
import report
import resultfiles
from accelerator import GIB, KIB, LINK, MIB, around
from analysis import transfers
from analysis.cells import BOTH, cells_of
from analysis.choices import choices
from analysis.results import load
from pages import families, show, tables
from pages import transfers as page_of_transfers
from resultfiles import SKIPPED, Bench

pytestmark = pytest.mark.slow  # most build the page of an accelerator

HOST, DEVICE = "host→device", "device→host"
TO_DEVICE = "t.to(device)"


def read(tmp_path, benches, **changes):
    """The transfers of these benchmarks."""
    loaded = load(accelerator.write(tmp_path, benches, **changes))
    return transfers.transfers_of(loaded, cells_of(loaded))


def advice(found):
    return {
        one.title: "\n".join(show.to_plain(line) for line in (*one.said, *one.notes))
        for one in page_of_transfers.advice(choices(found.cells), found)
    }


def page(tmp_path, benches, **changes):
    """HTML and Markdown of these benchmarks' page."""
    root = accelerator.write(tmp_path / "results", benches, **changes)
    assert report.main(["--results", str(root), "--output", str(tmp_path / "out")]) == 0
    return [(tmp_path / "out" / "box" / name).read_text(encoding="utf-8") for name in ("index.html", "README.md")]


def changed(benches, name, change):
    """The benchmarks, the cells of one of them changed: key and seconds to seconds."""
    for bench in benches:
        if bench.name == name:
            bench.cells = {key: change(key, value) for key, value in bench.cells.items()}
    return benches


@pytest.fixture(scope="module")
def benches():
    return accelerator.transfers()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def built(place, benches):
    return page(place, benches)


@pytest.fixture(scope="module")
def found(tmp_path_factory, benches):
    return read(tmp_path_factory.mktemp("found"), benches)


# Advice


def test_every_need_has_its_answer(found):
    assert list(advice(found)) == [
        "Transfers in short",
        "From a NumPy array of 64 MiB to the device",
        "From a pageable host tensor of 64 MiB to the device",
        "From a pinned host tensor of 64 MiB to the device",
        "From a registered host tensor of 64 MiB to the device",
        "From the device to a NumPy array of 64 MiB",
        "From the device to a pageable host tensor of 64 MiB",
        "From the device to a pinned host tensor of 64 MiB",
        "From the device to a number: a scalar such as a loss",
    ]


def test_a_faster_route_with_a_condition_stands_beside_the_one_without(found):
    said = advice(found)["From a pageable host tensor of 64 MiB to the device"]
    assert "into a device tensor that exists, no condition: `d.copy_(t)`, 5.60 ms, 12 GB/s, 24 % of the limit" in said
    # which two processes do not decide
    assert "Not enough processes to decide: `copy_in_chunks(d, t, stages)`, 0.751× the time; the copy runs" in said


def test_the_head_answers_what_a_card_is_asked_first(found):
    short = advice(found)["Transfers in short"]
    to_device, back, both = short.splitlines()
    assert to_device == (
        "To the device, 64 MiB: pinned host memory takes 1.39 ms, pageable 5.60 ms, 4.02× as long. Pinning it first "
        "pays after 8 transfers. From 1 MiB on, pinned copies reach half of the link's limit. "
        "`d.copy_(t, non_blocking=True)` with pinned memory is there after 1.39 ms, too, and its caller is free after "
        "4.29 µs."
    )
    assert back.startswith("From the device, 64 MiB") and both.startswith("Both directions at once move 90 GB/s")


def test_answers_from_pinned_memory_say_both_times(found):
    said = advice(found)["From a pinned host tensor of 64 MiB to the device"]
    assert "`d.copy_(t, non_blocking=True)`: there after 1.39 ms, the caller free after 4.29 µs." in said


def test_garbage_that_was_read_is_in_the_head(tmp_path):
    params = {"route": ["h.copy_(t, non_blocking=True)"], "memory": ["pinned", "pageable"], "nbytes": [MIB]}
    cells = {(*key, MIB): value for key, value in zip(((params["route"][0], m) for m in params["memory"]), (96.0, 0.0))}
    bench = Bench("transfer.ReadTooEarly.track_garbage", params, cells, unit="% garbage")
    said = advice(read(tmp_path, [*accelerator.transfers(), bench]))["Transfers in short"]
    assert (
        "Unsafe: 96 % of results of 1 MiB were garbage when read before a wait" in said
        and "pageable memory" not in said
    )


def test_of_routes_with_a_condition_the_fastest_is_named(tmp_path):
    """Where nothing decides between them, the catalogue's first took ten times as long."""

    def change(key, value):
        slow = {"[x.to(device, non_blocking=True) for x in tensors]": [3e-2, 4e-3]}
        return slow.get(key[0], around(3e-3)) if key[1] == "pinned" and "non_blocking" in key[0] else value

    benches = changed(accelerator.transfers(), "many.ToDevice.timeit_completion", change)
    line = next(line for line in answered(read(tmp_path, benches))["many"] if "1,000 tensors, pinned" in line)
    assert "On a condition `torch._foreach_copy_(ds, tensors, non_blocking=True)`, 3.00 ms" in line


def test_sizes_at_which_few_routes_were_measured_stay_in_the_table(tmp_path):
    found = read(tmp_path, accelerator.transfers(profile="transfers"))
    (table, _) = page_of_transfers.decision(choices(found.cells), found)
    sizes = [row[1] for row in table.rows if row[0] == ["From a pageable host tensor to the device", "a new tensor"]]
    plain = ["; ".join(size).replace("\N{NO-BREAK SPACE}", " ") for size in sizes]
    assert plain[0].startswith("4 KiB") and any("256 MiB" in size and "routes" in size for size in plain)


def test_one_chart_a_direction_has_pageable_staged_and_pinned(built):
    for direction, into in ((HOST, "d.copy_(t)"), (DEVICE, "h.copy_(t)")):
        text = built[0].partition(f"<h3>{direction}: GB/s by completion")[2].partition("</figure>")[0]
        assert all(f"{memory}: {into}" in text for memory in ("pageable", "pinned"))
    assert "pageable: copy_in_chunks" in built[0]


def test_where_every_route_has_a_condition_the_answer_says_so(found):
    said = advice(found)["From the device to a pinned host tensor of 64 MiB"]
    assert "a new tensor, on a condition: `t.to('cpu', non_blocking=True)`" in said
    assert "reading the result before a synchronize gives garbage." in said


def test_a_hazard_that_waiting_does_not_mend_is_no_condition(tmp_path, benches):
    """t.cpu().numpy().copy() copies twice; however fast it reads, waiting does not make it right to take."""
    slow = accelerator.transfers()

    def change(key, value):
        return around(5e-3) if key[0] == "t.cpu().numpy().copy()" and value != SKIPPED else value

    found = read(tmp_path, changed(slow, "transfer.DeviceToHost.timeit_completion", change))
    said = advice(found)["From the device to a NumPy array of 64 MiB"]
    assert said.startswith("a new array, no condition: `t.cpu().numpy()`")
    assert "on a condition" not in said
    assert "`t.cpu().numpy().copy()` is faster, 5.00 ms, but: t.cpu() is a copy already" in said


def test_without_a_limit_there_is_no_share_and_a_reason(tmp_path):
    benches = [bench for bench in accelerator.transfers() if not bench.name.startswith("link.Limit")]
    assert "the limit was not measured in this run" in "".join(advice(read(tmp_path / "a", benches)).values())
    html, markdown = page(tmp_path, benches)
    assert "of the limit" not in re.sub(r"% of the limit</th>", "", html).replace("fastest", "")
    assert "No % of the link's limit: it was not measured." in markdown


def test_a_device_without_pinned_memory(tmp_path):
    benches = accelerator.transfers(skipped=("pinned", "registered"))
    settings = accelerator.SETTINGS | {"device": "mps", "device_name": "mps"}
    given = {"settings": settings, "skipped": "mps has no pinned memory: no"}
    root = resultfiles.write(
        tmp_path / "results",
        benches,
        records=[resultfiles.record(benches, settings=settings, skipped=given["skipped"])],
    )
    assert report.main(["--results", str(root), "--output", str(tmp_path / "out")]) == 0
    markdown = (tmp_path / "out" / "box" / "README.md").read_text(encoding="utf-8")
    assert "Nothing on pinned memory: mps has no pinned memory: no." in markdown
    assert "No % of the link's limit: it was not measured (mps has no pinned memory: no)." in markdown
    assert "From a pageable host tensor" in markdown and "From a pinned host tensor" not in markdown


# Tables and figures


def test_the_sections_of_an_accelerator(built):
    sections = re.findall(r'<section id="([^"]+)">', built[0])
    assert sections == [
        *("questions", "transfers", "clocks", "transfer-dtypes", "transfers-casting-layout-containers-scalars"),
        "transfers-threads-of-the-host-pinned-memory-anew",
        *("a-training-step-a-dataloader", "transfers-while-the-device-is-busy", "many-small-tensors"),
        *("overlap", "firsts", "link"),
        *("contracts", "method", "data"),
    ]
    assert "An Accelerator (cuda:0)" in built[0]


def test_the_decision_table_covers_both_ways_and_every_memory(found):
    to_device, to_host = page_of_transfers.decision(choices(found.cells), found)
    for table, hosts in ((to_device, ("pageable", "pinned", "registered")), (to_host, ("pageable", "pinned"))):
        said = " ".join(show.to_plain(line) for row in table.rows for line in row[0])
        assert all(host in said for host in hosts) and "NumPy array" in said
    need = ["From a pinned host tensor to the device", "a new tensor"]
    row = [row for row in to_device.rows if row[0] == need][-1]  # the band of the largest sizes
    same = [show.code(route) for route in ("t.to(device)", "t.cuda()")]  # as fast as each other
    assert row[1][0].endswith("1\N{NO-BREAK SPACE}GiB") and row[2][0] in same
    assert row[4:6] == ("49", "97 %")


def test_figures_name_their_clock(built):
    captions = re.findall(r"<figure[^>]*>\s*<h3>(.+?)</h3>", built[0])
    assert len(captions) == len(set(captions)) > 10
    for caption in captions:
        assert any(clock in caption for clock in ("completion", "enqueue", "sustained")), caption
    assert "measured limit" in built[0]


# Overlap


def in_turns(tmp_path, *processes):
    """What hides, of the seconds of products, transfer and both of each process."""
    key = (HOST, "pinned", MIB)
    parts = dict(zip(transfers.PARTS, map(list, zip(*processes))))
    params = {"direction": [HOST], "memory": ["pinned"], "nbytes": [MIB]}
    bench = Bench(accelerator.HIDDEN, params, {key: parts["both"]}, parts={key: parts})
    (each,) = transfers.hidden(read(tmp_path, [bench]))
    return each


@pytest.mark.parametrize(
    "products, moved, both, told",
    [
        (3e-3, 2e-3, 3e-3, "100 %"),
        (3e-3, 2e-3, 5e-3, "0 %"),
        (1e-3, 3e-3, 3.5e-3, "50 %"),
        (3e-3, 2e-3, 2.92e-3, "all (104 % by noise)"),
        (3e-3, 2e-3, 5.1e-3, "none (-5 % by noise)"),
        (3e-3, 2e-3, 1e-3, "not told: the three times do not fit together"),
        (3e-3, 2e-3, 25e-3, "not told: the three times do not fit together"),
    ],
)
def test_the_share_that_hides(tmp_path, products, moved, both, told):
    each = in_turns(tmp_path, *[(products, moved, both)] * 2)
    assert page_of_transfers.share_words(each) == told


def test_a_share_is_made_of_one_process_alone(tmp_path):
    """The second process is half as fast in all: of medians over processes it would hide more than there is."""
    each = in_turns(tmp_path, (3e-3, 2e-3, 4e-3), (6e-3, 4e-3, 8e-3), (30e-3, 20e-3, 40e-3))
    assert each.shares == pytest.approx([0.5, 0.5, 0.5]) and each.share == pytest.approx(0.5)


def test_forms_of_a_step_take_as_many_processes_as_decide(tmp_path):
    """Fewer never show that 0.7 times as long is faster: the short profile takes four, and else that is said."""

    def told(profile):
        results = load(accelerator.write(tmp_path / profile, accelerator.transfers(profile=profile)))
        sections = families.sections(results, cells_of(results), tables.Missing(results), on_device=True)
        made = {show.to_plain(table.title): table for section in sections for table in section.tables}
        shown = [table for title, table in made.items() if "NumPy loss" in title or "DataLoader" in title]
        return {entry[1].partition(": ")[2] for table in shown for row in table.rows for entry in row[1:]}

    assert told("transfers") == {"0.700× as long", "0.600× as long", "0.800× as long"}
    assert told("transfers-full") == {"not enough processes to decide"}


# A busy device, many small tensors, a cast on the way


def answered(found):
    """Family -> the sentences that answer its question, as they read."""
    return {family: [show.to_plain(line) for line in lines] for family, lines in page_of_transfers.said(found).items()}


def test_the_page_says_which_calls_hold_their_caller_until_the_queue_is_empty(found):
    held, free, *_ = answered(found)["busy"]
    assert held == (
        "Hold their caller until the work before them is done: `d.copy_(t)` from pageable and pinned memory, 4 KiB and "
        "64 MiB; `d.copy_(t, non_blocking=True)` from pageable memory, 64 MiB; `h.copy_(t)` to pageable and pinned "
        "memory, 4 KiB and 64 MiB; `h.copy_(t, non_blocking=True)` to pageable memory, 64 MiB."
    )
    assert free == (
        "Return while the work goes on: `d.copy_(t, non_blocking=True)` from pageable memory, 4 KiB; "
        "`d.copy_(t, non_blocking=True)` from pinned memory, 4 KiB and 64 MiB; `h.copy_(t, non_blocking=True)` to "
        "pageable memory, 4 KiB; `h.copy_(t, non_blocking=True)` to pinned memory, 4 KiB and 64 MiB."
    )


def test_calls_that_a_neighbour_may_have_slowed_are_not_judged(found):
    noisy = tuple(replace(cell, quiet=cell.nbytes < MIB) for cell in found.main)
    held, free, *_ = answered(replace(found, main=noisy))["busy"]
    assert "64 MiB" not in held + free and "4 KiB" in held and "4 KiB" in free


def test_the_short_profile_makes_a_whole_page(tmp_path):
    markdown = page(tmp_path, [*accelerator.transfers(profile="transfers"), *accelerator.conversions()])[1]
    assert "not measured here" not in " ".join(answers_of(markdown).values())
    assert "From a registered host tensor of 64 MiB to the device" in markdown
    assert "From the device to a NumPy array of 64 MiB" in markdown
    assert (
        "Hold their caller until the work" in markdown
        and "Float32 on the host to bfloat16 on the device, 16 MiB" in markdown
    )


# The link


def test_limits_take_the_best_size_and_both_ways_move_twice(found):
    assert found.link.limit(HOST).bandwidth == pytest.approx(LINK, rel=0.01)
    assert found.link.limit(BOTH).bandwidth == pytest.approx(1.8 * LINK, rel=0.01)
    assert found.link.capacity == pytest.approx(63.0e9, rel=0.001)
    assert page_of_transfers.impossible(found) == ()


@pytest.mark.parametrize("generation, loud", [(3, True), (4, True), (5, False)])
def test_more_than_the_link_carries_is_said_loudly(tmp_path, monkeypatch, generation, loud):
    monkeypatch.setitem(accelerator.HARDWARE, "link generation", generation)
    html, markdown = page(tmp_path, accelerator.transfers())
    assert ('<p class="warning">Not possible:' in html) == loud
    assert ("> Not possible:" in markdown) == loud


def test_a_clock_that_disagrees_and_a_device_that_was_lost_are_in_the_head(tmp_path):
    benches = accelerator.transfers()
    for bench in benches:
        if bench.name.startswith("link.Limit"):
            bench.parts = {key: {"device": around(1), "host": around(1.03)} for key in bench.cells}
    lost = "the device was lost: cuda:0 cannot be used: CUDA error: unknown error"
    found = read(tmp_path, benches, device_lost=lost)
    disagree, *_, gone = sorted(page_of_transfers.impossible(found), key=lambda line: "lost" in line)
    assert (
        disagree.startswith("Doubtful: over the copies that are the link's limit, ") and "1.03× the device" in disagree
    )
    assert gone.startswith("The device was lost: cuda:0 cannot be used: CUDA error: unknown error.")


def test_more_than_the_measured_limit_is_doubtful_where_the_link_is_unknown(tmp_path):
    def change(key, value):
        return around(key[-1] / (4 * LINK)) if key[1] == "pinned" and value != SKIPPED else value

    benches = [bench for bench in accelerator.transfers() if "Hardware" not in bench.name]
    warned = page_of_transfers.impossible(
        read(tmp_path, changed(benches, "transfer.HostToDevice.timeit_completion", change))
    )
    assert len(warned) == 1 and warned[0].startswith("Doubtful: ")


def test_what_no_memory_moves_is_withheld_where_nothing_of_the_link_is_known(tmp_path):
    """A device without a synchronize read 22,943 GB/s, and nothing warned: the link had not been measured."""

    def change(key, value):
        return around(2.9e-6) if key == (TO_DEVICE, "pageable", "float32", 64 * MIB) else value

    benches = [bench for bench in accelerator.transfers() if not bench.name.startswith("link.")]
    benches = changed(benches, "transfer.HostToDevice.timeit_completion", change)
    found = read(tmp_path / "found", benches)
    (cell,) = found.withheld
    assert cell not in found.cells and (cell.route, cell.nbytes) == (TO_DEVICE, 64 * MIB)
    markdown = page(tmp_path, benches)[1]
    assert "Not possible: 1 cell reads more than any memory moves, the most with 23,000 GB/s" in markdown
    assert "2.90 µs" not in markdown


# Questions


def answers_of(markdown):
    """Question -> its answer, of a page."""
    rows = markdown.partition("## What users ask")[2].partition("\n\n\n")[0]
    return dict(re.findall(r"^\| ([^|]*\?) \| (.*) \| $", rows, re.MULTILINE))


def test_every_question_about_a_device_is_answered_from_its_figures(built):
    said = answers_of(built[1])
    assert "33.5 ms" in said["Why is .cpu() slow?"] and "17 % of that time" in said["Why is .cpu() slow?"]
    assert "the call returns after 4.79 ms" in said["Should I always use non\\_blocking?"]
    assert "reading the result before a" in said["Why garbage after a non-blocking copy to the host?"]
    assert "210 ms" in said["Why is the first use slow?"] and "0.400 s/GiB" in said["Why is the first use slow?"]
    assert len(said) == 8, "of transfers alone"


# The page holds together


def test_the_same_results_give_the_same_bytes(place, built, tmp_path, benches):
    page(tmp_path, benches)
    pages = [{path.name: path.read_bytes() for path in (root / "out" / "box").iterdir()} for root in (place, tmp_path)]
    assert pages[0] == pages[1]


# Hockney's model


def test_exact_data_give_their_parameters():
    made = transfers.fit({n: 5e-6 + n / 2e10 for n in (4, 4 * KIB, MIB, 64 * MIB, GIB)})
    assert (made.latency, made.bandwidth) == (pytest.approx(5e-6), pytest.approx(2e10))
    assert made.half == pytest.approx(1e5) and made.deviation < 1e-9 and made.good


def test_too_few_sizes_and_lines_that_fall_have_no_fit():
    assert transfers.fit({n: 1e-6 + n / 1e10 for n in (4, KIB, MIB)}) is None
    assert transfers.fit({n: 1e-3 / n for n in (4, KIB, MIB, GIB)}) is None


def test_fits_are_shown_with_their_deviation_and_misfits_named(found):
    (table,), lines = page_of_transfers.fits(found.of("completion"))
    entry = next(r for r in table.rows if r[0] == [show.code("d.copy_(t)"), f"{HOST}, pinned"])
    assert entry[1] == "9.19 µs" and entry[2] in ("48 GB/s", "49 GB/s") and entry[4] == "0 %"
    assert "t.cpu()" in show.to_plain(lines[0]) and "No fit" in show.to_plain(lines[0])


def test_how_the_device_ran_is_told_where_its_driver_said(tmp_path):
    cells = [f"transfer.HostToDevice.timeit_completion({n})" for n in range(5)]
    changes = {
        "device_probe": {"link generation": [5, 5], "clock": [1200, 1980]},
        "device_changed": {"slowed by power": cells[:1], "clock": cells},
        "cores": [0, 2],
        "awake": True,
    }
    _, markdown = page(tmp_path, accelerator.transfers(), **changes)
    assert "its driver said: link generation 5, clock 1,200 to 1,980 MHz." in markdown
    assert f"Slowed by power, in 1 cell: `{cells[0]}`." in markdown and "and 2 more" not in markdown
    assert "| 0, 2 |" in markdown and "by a context of its own" in markdown


# What little was measured


def test_where_the_call_takes_the_time_no_bandwidth_is_told(tmp_path):
    sizes = (f", {4 * KIB})", f", {64 * KIB})")
    small = accelerator.transfers(chosen=lambda cell: "transfer." not in cell or cell.endswith(sizes))
    moved = read(tmp_path, small)
    rows = [row for table in page_of_transfers.decision(choices(moved.cells), moved) for row in table.rows]
    speeds = {row[0][1]: row[4:6] for row in rows if "pinned" in row[0][0] and "to the device" in row[0][0]}
    assert speeds["into a device tensor that exists"] == ("", "")
