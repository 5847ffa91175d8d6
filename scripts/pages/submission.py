"""What is wrong with submitted results, in words: a line a finding, with what to do."""

from collections.abc import Sequence

from analysis import submission
from analysis.submission import Finding

from . import show

AGAIN = "measure again with this revision of the suite"
QUIETER = "measure again on a quieter machine"
MARKER = "<!-- numpy-torch-conversion: submission -->"  # finds the comment of an earlier check on a pull request


def sentence(finding: Finding) -> str:
    """A finding as one line of plain text."""
    first, second = (*finding.values, "", "")[:2]
    about = finding.about
    words = {
        submission.BROKEN_FILE: f"{about}: {AGAIN}, or copy the file again",
        submission.NO_RECORD: "there is no run record: submit what scripts/run.py or scripts/track.py filed, with all "
        "files",
        submission.NO_SAMPLES: f"the samples (.jsonl.gz) are missing: add the file, or {AGAIN}",
        submission.NO_MACHINE: "machine.json is missing: add it, it lies beside the results",
        submission.INTERRUPTED: f"{first} of {second} rounds: run.py --resume completes them",
        submission.FAILED: "a run record without results: add the .json that belongs to it, or remove it",
        submission.VERSION: f"{first} of {second} benchmarks are of another version than this suite's, as {about}: "
        f"{AGAIN}",
        submission.UNKNOWN: f"{about} is no benchmark of this suite: {AGAIN}",
        submission.RUNNER: f"asv_runner {about}, and the timing rests on {first}: pip install -r requirements.txt, "
        f"then {AGAIN}",
        submission.FOREIGN: f"a run on {about}, filed under {first}: name the directory as the run does",
        submission.BUSY: f"{_percent(first)} of the timed cells never were calm, at most {_percent(second)} may be: "
        f"{QUIETER} (run.py --check says what disturbs)",
        submission.UNWATCHED: f"nobody watched whether the machine was calm: {AGAIN}",
        submission.FEW: f"{first} processes a cell where {second} are needed: run.py --rounds {second}",
        submission.PATH: f"{about!r} is a path of a machine: remove it, it is nobody's business",
        submission.HOST: f"{about!r} looks like the name or address of a host or a person: remove it",
        submission.FIELD: f"{about!r} is no field that this suite writes: remove it",
        submission.STRANGE: "no file of results: remove it",
        submission.MEMCPY: f"{first} copies are above memcpy, most of all {about} at {_times(second)}: {QUIETER}",
        submission.LINK: f"{first} transfers are above what the link carries, most of all {about} at {_rate(second)}: "
        "something was not waited for",
        submission.LIMIT: f"{first} transfers are above the measured limit, most of all {about} at {_times(second)}: "
        f"{QUIETER}",
        submission.MEMORY: f"{first} transfers are above what any memory moves, most of all {about} at "
        f"{_rate(second)}: something was not waited for",
    }[finding.what]
    return f"{finding.file}: {words}"


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
    lines += [f"- {show.to_markdown(sentence(finding))}" for finding in findings]
    return "\n".join([MARKER, *lines, ""])
