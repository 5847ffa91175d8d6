"""What the verbs that measure share: asv driven round by round, its progress, and the run record beside its results."""

import contextlib
import itertools
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import cli
from cli import UserError, matcher
from records import calm
from toolchains import environments, installed, ledger

from .profiles import NEEDS_DEVICE, PROFILES, Profile, cells, exactly, select
from .session import apart, session
from .state import State

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "reports" / "results"
LOG_VARIABLE = "CONVERSION_SAMPLING_LOG"  # benchmarks/statement.py appends a line for each process there
PATIENCE_VARIABLE = "CONVERSION_PATIENCE"  # "12.5/200": seconds that the processes of an asv run may wait, how many
PATIENCE = 0.2  # seconds a planned process: about what one takes, so a busy machine takes about twice the time
WITHIN = 2 / 3  # of what a round may wait goes to its processes, the rest to processes anew for what was not calm
PASSES = 2  # over the cells that were not calm, at the end of each round
START = 4.0  # seconds that asv takes before it measures anything
SILENT = "its process ended without a word: it crashed, was killed, or took longer than asv allows"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LAUNCH = "forkserver" if sys.platform.startswith("linux") else "spawn"
DEVICE_SECONDS = 120.0  # importing torch and making a context take 20 on a machine that is slow at both


def asv(*arguments: str) -> list[str]:
    """Command line of an asv command in the checkout."""
    return [sys.executable, "-m", "asv", *arguments, "--config", str(ROOT / "asv.conf.json")]


def check_chosen(profile: str | None, machine: str | None, only: str | None) -> None:
    """UserError unless --profile, --machine and --only, where given, can be used: the same in every verb."""
    if profile is not None and profile not in PROFILES:
        raise UserError(f"there is no profile {profile!r}; there are: {', '.join(PROFILES)}")
    if machine is not None and not NAME.fullmatch(machine):
        raise UserError(f"--machine {machine!r}: use letters, digits, dot, dash and underscore")
    if machine in installed.TAKEN:
        raise UserError(f"--machine {machine!r}: reports/{machine} is taken, choose another name")
    matcher(only)


def check_asv() -> None:
    """UserError where asv or asv_runner, on which the timing rests, is missing or of another version."""
    pins = dict(re.findall(r"^(asv|asv_runner)==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    for package, wanted in pins.items():
        try:
            found = metadata.version(package)
        except metadata.PackageNotFoundError:
            found = "none"
        if found != wanted:
            raise UserError(
                f"the timing rests on {package} {wanted}, found {found}: "
                f"pip install {' '.join(f'{name}=={version}' for name, version in pins.items())}"
            )


def check_machine(directory: Path) -> None:
    """UserError if the results in ``directory`` were measured on other hardware: a page is about one machine."""
    try:
        known = json.loads((directory / "machine.json").read_text(encoding="utf-8"))
        there = known["cpu"], int(known["num_cpu"])
    except (OSError, ValueError, KeyError, TypeError):
        return  # asv writes the file anew
    if there != (installed.cpu_model(), os.cpu_count()):
        raise UserError(
            f"the results of {directory.name} were measured on another machine ({there[0]}, {there[1]} cores): "
            "give this one a name of its own by --machine"
        )


def register(machine: str) -> None:
    """Make the machine known to asv; UserError where asv's file of machines is broken."""
    from asv.util import UserError as Refused
    from toolchains import plugin

    try:
        plugin.register(machine)
    except Refused as why:
        raise UserError(str(why)) from None


def build_pages(machine: str, python: str | None = None) -> int:
    """Build the pages of what was measured, with ``python`` where this one lacks what a page needs; the exit code."""
    if python:
        return subprocess.run([python, str(ROOT / "scripts" / "report.py"), "--machine", machine]).returncode
    try:
        import report
    except ImportError as error:  # pandas missing, or too new for the numpy that was measured
        reason = f"needs {error.name}" if isinstance(error, ModuleNotFoundError) else str(error).splitlines()[0]
        print(
            f"results saved; no page: {reason}. python scripts/report.py builds it where requirements.txt is installed"
        )
        return 0
    return report.main(["--machine", machine])


def discover(machine: str, commit: str = "") -> dict[str, Any]:
    """All benchmarks with their parameters, as asv finds them with the toolchain ``commit``, or what is installed."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    only = [f"{commit}^!"] if commit else []
    command = asv("run", *only, "--machine", machine, "--launch-method", LAUNCH, "--bench", "just-discover")
    with tempfile.TemporaryDirectory() as results:
        done = apart(command, ROOT, {**os.environ, environments.RESULTS_VARIABLE: results})
        if done.returncode:
            lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            raise UserError(f"asv found no benchmarks: {lines[-1] if lines else 'it printed nothing'}")
        found = json.loads((Path(results) / "benchmarks.json").read_text(encoding="utf-8"))
    return {name: benchmark for name, benchmark in found.items() if isinstance(benchmark, dict)}


def settings(python: str = sys.executable, seconds: float = DEVICE_SECONDS) -> dict[str, Any]:
    """The toolchain really imported, its thread settings and the device that works, by processes like those timed."""
    code = (
        "import json, platform, sys, numpy, torch; sys.path.insert(0, sys.argv[1])\n"
        "from benchmarks import devices\n"
        "print(json.dumps({'torch': torch.__version__, 'numpy': numpy.__version__,"
        " 'python': platform.python_version(), 'cuda': torch.version.cuda, 'hip': torch.version.hip,"
        " 'torch_threads': torch.get_num_threads(), 'git': torch.version.git_version}))"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if python != sys.executable:
        environment.pop("PYTHONPATH", None)  # what is found there belongs to this Python
    done = subprocess.run([python, "-c", code, str(ROOT)], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise UserError(f"torch cannot be imported: {ending(done.returncode, done.stderr)}")
    return json.loads(done.stdout.splitlines()[-1]) | device_that_works(python, environment, seconds)


def device_that_works(python: str, environment: Mapping[str, str], seconds: float) -> dict[str, Any]:
    """The device's name and model, or why there is none: asked in a process of its own, for ``seconds`` at most.

    Making a context may abort, crash or hang in the driver. That says that no device works, and ends no run.
    """
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\n"
        "from benchmarks import devices\n"
        "print(json.dumps(devices.answer()))"
    )
    pipe = subprocess.PIPE
    process = subprocess.Popen([python, "-c", code, str(ROOT)], stdout=pipe, stderr=pipe, text=True, env=environment)
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        why = f"did not answer in {seconds:g} s"
    else:
        with contextlib.suppress(IndexError, ValueError):
            if not process.returncode:
                return json.loads(out.splitlines()[-1])
        why = ending(process.returncode, err)
    finally:
        process.kill()  # and not waited for: what hangs inside the driver may outlive it
    named = os.environ.get("CONVERSION_DEVICE")
    tried = f"CONVERSION_DEVICE={named}" if named else "the device"
    return {"device": None, "device_name": None, "no_device": f"the process that tried {tried}: {why}"}


def ending(code: int, err: str) -> str:
    """How a process that failed ended, in a line: by which signal, or what it said last."""
    if code < 0:
        return f"died with signal {-code} ({signal.strsignal(-code)})"
    return (err.strip().splitlines() or [f"ended with code {code}"])[-1]


def read(path: str) -> str:
    """Text of a small system file; "" where there is none."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def conditions() -> dict[str, Any]:
    """What of the machine bears on timing, as it is now."""
    caches = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind, level = read(f"{index}/type"), read(f"{index}/level")
        if kind != "Instruction":
            caches[f"L{level}"] = read(f"{index}/size")
    cores = os.cpu_count() or 1
    return {
        "cpu": installed.cpu_model(),
        "cores": cores,
        "cores_allowed": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores,
        "caches": caches,
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0,
        "system": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()),
        "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "transparent_hugepages": "".join(re.findall(r"\[(\w+)\]", read("/sys/kernel/mm/transparent_hugepage/enabled"))),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def duration(seconds: float) -> str:
    """A time to wait, in words."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


class Show(Protocol):
    """Takes how many processes are done, and the seconds for cells that are just taken once more."""

    def __call__(self, done: int, more: float = 0.0) -> None: ...


@contextlib.contextmanager
def progress(total: int, title: str) -> Iterator[Show]:
    """A callable that takes the number of processes done: a bar with time left, or a line now and then.

    The time left is by the mean since the start: between toolchains that are measured others are installed.
    """
    start = shown = time.monotonic()
    finished = False

    def share_and_left(done: int, more: float) -> tuple[int, float]:
        share = 100 * min(done, total) // total
        return min(share, 99) if more else share, (time.monotonic() - start) * (total - done) / max(done, 1) + more

    try:
        from rich.progress import BarColumn, Progress, TextColumn
    except ImportError:
        Progress = None  # type: ignore[assignment, misc]
    if Progress is not None and sys.stdout.isatty():
        text = TextColumn("{task.fields[share]:>3} %{task.fields[left]}")
        with Progress(TextColumn("{task.description}"), BarColumn(), text) as bar:
            task = bar.add_task(title, total=total, share=0, left="")

            def move(done: int, more: float = 0.0) -> None:
                share, left = share_and_left(done, more)
                words = f"  {duration(left)} left" if done and left > 0 else ""
                bar.update(task, completed=min(done, total), share=share, left=words)

            yield move
        return

    def line(done: int, more: float = 0.0) -> None:
        nonlocal shown, finished
        now = time.monotonic()
        last = done >= total and not more and not finished
        if done and (now - shown > 15 and not finished or last):
            shown, finished = now, last
            share, left = share_and_left(done, more)
            print(f"{title}: {share} %, {duration(left)} left", flush=True)

    yield line


def round_of(
    patterns: Sequence[str],
    machine: str,
    state: State,
    advance: Callable[[], None],
    append: bool,
    commit: str = "",
    patience: tuple[float, int] = (0.0, 0),
) -> None:
    """One asv run: every selected cell in one process, its samples beside those of earlier rounds if ``append``.

    state     of the run, in whose step asv's results and what its processes log are kept
    commit    names a toolchain of the ledger; without it, what is installed is measured
    patience  seconds that its processes may wait for calm together, and how many there will be
    """
    command = asv("run", *([f"{commit}^!"] if commit else []), "--machine", machine, "--launch-method", LAUNCH)
    command += ["--record-samples", "-a", "rounds=1", "--show-stderr", *(["--append-samples"] if append else [])]
    for pattern in patterns:
        command += ["--bench", pattern]
    allowed = f"{max(0.0, patience[0]):.3f}/{patience[1]}"
    own = {LOG_VARIABLE: str(state.log), PATIENCE_VARIABLE: allowed, environments.RESULTS_VARIABLE: str(state.results)}
    with (
        tempfile.TemporaryFile("w+") as output,
        session(command, ROOT, {**os.environ, **own}, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        while process.poll() is None:
            time.sleep(0.3)
            advance()
        output.seek(0)
        text = output.read()
    advance()
    if process.returncode == 2:  # asv's code for: all saved, some failed
        failures = re.findall(r"^.*?(\S+)\s+(?:failed|\d+/\d+ failed)\s*$", text, re.MULTILINE)
        errors = re.findall(r"^\s*(\w*(?:Error|Exception)\b.*)$", text, re.MULTILINE)
        which, why = ", ".join(dict.fromkeys(failures)) or "see asv show", "; ".join(dict.fromkeys(errors))
        print(cli.line(f"failed: {which}: {why[:500]}"))
    elif process.returncode:
        lines = [line for line in text.splitlines() if line.strip()]
        raise UserError(f"asv stopped: {lines[-1] if lines else process.returncode}")


def summary(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the sampling log says of a run: how calm the machine was, what never was, what was skipped and why.

    calm       share of the time at full speed, as far as it was watched; None where nothing was timed
    floors     kind of pulse -> ns at full speed
    samples    that were wanted, and retaken: those taken beyond
    disturbed  samples kept though they were not calm; disturbed_cells: cell -> how many
    skipped, failures  reason -> the cells that have no figure for it
    """
    timed = calm.timed(lines)
    absent: dict[str, dict[str, list[str]]] = {"skipped": {}, "failed": {}}
    for line in lines:
        for status, reasons in absent.items():
            if status in line and calm.name_of(line) not in reasons.setdefault(line[status], []):
                reasons[line[status]].append(calm.name_of(line))
    floors = calm.floors(timed)
    share = calm.share(timed, floors)
    cells: dict[str, int] = {}
    for cell, rounds in calm.attempts(timed, floors).items():
        kept = sum(len(process.samples) for process in calm.select(rounds).values() if not process.calm)
        if kept:
            cells[cell] = kept
    return {
        "calm": round(share, 4) if share == share else None,
        "floors": {kind: round(floor, 1) for kind, floor in floors.items()},
        "samples": sum(line["wanted"] for line in timed),
        "retaken": sum(max(0, len(line["seconds"]) - line["wanted"]) for line in timed),
        "disturbed": sum(cells.values()),
        "disturbed_cells": cells,
        "skipped": absent["skipped"],
        "failures": absent["failed"],
    }


def how_calm(record: Mapping[str, Any]) -> str:
    """What a run record says of the machine, in words."""
    if record.get("calm") is None:
        return "nothing was timed"
    words = f"the machine ran at full speed {record['calm']:.0%} of the time"
    never = len(record["disturbed_cells"])
    return words + (f"; {never} cells never were calm, and are marked" if never else "")


@dataclass(frozen=True)
class Cells:
    """The cells of a profile, as patterns for asv's --bench by benchmark."""

    patterns: Mapping[str, Sequence[str]]
    timed: Mapping[str, Sequence[str]]
    processes: int  # that time a cell, in one round
    looked_at: int  # cells that are counted and not timed: once is enough
    unavailable: Sequence[str]  # benchmarks left out because there is no accelerator


def cells_of(
    profile: Profile, benchmarks: Mapping[str, Any], only: str | None, title: str, device: str | None = None
) -> Cells:
    """The cells of ``profile`` whose name matches ``only``; UserError if there is none.

    Without a ``device`` the benchmarks that need one are left out here, once for all: asking each of their thousands of
    cells would cost a process each.
    """
    patterns = select(profile, benchmarks)
    if only:
        matches = matcher(only)
        chosen = {name: list(filter(matches, cells(found, benchmarks[name]))) for name, found in patterns.items()}
        patterns = {name: exactly(found) for name, found in chosen.items() if found}
    if not patterns:
        raise UserError(f"--only {only!r} matches no cell of the profile {title}")
    unavailable = [] if device else [name for name in patterns if re.fullmatch(NEEDS_DEVICE, name)]
    patterns = {name: found for name, found in patterns.items() if name not in unavailable}
    timed = {name: found for name, found in patterns.items() if benchmarks[name]["type"] == "time"}
    return Cells(
        patterns,
        timed,
        processes=sum(len(cells(found, benchmarks[name])) for name, found in timed.items()),
        looked_at=sum(len(cells(found, benchmarks[name])) for name, found in patterns.items() if name not in timed),
        unavailable=unavailable,
    )


def new_record(
    profile: str,
    only: str | None,
    machine: str,
    toolchain: ledger.Toolchain,
    python: str | None,
    rounds: int,
) -> dict[str, Any]:
    """A run record: what is measured, with what, where, by which command; the rest is filled in round by round.

    ``python`` has the toolchain; None where nothing has, because it could not be installed.
    """
    return {
        "profile": profile,
        "only": only,
        "planned": rounds,
        "command": " ".join([f"python scripts/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "machine": machine,
        "toolchain": {"tag": toolchain.tag, "torch": toolchain.torch, "numpy": toolchain.numpy},
        "settings": settings(python) if python else {},
        "conditions": conditions(),
        "asv": metadata.version("asv"),
        "asv_runner": metadata.version("asv_runner"),
        "launch": LAUNCH,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "rounds": 0,
        "seconds": 0.0,
        "patience": 0.0,
        "waited": 0.0,
    }


def budget(processes: int) -> float:
    """Seconds that so many processes may take longer, all together, where the machine is not calm."""
    return PATIENCE * processes


def take_rounds(
    record: dict[str, Any],
    state: State,
    cells: Cells,
    rounds: int,
    show: Show,
    commit: str = "",
    append: bool = False,
) -> None:
    """Take the rounds that ``record`` still lacks, each a step; ``show`` is told how far it is, as of ``progress``.

    ``append`` keeps the samples that were there before the first round, too.
    """
    for number in range(record["rounds"], rounds):
        selected = cells.timed if number or append else cells.patterns
        if not selected:
            break  # asv takes no pattern for every benchmark there is
        patterns = [pattern for found in selected.values() for pattern in found]
        take_round(record, state, number, patterns, cells.processes, show, commit, append or number > 0)
    record.update(summary(state.lines()))
    if cells.unavailable:
        record["skipped"][record["settings"]["no_device"]] = list(cells.unavailable)


def take_round(
    record: dict[str, Any],
    state: State,
    number: int,
    patterns: Sequence[str],
    processes: int,
    show: Show,
    commit: str,
    append: bool,
    again: bool = True,
) -> None:
    """Take a round of so many processes, then new ones of cells that were not calm, as long as the budget allows.

    What rounds before this one did not use of their part of the budget is this one's, too.

    again  cells that were not calm, in this or in an earlier round as it looks now, get another process of that round
    """
    state.begin()
    before = len(state.lines())
    patience = record["patience"] + budget(processes)
    started, left = time.monotonic(), patience - record["waited"]
    machine = record["machine"]

    def logged() -> int:
        return sum(1 for _ in state.log.open(encoding="utf-8")) - before

    def advance() -> None:
        show(number * processes + min(logged(), processes))

    def advance_again(earlier: int, seconds: Sequence[float]) -> None:
        show((number + 1) * processes, sum(seconds[logged() - earlier :]))

    round_of(patterns, machine, state, advance, append, commit, (WITHIN * left if again else left, processes))
    state.mark(lambda cell: number)
    left -= sum(line["waited"] for line in calm.timed(state.lines()[before:]))
    for _ in range(PASSES if again else 0):
        lines = calm.timed(state.lines())
        lacking = calm.lacking(calm.attempts(lines, calm.floors(lines)), range(number + 1))
        took = {calm.name_of(line): line["took"] for line in lines}
        retaken = _affordable(lacking, took, left)
        if not retaken:
            break
        begun = time.monotonic()
        told = partial(advance_again, logged(), [took[cell] for cell in retaken])
        round_of(exactly(retaken), machine, state, told, True, commit, (left, len(retaken)))
        state.mark({cell: lost[0] for cell, lost in lacking.items()}.__getitem__)
        left -= time.monotonic() - begun
    record["patience"], record["waited"] = round(patience, 1), round(patience - left, 1)
    record["rounds"] = number + 1
    record["seconds"] = round(record["seconds"] + time.monotonic() - started, 1)
    state.save(record)


def _affordable(cells: Iterable[str], took: Mapping[str, float], seconds: float) -> list[str]:
    """The first of these cells, as many as one process each of takes so many seconds."""
    left, chosen = seconds - START, []
    for cell in cells:
        left -= took[cell]
        if left < 0:
            break
        chosen.append(cell)
    return chosen


def record_file(machine: str, commit: str) -> Path:
    """The file of run records beside asv's result file, which has the same name and another suffix."""
    version = platform.python_version_tuple()
    return RESULTS / machine / f"{commit[:8]}-toolchain-py{version[0]}.{version[1]}.jsonl"


def file_record(record: dict[str, Any], commit: str, state: State, append: bool = False) -> Path:
    """File what the run measured: asv's results, beside them its samples and pulses and its record; the record's path.

    append  the samples stay beside those of earlier runs of the same cells, instead of replacing them. That is also so
            for cells that more processes have measured before: a quick look adds to what is known, and replaces nothing
    """
    path = record_file(record["machine"], commit)
    state.begin()
    fresh = state.results / path.relative_to(RESULTS)
    timed = [{"run": record["started"], **line} for line in calm.timed(state.lines())]
    if timed:
        new = {calm.name_of(line) for line in timed}
        earlier = calm.read(path.with_suffix(calm.SUFFIX))
        more = set() if append else better_known(path.with_suffix(".json"), fresh.with_suffix(".json"), earlier, timed)
        lines = [*(line for line in earlier if append or calm.name_of(line) not in new - more), *timed]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        fresh.with_suffix(calm.SUFFIX).write_text(text, encoding="utf-8")
        settle(fresh.with_suffix(".json"), calm.chosen(lines), new)
    if fresh.with_suffix(".json").is_file():
        silent = without_reason(fresh.with_suffix(".json"), record)
        if silent:
            record["failures"] = {**record.get("failures", {}), SILENT: silent}
    records = path.read_text(encoding="utf-8") if path.is_file() else ""
    fresh.write_text(records + json.dumps(record, sort_keys=True) + "\n", encoding="utf-8")
    state.complete()
    state.publish(RESULTS)
    return path


def better_known(before: Path, after: Path, earlier: Iterable[calm.Line], timed: Iterable[calm.Line]) -> set[str]:
    """The cells of which the earlier samples are of more processes, by the same measurement, than the new ones.

    before, after  asv's result files, which have the versions of the measurements
    """
    from asv.results import Results

    if not before.is_file():
        return set()
    versions = [Results.load(str(path)).benchmark_version for path in (before, after)]
    places = ({(calm.name_of(line), line["run"], line["round"]) for line in lines} for lines in (earlier, timed))
    counts = [Counter(cell for cell, _, _ in found) for found in places]
    same = {name for name, version in versions[1].items() if versions[0].get(name) == version}
    return {cell for cell, count in counts[1].items() if counts[0][cell] > count and cell.partition("(")[0] in same}


def without_reason(path: Path, record: Mapping[str, Any]) -> list[str]:
    """The cells that failed since the run began, and of which no process said why."""
    from asv.results import Results

    reasons = [*record["skipped"].values(), *record.get("failures", {}).values()]
    told = {cell for cells in reasons for cell in cells}
    results, began = Results.load(str(path)), datetime.fromisoformat(record["started"]).timestamp()
    found = []
    for name in results.get_all_result_keys():
        if (results.started_at.get(name) or 0) / 1000 >= began - 1:  # asv rounds
            params = results.get_result_params(name)
            for value, spellings in zip(results.get_result_value(name, params), itertools.product(*params)):
                cell = calm.name_of({"benchmark": name, "params": spellings})
                if value is None and cell not in told:
                    found.append(cell)
    return found


def settle(path: Path, chosen: Mapping[str, Mapping[int, calm.Process]], cells: Collection[str]) -> None:
    """Have asv's own figures of these cells rest on the samples that ours rest on: calm ones, where there are any."""
    from asv.results import Results
    from asv.runner import BenchmarkResult

    results = Results.load(str(path))
    for name in list(results.get_all_result_keys()):
        params = results.get_result_params(name)
        value, samples = (ask(name, params) for ask in (results.get_result_value, results.get_result_samples))
        number: list[int | None] = [None] * len(value)  # None: asv leaves a cell's statistics as they are
        for index, spellings in enumerate(itertools.product(*params)):
            cell = calm.name_of({"benchmark": name, "params": spellings})
            if cell in cells and cell in chosen and samples[index] is not None:
                processes = list(chosen[cell].values())
                samples[index] = [sample for process in processes for sample in process.samples]
                number[index] = processes[-1].number
        changed = {index for index, made in enumerate(number) if made is not None}
        if changed:
            results.add_result(
                {"name": name, "version": results.benchmark_version[name], "params": params},
                BenchmarkResult(value, samples, number, 0, "", None),
                started_at=datetime.fromtimestamp(results.started_at[name] / 1000, timezone.utc),
                duration=results.duration.get(name),
                record_samples=True,
                selected_idx=changed,
            )
    results.save(str(path.parent.parent))
