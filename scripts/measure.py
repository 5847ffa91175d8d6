"""What the verbs that measure share: asv driven round by round, its progress, and the run record beside its results."""

import contextlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from analysis.cli import UserError
from profiles import NEEDS_DEVICE, PROFILES, Profile, count, select
from toolchains import installed, ledger

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "reports" / "results"
LOG_VARIABLE = "CONVERSION_SAMPLING_LOG"  # benchmarks/statement.py appends a line for each process there
TAKEN = ("results", "history")  # in reports/, beside the directories of machines
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LAUNCH = "forkserver" if sys.platform.startswith("linux") else "spawn"


def asv(*arguments: str) -> list[str]:
    """Command line of an asv command in the checkout."""
    return [sys.executable, "-m", "asv", *arguments, "--config", str(ROOT / "asv.conf.json")]


def check_chosen(profile: str | None, machine: str | None, only: str | None) -> None:
    """UserError unless --profile, --machine and --only, where given, can be used: the same in every verb."""
    if profile is not None and profile not in PROFILES:
        raise UserError(f"there is no profile {profile!r}; there are: {', '.join(PROFILES)}")
    if machine is not None and not NAME.fullmatch(machine):
        raise UserError(f"--machine {machine!r}: use letters, digits, dot, dash and underscore")
    if machine in TAKEN:
        raise UserError(f"--machine {machine!r}: reports/{machine} is taken, choose another name")
    try:
        re.compile(only or "")
    except re.error as error:
        raise UserError(f"--only {only!r} is not a regular expression: {error}") from None


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
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise UserError(f"asv found no benchmarks: {lines[-1] if lines else 'it printed nothing'}")
    found = json.loads((RESULTS / "benchmarks.json").read_text(encoding="utf-8"))
    return {name: benchmark for name, benchmark in found.items() if isinstance(benchmark, dict)}


def settings(python: str = sys.executable) -> dict[str, Any]:
    """The toolchain really imported and its thread settings, from a process like those that are timed."""
    code = (
        "import json, platform, sys, numpy, torch; sys.path.insert(0, sys.argv[1])\n"
        "from benchmarks import devices\n"
        "try: found, why = devices.find(), ''\n"
        "except NotImplementedError as reason: found, why = None, str(reason)\n"
        "device, model = (str(found), found.model) if found else (None, None)\n"
        "print(json.dumps({'torch': torch.__version__, 'numpy': numpy.__version__,"
        " 'python': platform.python_version(), 'cuda': torch.version.cuda, 'hip': torch.version.hip,"
        " 'torch_threads': torch.get_num_threads(), 'device': device, 'device_name': model, 'no_device': why,"
        " 'git': torch.version.git_version}))"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if python != sys.executable:
        environment.pop("PYTHONPATH", None)  # what is found there belongs to this Python
    done = subprocess.run([python, "-c", code, str(ROOT)], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise UserError(f"torch cannot be imported: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


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


@contextlib.contextmanager
def progress(total: int, title: str) -> Iterator[Any]:
    """A callable that takes the number of processes done: a bar with time left, or a line now and then.

    The time left is by the mean since the start: between toolchains that are measured others are installed.
    """
    start = shown = time.monotonic()
    finished = False
    try:
        from rich.progress import BarColumn, Progress, TextColumn
    except ImportError:
        Progress = None  # type: ignore[assignment, misc]
    if Progress is not None and sys.stdout.isatty():
        text = TextColumn("{task.percentage:>3.0f} %{task.fields[left]}")
        with Progress(TextColumn("{task.description}"), BarColumn(), text) as bar:
            task = bar.add_task(title, total=total, left="")

            def move(done: int) -> None:
                left = (time.monotonic() - start) * (total - done) / done if done else 0
                bar.update(task, completed=min(done, total), left=f"  {duration(left)} left" if left > 0 else "")

            yield move
        return

    def line(done: int) -> None:
        nonlocal shown, finished
        now = time.monotonic()
        last = done >= total and not finished
        if done and (now - shown > 15 and not finished or last):
            shown, finished = now, last
            left = (now - start) * (total - done) / done
            print(f"{title}: {100 * done // total} %, {duration(left)} left", flush=True)

    yield line


@contextlib.contextmanager
def _later_interrupted() -> Iterator[None]:
    """Ctrl-C takes effect when the block is done."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def round_of(
    patterns: Sequence[str], machine: str, log: Path, advance: Callable[[], None], append: bool, commit: str = ""
) -> None:
    """One asv run: every selected cell in one process, its samples beside those of earlier rounds if ``append``.

    ``commit`` names a toolchain of the ledger; without it, what is installed is measured.
    """
    command = asv("run", *([f"{commit}^!"] if commit else []), "--machine", machine, "--launch-method", LAUNCH)
    command += ["--record-samples", "-a", "rounds=1", "--show-stderr", *(["--append-samples"] if append else [])]
    for pattern in patterns:
        command += ["--bench", pattern]
    environment = {**os.environ, LOG_VARIABLE: str(log)}
    with tempfile.TemporaryFile("w+") as output:
        process = None
        try:
            with _later_interrupted():  # or asv would run on unknown to us
                # a session of its own: Ctrl-C reaches asv through us, once
                process = subprocess.Popen(
                    command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
                )
            while process.poll() is None:
                time.sleep(0.3)
                advance()
        except BaseException:
            if process:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            raise
        output.seek(0)
        text = output.read()
    advance()
    if process.returncode == 2:  # asv's code for: all saved, some failed
        failures = re.findall(r"^.*?(\S+)\s+(?:failed|\d+/\d+ failed)\s*$", text, re.MULTILINE)
        errors = re.findall(r"^\s*(\w*(?:Error|Exception)\b.*)$", text, re.MULTILINE)
        print(
            f"failed: {', '.join(dict.fromkeys(failures)) or 'see asv show'}: {'; '.join(dict.fromkeys(errors))[:500]}"
        )
    elif process.returncode:
        lines = [line for line in text.splitlines() if line.strip()]
        raise UserError(f"asv stopped: {lines[-1] if lines else process.returncode}")


def lines_of(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def summary(log: Path) -> dict[str, Any]:
    """What the sampling log says of a run: how much of it the machine disturbed, and what was skipped and why."""
    taken = retaken = disturbed = 0
    skipped: dict[str, list[str]] = {}
    cells: dict[str, int] = {}
    for record in lines_of(log):
        name = f"{record['benchmark']}({', '.join(record['params'])})"
        if "skipped" in record:
            if name not in skipped.setdefault(record["skipped"], []):
                skipped[record["skipped"]].append(name)
            continue
        taken += record["samples"]
        retaken += record["retaken"]
        disturbed += record["disturbed"]
        if record["disturbed"]:
            cells[name] = cells.get(name, 0) + record["disturbed"]
    return {
        "samples": taken,
        "retaken": retaken,
        "disturbed": disturbed,
        "disturbed_cells": cells,
        "skipped": skipped,
    }


class State:
    """What an interrupted run has done, kept beside the checkout's scratch files until the run is whole."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = self.directory / "run.json"
        self.log = self.directory / "sampling.jsonl"

    def start(self, record: dict[str, Any]) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log.write_text("", encoding="utf-8")
        self.save(record)

    def save(self, record: dict[str, Any]) -> None:
        self.path.write_text(json.dumps(record), encoding="utf-8")

    def load(self) -> dict[str, Any] | None:
        try:
            return json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def finish(self) -> None:
        self.path.unlink(missing_ok=True)


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
    """The cells of ``profile`` whose benchmark's name matches ``only``; UserError if there is none.

    Without a ``device`` the benchmarks that need one are left out here, once for all: asking each of their thousands of
    cells would cost a process each.
    """
    patterns = {name: found for name, found in select(profile, benchmarks).items() if re.search(only or "", name)}
    if not patterns:
        raise UserError(f"--only {only!r} matches no benchmark of the profile {title}")
    unavailable = [] if device else [name for name in patterns if re.fullmatch(NEEDS_DEVICE, name)]
    patterns = {name: found for name, found in patterns.items() if name not in unavailable}
    timed = {name: found for name, found in patterns.items() if benchmarks[name]["type"] == "time"}
    return Cells(
        patterns,
        timed,
        processes=sum(count(found, benchmarks[name]) for name, found in timed.items()),
        looked_at=sum(count(found, benchmarks[name]) for name, found in patterns.items() if name not in timed),
        unavailable=unavailable,
    )


def new_record(
    profile: str, only: str | None, machine: str, toolchain: ledger.Toolchain, python: str | None = sys.executable
) -> dict[str, Any]:
    """A run record: what is measured, with what, where, by which command; the rest is filled in round by round.

    ``python`` has the toolchain; None where nothing has, because it could not be installed.
    """
    return {
        "profile": profile,
        "only": only,
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
    }


def take_rounds(
    record: dict[str, Any],
    state: State,
    cells: Cells,
    rounds: int,
    show: Callable[[int], None],
    commit: str = "",
    append: bool = False,
) -> None:
    """Take the rounds that ``record`` still lacks, saving it after each; ``show`` takes the processes done so far.

    ``append`` keeps the samples that were there before the first round, too.
    """
    for number in range(record["rounds"], rounds):
        selected = cells.timed if number or append else cells.patterns
        if not selected:
            break  # asv takes no pattern for every benchmark there is
        # what an interrupted round logged is measured again
        kept = [json.dumps(line) for line in lines_of(state.log) if line.get("round", number) < number]
        state.log.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
        started = time.monotonic()
        round_of(
            [pattern for found in selected.values() for pattern in found],
            record["machine"],
            state.log,
            lambda: show(sum(1 for _ in state.log.open(encoding="utf-8"))),
            append=append or number > 0,
            commit=commit,
        )
        marked = [{**line, "round": line.get("round", number)} for line in lines_of(state.log)]
        state.log.write_text("".join(json.dumps(line) + "\n" for line in marked), encoding="utf-8")
        record["rounds"] = number + 1
        record["seconds"] = round(record["seconds"] + time.monotonic() - started, 1)
        state.save(record)
    record.update(summary(state.log))
    if cells.unavailable:
        record["skipped"][record["settings"]["no_device"]] = list(cells.unavailable)


def record_file(machine: str, commit: str) -> Path:
    """The file of run records beside asv's result file, which has the same name and another suffix."""
    version = platform.python_version_tuple()
    return RESULTS / machine / f"{commit[:8]}-toolchain-py{version[0]}.{version[1]}.jsonl"


def file_record(record: dict[str, Any], commit: str) -> Path:
    """Append the run record to the file beside asv's result file."""
    path = record_file(record["machine"], commit)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, sort_keys=True) + "\n")
    return path
