"""Profiles select the cells of the cross product that a run times, and the number of processes. See
profiles.yaml.

A rule does not restrict parameters that it does not name. Cells have asv's names:
``module.Class.method(param, ...)``.
"""

import difflib
import itertools
import math
import os
import re
import shutil
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from cli import ONLY, RESULTS, Parser, UserError, matcher, parse_size
from store.files import BENCHMARKS, read_entries
from store.schema import Reasons, cell_names
from toolchains import selection

from benchmarks.contracts import ALIAS, Role

Names = Sequence[str]  # of cells, benchmarks, releases or options
Benchmark = Mapping[str, Any]  # asv's description, with our declarations
Benchmarks = Mapping[str, Benchmark]
Matcher = Callable[[str], bool]  # chooses cells by name, see cli.matcher
MAX_CELLS_PER_PATTERN = 500
MAX_NEAR, MIN_LIKENESS = 3, 0.6  # names that are offered, and the ratio of difflib from which on
TRACKING = "tracking"  # the profile of histories
ASV_START_SECONDS = 4.0  # that asv takes in each round before it measures anything


class Rule:
    """Cells of the benchmarks whose name matches ``benchmark``, restricted by parameter.

    host    only benchmarks that need no accelerator
    copies  only routes that move bytes (True) or share memory (False)
    rounds  number of rounds that have these cells
    values  parameter -> its values, or a regular expression over asv's spelling of them
    """

    def __init__(
        self,
        benchmark: str,
        host: bool = False,
        copies: bool | None = None,
        rounds: float = math.inf,
        **values: str | Sequence[str | int],
    ) -> None:
        self.benchmark = benchmark
        self.host = host
        self.copies = copies
        self.rounds = rounds
        self.values = values

    def cells(self, benchmark: Benchmark) -> list[str]:
        """Return the cells of a benchmark that this rule selects. The list is empty for other
        benchmarks."""
        if not re.fullmatch(self.benchmark, benchmark["name"]):
            return []
        if self.host and benchmark.get("needs_device"):
            return []
        params = []
        for parameter, spellings in zip(benchmark["param_names"], benchmark["params"]):
            values = self.values.get(parameter, ".*")
            if not isinstance(values, str):
                values = "|".join(re.escape(repr(value)) for value in values)
            selected = [spelling for spelling in spellings if re.fullmatch(values, spelling)]
            if self.copies is not None and parameter == "route":
                # asv's spelling of the routes that copy, or of those that share memory
                routes = {
                    repr(route)
                    for route, contract in benchmark.get("contracts", {}).items()
                    if (contract["memory"] != ALIAS) == self.copies
                }
                selected = [spelling for spelling in selected if spelling in routes]
            params.append(selected)
        return cell_names(benchmark["name"], params)


@dataclass(frozen=True)
class Profile:
    """Cells and their number of processes. profiles.yaml explains the fields."""

    rounds: int
    minutes: float
    rules: Sequence[Rule]
    first: Sequence[Rule] = ()
    patience: float = 1.0
    wait_limit: float = math.inf
    time_limit: float = math.inf


def select(
    profile: Profile, benchmarks: Benchmarks, number: int = 0, matches: Matcher = bool
) -> dict[str, list[str]]:
    """Benchmark -> its cells in this profile that ``matches`` chooses. Benchmarks without such
    cells are left out. Counting takes minutes: benchmarks that count repeatedly are left out,
    unless ``matches`` chooses their own name or no other cell.

    number   of the round, from 0
    matches  see cli.matcher; all names by default
    """
    rules = [rule for rule in profile.rules if number < rule.rounds]
    selected = {}
    for name, benchmark in benchmarks.items():
        cells = dict.fromkeys(cell for rule in rules for cell in rule.cells(benchmark))
        if matching := list(filter(matches, cells)):
            selected[name] = matching
    wanted = {
        name: cells
        for name, cells in selected.items()
        if matches(name) or not benchmarks[name].get("repeated")
    }
    return wanted or selected


def suite_cells(benchmarks: Benchmarks) -> list[str]:
    """Return all cells of these benchmarks."""
    every = (cell_names(each["name"], each["params"]) for each in benchmarks.values())
    return list(itertools.chain(*every))


def near_names(only: str, matches: Matcher, profile: str, benchmarks: Benchmarks) -> str:
    """Return what to write instead of an ``only`` that matches no cell of a profile: profiles that
    have such cells, and the cells or parameters of this profile that are spelled most alike."""
    having = [name for name, each in PROFILES.items() if select(each, benchmarks, matches=matches)]
    cells = list(itertools.chain(*select(PROFILES[profile], benchmarks).values()))
    parts = dict.fromkeys(re.findall(r"'([^']+)'", " ".join(cells)))
    near = difflib.get_close_matches(only, [*parts, *cells], MAX_NEAR, MIN_LIKENESS)
    text = f"; --profile {' or '.join(having)} has such cells" if having else ""
    return text + (f"; near are: {'; '.join(near)}" if near else "")


def exact_patterns(cells: Iterable[str]) -> list[str]:
    """Return regular expressions for asv's --bench that match exactly these cells, at most
    MAX_CELLS_PER_PATTERN in each. An argument of a command is limited to 128 KiB."""
    by_benchmark: dict[str, list[str]] = {}
    for cell in cells:
        name, bracket, params = cell.partition("(")
        by_benchmark.setdefault(name, []).append(re.escape(bracket + params))
    patterns = []
    for name, endings in by_benchmark.items():
        for first in range(0, len(endings), MAX_CELLS_PER_PATTERN):
            part = "|".join(endings[first : first + MAX_CELLS_PER_PATTERN])
            patterns.append(f"^{re.escape(name)}(?:{part})$")
    return patterns


# --- the cells of a run ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Cells:
    """The cells of a profile.

    rounds       timed cells of each round
    first        those of the first round that are measured, and answered, before the others
    in_turns     timed cells that two sides can time at the same moment
    unavailable  reason -> benchmarks left out
    on_device    some benchmarks use an accelerator
    waking       benchmarks that time the accelerator's waking
    counted      cells with instruction counts, which do not depend on the machine's speed
    """

    names: Names
    rounds: Sequence[Names]
    unavailable: Reasons
    on_device: bool = False
    waking: Names = ()
    counted: Names = ()
    first: Names = ()
    in_turns: Names = ()

    @property
    def timed(self) -> Names:
        return self.rounds[0]

    def round(self, number: int) -> Names:
        """Return the timed cells of a round, counted from 0. Rounds beyond the profile's repeat its
        last round."""
        return self.rounds[min(number, len(self.rounds) - 1)]

    def total(self, rounds: int) -> int:
        """Return the number of timed processes in this number of rounds."""
        return sum(len(self.round(number)) for number in range(rounds))


def select_cells(profile: str, benchmarks: Benchmarks, only: str, no_device: str = "") -> Cells:
    """Return the cells of a profile whose name matches ``only``. Raise UserError if no cell matches
    or can be measured.

    Benchmarks that need a device are left out if ``no_device`` gives a reason. Benchmarks that need
    a missing program are left out, too. This is decided once: asking each of their thousands of
    cells would cost a process each.
    """
    definition = PROFILES[profile]
    matches = matcher(only, suite_cells(benchmarks) if only else ())
    selected = select(definition, benchmarks, matches=matches)
    if not selected:
        raise UserError(
            f"--only {only!r} matches no cell of the profile {profile}"
            f"{near_names(only, matches, profile, benchmarks)}"
        )
    missing = {name: missing_requirement(benchmarks[name], no_device) for name in selected}
    unavailable = group_by_reason((reason, name) for name, reason in missing.items() if reason)
    available = {name: benchmarks[name] for name in selected if not missing[name]}
    if not available:
        raise UserError(
            f"nothing that was asked for can be measured here: {'; '.join(unavailable)}"
        )
    timed = {name: each for name, each in available.items() if each["type"] == "time"}
    beginning = replace(definition, rules=definition.first)

    return Cells(
        list(itertools.chain(*map(selected.__getitem__, available))),
        [
            list(itertools.chain(*select(definition, timed, number, matches).values()))
            for number in range(max(2, definition.rounds))
        ],
        unavailable,
        on_device=bool(names_with(available, "needs_device")),
        waking=names_with(available, "asleep"),
        counted=list(
            itertools.chain(*map(selected.__getitem__, names_with(available, "repeated")))
        ),
        first=list(itertools.chain(*select(beginning, timed, 0, matches).values())),
        in_turns=list(itertools.chain(*map(selected.__getitem__, takers_of_turns(timed)))),
    )


def takers_of_turns(benchmarks: Benchmarks) -> list[str]:
    """Return the benchmarks of which two processes can take turns: plain conversions in one thread,
    on a system with named pipes."""
    if not hasattr(os, "mkfifo"):
        return []
    hinders = ("once", "needs_device", "on_all_cores", "drained")
    return [
        name
        for name, benchmark in benchmarks.items()
        if benchmark.get("role") == Role.CONVERSION
        and benchmark.get("single_threaded")
        and not any(map(benchmark.get, hinders))
    ]


def names_with(benchmarks: Benchmarks, attribute: str) -> list[str]:
    """Return the benchmarks that declare an attribute."""
    return [name for name, benchmark in benchmarks.items() if benchmark.get(attribute)]


def group_by_reason(pairs: Iterable[tuple[str | None, str]]) -> Reasons:
    """Reason -> its cells in order, without duplicates. None is no reason."""
    groups: dict[str, dict[str, None]] = {}
    for reason, cell in pairs:
        if reason is not None:
            groups.setdefault(reason, {})[cell] = None
    return {reason: tuple(cells) for reason, cells in groups.items()}


def estimate_minutes(
    profile: str, only: str, rounds: int, benchmarks: Benchmarks | None = None
) -> float:
    """Estimate the minutes that a profile takes with this number of rounds. With ``only`` the time
    of its processes is scaled by their share, if ``benchmarks`` are given or asv's description of
    them exists."""
    definition = PROFILES[profile]
    description = RESULTS / BENCHMARKS
    if not only or not (benchmarks or description.is_file()):
        return definition.minutes * rounds / definition.rounds
    if not benchmarks:
        benchmarks = read_entries(description)
    processes = select_cells(profile, benchmarks, only).total(rounds)
    all_processes = select_cells(profile, benchmarks, "").total(definition.rounds)
    share = processes / max(all_processes, 1)
    start_minutes = ASV_START_SECONDS / 60
    return start_minutes * rounds + (definition.minutes - start_minutes * definition.rounds) * share


def missing_requirement(benchmark: Benchmark, no_device: str) -> str:
    """Return why a benchmark cannot run here, judged by its declared requirements; "" if it can."""
    if no_device and benchmark.get("needs_device"):
        return no_device
    for program, advice in benchmark.get("needs_programs", {}).items():
        if not shutil.which(program):
            return f"needs {program}: {advice}"
    return ""


# --- the profiles ---------------------------------------------------------------------------------


def flatten(value: Any) -> Any:
    """Return the parsed YAML with nested lists flattened and sizes in bytes."""
    if isinstance(value, dict):
        return {name: flatten(each) for name, each in value.items()}
    if isinstance(value, list):
        flat: list[object] = []
        for item in map(flatten, value):
            flat += item if isinstance(item, list) else [item]
        return flat
    return parse_size(value) if isinstance(value, str) and value.endswith("iB") else value


def read_profiles() -> dict[str, Profile]:
    """Read the profiles from profiles.yaml."""
    # the C loader takes a tenth of the time, in every verb
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    profiles = {}
    for name, fields in flatten(yaml.load(text, loader))["profiles"].items():
        for key in {"rules", "first"} & fields.keys():
            fields[key] = [Rule(**rule) for rule in fields[key]]
        profiles[name] = Profile(**fields)
    return profiles


PROFILES = read_profiles()


# --- options: the same in every verb that measures ------------------------------------------------


def add_options(parser: Parser, default: str) -> None:
    """Add options for the cells to measure and the name of the machine. ``default`` is the default
    profile."""
    names = ", ".join(PROFILES)
    parser.option("--profile NAME", f"one of: {names} (default: {default})", choices=PROFILES)
    parser.option("--only NAME", ONLY)
    parser.option("--rounds N", "rounds, each with one process per result (default: the profile's)")
    about = "name in reports/results (default: made from the hardware; with Slurm, the partition)"
    parser.option("--machine NAME", about, type=selection.check_machine_name)
    parser.option("--resume", "continue an interrupted run from its finished rounds")
    parser.option("--no-report", "measure only; scripts/report.py builds the page later")


def profile_options(options: Namespace, default: str) -> dict[str, Any]:
    """Return the profile, the cells and the rounds of a command line, as for ``Plan``."""
    profile = options.profile or default
    rounds = options.rounds or PROFILES[profile].rounds
    return {"profile": profile, "only": options.only or "", "rounds": rounds}
