#!/usr/bin/env python3
"""Measure the torch and numpy of this Python on this machine, and build the page.

    python scripts/run.py                      the quick profile: about a minute of benchmarking
    python scripts/run.py --profile standard   what published pages are made from: 8 minutes
    python scripts/run.py --resume             go on where an interrupted run stopped

Everything is timed by asv, one process after the other, in rounds: each round gives every cell one more process and
is saved when it is done, so an interruption costs a round at most.
"""

import argparse
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
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from analysis.cli import Parser, UserError, run
from profiles import PROFILES, Profile, count, select
from toolchains import installed, ledger

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "reports" / "results"
LOG_VARIABLE = "CONVERSION_SAMPLING_LOG"  # benchmarks/statement.py appends a line for each process there
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def asv(*arguments: str, log: Path | None = None) -> list[str]:
    """Command line of an asv command in the checkout."""
    return [sys.executable, "-m", "asv", *arguments, "--config", str(ROOT / "asv.conf.json")]


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--profile", default="quick", help=f"one of: {', '.join(PROFILES)} (default: quick)")
    parser.add_argument("--machine", help="name to file the results under (default: made of the hardware)")
    parser.add_argument("--rounds", type=int, help="processes a cell (default: the profile's)")
    parser.add_argument("--only", metavar="REGEX", help="restrict the profile to benchmarks whose name matches")
    parser.add_argument("--resume", action="store_true", help="keep the rounds of an interrupted run and add the rest")
    parser.add_argument("--no-report", action="store_true", help="measure only; scripts/report.py builds the page")
    chosen = parser.parse_args(argv)
    if chosen.profile not in PROFILES:
        raise UserError(f"there is no profile {chosen.profile!r}; there are: {', '.join(PROFILES)}")
    if chosen.machine is not None and not NAME.fullmatch(chosen.machine):
        raise UserError(f"--machine {chosen.machine!r}: use letters, digits, dot, dash and underscore")
    if chosen.rounds is not None and chosen.rounds < 1:
        raise UserError("--rounds takes a whole number from 1")
    try:
        re.compile(chosen.only or "")
    except re.error as error:
        raise UserError(f"--only {chosen.only!r} is not a regular expression: {error}") from None
    return chosen


def check_ready() -> ledger.Toolchain:
    """The installed toolchain; UserError where something that timing needs is missing or of another version."""
    try:
        toolchain = installed.toolchain()
    except ModuleNotFoundError as missing:
        raise UserError(f"{missing}: `make bench` installs everything") from None
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
    return toolchain


def discover(machine: str, launch: str) -> dict[str, Any]:
    """All benchmarks with their parameters, as asv finds them."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    command = asv("run", "--machine", machine, "--launch-method", launch, "--bench", "just-discover")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise UserError(f"asv found no benchmarks: {lines[-1] if lines else 'it printed nothing'}")
    found = json.loads((RESULTS / "benchmarks.json").read_text(encoding="utf-8"))
    return {name: benchmark for name, benchmark in found.items() if isinstance(benchmark, dict)}


def settings() -> dict[str, Any]:
    """The toolchain really imported and its thread settings, from a process like those that are timed."""
    code = (
        "import json, platform, numpy, torch;"
        "print(json.dumps({'torch': torch.__version__, 'numpy': numpy.__version__,"
        " 'python': platform.python_version(), 'cuda': torch.version.cuda, 'hip': torch.version.hip,"
        " 'torch_threads': torch.get_num_threads(), 'git': torch.version.git_version}))"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
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


@contextlib.contextmanager
def progress(total: int, title: str) -> Iterator[Any]:
    """A callable that takes the number of processes done: a bar with time left, or a line now and then."""
    try:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        Progress = None  # type: ignore[assignment, misc]
    if Progress is not None and sys.stdout.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %  left"))
        with Progress(*columns, TimeRemainingColumn()) as bar:
            task = bar.add_task(title, total=total)
            yield lambda done: bar.update(task, completed=min(done, total))
        return
    start = shown = time.monotonic()

    def line(done: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if done and (now - shown > 15 or done >= total > 0 and shown != start):
            shown = now
            left = (now - start) * (total - done) / done
            print(f"{title}: {100 * done // total} %, {left:.0f} s left", flush=True)

    yield line


def round_of(patterns: Sequence[str], number: int, machine: str, launch: str, log: Path, advance: Any) -> None:
    """One asv run: every selected cell in one more process, appended to the rounds before."""
    command = asv("run", "--machine", machine, "--launch-method", launch, "--record-samples", "-a", "rounds=1")
    command += ["--show-stderr", *(["--append-samples"] if number else [])]
    for pattern in patterns:
        command += ["--bench", pattern]
    environment = {**os.environ, LOG_VARIABLE: str(log)}
    with tempfile.TemporaryFile("w+") as output:
        # a session of its own: Ctrl-C reaches asv through us, once
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            while process.poll() is None:
                time.sleep(0.3)
                advance()
        except BaseException:
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

    def __init__(self, machine: str) -> None:
        self.directory = ROOT / ".asv" / "runs" / machine
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


def measure(chosen: argparse.Namespace, profile: Profile, toolchain: ledger.Toolchain, machine: str) -> Path:
    """Run the profile's rounds; the run record that lies beside asv's result file."""
    from toolchains import plugin  # imports asv, which check_ready has found

    plugin.register(machine)
    launch = "forkserver" if sys.platform.startswith("linux") else "spawn"
    benchmarks = discover(machine, launch)
    patterns = {
        name: found for name, found in select(profile, benchmarks).items() if re.search(chosen.only or "", name)
    }
    if not patterns:
        raise UserError(f"--only {chosen.only!r} matches no benchmark of the profile {chosen.profile}")
    timed = {name: found for name, found in patterns.items() if benchmarks[name]["type"] == "time"}
    cells = sum(count(found, benchmarks[name]) for name, found in timed.items())
    looked_at = sum(count(found, benchmarks[name]) for name, found in patterns.items() if name not in timed)
    rounds = chosen.rounds or profile.rounds

    state = State(machine)
    record = state.load() if chosen.resume else None
    if record and (record["profile"], record["toolchain"]["tag"]) != (chosen.profile, toolchain.tag):
        raise UserError(
            f"the interrupted run was {record['profile']} on {record['toolchain']['tag']}: run that, or anew"
        )
    if chosen.resume and not record:
        print("nothing to resume: a new run")
    if not record:
        record = {
            "profile": chosen.profile,
            "only": chosen.only,
            "command": " ".join(["python scripts/run.py", *sys.argv[1:]]),
            "machine": machine,
            "toolchain": {"tag": toolchain.tag, "torch": toolchain.torch, "numpy": toolchain.numpy},
            "settings": settings(),
            "conditions": conditions(),
            "asv": metadata.version("asv"),
            "asv_runner": metadata.version("asv_runner"),
            "launch": launch,
            "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "rounds": 0,
            "seconds": 0.0,
        }
        state.start(record)
    load = record["conditions"]["load_average"]
    if load is not None and load > 0.5 * record["conditions"]["cores_allowed"]:
        print(f"this machine is busy (load average {load:.1f}): figures will be noisy")
    print(
        f"{toolchain} on {machine}: profile {chosen.profile}, {cells} timed cells x {rounds} processes, "
        f"{looked_at} looked at once"
    )
    with progress(cells * rounds, "measuring") as show:
        for number in range(record["rounds"], rounds):
            selected = patterns if number == 0 else timed
            # what an interrupted round logged is measured again
            kept = [json.dumps(line) for line in lines_of(state.log) if line.get("round", number) < number]
            state.log.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
            started = time.monotonic()
            round_of(
                [pattern for found in selected.values() for pattern in found],
                number,
                machine,
                launch,
                state.log,
                lambda: show(sum(1 for _ in state.log.open(encoding="utf-8"))),
            )
            marked = [{**line, "round": line.get("round", number)} for line in lines_of(state.log)]
            state.log.write_text("".join(json.dumps(line) + "\n" for line in marked), encoding="utf-8")
            record["rounds"] = number + 1
            record["seconds"] = round(record["seconds"] + time.monotonic() - started, 1)
            state.save(record)
    record.update(summary(state.log))
    commit = ledger.commit_hash(ROOT / ".asv" / "ledger", toolchain)
    version = platform.python_version_tuple()
    path = RESULTS / machine / f"{commit[:8]}-toolchain-py{version[0]}.{version[1]}.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, sort_keys=True) + "\n")
    state.finish()
    share = (record["retaken"] + record["disturbed"]) / max(1, record["samples"] + record["retaken"])
    print(f"{record['samples']} samples in {record['seconds']:.0f} s; the machine disturbed {share:.1%} of them")
    return path


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    toolchain = check_ready()
    machine = chosen.machine or installed.machine_name(os.cpu_count() or 1)
    measure(chosen, PROFILES[chosen.profile], toolchain, machine)
    if chosen.no_report:
        print("results saved; python scripts/report.py builds the page")
        return 0
    try:
        import report
    except ModuleNotFoundError as missing:
        print(
            f"results saved; the page needs {missing.name}: python scripts/report.py builds it where that is installed"
        )
        return 0
    return report.main(["--machine", machine])


if __name__ == "__main__":
    run(main)
