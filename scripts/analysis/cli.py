"""What the verbs in scripts/ share: one clear line and exit code 2 for every error a person can mend."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn


class UserError(Exception):
    """Something the person at the keyboard can mend; its text says what to do."""


class Parser(argparse.ArgumentParser):
    """argparse, with the error in one line."""

    def __init__(self, docstring: str | None) -> None:
        super().__init__(
            description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
        )

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")


def run(main: Callable[[Sequence[str] | None], int]) -> NoReturn:
    """Run a verb as a program: its return value is the exit code, 2 after an error, 130 after Ctrl-C."""
    name = os.path.basename(sys.argv[0])
    try:
        code = main(None)
    except UserError as error:
        print(f"{name}: {error}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        print(f"\n{name}: interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:  # | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        print(f"{name}: {error.strerror or error}: {error.filename or ''}".rstrip(": "), file=sys.stderr)
        code = 2
    sys.exit(code)
