"""Measured questions of a machine: reports/results/MACHINE/questions.jsonl.gz, a line each."""

import gzip
from pathlib import Path
from typing import TypeVar

import msgspec
from cli import UserError

from .files import PARSE_ERRORS, put, read_content

T = TypeVar("T")
QUESTIONS = "questions.jsonl.gz"
MAX_QUESTIONS = 1000  # the newest questions of a machine


def add_question(results: Path, machine: str, question: object) -> None:
    """Add a question to those of a machine. UserError if their file is broken."""
    path = results / machine / QUESTIONS
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [*_texts(path)[-MAX_QUESTIONS + 1 :], msgspec.json.encode(question)]
    put(path, gzip.compress(b"\n".join(lines) + b"\n", mtime=0))


def machines_with_questions(results: Path) -> list[str]:
    """Return the names of the machines with measured questions, sorted."""
    return sorted(path.parent.name for path in results.glob(f"*/{QUESTIONS}"))


def read_questions(results: Path, machine: str, question: type[T]) -> list[T]:
    """Return the questions of a machine, the newest first. Those of another version of the suite
    are left out. UserError if their file is broken."""
    questions = []
    for text in _texts(results / machine / QUESTIONS)[::-1]:
        try:
            questions.append(msgspec.json.decode(text, type=question))
        except PARSE_ERRORS:
            continue
    return questions


def _texts(path: Path) -> list[bytes]:
    try:
        return read_content(path).splitlines() if path.is_file() else []
    except PARSE_ERRORS as error:
        raise UserError(f"{path} {error}: remove it, or restore it from git") from None
