"""What is wrong with submitted results, in words: a line a finding, with what to do."""

from collections.abc import Sequence

from analysis.submission import Finding

from . import show

MARKER = "<!-- numpy-torch-conversion: submission -->"  # finds the comment of an earlier check on a pull request


def sentence(finding: Finding) -> str:
    """A finding as one line of plain text."""
    first, second = (*finding.values, "", "")[:2]
    words = show.prose(
        "submission",
        finding.what,
        about=finding.about,
        quoted=repr(finding.about),
        first=first,
        second=second,
        again="measure again with this revision of the suite",
        quieter="measure again on a quieter machine",
    )
    return f"{finding.file}: {' '.join(words)}"


def markdown(name: str, findings: Sequence[Finding]) -> str:
    """A comment for a pull request."""
    count = len(findings)
    head = f"{count} finding{'s' if count > 1 else ''}" if findings else "may be published"
    lines = [f"### {show.to_markdown(name)}: {head}", ""]
    lines += [f"- {show.to_markdown(sentence(finding))}" for finding in findings]
    return "\n".join([MARKER, *lines, ""])
