"""The suite's benchmarks measured without asv: each cell in a forked process, which starts from the same state."""

import contextlib
import importlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from cli import UserError
from records import calm

from .engine import LOG_VARIABLE, ROOT


def in_child(work: Callable[[], Any]) -> Any:
    """What ``work`` returns in a forked process: every measurement starts from the same state, as asv's do."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(reader)
            with contextlib.redirect_stdout(io.StringIO()):  # asv says there what it skips
                answer = json.dumps(work()).encode()
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(answer)
            code = 0
        except Exception as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    if not text:
        raise UserError("a measuring process died: see its message above")
    return json.loads(text)


def benchmark_of(name: str) -> Any:
    """A benchmark of the suite, as asv finds it by its name."""
    from asv_runner.discovery import get_benchmark_from_name

    return get_benchmark_from_name(str(ROOT / "benchmarks"), name)


def part_of_suite(name: str) -> Any:
    """A module of benchmarks/, which asv's discovery has put on the path."""
    return importlib.import_module(f"benchmarks.{name}")


def figure(benchmark: Any, cell: tuple) -> calm.Line | None:
    """What the suite logs of a cell when it sets it up and measures it as it always does; None where it skips it."""
    benchmark._current_params = cell
    if benchmark.do_setup():
        return None
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as file:
        os.environ[LOG_VARIABLE] = file.name
        try:
            benchmark.run(*cell)
        except NotImplementedError:
            return None
        finally:
            del os.environ[LOG_VARIABLE]
        return json.loads(file.readlines()[-1])
