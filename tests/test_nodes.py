"""A history on several nodes: what is on all of them, what is on one only, and one node as if there were no others."""

import json
import math

import noise
import numpy as np
import pytest
import report
import resultfiles
from analysis import history, statistics
from analysis.results import load
from cli import UserError
from measuring.fleet import deal
from pages import build
from pages import history_words as words
from resultfiles import contract, conversion, memcpy
from store import files
from test_history import HOUR, KIB, ROUTES, SERIES, found, record_of
from toolchains import selection

pytestmark = pytest.mark.slow  # most build a history and its page

REFERENCE = len(SERIES) - 1
NODE_SD, VISIT_SD, PROCESS_SD = 0.03, 0.02, 0.02


def write(root, blocks, changed, seed=0, routes=ROUTES, sd=0.01, node_sd=NODE_SD, benches=None, engine="slurm"):
    """Results of nodes, each with the reference first and last, and the releases of its block by place.

    changed  (node, place of the release, place of the route) -> what it adds, log seconds
    benches  a function of node and place that gives more benchmarks
    """
    rng = np.random.default_rng(seed)
    contracts = [contract(route, "copy") for route in routes]
    for node, block in enumerate(blocks):
        name = f"node-{'abcdefgh'[node]}"
        adds = rng.normal(0, node_sd)
        for turn, place in enumerate([REFERENCE, *block]):
            again = place == REFERENCE
            visits = 2 if again else 1
            logs = [noise.processes(rng, len(routes), sd, sd) for _ in range(visits)]
            own = math.log(1e-6) + adds + np.hstack(logs)
            own += np.array([changed(node, place, k) for k in range(len(routes))])[:, None]
            values = {(route, 4 * KIB): list(np.exp(own[k])) for k, route in enumerate(routes)}
            made = [conversion(values, contracts), memcpy({4 * KIB: [1e-7] * 4 * visits})]
            made += benches(node, place) if benches else []
            about = {"fleet": {"id": "1", "engine": engine, "node": name}, "machine": "box"}
            records = [record_of(SERIES[place], made, 600 * turn, **about)]
            if again:
                end = 600 * len(block) + HOUR
                records.append(record_of(SERIES[place], made, end, drift={"cells": 1}, **about))
            resultfiles.write(root / "box", made, machine=name, records=records, commit=SERIES[place].commit)
    (root / "benchmarks.json").write_bytes((root / "box" / "benchmarks.json").read_bytes())
    (root / "box" / "benchmarks.json").unlink()
    for path in root.glob("box/*/*.json"):
        path.write_text(path.read_text().replace(f'"{path.parent.name}"', '"box"'))
    return root


def all_on(nodes):
    return [list(range(REFERENCE))] * nodes


def on_everyone(node, place, route):
    return math.log(1.1) * (route == 3 and place >= 6)


def on_the_second(node, place, route):
    return math.log(1.1) * (route == 5 and place >= 6 and node == 1)


def test_a_change_on_every_node_is_said_to_be_there(tmp_path):
    made = history.history_of(load(write(tmp_path, all_on(2), on_everyone)), "torch")
    assert [node.name for node in made.nodes.nodes] == ["node-a", "node-b"]
    breaks = found(made)
    assert set(breaks) == {ROUTES[3]} and breaks[ROUTES[3]][0][:2] == (SERIES[6].version, "slower")
    assert breaks[ROUTES[3]][0][2] == pytest.approx(1.1, rel=0.02)
    ((_, one),) = made.breaks
    assert words.on_nodes(one) == "on 2 of 2 nodes"
    assert [on.ratio for on in one.nodes] == pytest.approx([1.1, 1.1], rel=0.03)
    assert not made.nodes.local


def test_a_change_on_one_node_is_said_to_be_there_only(tmp_path):
    made = history.history_of(load(write(tmp_path, all_on(2), on_the_second)), "torch")
    said = [(series.names["route"], words.on_nodes(one)) for series, one in [*made.breaks, *made.nodes.local]]
    assert set(said) == {(ROUTES[5], "only on node-b")}
    at = {one.at.version for _, one in [*made.breaks, *made.nodes.local]}
    assert at == {SERIES[6].version}


@pytest.mark.parametrize("changed, told", [(on_everyone, "on 4 of 4 nodes"), (on_the_second, "only on node-b")])
def test_each_release_on_two_of_four_nodes(tmp_path, changed, told):
    """Over four nodes a node has half of the releases, and a change on one of them is still told from one on all."""
    dealt = deal([str(place) for place in range(REFERENCE)], 4, 2)
    blocks = [[int(place) for place in block] for block in dealt]
    made = history.history_of(load(write(tmp_path, blocks, changed, sd=0.005)), "torch")
    every = [*made.breaks, *made.nodes.local]
    assert {series.names["route"] for series, _ in every} == {ROUTES[3] if changed is on_everyone else ROUTES[5]}
    assert told in {words.on_nodes(one) for _, one in every}


def test_what_nodes_add_is_no_news(tmp_path):
    routes = [f"route{number}(a)" for number in range(100)]
    made = history.history_of(load(write(tmp_path, all_on(3), lambda *_: 0.0, routes=routes, node_sd=0.1)), "torch")
    assert len(made.breaks) <= 1 and len(made.nodes.local) <= 1
    adds = [math.log(node.adds) for node in made.nodes.nodes]
    assert max(adds) - min(adds) > 0.02, "the nodes were drawn apart"


def test_the_page_says_it(tmp_path):
    root = write(tmp_path / "results", all_on(2), lambda *where: on_everyone(*where) + on_the_second(*where))
    assert report.main(["--results", str(root), "--output", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "history" / "box" / "README.md").read_text(encoding="utf-8")
    assert "on 2 of 2 nodes" in page and "only on node-b" in page and "torch: nodes" in page
    assert "one machine, which stood for all" not in page
    csv = (tmp_path / "out" / "history" / "box" / "results.csv").read_text(encoding="utf-8")
    assert "nodes_with,nodes_without" in csv.splitlines()[0] and "node-a node-b" in csv
    again = write(tmp_path / "again", all_on(2), on_everyone, engine="debug")
    assert report.main(["--results", str(again), "--output", str(tmp_path / "out2")]) == 0
    page = (tmp_path / "out2" / "history" / "box" / "README.md").read_text(encoding="utf-8")
    assert "one machine, which stood for all" in page


def test_one_node_gives_what_one_machine_gives(tmp_path):
    """The same files, as those of a machine and as those of its only node: the same bytes."""
    as_node = write(tmp_path / "a", all_on(1), on_everyone)
    as_machine = tmp_path / "b"
    (as_machine / "box").mkdir(parents=True)
    (as_machine / "benchmarks.json").write_bytes((as_node / "benchmarks.json").read_bytes())
    for path in (as_node / "box" / "node-a").iterdir():
        (as_machine / "box" / path.name).write_bytes(path.read_bytes())
    pages, nodes = [], []
    for root in (as_node, as_machine):
        nodes.append(build.build(root, "box", root / "out").advised.node)
        files = (root / "out" / "history" / "box").iterdir()
        pages.append({path.name: path.read_text(encoding="utf-8") for path in files})
    assert {"README.md", "index.html", "results.csv"} <= set(pages[0])
    assert pages[0] == pages[1] and nodes == ["node-a", ""]


def counts(count):
    """A function as ``write`` takes one: repeats of a count, the first of which is ``count(node, place)``."""
    declared = {"repeated": True, "direction": "numpy→torch", "unit": "instructions"}
    params = {"route": ROUTES, "dtype": ["float32"], "nbytes": [4 * KIB]}
    about = [contract(route, "copy") for route in ROUTES]
    name = "instructions.Conversion.track_counted"

    def benches(node, place):
        cells = {(ROUTES[0], "float32", 4 * KIB): [count(node, place) + more for more in (0.0, 1.0, 2.0)]}
        return [resultfiles.Bench(name, params, cells, about, "instructions", declared)]

    return benches


def test_counts_that_nodes_do_not_agree_in_are_said(tmp_path):
    benches = counts(lambda node, place: 1000.0 if node == 0 or place != 4 else 1100.0)
    made = history.history_of(load(write(tmp_path, all_on(2), lambda *_: 0.0, benches=benches)), "torch")
    (one,) = made.nodes.differing
    assert one.release.version == SERIES[4].version and one.counts == {"node-a": 1001.0, "node-b": 1101.0}


@pytest.mark.parametrize("nodes, on_all", [((0, 1), True), ((0,), False)])
def test_a_step_of_counts_that_one_node_has_is_said_to_be_no_other_s(tmp_path, nodes, on_all):
    benches = counts(lambda node, place: 1100.0 if place >= 6 and node in nodes else 1000.0)
    root = write(tmp_path / "results", all_on(2), lambda *_: 0.0, benches=benches)
    assert report.main(["--results", str(root), "--output", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "history" / "box" / "README.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if "by any two repeats" in line and line.startswith("|"))
    assert SERIES[6].version in row and "1.10× the instructions" in row
    assert ("not the same on all nodes" in row) is not on_all


def simulated(nodes, copies, cells=200, releases=26, interaction=0.0, node_sd=NODE_SD):
    """sd of a ratio to the reference and of that of neighbours, in %, by the design and the estimate."""
    rng = np.random.default_rng(nodes)
    blocks = deal([str(place) for place in range(1, releases)], nodes, copies)
    pairs = [(place, node) for node, block in enumerate(blocks) for place in [0, *map(int, block), 0]]
    release, node = (np.array(own) for own in zip(*pairs))
    values = rng.normal(0, node_sd, (cells, nodes))[:, node]
    values = values + rng.normal(0, interaction, (cells, releases, nodes))[:, release, node]
    values += rng.normal(0, math.hypot(VISIT_SD, PROCESS_SD / 2), values.shape)  # four processes a visit
    variance = np.full(values.shape, VISIT_SD**2 + PROCESS_SD**2 / 4)
    found = statistics.crossed(values, variance, release, node, np.array(["family"] * cells))
    others = found.level[:, 1:]
    return 100 * np.std(others - found.level[:, :1]), 100 * np.std(np.diff(others)), found


@pytest.mark.parametrize(
    "nodes, copies, to_reference, to_next", [(1, 1, 2.8, 3.2), (4, 1, 2.8, 3.8), (4, 2, 1.9, 2.4), (8, 2, 1.9, 2.5)]
)
def test_design_and_estimate_reach_what_was_simulated_before(nodes, copies, to_reference, to_next):
    reference, following, found = simulated(nodes, copies)
    assert reference <= to_reference and following <= to_next
    apart = found.level - found.level.mean(axis=1, keepdims=True)
    assert np.std(apart / found.error) == pytest.approx(1.0, abs=0.1), "errors are what they say"


def test_what_nodes_do_to_releases_is_found():
    reference, _, found = simulated(4, 2, interaction=0.015)
    assert 2.1 <= reference <= 2.6
    assert found.interaction_sd["family"] == pytest.approx(0.015, abs=0.003)
    assert found.node_sd["family"] == pytest.approx(NODE_SD, abs=0.005)


def test_no_node_adds_anything():
    _, _, found = simulated(4, 2, node_sd=0.0)
    assert found.node_sd["family"] < 0.005 and found.interaction_sd["family"] < 0.005


def test_a_node_that_lacks_a_cell(tmp_path):
    values = np.array([[0.0, 0.1, np.nan, np.nan], [np.nan] * 4])
    release, node = np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])
    found = statistics.crossed(values, np.full((2, 4), 1e-4), release, node, np.array(["a", "a"]))
    assert found.level[0] == pytest.approx([0.0, 0.1]) and np.isnan(found.level[1]).all()
    assert np.isnan(found.node[0, 1])


def test_a_node_that_never_timed_a_cell(tmp_path):
    """Such as one that only counts, or was never calm meanwhile."""
    root = write(tmp_path, all_on(2), on_everyone)
    for path in (root / "box" / "node-b").glob(f"*{files.MEASUREMENTS}"):
        lines = [line for line in files.read_measurements(path) if repr(ROUTES[3]) not in line["params"]]
        path.write_bytes(files.measurements_text(lines))
        asv = files.beside(path, ".json")
        file = json.loads(asv.read_text())
        asv.write_text(json.dumps({**file, "results": {}}))
    made = history.history_of(load(root, "box"), "torch")
    (broken,) = (broken for series, broken in made.breaks if series.names["route"] == ROUTES[3])
    assert [said.node for said in broken.nodes] == ["node-a"]
    second = {series.names["route"]: len(series.releases) for series in made.nodes.nodes[1].series}
    assert second[ROUTES[3]] == 0 and second[ROUTES[2]] == len(SERIES)


def test_what_the_machine_itself_measured_is_named(tmp_path):
    """Beside its nodes, as after a campaign of --engine debug."""
    root = write(tmp_path, all_on(2), on_everyone)
    for path in (root / "box" / "node-b").glob("*-*"):
        path.rename(root / "box" / path.name)
    made = history.history_of(load(root, "box"), "torch")
    assert [node.name for node in made.nodes.nodes] == ["node-a", "the machine itself"]
    assert ["the machine itself" in {said.node for said in broken.nodes} for _, broken in made.breaks] == [True]


def test_a_release_of_a_node_is_compared_by_its_file(tmp_path):
    root = write(tmp_path, all_on(2), on_everyone)
    (path,) = (root / "box" / "node-b").glob(f"{SERIES[0].commit[:8]}*.json")
    assert files.results_of(path) == root
    with pytest.raises(UserError, match="has 2 result files .node-a/.*, node-b/.*name one"):
        selection.result_file(SERIES[0].tag, root)
