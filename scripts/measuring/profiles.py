"""Profiles: which cells of the cross product a run times, and in how many processes.

A profile is a list of rules. A rule names benchmarks by a regular expression and says for each parameter which values
it wants; a parameter it does not name is free. A parameter's values are a list, or a regular expression over asv's
spelling of the value. Cells are named as asv has them: ``module.Class.method(param, ...)``.
"""

import argparse
import math
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli import ONLY, UserError, check_whole, matcher
from store.files import read_json, spelled
from toolchains import selection

from benchmarks.contracts import ALIAS, PAGEABLE, PINNED, REGISTERED

KIB, MIB, GIB = 2**10, 2**20, 2**30
Values = str | Sequence[Any]
AT_ONCE = 500  # cells in one pattern


class Rule:
    """Cells of the benchmarks whose name matches ``benchmark``, restricted by parameter.

    host    only those that need no accelerator
    copies  True: only routes that move bytes, by their contracts; False: only those that share memory
    rounds  so many at most: one where the answer is a factor, or stands beside figures that have more
    """

    def __init__(
        self, benchmark: str, host: bool = False, copies: bool | None = None, rounds: float = math.inf, **values: Values
    ) -> None:
        self.benchmark, self.host, self.copies, self.rounds = benchmark, host, copies, rounds
        self.values = values

    def cells(self, benchmark: Mapping[str, Any]) -> list[str]:
        """The cells of a benchmark that this rule selects; none if it is not about it."""
        if not re.fullmatch(self.benchmark, benchmark["name"]) or (self.host and benchmark.get("needs_device")):
            return []
        wanted = []
        for parameter, spellings in zip(benchmark["param_names"], benchmark["params"]):
            values = self.values.get(parameter, ".*")
            known = values if isinstance(values, str) else [*map(repr, values)]
            kept = [s for s in spellings if (re.fullmatch(known, s) if isinstance(known, str) else s in known)]
            if self.copies is not None and parameter == "route":
                contracts = benchmark.get("contracts", {}).items()
                of_kind = {repr(route) for route, each in contracts if (each["memory"] != ALIAS) == self.copies}
                kept = [spelling for spelling in kept if spelling in of_kind]
            wanted.append(kept)
        return spelled(benchmark["name"], wanted)


@dataclass(frozen=True)
class Profile:
    """``rounds`` processes a cell that is timed, or what its rule says; what is only looked at (track_*) takes one.

    patience      part of what a run may wait for quiet (PATIENCE in runner.py) that this one may
    longest_wait  seconds at most
    """

    rounds: int
    minutes: float  # measured on a 2-core machine; the estimate shown before a run
    rules: tuple[Rule, ...]
    patience: float = 1.0
    longest_wait: float = math.inf


def select(
    profile: Profile, benchmarks: Mapping[str, Mapping[str, Any]], number: int = 0, only: str = ""
) -> dict[str, list[str]]:
    """Benchmark -> its cells in this profile whose name matches ``only``; benchmarks without any are left out.

    number: of the round, 0 the first
    """
    rules, matches = [rule for rule in profile.rules if number < rule.rounds], matcher(only)
    found = {name: dict.fromkeys(c for rule in rules for c in rule.cells(one)) for name, one in benchmarks.items()}
    return {name: chosen for name, cells in found.items() if (chosen := list(filter(matches, cells)))}


def exactly(cells: Iterable[str]) -> list[str]:
    """These cells as regular expressions for asv's --bench, AT_ONCE in each: a command's word is 128 KiB at most."""
    by_benchmark: dict[str, list[str]] = {}
    for cell in cells:
        name, bracket, params = cell.partition("(")
        by_benchmark.setdefault(name, []).append(re.escape(bracket + params))
    parts = [(n, each[at : at + AT_ONCE]) for n, each in by_benchmark.items() for at in range(0, len(each), AT_ONCE)]
    return [f"^{re.escape(name)}(?:{'|'.join(params)})$" for name, params in parts]


# --- the cells of a run -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cells:
    """The cells of a profile."""

    every: Sequence[str]
    rounds: Sequence[Sequence[str]]  # of each: what is timed
    unavailable: Mapping[str, Sequence[str]]  # why benchmarks are left out -> which
    on_device: bool = False  # an accelerator takes part in some
    asleep: Sequence[str] = ()  # benchmarks that time how it wakes
    counted: Sequence[str] = ()  # what no noise touches

    @property
    def timed(self) -> Sequence[str]:
        return self.rounds[0]

    def round(self, number: int) -> Sequence[str]:
        """What is timed in a round, 0 the first. Beyond the profile's it is as the last."""
        return self.rounds[min(number, len(self.rounds) - 1)]

    def total(self, rounds: int) -> int:
        """Processes that time a cell, in so many rounds."""
        return sum(len(self.round(number)) for number in range(rounds))

    def left_out(self) -> list[str]:
        """How many benchmarks are left out, of which families, and why: a line a reason."""
        lines = []
        for why, names in self.unavailable.items():
            families = dict.fromkeys(name.partition(".")[0] for name in names)
            lines.append(f"{len(names)} benchmarks ({', '.join(families)}): {why}")
        return lines


def cells_of(profile: Profile, benchmarks: Mapping[str, Any], only: str, title: str, no_device: str = "") -> Cells:
    """The cells of ``profile`` whose name matches ``only``; UserError if there is none, or none is left.

    Benchmarks that need a device are left out here, once for all, where a reason is given why there is ``no_device``,
    and those that need a program that is not found: asking each of their thousands of cells would cost a process each.
    """
    chosen = select(profile, benchmarks, only=only)
    if not chosen:
        raise UserError(f"--only {only!r} matches no cell of the profile {title}")
    unavailable: dict[str, list[str]] = {}
    for name in list(chosen):
        why = unable(benchmarks[name], no_device)
        if why:
            unavailable.setdefault(why, []).append(name)
            del chosen[name]
    if not chosen:
        raise UserError(f"nothing that was asked for can be measured here: {'; '.join(unavailable)}")
    known = {name: benchmarks[name] for name in chosen}
    timed = {name: made for name, made in known.items() if made["type"] == "time"}
    return Cells(
        [cell for cells in chosen.values() for cell in cells],
        [
            [cell for cells in select(profile, timed, number, only).values() for cell in cells]
            for number in range(max(2, profile.rounds))
        ],
        unavailable,
        on_device=any(made.get("needs_device") for made in known.values()),
        asleep=[name for name, made in known.items() if made.get("asleep")],
        counted=[cell for name, made in known.items() if made.get("repeated") for cell in chosen[name]],
    )


def minutes_of(name: str, rounds: int, only: str, described: Path) -> float:
    """What a profile takes by its estimate, in so many rounds, of the cells whose name matches ``only``: by their share
    of its processes, where asv's description of the benchmarks is there."""
    profile = PROFILES[name]
    if not only or not described.is_file():
        return profile.minutes * rounds / profile.rounds
    known = {key: each for key, each in read_json(described).items() if isinstance(each, dict)}
    every, chosen = (cells_of(profile, known, each, name) for each in ("", only))
    return profile.minutes * chosen.total(rounds) / max(every.total(profile.rounds), 1)


def unable(benchmark: Mapping[str, Any], no_device: str) -> str:
    """Why a benchmark can measure nothing here, by what it declares that it needs; "" where it can."""
    if no_device and benchmark.get("needs_device"):
        return no_device
    missing = ((name, how) for name, how in benchmark.get("needs_programs", {}).items() if not shutil.which(name))
    return next((f"needs {name}: {how}" for name, how in missing), "")


# --- the profiles -----------------------------------------------------------------------------------------------------

NOT_BY_ELEMENT = r"(?!.*tolist).*"  # seconds a call where the others take milliseconds
BY_ELEMENT = r".*tolist.*"
SHARING = ["torch.from_numpy(a)", "torch.as_tensor(a)", "t.numpy()", "t.detach().numpy()", "np.asarray(t)"]
# Copies that people choose between: .cpu() of a tensor on the host does nothing, and the others do the same in the end
DIFFERENT = r"(?!.*(tolist|cpu\(\)|dlpack|new_tensor|np\.array)).*"
MOVING = r".*(copy|clone|contiguous|torch\.tensor).*"  # of routes on layouts those that give a contiguous result
MOVED = ["strided", "transposed", "fortran"]  # layouts that such a route has to copy element by element
QUICK_SIZES = [8, 64 * KIB, MIB, 4 * MIB, 8 * MIB, 16 * MIB, 28 * MIB, 64 * MIB]
ONE_OF_EACH_MAP = r"(?!.*(r\+|shared=True)).*"  # they are read as the others are, and differ in what a write does
CONVERSION = r"conversion\.(NumpyToTorch|TorchToNumpy)\..*"
PARALLEL = r"parallel\."
LISTS = r"(batches|parallel)\.(ArraysToTensor|TensorsToArray)\..*"
LISTS_DIFFERENT = r"(?!.*(tensor\((np|arrays)|collate|stack\(tensors\)'|np\.array\(tensors)).*"
CASTING = r"(casting|parallel)\.(\w+To\w*[Ff]loat\d+|Bfloat16ToNumpy)\..*"
PARALLEL_CONVERSION = PARALLEL + r"(NumpyToTorch|TorchToNumpy)\..*"
LIMITS = r"limits\..*"


def one_each(rounds: float = math.inf) -> tuple[Rule, ...]:
    """What every page shows: what requires grad, the limits, what a conversion shares."""
    grad = Rule(r"conversion\.RequiresGradToNumpy\..*", rounds=rounds, nbytes=[4 * KIB])
    return grad, Rule(LIMITS, rounds=rounds), Rule(r"semantics\..*", dtype=["float32"])


def moves(clock: str, nbytes: Sequence[int], rounds: float = math.inf, **values: Values) -> Rule:
    """Transfers by a clock, of float32, in memory that no driver has registered unless ``values`` say otherwise."""
    wanted: Any = {"dtype": ["float32"], "nbytes": nbytes, "memory": [PAGEABLE, PINNED], **values}
    return Rule(rf"transfer\.(HostToDevice|DeviceToHost)\.timeit_{clock}", rounds=rounds, **wanted)


DEVICE_COPY, HOST_COPY = "d.copy_(t, non_blocking=True)", "h.copy_(t, non_blocking=True)"
EARLY = r".*(non_blocking=True|copy_in_chunks).*"
CHOSEN = [
    *("t.to(device)", "t.to(device, non_blocking=True)", "d.copy_(t)", DEVICE_COPY),
    *("t.cpu()", "t.to('cpu', non_blocking=True)", "h.copy_(t)", HOST_COPY),
]
SEVERAL = [route for route in CHOSEN if "non_blocking" in route]  # may be in flight at once
SEVERAL_INTO = [DEVICE_COPY, HOST_COPY]
SEVERAL_FRESH = [route for route in SEVERAL if route not in SEVERAL_INTO]
# What a program takes at any size; from the device into fresh pinned memory there is nothing but the non-blocking one
COPIES = ["t.to(device)", "d.copy_(t)", "t.cpu()", "t.to('cpu', non_blocking=True)", "h.copy_(t)"]
BETWEEN = [64 * KIB, MIB, 16 * MIB]
INTO = ["d.copy_(t)", DEVICE_COPY, "h.copy_(t)", HOST_COPY]
OF_REGISTERED = ["t.to(device)", "d.copy_(t)", DEVICE_COPY]
CHANGED = r"transfer\.(Casting|FromUint8|ToBfloat16|Transposed)\.timeit_"  # on the way
FORMS = ["naive", "prefetch", "already pinned"]
STAGED = [
    *("t.pin_memory().to(device, non_blocking=True)", "s.copy_(t); d.copy_(s, non_blocking=True)"),
    "copy_in_chunks(d, t, stages)",
]
READ_BACK = ["h.copy_(t).numpy()", "buffers.start(t); buffers.read()"]
ARRAYS = [
    *("torch.from_numpy(a).to(device)", "d.copy_(torch.from_numpy(a))"),
    *("s.numpy()[:] = a; d.copy_(s, non_blocking=True)", "t.cpu().numpy()", "h.copy_(t).numpy()"),
]

# a few of those without a device, for what people ask about both; half a minute
WITHOUT_A_DEVICE = (
    Rule(CONVERSION, rounds=2, dtype=["float32"], nbytes=[4 * KIB, MIB], route=NOT_BY_ELEMENT),
    Rule(r"batches\..*", rounds=2, nbytes=[MIB]),
    Rule(r"casting\..*", rounds=2, dtype=["bfloat16"], nbytes=[MIB]),
    Rule(r"placement\..*\.timeit_convert", rounds=2, nbytes=[64 * KIB]),
    *one_each(2),
)

PROFILES = {
    "quick": Profile(
        4,
        3.5,
        (
            # what shares memory takes no longer for more bytes: two sizes show it
            Rule(CONVERSION, copies=False, dtype=["float32"], nbytes=[8]),
            Rule(CONVERSION, copies=False, dtype=["float32"], nbytes=[64 * MIB], route=SHARING),
            Rule(CONVERSION, dtype=["float32"], nbytes=[8, MIB], route=BY_ELEMENT),
            Rule(CONVERSION, copies=True, dtype=["float32"], nbytes=QUICK_SIZES, route=DIFFERENT),
            Rule(PARALLEL_CONVERSION, threads=["all"], nbytes=[128 * KIB, 256 * KIB, *QUICK_SIZES], route=DIFFERENT),
            Rule(CASTING, dtype=["float64", "bfloat16"], nbytes=[MIB]),
            Rule(LISTS, nbytes=[64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB], route=LISTS_DIFFERENT),
            Rule(r"batches\.ArraysToTensor\..*", nbytes=[MIB], route=["torch.tensor(arrays)"]),
            Rule(r"batches\.Tree.*", nbytes=[MIB]),
            Rule(r"placement\..*", nbytes=[64 * KIB]),
            Rule(LIMITS, nbytes=QUICK_SIZES),
            *(rule for rule in one_each() if rule.benchmark != LIMITS),
        ),
        longest_wait=60.0,
    ),
    "standard": Profile(
        4,
        27.0,
        (
            Rule(CONVERSION, copies=False, dtype=["float32"], nbytes=[8, MIB, 64 * MIB]),
            Rule(CONVERSION, dtype=["float32"], nbytes=[8, 4 * KIB, 64 * KIB, MIB], route=BY_ELEMENT),
            Rule(CONVERSION, copies=True, dtype=["float32"], route=NOT_BY_ELEMENT),
            Rule(CONVERSION, copies=True, nbytes=[MIB]),
            Rule(PARALLEL_CONVERSION, route=NOT_BY_ELEMENT),
            Rule(CASTING, nbytes=[MIB]),
            Rule(CASTING, dtype=["float64", "bfloat16"], nbytes=[64 * KIB, 16 * MIB]),
            Rule(r"layout\..*", nbytes=[8], layout=["0-d"]),
            Rule(r"layout\..*", nbytes=[MIB]),
            Rule(r"layout\..*", nbytes=[4 * KIB, 16 * MIB, 64 * MIB], layout=MOVED, route=MOVING),
            Rule(PARALLEL + r"Layout.*", nbytes=[MIB, 16 * MIB, 64 * MIB], layout=MOVED),
            Rule(LISTS, nbytes=[4 * KIB, 64 * KIB, 256 * KIB, MIB]),
            Rule(LISTS, nbytes=[4 * MIB, 16 * MIB, 28 * MIB, 64 * MIB], route=r"(?!.*torch\.tensor\(arrays).*"),
            Rule(r"batches\.Tree.*"),
            Rule(r"cold\..*", nbytes=[MIB, 16 * MIB]),
            Rule(r"files\..*\.timeit_open", nbytes=[MIB], route=ONE_OF_EACH_MAP),
            Rule(r"files\..*\.timeit_(warm|cold)", nbytes=[64 * MIB], route=ONE_OF_EACH_MAP),
            Rule(r"placement\..*"),
            Rule(r"sharing\..*", nbytes=[MIB, 16 * MIB]),
            Rule(r"footprint\..*", nbytes=[MIB]),
            Rule(r"footprint\..*", nbytes=[64 * MIB], route=NOT_BY_ELEMENT),
            # what the first screen says of settings: 2 routes × 10 settings × (4 timed + 1 counted) = 100 processes
            Rule(r"settings\.(Copies|Batches)\.(timeit_convert|track_kept)", nbytes=[64 * MIB]),
            Rule(r"settings\.Neighbours\.timeit_convert"),
            Rule(r"conversion\.RequiresGradToNumpy\..*"),
            Rule(r"instructions\..*", dtype=["float32"]),
            Rule(r"limits\..*"),
            Rule(r"semantics\..*"),
        ),
    ),
    # what a change of the pinned releases is judged by, on runners that are never quiet: calls by their instructions,
    # by time what moves bytes
    "gate": Profile(
        4,
        3.0,
        (
            Rule(r"instructions\..*", nbytes=[4 * KIB]),
            Rule(r"instructions\..*", dtype=["float32"]),
            Rule(CONVERSION, copies=True, dtype=["float32"], nbytes=[MIB, 16 * MIB, 64 * MIB], route=NOT_BY_ELEMENT),
            Rule(r"limits\..*"),
        ),
    ),
    # the cross product of what is timed on the CPU; transfers, counts and settings have profiles of their own
    "full": Profile(4, 75.0, (Rule(r"(?!instructions\.|settings\.).*", host=True),)),
    # needs Valgrind
    "instructions": Profile(4, 3.0, (Rule(r"limits\..*"), Rule(r"instructions\..*"))),
    # by estimate: 6 sizes of routes × 10 settings × 4 processes timed and 3 × 10 × 3 counted are 330 processes, each
    # with one beside it that imports torch, 2 s together; fewer where settings are skipped
    "settings": Profile(
        4,
        11.0,
        (Rule(LIMITS), Rule(r"settings\..*\.timeit_convert"), Rule(r"settings\..*\.track_.*", nbytes=[64 * MIB])),
    ),
    # What the accelerator's half of a page is made from, and what people choose by: 261 processes on a device. By
    # estimate of a device each takes 0.9 to 1.6 s, a third of that to warm up: see tests/test_profiles.py
    "transfers": Profile(
        4,
        8.0,
        (
            moves("completion", [64 * MIB], rounds=2, route=CHOSEN),
            moves("completion", [64 * MIB], rounds=2, memory=[PAGEABLE], route=[*ARRAYS, *STAGED]),
            moves("completion", [64 * MIB], rounds=2, memory=[PINNED], route=READ_BACK),
            # 1.2 to 1.7 times as fast: fewer than four processes can never show that
            Rule(r"overlap\.DataLoader\..*"),
            Rule(r"overlap\.TrainingStep\..*", nbytes=[16 * MIB], form=FORMS),
            Rule(r"firsts\.Context\..*", rounds=2),
            moves("completion", [4 * KIB], rounds=1, route=[*CHOSEN, *READ_BACK]),
            # between 4 KiB and 64 MiB lie a driver's own staging (up to 64 KiB), and the host's caches
            moves("completion", BETWEEN, rounds=1, route=COPIES),
            moves("completion", [64 * KIB], rounds=1, route=INTO),
            moves("completion", [4 * KIB, *BETWEEN], rounds=1, memory=[PAGEABLE], route=ARRAYS),
            moves("completion", BETWEEN[1:], rounds=1, memory=[PAGEABLE], route=STAGED),
            # 64 MiB fit into the last cache of a server
            moves("completion", [256 * MIB], rounds=1, route=COPIES),
            moves("completion", [64 * MIB], rounds=1, memory=[REGISTERED], route=OF_REGISTERED),
            moves("enqueue", [4 * KIB, MIB, 64 * MIB], rounds=1, route=SEVERAL_INTO),
            moves("enqueue", [64 * MIB], rounds=1, route=SEVERAL_FRESH),
            moves("sustained", [MIB, 64 * MIB], rounds=1, memory=[PINNED], route=SEVERAL_INTO),
            Rule(r"transfer\.(ToBfloat16|Bfloat16ToNumpy)\.timeit_completion", rounds=1, nbytes=[16 * MIB]),
            Rule(r"transfer\.FromUint8\.timeit_completion", rounds=1, nbytes=[16 * MIB], memory=[PAGEABLE]),
            Rule(r"transfer\.ReadTooEarly\..*"),
            Rule(r"transfer\.Scalar\..*", rounds=1),
            Rule(r"busy\.(HostToDevice|DeviceToHost)\..*", rounds=1),
            Rule(r"busy\.WorkBehind\..*", rounds=1, nbytes=[64 * MIB]),
            Rule(r"many\..*", rounds=1, tensors=[1000]),
            Rule(r"staging\.(HostThreads|PinnedToDevice)\..*", rounds=1),
            Rule(r"overlap\.Hidden\..*", rounds=1, nbytes=[64 * MIB], memory=[PINNED]),
            Rule(r"firsts\.PinnedMemory\..*", rounds=1, nbytes=[64 * MIB, GIB]),
            Rule(r"link\.Limit\..*", rounds=1, nbytes=[64 * MIB]),
            Rule(r"link\.Floor\..*", rounds=1),
            Rule(r"link\.Hardware\..*", quantity=["link generation", "link width"]),
            *WITHOUT_A_DEVICE,
        ),
    ),
    # the same and the rest of it, each cell twice: every route at two sizes, those that people choose between at more,
    # and what changes something on the way
    "transfers-full": Profile(
        2,
        20.0,
        (
            moves("completion", [4 * KIB, 64 * MIB]),
            moves("completion", [4, 64 * KIB, MIB, 16 * MIB, 256 * MIB], route=CHOSEN),
            moves("completion", [GIB], memory=[PINNED], route=CHOSEN),
            moves("completion", [4 * KIB, 64 * MIB], memory=[REGISTERED], route=CHOSEN),
            moves("completion", [64 * MIB], dtype=["uint8"], memory=[PINNED], route=SEVERAL_INTO),
            moves("enqueue", [4 * KIB, 64 * MIB], route=EARLY),
            moves("sustained", [4 * KIB, 64 * MIB], memory=[PINNED], route=SEVERAL),
            Rule(CHANGED + "completion", nbytes=[16 * MIB]),
            Rule(r"transfer\.Bfloat16ToNumpy\.timeit_completion", nbytes=[16 * MIB]),
            Rule(CHANGED + "enqueue", nbytes=[16 * MIB], memory=[PINNED], route=EARLY),
            Rule(r"transfer\.Tree.*\.timeit_completion", nbytes=[MIB]),
            Rule(r"transfer\.Tree.*\.timeit_enqueue", nbytes=[MIB], memory=[PINNED], route=EARLY),
            Rule(r"transfer\.(Scalar|ReadTooEarly)\..*"),
            Rule(r"staging\..*"),
            Rule(r"busy\..*"),
            Rule(r"many\..*"),
            Rule(r"overlap\.Hidden\..*", nbytes=[64 * MIB]),
            Rule(r"overlap\.(TrainingStep|DataLoader)\..*"),
            Rule(r"firsts\.Context\..*"),
            Rule(r"firsts\.PinnedMemory\..*", nbytes=[64 * MIB, GIB]),
            Rule(r"link\.Limit\..*", nbytes=[64 * MIB, 256 * MIB]),
            Rule(r"link\.(Floor|Hardware)\..*"),
            *WITHOUT_A_DEVICE,
        ),
    ),
    # what histories are made of: a release is measured in minutes, and the same way for years. Calls are counted with
    # each dtype, which takes two minutes and more where there is Valgrind, and timed with one: to time all took three
    # times as long as what is timed now, and of 94 changes of a route that 26 toolchains showed, 71 are float32's, too.
    # So that 26 sessions take no more than 2½ hours on a busy machine either, each waits for less than other runs do,
    # and takes of memcpy the sizes that it has of routes: of two sessions that took 380 and 323 s, a fifth of what
    # processes took was memcpy's of 64 and 256 MiB. On two busy cores 26 sessions took 128 minutes, 241 to 321 s each
    # with installs ahead, half of that for counts.
    "tracking": Profile(
        4,
        5.0,
        (
            Rule(CONVERSION, dtype=["float32"], nbytes=[4 * KIB]),
            # element by element 1 MiB take 10 to 30 ms: 15 s of a session, and on Zen 4 quiet in 11 of 52 of them
            Rule(CONVERSION, dtype=["float32"], nbytes=[MIB, 16 * MIB], route=NOT_BY_ELEMENT),
            Rule(r"conversion\.RequiresGradToNumpy\..*", nbytes=[4 * KIB]),
            Rule(r"instructions\..*", nbytes=[4 * KIB]),
            Rule(r"limits\.Memcpy\..*", nbytes=[4 * KIB, MIB, 16 * MIB]),
            Rule(r"limits\.Floor\..*"),
            Rule(r"semantics\..*"),
        ),
        patience=0.75,
    ),
}


# --- options: the same in every verb that measures --------------------------------------------------------------------


def add_options(parser: argparse.ArgumentParser, default: str) -> None:
    """Those that say what is measured, and under which name; ``default``: profile."""
    parser.add_argument("--profile", help=f"one of: {', '.join(PROFILES)} (default: {default})")
    parser.add_argument("--only", metavar="REGEX", help=ONLY)
    parser.add_argument("--rounds", type=int, help="rounds, each with one process per result (default: the profile's)")
    parser.add_argument("--machine", help="name in reports/results (default: the partition, or made from the hardware)")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue an interrupted run: its finished rounds are kept",
    )
    parser.add_argument(
        "--no-report", action="store_true", help="measure only; scripts/report.py builds the page later"
    )


def check_chosen(chosen: argparse.Namespace) -> None:
    """UserError unless --profile, --machine, --only and --rounds, where given, can be used."""
    if chosen.profile is not None and chosen.profile not in PROFILES:
        raise UserError(f"there is no profile {chosen.profile!r}; there are: {', '.join(PROFILES)}")
    selection.check_machine(chosen.machine)
    matcher(chosen.only)
    check_whole(chosen, "rounds")


def asked_for(chosen: argparse.Namespace, default: str) -> dict[str, Any]:
    """Profile, cells and rounds that were chosen."""
    profile = chosen.profile or default
    return {"profile": profile, "only": chosen.only or "", "rounds": chosen.rounds or PROFILES[profile].rounds}
