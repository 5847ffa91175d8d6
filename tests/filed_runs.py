"""What a run has filed, checked."""

from itertools import chain, product

from analysis.results import load
from msgspec import structs
from store import files
from store.schema import with_samples

MACHINE, ROUNDS = "robust", 2


def check_whole(root, rounds=ROUNDS, whole=()):
    """Check that every cell has each round exactly once, in asv's file, the samples and one record, and that no partial
    file is left. Cells that stopped have the first round. Return the record and the measurements.

    whole  lines of rounds that were finished before; they must be unchanged
    """
    (record_file,) = root.rglob("results/*/*.jsonl")
    (record,) = files.read_records(record_file)
    assert record.rounds == rounds
    lines = with_samples(files.read_measurements(record_file))
    taken = [structs.replace(line, run="") for line in lines]
    assert all(line in taken for line in whole), "a finished round was measured again"
    cells = {line.cell for line in lines}
    found = {(line.run, line.cell, line.round) for line in lines}
    stopped = {*chain(*record.stopped.values())}
    wanted = {(cell, number) for cell, number in product(cells, range(rounds)) if not number or cell not in stopped}
    assert found == {(record.started, *each) for each in wanted}
    assert set(load(record_file.parents[1]).processes["cell"]) == cells, "asv's file has other cells than the samples"
    assert not [*root.rglob("*.new"), *root.rglob("installed/[0-9]*")], "something half done is left"
    return record, lines
