"""What is wrong with submitted results, in words: a line a finding, with what to do."""

from collections.abc import Sequence

from analysis.submission import Finding
from cli import line

from . import show

MARKER = "<!-- numpy-torch-conversion: submission -->"  # finds the comment of an earlier check on a pull request
LONGEST = 200  # letters of what a file says: a comment on GitHub has 65,536 at most


def said(name: str, findings: Sequence[Finding]) -> list[str]:
    """What was found, a sentence each. What the submission says is code in it: it mentions nobody and links nowhere."""
    count = f"{len(findings)} finding{'s' * (len(findings) > 1)}" if findings else "may be published"
    return [f"{_code(name)}: {count}", *(f"{_code(each.file)}: {_words(each)}" for each in findings)]


def _code(text: str) -> str:
    return show.code(line(text)[:LONGEST])


def _words(finding: Finding) -> str:
    about = _code(finding.about) + (f" and {finding.more} more" if finding.more else "")
    return " ".join(show.prose("submission", finding.what, about=about, values=finding.values))


def comment(sentences: Sequence[str]) -> str:
    """A comment for a pull request."""
    return "\n".join([MARKER, *(f"- {show.to_markdown(sentence)}" for sentence in sentences), ""])
