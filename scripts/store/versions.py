"""Versions of results from before benchmarks/versions.lock: hashes of source text, which stand for
numbers now.

The table lies with the committed results, once: benchmark -> hash -> version. A hash that is not in
it is the version of other code, and stays as it is. Measurements keep their hash on the disk.
"""

import json
from collections.abc import Mapping
from functools import cache

from cli import RESULTS, UserError

TABLE = "versions.json"  # in reports/results of this checkout, for results of any other, too


@cache
def _numbers() -> Mapping[str, Mapping[str, str]]:
    path = RESULTS / TABLE
    if not path.is_file():  # a checkout without results
        return {}
    try:
        numbers: Mapping[str, Mapping[str, str]] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is broken ({error}): restore it from git") from None
    return numbers


def version_number(benchmark: str, version: str) -> str:
    """Return the version of a benchmark as a number, where the table has its hash; else as it
    is."""
    return _numbers().get(benchmark, {}).get(version, version)
