"""A race stops results early, and its answers are wrong no more often than with all processes."""

import itertools
from collections import Counter

import numpy as np
import pytest
import resultfiles
from analysis import racing, ranking
from analysis.cells import cells_of
from analysis.needs import choices
from analysis.results import load
from resultfiles import around

ROUTES = [resultfiles.contract(f"torch.route{number}(a)", "copy") for number in range(6)]
# Log of how much longer a route takes than another: ties, hardly more than a margin, and far more
STEPS = [0, 0.02, 0.04, 0.08, 0.12, 0.2, 0.5, 1.2]
ROUNDS, SEEDS, SIZES = 4, 3, range(64, 576, 8)


def made(folder, times, sizes=(8,), **record):
    """Results of routes, the same at each size. times: of a route -> seconds of each process."""
    routes = ROUTES[: len(times)]
    by_cell = {(route["expression"], size): each for route, each in zip(routes, times) for size in sizes}
    bench = resultfiles.conversion(by_cell, routes)
    return load(resultfiles.write(folder, [bench], records=[resultfiles.record([bench], **record)]))


@pytest.mark.parametrize(
    ("times", "reasons"),
    [
        ([around(1e-6, count=2), around(2e-6, count=2)], [racing.DECIDED, racing.BEATEN]),
        ([around(1e-6, count=2), around(1.001e-6, count=2)], [racing.DECIDED, racing.TIED]),
        ([around(1e-6, count=2), [9e-6]], [racing.DECIDED, ""]),
        ([around(1e-6, 0.04, 2), around(1.04e-6, 0.04, 2), around(3e-6, 0.04, 2)], ["", "", racing.BEATEN]),
    ],
)
def test_results_stop_when_no_process_can_change_an_answer(times, reasons, tmp_path, monkeypatch):
    monkeypatch.setattr(ranking, "FEW_SD", 0.01)
    cells = cells_of(made(tmp_path, times))
    stopped = racing.stop_reasons(cells)
    of_cell = {cell: reason for reason, several in stopped.items() for cell in several}
    assert [of_cell.get(cell, "") for cell in cells["cell"]] == reasons
    assert not racing.stop_reasons(cells, kept=[*cells["cell"]])
    filed = made(tmp_path, times, stopped=stopped).cells
    assert filed["reason"].fillna("").tolist() == reasons, "results.csv says why"


def at(cells, logs, counts):
    """The cells as they are after this number of processes of each."""
    logs = np.where(np.arange(ROUNDS) < counts[:, np.newaxis], logs, np.nan)
    evidence = ranking.weigh(logs, cells["noise"].to_numpy()).assign(processes=counts)
    return cells.assign(seconds=np.exp(np.nanmedian(logs, axis=1)), **{name: evidence[name] for name in evidence})


def wrong(cells, truth):
    """The number of best routes that take over MARGIN longer than another, and of routes that are wrongly slower."""
    ranked = choices(cells.assign(truth=truth)[cells.columns]).merge(cells[["cell"]].assign(truth=truth), on="cell")
    sizes = ranked.groupby("nbytes")["truth"]
    best = ranked[ranked["kind"] == ranking.BEST].set_index("nbytes")["truth"]
    beaten = ranked[ranked["kind"] == ranking.SLOWER]
    margin = np.log1p(ranking.MARGIN)
    is_wrong = beaten["truth"].to_numpy() < best[beaten["nbytes"]].to_numpy() + margin
    return int((best > sizes.min() + margin).sum()), int(is_wrong.sum())


@pytest.mark.parametrize(("sd", "shared", "saved"), [(0.01, 0.005, 0.3), (0.03, 0.01, 0.15)])
def test_answers_of_a_race_are_wrong_no_more_often(sd, shared, saved, tmp_path):
    """The times of processes are made up: their truth is known. SDs differ from cell to cell as on real machines, and
    cells of a round share the machine's state. What stops all after two processes is wrong twice as often, where a
    process says much."""
    cells = cells_of(made(tmp_path, [around(1e-6)] * len(ROUTES), SIZES))
    rules = {"all": lambda cells: {}, "race": racing.stop_reasons, "two": lambda cells: {"": tuple(cells["cell"])}}
    errors, processes = Counter(), Counter()
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        truth = rng.choice(STEPS, len(cells)) + np.log(1e-6)
        noise = sd * np.sqrt(6 / rng.chisquare(6, (len(cells), 1))) * rng.normal(size=(len(cells), ROUNDS))
        logs = truth[:, np.newaxis] + noise + rng.normal(0, shared, ROUNDS)
        for name, rule in rules.items():
            counts = np.full(len(cells), 2)
            for number in range(2, ROUNDS):
                stopped = itertools.chain(*rule(at(cells, logs, counts)).values())
                counts[~cells["cell"].isin([*stopped])] = number + 1
            best, slower = wrong(at(cells, logs, counts), truth)
            errors.update({name: best, f"{name}: slower": slower})
            processes[name] += counts.sum()
    assert errors["race"] <= errors["all"]
    assert errors["race: slower"] <= ranking.PROMISE * SEEDS * len(cells)
    assert processes["race"] <= (1 - saved) * processes["all"]
    assert errors["two"] > 1.5 * errors["race"] or sd > 0.01
