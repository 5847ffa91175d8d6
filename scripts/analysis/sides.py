"""Two sides by the names that a user gave them: found, loaded, and compared with what was measured beside them."""

import contextlib
from pathlib import Path

from cli import UserError
from toolchains import selection

from .comparison import Comparison, belong_together, compare
from .results import load_files
from .sessions import sessions_in
from .verdicts import Settings


def compare_named(base: str, new: str, results: Path, machine: str | None, settings: Settings) -> Comparison:
    """Compare what ``result_file`` finds by two names, and fresh processes where ``compare.py --run`` took some.

    UserError where a name is of no file or of several, or both are of the same.
    """
    files = [selection.result_file(name, results, machine) for name in (base, new)]
    if files[0].resolve() == files[1].resolve():
        raise UserError(f"BASE and NEW are the same file, {files[0]}: its A/A needs a second run of that toolchain")
    places = [selection.results_of(file) for file in files]
    first, second = (load_files(place, [file]) for place, file in zip(places, files))
    fresh = None
    stages = [stage for place in places if (stage := selection.second_stage(place))]
    if len(stages) == len(places):
        again = [load_files(stage, [selection.result_file(str(stage), stage)]) for stage in stages]
        fresh = (again[0], again[1]) if belong_together(first, second, *again) else None
    sessions = None
    if files[0].absolute().parent == files[1].absolute().parent:
        # files of neither side: one that is broken is no obstacle, and report.py names it
        with contextlib.suppress(UserError):
            sessions = sessions_in(places[0], files[0].absolute().parent.name)
    return compare(first, second, settings, fresh, sessions)
