"""Histories made of chosen times and counts, and a check of the feed that their page writes."""

import itertools
import math
import re
import xml.etree.ElementTree as xml

import conftest
import noise
import numpy as np
import resultfiles
from analysis.history import histories_of
from analysis.results import load
from pages.release_news import FEED
from resultfiles import ABSENT, SKIPPED, contract, conversion, every, memcpy
from toolchains import ledger

KIB = 1024

ROUTES = [f"route{number}(a)" for number in range(12)]

COPIES = [contract(route, "copy") for route in ROUTES]

SERIES = ledger.series("torch")[:12]

HOUR = 3600

COUNT = 6700.0


def logs_of(seed, planted=(), cells=12):
    """Return log seconds of shape (releases, cells, processes): quiet noise around one microsecond, with changes.

    planted  changes as (cell, place, factor): from the release at ``place`` on the cell takes ``factor`` times as long
    """
    rng = np.random.default_rng(seed)
    logs = math.log(1e-6) + np.stack([noise.processes(rng, cells, 0.005, 0.005) for _ in SERIES])
    for cell, place, factor in planted:
        logs[place:, cell] += math.log(factor)
    return logs


def started(seconds):
    return f"2026-11-01T{int(seconds // HOUR):02d}:{int(seconds % HOUR // 60):02d}:00+00:00"


def record_of(toolchain, benches, at, **changes):
    made = {"tag": toolchain.tag, "torch": toolchain.torch, "numpy": toolchain.numpy}
    changes = {"rounds": 4, "started": started(at), "seconds": 120.0, "command": "python scripts/track.py", **changes}
    return resultfiles.record(benches, toolchain=made, **changes)


def write(root, logs, toolchains=SERIES, promises=COPIES, sizes=(4096,), without=SKIPPED, again=None, **how):
    """Write results of ``toolchains``.

    logs      log seconds of shape (releases, routes and sizes, processes); NaN: no process
    promises  contracts of the routes; if empty, nothing is timed
    without   value of a cell without processes
    again     log seconds of the first toolchain's second session, an hour after the last session: (routes and sizes,
              processes)
    how       extra: function from a release's place to more benchmarks; at: slowdown of speed probes and their baseline
              by place, already included in ``logs``, if empty, no probes; record: other entries of run records; and
              arguments of resultfiles.write
    """
    cells, about = list(itertools.product([each["expression"] for each in promises], sizes)), how.pop("record", {})
    extra, at = how.pop("extra", None), how.pop("at", ())
    for place, toolchain in enumerate(toolchains):
        taken, starts = logs[place], [600 * place]
        if again is not None and place == 0:
            taken, starts = np.hstack([taken, again]), [0, 600 * len(toolchains) + HOUR]
        values = {cell: list(np.exp(own[np.isfinite(own)])) or without for cell, own in zip(cells, taken)}
        benches = [conversion(values, promises), memcpy({4 * KIB: [1e-7] * 4 * len(starts)})] if promises else []
        benches += extra(place) if extra else []
        if at:
            how["clock"] = lambda _, by=at[place]: by
            about = about | {"baselines": {"processor": 25_000 * at[place]}}
        records = [record_of(toolchain, benches, start, **about) for start in starts]
        resultfiles.write(root, benches, records=records, commit=toolchain.commit, **how)
    return root


def history_in(root, machine="box"):
    return histories_of(load(root, machine))["torch"]


def times(factor, counts=(6700, 6702, 6704, 6708)):
    return [factor * count for count in counts]


def counting(factor_of, sizes=(4 * KIB,), lacking=()):
    """Return a function from a release's place to benchmarks: instruction counts of all routes.

    factor_of  function from (route's place, release's place) to a factor of the counts, which grow with the size
    lacking    (release's place, size) that were not counted
    """

    def extra(place):
        def counts(route, _, nbytes):
            factor = factor_of(ROUTES.index(route), place) * nbytes / (4 * KIB)
            return ABSENT if (place, nbytes) in lacking else times(factor, (COUNT, COUNT + 2, COUNT + 4))

        cells = {"route": ROUTES, "dtype": ["float32"], "nbytes": sizes}
        yield every("instructions.NumpyToTorch.track_instructions", counts, unit="instructions", **cells)

    return extra


def meanings(place):
    """Yield benchmarks of memory, dtype and grad at a release's place. One release changes each of them."""
    cells = {"route": ROUTES[:2], "dtype": ["float16"]}
    alias = {ROUTES[0]: int(place < 3), ROUTES[1]: 0}
    dtype = {ROUTES[0]: 1, ROUTES[1]: int(place < 5)}
    names = {"stands_for": ["float16", "float32"]}
    yield every("semantics.NumpyToTorch.track_alias", lambda route, _: alias[route], unit="1: shares memory", **cells)
    yield every("semantics.NumpyToTorch.track_dtype", lambda route, _: dtype[route], (), "a place", names, **cells)
    yield every("semantics.RequiresGrad.track_taken", lambda _: int(place >= 7), unit="1: taken", route=["t.numpy()"])


def build(results, output):
    return conftest.build(results, output).with_name("history") / "box"


ATOM = "{http://www.w3.org/2005/Atom}"

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d)")


def check(text):
    """Check that a feed and its entries meet the requirements of RFC 4287. Return the entries."""
    root = xml.fromstring(text)
    assert root.tag == f"{ATOM}feed"
    every = [root, *root.findall(f"{ATOM}entry")]
    for one in every:
        for name in ("id", "title", "updated"):
            (found,) = one.findall(f"{ATOM}{name}")
            assert found.text and found.text.strip() == found.text
        assert MOMENT.fullmatch(one.findtext(f"{ATOM}updated"))
        links = one.findall(f"{ATOM}link[@rel='alternate']")
        alternates = [(link.get("type"), link.get("hreflang")) for link in links]
        assert len(alternates) == len(set(alternates)) and all(link.get("href") for link in one.iter(f"{ATOM}link"))
    assert root.findtext(f"{ATOM}author/{ATOM}name"), "entries have none of their own"
    assert [link.get("href") for link in root.findall(f"{ATOM}link[@rel='self']")] == [FEED]
    for entry in every[1:]:
        content = entry.find(f"{ATOM}content")
        assert content.get("type") == "html" and content.text and not len(content)
    ids = [one.findtext(f"{ATOM}id") for one in every]
    assert len(ids) == len(set(ids)) and all(re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", one) for one in ids)
    return every[1:]
