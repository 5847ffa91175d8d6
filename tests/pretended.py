"""A suite of sixty cells whose asv only logs what a test decides: all else, journal, files and filing, is real."""

import json
from dataclasses import replace

from asv.results import Results
from asv.runner import BenchmarkResult
from measuring import runner as measuring
from measuring.engine import FILES, LOG, Suite
from measuring.profiles import PROFILES, Profile, Rule
from measuring.runner import Journal, Plan
from resultfiles import SAMPLES, TAKEN, Bench
from store.files import BENCHMARKS, MACHINE
from store.records import Conditions, Settings
from toolchains import environments, ledger

BENCH = Bench("toy.Toy.timeit_call", {"number": range(60)}, {})
NAME, TOY = BENCH.name, BENCH.description()
COUNTS = {"toy.Counts": {**TOY, "name": "toy.Counts", "type": "track", "repeated": True}}
CELLS = [*map(BENCH.spelled, BENCH.keys())]
HERE = ledger.Toolchain("2.13.0+cpu", "2.4.6")


def line(cell, slow=False, took=0.1):
    """What a process logs of a cell."""
    name, _, params = cell.rstrip(")").partition("(")
    about = {"benchmark": name, "params": [params], "version": "v1", "at": 0.0}
    probes = {"processor": [50_000 if slow else 25_000] * (SAMPLES + 1)}
    return about | TAKEN | {"seconds": [1e-6] * SAMPLES, "probes": probes, "took": took}


class Asv:
    """What asv measures: ``slow(cell, attempt)`` says whether a process is noisy. calls: cells and patience of each."""

    def __init__(self, monkeypatch, slow=lambda cell, attempt: False, took=0.1):
        self.slow, self.took, self.calls, self.cells, self.attempts, self.read = slow, took, [], [], {}, []
        monkeypatch.delenv("CONVERSION_RESULTS", raising=False)
        monkeypatch.setattr(measuring.platform, "python_version", lambda: "3.11.7")
        monkeypatch.setattr(Suite, "measure", lambda suite, *arguments, **more: self.measure(suite, *arguments, **more))
        self.benchmarks = {NAME: TOY}
        monkeypatch.setattr(Suite, "discover", lambda suite, machine: self.benchmarks)
        monkeypatch.setattr(Suite, "installed", lambda suite: HERE)
        monkeypatch.setattr(environments, "here", lambda: HERE)
        monkeypatch.setattr(measuring, "settings", lambda python: Settings())
        monkeypatch.setattr(measuring, "conditions", Conditions)
        monkeypatch.setattr(measuring, "read_libraries", self.read.append)
        monkeypatch.setitem(PROFILES, "toy", Profile(1, 1.0, (Rule(r"toy\..*"),)))

    def measure(self, suite, cells, machine, place, advance, patience=(0.0, 0), cores=()):
        self.cells.append(list(cells))
        chosen = [cell for cell in CELLS if cell in cells]
        self.calls.append((len(chosen), patience[0]))
        with (place / LOG).open("a", encoding="utf-8") as log:
            for cell in chosen:
                self.attempts[cell] = self.attempts.get(cell, 0) + 1
                log.write(json.dumps(line(cell, self.slow(cell, self.attempts[cell]), took=self.took)) + "\n")
                log.flush()
                advance()
        file_by_asv(place / FILES, machine, dict.fromkeys(chosen, 1e-6))


def file_by_asv(results, machine, cells):
    """asv's own file of a result with these figures, and what it files beside it."""
    made = Results({"machine": machine}, {}, HERE.commit, 0, "3.11", "toolchain-py3.11", {})
    path = results / machine / f"{HERE.commit[:8]}-toolchain-py3.11.json"
    if path.is_file():
        made = Results.load(str(path))
    values = [cells.get(cell, float("nan")) for cell in CELLS]
    which = {place for place, cell in enumerate(CELLS) if cell in cells}
    made.add_result(
        TOY, BenchmarkResult(values, [None] * 60, [None] * 60, 0, "", None), duration=1.0, selected_idx=which
    )
    made.save(str(results))
    (results / BENCHMARKS).write_text(json.dumps({NAME: TOY}))
    (results / machine / MACHINE).write_text(json.dumps({"machine": machine}))


def runner(place, rounds=1, day=25, **more):
    """A runner that keeps its journal in ``place`` and files in a suite there; a session begins on that day.

    What is installed is measured, unless there are ``tags``.
    """
    sides = {} if "tags" in more else {"": Suite(place / "suite")}
    plan = Plan("box", "toy", "", rounds, command="a test", **more)
    made = measuring.Runner(Journal(place / "run"), plan, sides)
    begin = made.new_record
    made.new_record = lambda *given: replace(begin(*given), started=f"2026-11-{day}T00:00:00+00:00")
    return made


def run(place, rounds=1, day=25, **more):
    """A run as run.py and track.py have it, or go on with; its runner."""
    made = runner(place, rounds, day, **more)
    made.journal.save(made.plan)
    made.measure()
    return made
