"""Profiles select the cells of the cross product that a run times, and the number of processes. See profiles.yaml.

A rule does not restrict parameters that it does not name. Cells have asv's names: ``module.Class.method(param, ...)``.
"""

import math
import re
import shutil
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from cli import ONLY, RESULTS, Parser, UserError, matcher, parse_size
from store.files import BENCHMARKS, read_json
from store.schema import cell_names
from toolchains import selection

from benchmarks.contracts import ALIAS

Values = str | Sequence[Any]
AT_ONCE = 500  # maximum cells in a pattern
START = 4.0  # seconds that asv takes in each round before it measures anything


class Rule:
    """Cells of the benchmarks whose name matches ``benchmark``, restricted by parameter."""

    def __init__(
        self,
        benchmark: str,
        host: bool = False,
        copies: bool | None = None,
        rounds: float = math.inf,
        **values: Values,
    ) -> None:
        self.benchmark, self.host, self.copies, self.rounds = benchmark, host, copies, rounds
        self.values = values

    def cells(self, benchmark: Mapping[str, Any]) -> list[str]:
        """Return the cells of a benchmark that this rule selects. The list is empty for other benchmarks."""
        if not re.fullmatch(self.benchmark, benchmark["name"]) or (
            self.host and benchmark.get("needs_device")
        ):
            return []
        wanted = []
        for parameter, spellings in zip(benchmark["param_names"], benchmark["params"]):
            values = self.values.get(parameter, ".*")
            pattern = (
                values
                if isinstance(values, str)
                else "|".join(re.escape(repr(value)) for value in values)
            )
            kept = [spelling for spelling in spellings if re.fullmatch(pattern, spelling)]
            if self.copies is not None and parameter == "route":
                contracts = benchmark.get("contracts", {}).items()
                of_kind = {
                    repr(route)
                    for route, each in contracts
                    if (each["memory"] != ALIAS) == self.copies
                }
                kept = [spelling for spelling in kept if spelling in of_kind]
            wanted.append(kept)
        return cell_names(benchmark["name"], wanted)


@dataclass(frozen=True)
class Profile:
    rounds: int
    minutes: float
    rules: Sequence[Rule]
    patience: float = 1.0
    longest_wait: float = math.inf
    longest: float = math.inf


def select(
    profile: Profile, benchmarks: Mapping[str, Any], number: int = 0, only: str = ""
) -> dict[str, list[str]]:
    """Benchmark -> its cells in this profile whose name matches ``only``. Benchmarks without such cells are left out.

    number  of the round, from 0
    """
    rules, matches = [rule for rule in profile.rules if number < rule.rounds], matcher(only)
    found = {
        name: dict.fromkeys(c for rule in rules for c in rule.cells(one))
        for name, one in benchmarks.items()
    }
    return {
        name: chosen for name, cells in found.items() if (chosen := list(filter(matches, cells)))
    }


def exactly(cells: Iterable[str]) -> list[str]:
    """Return regular expressions for asv's --bench that match exactly these cells, at most AT_ONCE in each. An argument
    of a command is limited to 128 KiB."""
    by_benchmark: dict[str, list[str]] = {}
    for cell in cells:
        name, bracket, params = cell.partition("(")
        by_benchmark.setdefault(name, []).append(re.escape(bracket + params))
    parts = [
        (n, each[at : at + AT_ONCE])
        for n, each in by_benchmark.items()
        for at in range(0, len(each), AT_ONCE)
    ]
    return [f"^{re.escape(name)}(?:{'|'.join(params)})$" for name, params in parts]


# --- the cells of a run -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cells:
    """The cells of a profile."""

    names: Sequence[str]
    rounds: Sequence[Sequence[str]]  # timed cells of each round
    unavailable: Mapping[str, tuple[str, ...]]  # reason -> benchmarks left out
    on_device: bool = False  # some benchmarks use an accelerator
    asleep: Sequence[str] = ()  # benchmarks that time the accelerator's waking
    counted: Sequence[
        str
    ] = ()  # cells with instruction counts, which do not depend on the machine's speed

    @property
    def timed(self) -> Sequence[str]:
        return self.rounds[0]

    def round(self, number: int) -> Sequence[str]:
        """Return the timed cells of a round, counted from 0. Rounds beyond the profile's repeat its last round."""
        return self.rounds[min(number, len(self.rounds) - 1)]

    def total(self, rounds: int) -> int:
        """Return the number of timed processes in this number of rounds."""
        return sum(len(self.round(number)) for number in range(rounds))


def cells_of(
    profile: Profile, benchmarks: Mapping[str, Any], only: str, title: str, no_device: str = ""
) -> Cells:
    """Return the cells of ``profile`` whose name matches ``only``. Raise UserError if no cell matches or can be
    measured.

    Benchmarks that need a device are left out if ``no_device`` gives a reason. Benchmarks that need a missing program
    are left out, too. This is decided once: asking each of their thousands of cells would cost a process each.
    """
    chosen = select(profile, benchmarks, only=only)
    if not chosen:
        raise UserError(f"--only {only!r} matches no cell of the profile {title}")
    unavailable = by_reason(
        (why, name) for name in chosen if (why := unable(benchmarks[name], no_device))
    )
    known = {
        name: benchmarks[name]
        for name in chosen
        if not any(name in names for names in unavailable.values())
    }
    if not known:
        raise UserError(
            f"nothing that was asked for can be measured here: {'; '.join(unavailable)}"
        )
    timed = {name: made for name, made in known.items() if made["type"] == "time"}
    rounds = [
        select(profile, timed, number, only).values() for number in range(max(2, profile.rounds))
    ]
    return Cells(
        [cell for name in known for cell in chosen[name]],
        [[cell for cells in each for cell in cells] for each in rounds],
        unavailable,
        on_device=any(made.get("needs_device") for made in known.values()),
        asleep=[name for name, made in known.items() if made.get("asleep")],
        counted=[
            cell for name, made in known.items() if made.get("repeated") for cell in chosen[name]
        ],
    )


def by_reason(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Reason -> its cells in order, without duplicates."""
    found: dict[str, dict[str, None]] = {}
    for why, cell in pairs:
        found.setdefault(why, {})[cell] = None
    return {why: tuple(cells) for why, cells in found.items()}


def estimate_minutes(
    profile: str, only: str, rounds: int, known: Mapping[str, Any] | None = None
) -> float:
    """Estimate the minutes that a profile takes with this number of rounds. With ``only`` the time of its processes is
    scaled by their share, if the benchmarks are ``known`` or asv's description of them exists."""
    whole, described = PROFILES[profile], RESULTS / BENCHMARKS
    if not only or not (known or described.is_file()):
        return whole.minutes * rounds / whole.rounds
    known = known or {
        name: each for name, each in read_json(described).items() if isinstance(each, dict)
    }
    every, chosen = (cells_of(whole, known, each, profile) for each in ("", only))
    share, start = chosen.total(rounds) / max(every.total(whole.rounds), 1), START / 60
    return start * rounds + (whole.minutes - start * whole.rounds) * share


def unable(benchmark: Mapping[str, Any], no_device: str) -> str:
    """Return why a benchmark cannot run here, judged by its declared requirements; "" if it can."""
    if no_device and benchmark.get("needs_device"):
        return no_device
    missing = (
        (name, how)
        for name, how in benchmark.get("needs_programs", {}).items()
        if not shutil.which(name)
    )
    return next((f"needs {name}: {how}" for name, how in missing), "")


# --- the profiles -----------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Return the parsed YAML with nested lists flattened and sizes in bytes."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [
            one
            for each in map(plain, value)
            for one in (each if isinstance(each, list) else [each])
        ]
    return parse_size(value) if isinstance(value, str) and value.endswith("iB") else value


LOADER = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)  # the C loader takes a tenth of the time, in every verb
MADE = plain(yaml.load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"), LOADER))[
    "profiles"
]
PROFILES = {
    name: Profile(**{**each, "rules": [Rule(**one) for one in each["rules"]]})
    for name, each in MADE.items()
}


# --- options: the same in every verb that measures --------------------------------------------------------------------


def add_options(parser: Parser, default: str) -> None:
    """Add options for the cells to measure and the name of the machine. ``default`` is the default profile."""
    parser.option(
        "--profile NAME", f"one of: {', '.join(PROFILES)} (default: {default})", choices=PROFILES
    )
    parser.option("--only REGEX", ONLY)
    parser.option("--rounds N", "rounds, each with one process per result (default: the profile's)")
    about = "name in reports/results (default: made from the hardware; with Slurm, the partition)"
    parser.option("--machine NAME", about, type=selection.check_machine_name)
    parser.option("--resume", "continue an interrupted run from its finished rounds")
    parser.option("--no-report", "measure only; scripts/report.py builds the page later")


def profile_options(chosen: Namespace, default: str) -> dict[str, Any]:
    """Return the chosen profile, cells and rounds."""
    profile = chosen.profile or default
    return {
        "profile": profile,
        "only": chosen.only or "",
        "rounds": chosen.rounds or PROFILES[profile].rounds,
    }
