"""The page of a machine with an accelerator: it advises by completion time, keeps three clocks apart and names what is
missing.

Machine and seconds are made up (tests/accelerator.py); benchmarks and contracts are the suite's own. One snapshot holds
the text of the page. The others hold the lines that differ where something else was measured: read the difference.
"""

import functools
import re
from dataclasses import replace
from types import SimpleNamespace

import accelerator
import pytest
from accelerator import HARDWARE, KIB, LINK, MIB, around
from analysis import transfers
from analysis.answers import answer
from analysis.cells import cells_of
from analysis.costs import machine_answers
from analysis.needs import Case, choices
from analysis.results import load
from conftest import build
from pages import figures, machine, page, sections, show
from pages import transfers as page_of_transfers
from resultfiles import SKIPPED, of_suite

pytestmark = pytest.mark.slow  # most read the results of an accelerator

INTO_DEVICE, INTO_HOST = "transfer.HostToDevice.timeit_completion", "transfer.DeviceToHost.timeit_completion"


def read(tmp_path, benches, **changes):
    """Return the results of these benchmarks, and their transfers."""
    loaded = load(accelerator.write(tmp_path, benches, **changes))
    return loaded, transfers.transfers_of(loaded, cells_of(loaded))


def told(loaded):
    """Return the lines of the results' page, without figures and the section Data."""
    made = page.page_files(machine.machine_page(loaded, None, "box", [], []))
    return made["README.md"].partition("## Data")[0].splitlines()


@pytest.fixture(autouse=True)
def nothing_drawn(request, monkeypatch):
    if "whole" not in request.node.name:
        for module in (figures, sections):
            monkeypatch.setattr(module, "times_figure", lambda *_: [])


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A function: a profile -> its results and their transfers. Tests share them and must not change them."""
    return functools.cache(lambda name: read(tmp_path_factory.mktemp(name), accelerator.transfers(profile=name)))


@pytest.fixture(scope="module")
def said(measured):
    """A function: a profile -> the lines of its page."""
    return functools.cache(lambda profile: told(measured(profile)[0]))


@pytest.mark.parametrize("profile", ["transfers", "transfers-full"])
def test_what_is_said(said, profile, snapshot):
    """The page shows limits, too: accelerator.LINK one way, and 1.8 times that in both directions at once."""
    assert said(profile) == snapshot


def test_unified_memory_is_told(tmp_path):
    settings = accelerator.SETTINGS | {"is_unified": True}
    _, moved = read(tmp_path, accelerator.transfers(profile="transfers"), settings=settings)
    assert "share one memory" in page_of_transfers._summary(moved)[0]


# Where something else was measured ----------------------------------------------------------------------------------


def changed(name, change):
    """Return a function that makes the benchmarks; those called ``name`` have the seconds ``change(key, seconds)``."""

    def benches():
        made = accelerator.transfers()
        for bench in (bench for bench in made if bench.name == name):
            bench.cells = {key: value if value == SKIPPED else change(key, value) for key, value in bench.cells.items()}
        return made

    return benches


def without(name, made=accelerator.transfers):
    return lambda: [bench for bench in made() if not bench.name.startswith(name)]


def doubtful():
    """Garbage was read, and the clocks of the limit disagree."""
    early = "h.copy_(t, non_blocking=True)"
    read = {(early, "pinned", MIB): 96.0, (early, "pageable", MIB): 0.0}
    made = [*accelerator.transfers(), of_suite("transfer.ReadTooEarly.track_garbage", read)]
    for bench in (bench for bench in made if bench.name.startswith("link.Limit")):
        bench.parts = {key: {"device": around(1), "host": around(1.03)} for key in bench.cells}
    return made


def foreach_as_fast(key, value):
    """Routes with a condition tie, although the catalogue's first took ten times as long in one process."""
    slow = {"[x.to(device, non_blocking=True) for x in tensors]": [3e-2, 4e-3]}
    return slow.get(key[0], around(3e-3)) if key[1] == "pinned" and "non_blocking" in key[0] else value


def copied_twice_in_no_time(key, value):
    return around(5e-3) if key[0] == "t.cpu().numpy().copy()" else value


def not_waited_for(key, value):
    """A device without a synchronize once showed 22,943 GB/s, without a warning: the link had not been measured."""
    return around(2.9e-6) if key == ("t.to(device)", "pageable", "float32", 64 * MIB) else value


TOO_FAST = changed(INTO_DEVICE, lambda key, _: around(key[-1] / (4 * LINK)))
OTHERWISE = {
    # all that a page says of how the device was measured
    "garbage was read, clocks disagree, the device changed and was lost": doubtful,
    "a faster route with a condition is not decided": changed("many.ToDevice.timeit_completion", foreach_as_fast),
    # it copies twice: waiting does not make it correct, however fast it looks
    "a hazard that waiting does not mend is fast": changed(INTO_HOST, copied_twice_in_no_time),
    "no limit": without("link.Limit"),
    "no pinned memory": lambda: accelerator.transfers(skipped=("pinned", "registered")),
    "more than the limit where the link is unknown": without("link.Hardware", TOO_FAST),
    "more than any memory moves where the link is unknown": without("link.", changed(INTO_DEVICE, not_waited_for)),
    "no bytes decide": lambda: accelerator.transfers(
        chosen=lambda cell: "transfer." not in cell or cell.endswith((f", {4 * KIB})", f", {64 * KIB})"))
    ),
}
# Fields of the run record that differ
RAN = {"device_lost": "the device was lost: cuda:0 cannot be used: CUDA error: unknown error"}
RAN["device_probe"] = {"link generation": [5, 5], "clock": [1200, 1980]}
RAN["device_changed"] = {"slowed by power": [f"{INTO_DEVICE}(1)"], "clock": [f"{INTO_DEVICE}({n})" for n in range(5)]}
RECORDED = {
    "no pinned memory": {"skipped": "mps has no pinned memory: no"},
    "garbage was read, clocks disagree, the device changed and was lost": RAN,
}


@pytest.mark.parametrize("case", OTHERWISE)
def test_what_is_said_otherwise(tmp_path, case, said, snapshot):
    """The snapshot holds the lines that the usual page lacks."""
    loaded, _ = read(tmp_path, OTHERWISE[case](), **RECORDED.get(case, {}))
    assert [line for line in told(loaded) if line not in said("transfers-full")] == snapshot


@pytest.mark.parametrize("generation, loud", [(3, True), (4, True), (5, False)])
def test_more_than_the_link_carries_is_said_loudly(tmp_path, monkeypatch, generation, loud):
    monkeypatch.setitem(HARDWARE, "link generation", generation)
    _, found = read(tmp_path, accelerator.transfers())
    assert len(page_of_transfers.impossible(found)) == loud


def test_calls_that_a_neighbour_may_have_slowed_are_not_judged(measured):
    _, found = measured("transfers-full")
    noisy = replace(found, main=found.main.assign(quiet=found.main["nbytes"] < MIB))
    assert {*transfers.while_busy(noisy)["nbytes"]} == {4 * KIB}


@pytest.mark.parametrize(
    "host, kib, sizes, unmeasured",
    [
        ("pageable", 100, (256,), ["d.copy_(t, non_blocking=True)", "copy_in_chunks(d, t, stages)"]),
        ("pinned", 100, (64, 256), []),
        ("pageable", 3072, (1024, 16384), ["d.copy_(t, non_blocking=True)"]),
    ],
)
def test_nothing_is_carried_across_where_a_driver_begins_to_stage(measured, host, kib, sizes, unmeasured):
    """Above 64 KiB the time of pageable memory jumps by an unknown amount. A line drawn on from 64 KiB predicts too
    little, and results at 64 KiB and 64 MiB alone say nothing about the sizes between."""
    loaded, found = measured("transfers")
    known = machine_answers(loaded, "box", found.cells, choices(found.cells))
    made = answer(Case("torch", "device", kib * KIB, host=host, memory="into"), known)
    first = made.ranked[0]
    assert first.sizes == tuple(size * KIB for size in sizes) and first.low <= first.seconds <= first.high
    assert [*made.unmeasured] == unmeasured


# Overlap ------------------------------------------------------------------------------------------------------------


def in_turns(tmp_path, *processes):
    """Return the row of the hidden share. processes: seconds of the other work, of the transfer and of both at once."""
    key = ("host→device", "pinned", MIB)
    parts = dict(zip(transfers.PARTS, map(list, zip(*processes))))
    bench = of_suite(accelerator.HIDDEN, {key: parts["both"]}, parts={key: parts})
    (row,) = transfers.hidden(read(tmp_path, [bench])[1]).to_dict("records")
    return row


@pytest.mark.parametrize(
    "other, moved, both, words",
    [
        (3e-3, 2e-3, 3e-3, "100 %"),
        (3e-3, 2e-3, 5e-3, "0 %"),
        (1e-3, 3e-3, 3.5e-3, "50 %"),
        (3e-3, 2e-3, 2.92e-3, "all (104 % by noise)"),
        (3e-3, 2e-3, 5.1e-3, "none (-5 % by noise)"),
        (3e-3, 2e-3, 1e-3, "unknown: the three times do not fit together"),
        (3e-3, 2e-3, 25e-3, "unknown: the three times do not fit together"),
    ],
)
def test_the_share_that_hides(tmp_path, other, moved, both, words):
    row = in_turns(tmp_path, *[(other, moved, both)] * 2)
    table = show.render("transfers", "hidden", cells=[SimpleNamespace(**row)])
    assert table.split(show.ENTRY_SEPARATOR)[-2].strip() == words


def test_a_share_is_made_of_one_process_alone(tmp_path):
    """The three times of a share come from one process, because processes differ in speed (here up to ten times)."""
    row = in_turns(tmp_path, (3e-3, 2e-3, 4e-3), (6e-3, 4e-3, 8e-3), (30e-3, 20e-3, 40e-3))
    assert [row[name] for name in ("low", "share", "high")] == pytest.approx([0.5, 0.5, 0.5])


# The whole page -----------------------------------------------------------------------------------------------------


def test_the_whole_page_has_its_sections_figures_and_answers(tmp_path, monkeypatch, snapshot):
    """The page of the short profile, with a warning at its head."""
    monkeypatch.setitem(HARDWARE, "link generation", 3)
    benches = [*accelerator.transfers(profile="transfers"), *accelerator.conversions()]
    box = build(accelerator.write(tmp_path / "results", benches), tmp_path / "out")
    html, markdown = ((box / name).read_text(encoding="utf-8") for name in ("index.html", "README.md"))
    captions = re.findall(r"<figure[^>]*>\s*<h3>(.+?)</h3>", html)
    answers = markdown.partition("## What users ask")[2].partition("\n\n\n")[0].splitlines()
    assert [re.findall(r'<section[^>]* id="([^"]+)"', html), captions, answers] == snapshot
    assert len(captions) == len(set(captions)) and "An Accelerator (cuda:0)" in html
    assert 'class="warning">Not' in html and "> Not" in markdown
