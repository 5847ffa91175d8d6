#!/usr/bin/env python3
"""Rank the routes for your array by measured time, with the code to paste.

    python scripts/advise.py --from numpy --to torch --nbytes 3MiB --dtype float16 --own
    python scripts/advise.py --from torch --to device --nbytes 64MiB --source pageable --count 1000
    python scripts/advise.py --from numpy --to torch --shape 1080x1920x3 --dtype uint8 --measure
    python scripts/advise.py --source "np.load('x.npy')[::2].T" --to torch --measure

It uses the results of this machine or, if there are none, those of the most similar machine, and
says which. With --measure it measures your case here and now, in about ten seconds, with the torch
and numpy of this Python.

Exit status: 0 an answer, 2 no answer is possible.
"""

import argparse
import contextlib
import gc
import math
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves it out
gc.disable()  # of the imports' half a second, its passes take a tenth

import cli

# ruff: noqa: E402  the server of questions imports torch while this process imports pandas
SERVERS = contextlib.ExitStack()  # they end with main
SERVER = None
if __name__ == "__main__" and "--measure" in sys.argv:
    from measuring.question import has_torch, serve

    SERVER = SERVERS.enter_context(serve()) if has_torch() else None

import numpy as np
from analysis.answers import Answer, answer
from analysis.cells import DEFAULT_DTYPE, itemsize
from analysis.costs import closest_machine, last_runs, load_machine
from analysis.estimates import NoAnswer, NotMeasured
from analysis.needs import DEVICE, ENDS, NUMPY, TORCH, Case
from cli import RESULTS, CommandLine, Parser, UserError, parse_shape, parse_size, whole_number
from measuring.machine import conditions
from pages.case_answer import answer_text, as_json, no_answer_text
from store import files, questions
from store.questions import NUMBER_KINDS, read_header
from toolchains import selection

from benchmarks.contracts import ALIAS, CONTIGUOUS, COPY, INTO, PAGEABLE, PINNED

gc.enable()
LARGEST = 2**50  # bytes
REGISTERED = 2  # np.dtype.isbuiltin of dtypes such as bfloat16, once ml_dtypes is imported
# Options that are fields of a case as they stand
CASE_OPTIONS = ("grad", "batch", "enqueue", "count", "goal", "writable")
READ_ONLY_LAYOUTS = ("read-only", "memmap", "pandas")
# Options that describe a source -> their defaults
PLAIN = {"dtype": None, "layout": CONTIGUOUS, "grad": False, "batch": 0}
OFFER = "measure it: add --measure"
# Other spellings of dtypes, besides those that NumPy knows; torch's where both differ
DTYPE_NAMES = {
    **{"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"},
    **{"float": "float32", "int": "int32", "byte": "uint8", "boolean": "bool"},
}
LIBRARY_NAMES = {
    **dict.fromkeys(("cuda", "gpu", "hip", "rocm", "xpu", "mps"), DEVICE),
    **dict.fromkeys(("np", "array", "ndarray"), NUMPY),
    **dict.fromkeys(("pytorch", "tensor", "cpu"), TORCH),
}


def size(text: str) -> int:
    """Bytes of "3MiB", "3 MB" or "4096"."""
    nbytes = parse_size(text)
    if nbytes is None or not 0 < nbytes <= LARGEST:
        raise argparse.ArgumentTypeError(f"{text!r}: write bytes such as 4096, 3MiB or 3MB")
    return nbytes


def shape(text: str) -> tuple[int, ...]:
    """Sizes of "1080x1920x3"."""
    lengths = parse_shape(text)
    if lengths is None:
        raise argparse.ArgumentTypeError(f"{text!r}: write sizes such as 1080x1920x3")
    return lengths


def dtype(text: str) -> str:
    """The name of a dtype; an ArgumentTypeError names the one that is meant by another spelling."""
    plain = text.lower().rpartition(".")[2]
    name = DTYPE_NAMES.get(plain, plain)
    with contextlib.suppress(TypeError):  # torch has more
        found = np.dtype(name)
        if found.isbuiltin == REGISTERED:
            return text
        if found.kind not in NUMBER_KINDS:
            raise argparse.ArgumentTypeError(f"{text} holds no numbers")
        name = found.name
    if name != text:
        raise argparse.ArgumentTypeError(f"{text}: did you mean {name}?")
    return text


def end(text: str) -> str:
    """The library of an array, or "device": an accelerator by any of its names."""
    return LIBRARY_NAMES.get(text.lower().partition(":")[0], text)


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    _add_source_options(parser)
    parser.option("--to", "library or device of the result", dest="target", type=end, choices=ENDS)
    parser.option(
        "--to-dtype DTYPE",
        "dtype of the result (default: dtype of the source)",
        dest="goal",
        type=dtype,
        default="",
    )
    memory = parser.add_mutually_exclusive_group()
    memory_option = partial(memory.add_argument, dest="memory", action="store_const", default="")
    memory_option("--own", const=COPY, help="the result must be a copy")
    memory_option("--share", const=ALIAS, help="the result must share the source's memory")
    memory_option("--into-buffer", const=INTO, help="write into an existing buffer")
    parser.option("--writable", "the result will be written to: of a read-only source, a copy")
    about = "torch threads; 1 in a DataLoader worker (default: torch's)"
    parser.option("--threads N", about)
    parser.option("--enqueue", "with a device: rank by the time until the call returns")
    parser.option(
        "--count N", "with a device: transfers over which one-time costs are amortised", default=1
    )
    parser.option("--measure", "measure this case here and now, in about ten seconds")
    about = "your own way, an expression over a or t, to measure with the others (repeatable)"
    parser.add_argument("--route", help=about, dest="routes", metavar="EXPRESSION", action="append")
    parser.option("--json", "print the whole answer as JSON")
    about = "machine whose results to use (default: this machine, or the most similar one)"
    parser.option("--machine NAME", about, type=selection.check_machine_name)
    parser.option("--results DIR", "directory of results", default=RESULTS)
    return parser.parse_args(argv)


def _add_source_options(parser: Parser) -> None:
    parser.option(
        "--from", "library or device of the source", dest="library", type=end, choices=ENDS
    )
    parser.option("--nbytes NBYTES", "size, such as 3MiB; with --batch, of each array", type=size)
    parser.option("--shape SHAPE", "shape instead, such as 1080x1920x3", type=shape)
    about = "dtype, shape and order of the array in FILE.npy, FILE.npz:NAME, FILE.h5:NAME, DIR.zarr"
    parser.option("--like FILE", about)
    about = (
        "with a device: memory of the host, pageable or pinned; or, with --measure, Python that "
        "makes the source, such as \"np.load('x.npy').T\""
    )
    parser.option("--source SOURCE", about, default="")
    about = "dtype of the source, such as bfloat16 or int64 (default: float32)"
    parser.option("--dtype DTYPE", about, type=dtype)
    about = (
        "contiguous, strided, transposed, fortran, 'power of two', 0-d or 5-d: see "
        "docs/glossary.md; with --measure also channels_last, flipped, read-only, memmap, pandas"
    )
    parser.option("--layout LAYOUT", about, default=CONTIGUOUS)
    parser.option("--read-only", "the source is read-only, as from pandas 3, pyarrow or Pillow")
    parser.option("--grad", "the source requires grad")
    parser.option(
        "--batch N", "combine N arrays into one", type=partial(whole_number, least=2), default=0
    )


def case_of(options: argparse.Namespace) -> Case:
    """The case that the options describe. UserError if they leave it open, or contradict each
    other."""
    host = options.source if options.source in (PAGEABLE, PINNED) else ""
    expression = "" if host else options.source
    if expression and DEVICE in (options.library, options.target):
        raise UserError(f"--source {expression}: with a device it is {PAGEABLE} or {PINNED}")
    descriptions = [options.nbytes, options.shape, options.like, expression]
    if sum(map(bool, descriptions)) != 1:
        raise UserError("say what the source is, once: --nbytes, --shape, --like or --source")
    given = [f"--{name}" for name, value in PLAIN.items() if getattr(options, name) != value]
    if expression and given:
        raise UserError(f"--source {expression}: it says all, leave out {', '.join(given)}")
    library = options.library or (NUMPY if options.like else "")
    if expression and not library:  # found where it is made
        library = TORCH if options.target == NUMPY else NUMPY
    if not library or not options.target:
        raise UserError(f"name the source and the result: --from and --to {', '.join(ENDS)}")
    described = {name: getattr(options, name) for name in ("layout", "shape", "dtype")}
    if options.like:
        header = read_header(options.like)
        described["shape"] = header.shape
        described["dtype"] = options.dtype or header.dtype.name
        if header.fortran and len(header.shape) > 1:
            described["layout"] = "fortran"
    shape, dtype = described["shape"] or (), described["dtype"] or DEFAULT_DTYPE
    read_only = options.read_only or described["layout"] in READ_ONLY_LAYOUTS
    must_copy = read_only and options.writable
    return Case(
        source=library,
        target=options.target,
        nbytes=options.nbytes or math.prod(shape) * itemsize(dtype),
        dtype=dtype,
        layout=described["layout"],
        memory=options.memory or (COPY if must_copy else ""),
        shape=shape,
        read_only=read_only,
        host=host,
        expression=expression,
        threads=str(options.threads or ""),
        **{name: getattr(options, name) for name in CASE_OPTIONS},
    )


def find_answer(case: Case, options: argparse.Namespace) -> tuple[Answer, tuple[str, ...]]:
    """Measure the case if that is wanted; else answer from what was measured before."""
    is_wanted = options.measure or options.routes or case.expression
    is_measured = is_wanted or _has_torch_alone(options, case)
    if not is_measured and not questions.machines_with_questions(options.results):
        return answer_from_results(case, options)
    from checking.question import measure_case, measured_before  # 0.1 s that most answers save

    before = measured_before(case, options.results, options.machine) if not is_wanted else None
    if before:
        return before, ()
    if is_measured:
        routes, results = options.routes or (), options.results
        return measure_case(case, routes, results, options.machine, SERVER), ()
    return answer_from_results(case, options)


def _has_torch_alone(options: argparse.Namespace, case: Case) -> bool:
    """Whether there are no results at all, and torch to measure with."""
    if case.device or not options.results.is_dir() or files.result_files(options.results):
        return False
    from measuring.question import has_torch

    return has_torch()


def answer_from_results(case: Case, options: argparse.Namespace) -> tuple[Answer, tuple[str, ...]]:
    """Answer from the results of this machine or, if they lack the case, of the most similar
    machine that has it. Return the answer, and the properties in which that machine differs.

    UserError, which offers to measure the case, if there is no answer.
    """
    records = last_runs(options.results, options.machine)
    present = conditions()
    refused = []
    while records:
        nearest, differs = closest_machine(records, present, case.device)
        try:
            return answer(case, load_machine(options.results, nearest)), differs
        except NotMeasured as error:
            refused.append(error)
            del records[nearest]
    if case.device or options.machine:
        raise refused[0]
    raise UserError(f"{no_answer_text(refused[0])}; {OFFER}")


def main(argv: CommandLine = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    with SERVERS:
        options = arguments(words)
        case = case_of(options)
        try:
            ranked, differs = find_answer(case, options)
        except NoAnswer as refusal:
            raise UserError(no_answer_text(refusal)) from None
    if options.json:
        sys.stdout.write(as_json(ranked, differs))
    else:
        command = shlex.join(["python", "scripts/advise.py", *words, "--measure"])
        if options.machine:  # another one may be meant
            differs, command = (), ""
        print(answer_text(ranked, differs, command))
    return 0


if __name__ == "__main__":
    cli.run(main)
