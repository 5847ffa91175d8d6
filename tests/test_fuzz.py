"""Bad input: whatever is in a file of results, it is read, or refused in one line that names the file."""

import json
import os

import pytest
import report
import resultfiles
from analysis import calm
from analysis.cli import UserError
from analysis.results import load
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from resultfiles import contract, conversion

ROUTES = ("torch.from_numpy(a)", "torch.tensor(a)")
KINDS = (".json", ".jsonl", calm.SUFFIX, "benchmarks.json", "machine.json")
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "300"))  # the campaign takes 5,000


def deep(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


NASTY = st.one_of(
    st.sampled_from(
        [None, True, [], {}, "", "x", -1, 0, 1.5, 10**400, -(10**400), 1e400, float("nan"), [None], {"a": None}]
        + [deep(50), "\ud800", "a\nb", "\x1b[31m", "x" * 5000, [[]], {"": {}}, "NaN", 2**63, "ａ", "\u2028"]
    ),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda s: st.lists(s, max_size=3)),
)


def places(value, path=()):
    """Every place in a JSON value, as the keys that lead there."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(value, path, action, nasty):
    """The value with something else in one place, or without it, or with it twice."""
    if not path:
        return nasty
    copy = json.loads(json.dumps(value))
    holder = copy
    for key in path[:-1]:
        holder = holder[key]
    if action == "put":
        holder[path[-1]] = nasty
    elif action == "remove":
        del holder[path[-1]]
    elif isinstance(holder, list):
        holder.insert(path[-1], holder[path[-1]])
    else:
        holder[f"{path[-1]}2"] = holder[path[-1]]
    return copy


def results(root):
    """A small results directory with pulses, a failed and a skipped cell."""
    sizes = (8, 4096)
    times = {(route, n): [1e-6] * 4 for route in ROUTES for n in sizes}
    bench = conversion(times | {(ROUTES[1], 4096): resultfiles.SKIPPED}, [contract(r, "alias") for r in ROUTES])
    resultfiles.write(root, [bench])
    timed = conversion({key: value for key, value in times.items() if key != (ROUTES[1], 4096)}, [])
    resultfiles.watched(root, timed)
    return root


def file_of(root, kind):
    found = [path for path in root.rglob("*") if path.name == kind or (kind[0] == "." and path.suffix == kind)]
    return next(path for path in found if kind[0] != "." or path.name not in KINDS)


def read_or_refused(root, output=None):
    """Load it, and build its page there; an error that a person can mend is a UserError."""
    try:
        load(root)
        for _ in report.build(root, "box", output) if output else ():
            pass
    except UserError as error:
        told = str(error)
        assert told, "an error without words"
        return told
    return ""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = results(tmp_path_factory.mktemp("fuzz") / "results")
    assert not read_or_refused(root, root.parent / "out")
    return root


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    derandomize="FUZZ_EXAMPLES" not in os.environ,
)
@given(data=st.data(), kind=st.sampled_from(KINDS), action=st.sampled_from(["put", "put", "put", "remove", "twice"]))
def test_one_value_is_another(whole, data, kind, action):
    path = file_of(whole, kind)
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines() if kind in (".jsonl", calm.SUFFIX) else [text]
    number = data.draw(st.integers(0, len(lines) - 1))
    value = json.loads(lines[number])
    place = data.draw(st.sampled_from(list(places(value))))
    lines[number] = json.dumps(changed(value, place, action, data.draw(NASTY)))
    try:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        drawn = data.draw(st.sampled_from(range(10))) == 0  # a page takes fifty times as long
        read_or_refused(whole, whole.parent / "out" if drawn else None)
    finally:
        path.write_text(text, encoding="utf-8")


@settings(
    max_examples=max(20, EXAMPLES // 10),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize="FUZZ_EXAMPLES" not in os.environ,
)
@given(data=st.data(), kind=st.sampled_from(KINDS))
def test_bytes_are_others(whole, data, kind):
    """Cut off, or with bytes in between that are no text."""
    path = file_of(whole, kind)
    held = path.read_bytes()
    at = data.draw(st.integers(0, len(held)))
    between = data.draw(st.binary(max_size=8))
    rest = held[at:] if data.draw(st.booleans()) else b""
    try:
        path.write_bytes(held[:at] + between + rest)
        read_or_refused(whole)
    finally:
        path.write_bytes(held)
