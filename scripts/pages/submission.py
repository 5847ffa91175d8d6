"""What is wrong with submitted results, in words: a line a finding, with what to do."""

from collections.abc import Sequence

from analysis import submission as found
from analysis.submission import Finding

from . import show

AGAIN = "measure again with this revision of the suite"
QUIETER = "measure again on a quieter machine"
MARKER = "<!-- numpy-torch-conversion: submission -->"  # finds the comment of an earlier check on a pull request


def sentence(one: Finding) -> str:
    """A finding as one line of plain text."""
    first, second = (*one.values, "", "")[:2]
    told = {
        found.BROKEN_FILE: f"{one.about.split(': remove it')[0]}: {AGAIN}, or copy the file again",
        found.NO_RECORD: "there is no run record: submit what scripts/run.py or scripts/track.py filed, with all files",
        found.NO_SAMPLES: f"the samples (.ndjson) are missing: add the file, or {AGAIN}",
        found.NO_MACHINE: "machine.json is missing: add it, it lies beside the results",
        found.INTERRUPTED: f"{first} of {second} rounds: run.py --resume completes them",
        found.FAILED: "a run record without results: add the .json that belongs to it, or remove it",
        found.VERSION: f"{first} of {second} benchmarks are of another version than this suite's, as {one.about}: "
        f"{AGAIN}",
        found.UNKNOWN: f"{one.about} is no benchmark of this suite: {AGAIN}",
        found.RUNNER: f"asv_runner {one.about}, and the timing rests on {first}: pip install -r requirements.txt, then "
        f"{AGAIN}",
        found.FOREIGN: f"a run on {one.about}, filed under {first}: name the directory as the run does",
        found.BUSY: f"{_percent(first)} of the timed cells never were calm, at most {_percent(second)} may be: "
        f"{QUIETER} (run.py --check says what disturbs)",
        found.UNWATCHED: f"nobody watched whether the machine was calm: {AGAIN}",
        found.FEW: f"{first} processes a cell where {second} are needed: run.py --rounds {second}",
        found.PATH: f"{one.about!r} is a path of a machine: remove it, it is nobody's business",
        found.HOST: f"{one.about!r} looks like the name or address of a host or a person: remove it",
        found.FIELD: f"{one.about!r} is no field that this suite writes: remove it",
        found.STRANGE: "no file of results: remove it",
        found.MEMCPY: f"{first} copies are above memcpy, most of all {one.about} at {_times(second)}: {QUIETER}",
        found.LINK: f"{first} transfers are above what the link carries, most of all {one.about} at {_rate(second)}: "
        "something was not waited for",
        found.LIMIT: f"{first} transfers are above the measured limit, most of all {one.about} at {_times(second)}: "
        f"{QUIETER}",
        found.MEMORY: f"{first} transfers are above what any memory moves, most of all {one.about} at {_rate(second)}: "
        "something was not waited for",
    }[one.what]
    return f"{one.file}: {told}"


def _percent(value: object) -> str:
    return show.percent(value) if isinstance(value, float) else ""


def _times(value: object) -> str:
    return show.ratio(value) if isinstance(value, float) else ""


def _rate(value: object) -> str:
    return show.bandwidth(value) if isinstance(value, float) else ""


def markdown(name: str, findings: Sequence[Finding]) -> str:
    """A comment for a pull request."""
    count = len(findings)
    head = f"{count} finding{'s' if count > 1 else ''}" if findings else "may be published"
    lines = [f"### {show.to_markdown(name)}: {head}", ""]
    lines += [f"- {show.to_markdown(sentence(one))}" for one in findings]
    return "\n".join([MARKER, *lines, ""])
