"""Questions that are measured: sources, checks of routes, the stop rule, and advise.py --measure as a whole."""

import json
import mmap
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pytest
from analysis.measured import (
    Measured,
    candidates,
    measured_answer,
    pooled_variance,
    shared_level,
    suitable,
    undecided,
)
from analysis.needs import Case
from analysis.ranking import Steadiness
from checking.question import question
from measuring.question import serve
from pages.case_answer import measured_table
from store.questions import read_header
from store.quiet import Run
from store.schema import UNKNOWN, TimedProcess, from_json

torch = pytest.importorskip("torch")
core = pytest.importorskip("benchmarks.core.question")

ROOT = Path(__file__).parent.parent
SHAPE = (4, 6, 8)


def made(layout, source="numpy", shape=SHAPE, **fields):
    return core.make_source(question(Case(source, "torch", 4 * 192, layout=layout, shape=shape, **fields)))


# --- sources --------------------------------------------------------------------------------------


LAYOUTS = {
    "contiguous": lambda a: a.flags.c_contiguous and a.flags.writeable,
    "strided": lambda a: a.strides == (6 * 16 * 4, 16 * 4, 8),
    "flipped": lambda a: a.strides[-1] == -4,
    "transposed": lambda a: a.flags.f_contiguous and not a.flags.c_contiguous,
    "fortran": lambda a: a.flags.f_contiguous and not a.flags.c_contiguous,
    "channels_last": lambda a: np.moveaxis(a, -3, -1).flags.c_contiguous,
    "read-only": lambda a: not a.flags.writeable,
    "memmap": lambda a: isinstance(a, np.memmap) and not a.flags.writeable,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_has_the_shape_and_the_order_of_its_name(layout):
    array = made(layout)
    assert array.shape == SHAPE and array.dtype == np.float32 and LAYOUTS[layout](array) and np.ptp(array) > 0


def test_a_source_without_a_shape_is_laid_out_as_in_the_suite():
    array = core.make_source(question(Case("numpy", "torch", 4 * 10_000, layout="transposed")))
    assert array.ndim == 2 and array.flags.f_contiguous and not array.flags.c_contiguous


def test_a_tensor_has_no_negative_strides():
    with pytest.raises(NotImplementedError, match="a tensor cannot be flipped"):
        made("flipped", source="torch")


@pytest.mark.parametrize(
    "expression, described",
    [
        ("np.arange(12.0).reshape(3, 4)[::2].T", ("numpy", "float64", [4, 2], 64, 0, False, False)),
        ("[np.ones(3), np.ones(2)]", ("numpy", "float64", [3], 40, 2, True, False)),
        ("[[1, 2.5], [3, 4]]", ("numpy", "float32", [2, 2], 16, 0, True, True)),
        ("[]", ("numpy", "float32", [0], 0, 0, True, True)),
    ],
)
def test_an_expression_makes_the_source_and_is_described(expression, described):
    source = core.make_source(question(Case("numpy", "torch", 0, expression=expression)))
    names = ("library", "dtype", "shape", "nbytes", "arrays", "contiguous", "values")
    assert tuple(core.describe_source(source)[name] for name in names) == described


@pytest.mark.parametrize("write", [np.save, lambda path, array: np.savez(path, x=array)], ids=["npy", "npz"])
def test_a_header_gives_shape_dtype_and_order(tmp_path, write):
    array = np.asfortranarray(np.ones((3, 5), np.uint16))
    write(tmp_path / ("a.npy" if write is np.save else "a.npz"), array)
    name = next(tmp_path.iterdir())
    header = read_header(f"{name}:x" if name.suffix == ".npz" else f"{name}")
    assert header == (np.uint16, (3, 5), True)


# --- routes ---------------------------------------------------------------------------------------

ROUTES = {
    "torch.from_numpy(a)": "alias",
    "torch.tensor(a)": "copy",
    "torch.from_numpy(a).flip(0)": "copy",
    "b.copy_(torch.from_numpy(a))": "into",
    "np.copyto(b.numpy(), a)": "into",
    "torch.from_numpy(a)[1:]": "alias",
}


@pytest.mark.parametrize("route, memory", ROUTES.items())
def test_the_memory_of_a_result_is_found(route, memory):
    found = core.check_route(core.names_of(made("contiguous")), route)
    assert found["memory"] == memory and found["dtype"] == "float32" and found["seconds"] > 0


def test_a_route_that_fails_says_why():
    found = core.check_route(core.names_of(made("flipped")), "torch.from_numpy(a)")
    assert found["fails"].startswith("ValueError: At least one stride in the given numpy array is negative")
    assert "AttributeError" in core.check_route(core.names_of(made("contiguous")), "torch.tensr(a)")["fails"]


def test_a_loop_over_a_list_writes_into_the_buffer():
    arrays = [np.ones(3, np.float32)] * 2
    found = core.check_route(core.names_of(arrays), "[row.copy_(torch.from_numpy(x)) for row, x in zip(b, arrays)]")
    assert (found["memory"], found["shape"]) == ("into", [2, 3])


def test_python_numbers_have_routes_that_name_the_wanted_dtype():
    routes = candidates(Case("numpy", "torch", 8, "float32", values=True, goal="int32"))
    assert {"torch.tensor(values)", "torch.from_numpy(np.array(values, dtype=np.int32))"} <= set(routes)
    assert all("values" in route for route in routes)


def test_casts_name_the_wanted_dtype():
    routes = candidates(Case("numpy", "torch", 8, "int64", goal="int32"))
    assert {"torch.from_numpy(a).to(torch.int32)", "torch.from_numpy(a.astype(np.int32))"} <= set(routes)
    assert not any("float" in route or ".half" in route for route in routes)
    assert all(route.safe for route in routes.values())


def test_a_route_of_another_dtype_or_shape_is_not_suitable():
    check = {"dtype": "float32", "shape": [2], "memory": "copy", "seconds": 1e-6}
    checks = {"right": check, "cast": {**check, "dtype": "float64"}, "flat": {**check, "shape": [1, 2]}}
    case = Case("numpy", "torch", 8, shape=(2,))
    assert suitable(case, checks) == (["right"], "copy")


# --- when to stop ---------------------------------------------------------------------------------


def lines_of(times):
    """Processes of routes: route -> seconds per round, on a quiet machine."""
    common = {"run": "", "benchmark": "question", "version": "1", "at": 0.0, "wanted": 8, "number": 1}
    common |= {"disturbed": [], "waits": [], "waiting": [], "waited": 0.0, "took": 0.1}
    common["probes"] = {"processor": [20_000] * 9}
    return [
        from_json(TimedProcess, {**common, "params": [repr(route)], "round": number, "seconds": [seconds] * 8})
        for route, rounds in times.items()
        for number, seconds in enumerate(rounds)
    ]


CASE = Case("numpy", "torch", 4096, threads="1")


@pytest.mark.parametrize(
    "times, remaining",
    [
        ({"a": [1e-6], "b": [5e-6], "c": [9e-6]}, ["a", "b"]),  # decided, but one process is too few
        ({"a": [1e-6] * 2, "b": [5e-6] * 2, "c": [9e-6]}, []),
        ({"a": [1e-6], "b": [1.1e-6]}, ["a", "b"]),
        ({"a": [1e-6, 1.01e-6, 1e-6, 1.01e-6], "b": [1.02e-6, 1e-6, 1.01e-6, 1e-6]}, []),  # a tie
        ({"a": [1e-6, 2e-6, 1.5e-6, 1e-6], "b": [1.6e-6, 2e-6, 1e-6, 2e-6]}, ["a", "b"]),  # processes differ
    ],
)
def test_a_race_goes_on_until_routes_differ_or_tie(times, remaining):
    assert undecided([*times], lines_of(times), CASE) == remaining


@pytest.mark.parametrize("limit, remaining", [(0.1, []), (0.01, ["a", "b"])])
def test_a_tie_ends_a_race_within_the_limit_of_all_answers(monkeypatch, limit, remaining):
    monkeypatch.setattr(Steadiness, "excess_limit", limit)
    times = {"a": [1e-6] * 4, "b": [1.02e-6] * 4}
    assert undecided([*times], lines_of(times), CASE) == remaining


def test_noise_that_all_routes_share_decides_nothing():
    """Moments differ by up to 9 times, processes by 1 %, and no process is quiet: ratios hold, and the race ends."""
    rng = np.random.default_rng(1)
    noise = rng.uniform(1, 9, (2, 8))
    lines = [
        msgspec.structs.replace(
            line,
            seconds=tuple(np.array(line.seconds) * noise[line.round] * rng.normal(1, 0.01)),
            probes={"processor": (20_000.0, *(20_000 * noise[line.round]))},
        )
        for line in lines_of({"a": [1e-6] * 2, "b": [1.2e-6] * 2, "c": [2e-6] * 2})
    ]
    logs = shared_level(Run(lines)).mean(axis=1)
    assert np.exp(logs - logs["a"]).tolist() == pytest.approx([1, 1.2, 2], rel=0.03)
    assert undecided(["a", "b", "c"], lines, CASE) == []


@pytest.mark.parametrize("routes, rounds", [(2, 2), (2, 4), (6, 2)])
def test_the_variance_between_processes_is_that_of_the_processes(routes, rounds):
    """Also where few routes share a level: the mean of many races is right."""
    rng = np.random.default_rng(2)
    found = [
        pooled_variance(shared_level(Run(lines_of(dict(enumerate(times.tolist()))))).to_numpy())
        for times in 1e-6 * np.exp(rng.normal(0, 0.1, (300, routes, rounds)))
    ]
    assert np.mean([variance for variance, _ in found]) == pytest.approx(0.01, rel=0.15)
    assert {df for _, df in found} == {(routes - 1) * (rounds - 1)}


def test_a_route_without_an_undisturbed_sample_decides_nothing_on_several_threads():
    lines = lines_of({"a": [1e-6] * 4, "b": [9e-6] * 4})
    lines[4:] = [msgspec.structs.replace(line, disturbed=tuple(range(8))) for line in lines[4:]]
    case = replace(CASE, threads="all", nbytes=2**20)
    assert undecided(["a", "b"], lines, case) == ["a", "b"]


def test_a_route_of_the_user_with_other_memory_gets_its_processes_and_no_vote():
    times = {"a": [2e-6] * 4, "b": [5e-6], "mine": [1e-6]}
    assert undecided([*times], lines_of(times), CASE, ["mine"]) == ["a", "mine"]


def test_a_page_names_the_best_route_of_a_question():
    check = {"dtype": "float32", "shape": [1024], "memory": "copy", "seconds": 1e-6}
    times = {"torch.tensor(a)": [2e-6] * 2, "torch.from_numpy(a).clone()": [1e-6] * 2}
    case = replace(CASE, shape=(1024,), expression="np.ones(1024, '|')")
    measured = Measured(case, case, (), dict.fromkeys(times, check), lines_of(times), UNKNOWN)
    title, route, processes = measured_table([measured_answer(measured, "box")]).rows[0]
    assert (
        "np.ones(1024, '|'): 4 KiB of float32" in title
        and "torch.from_numpy(a).clone()" in route
        and "1.00 µs" in route
    )
    assert processes.endswith("4 processes")


# --- as a whole -----------------------------------------------------------------------------------


def advised(results, *words, **variables):
    command = [sys.executable, ROOT / "scripts" / "advise.py", "--results", results, *words]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables}, cwd=results)


@pytest.mark.slow
def test_a_measured_question_is_answered_at_once_the_next_time(tmp_path):
    words = ["--from", "numpy", "--to", "torch", "--shape", "16x32", "--own", "--json"]
    measured = advised(tmp_path, *words, "--measure", "--route", "torch.tensor(a.tolist())")
    assert measured.returncode == 0, measured.stderr
    first = json.loads(measured.stdout)
    slow = {row["route"]: row for row in first["routes"]}["torch.tensor(a.tolist())"]
    assert slow["kind"] == "slower" and slow["memory"] == "copy" and slow["ratio"] > 2
    assert "Yours: `torch.tensor(a.tolist())`" in " ".join(first["notes"])
    again = advised(tmp_path, *words, PATH="")
    assert json.loads(again.stdout)["routes"] == first["routes"]


@pytest.mark.slow
def test_what_the_shell_gives_is_an_error_of_one_line(tmp_path):
    for words, says in {
        ("--source", "np.onez(3)", "--to", "torch"): "the source cannot be made: AttributeError: module 'numpy'",
        ("--source", "7", "--to", "torch"): "the source is a int, not an array, tensor or list",
        ("--source", "np.ones(3)", "--to", "torch", "--route", "tensr(a)"): "--route tensr(a): NameError",
        ("--source", "torch.ones(3)", "--to", "torch"): "it is of torch; write --from torch --to numpy",
        ("--source", "np.ones((3, 0))", "--to", "torch"): "it is empty, there is nothing to measure",
        (
            "--from",
            "torch",
            "--to",
            "device",
            "--nbytes",
            "8",
            "--measure",
        ): "--measure: NotImplementedError: needs an accelerator: ",
    }.items():
        done = advised(tmp_path, *words, CUDA_VISIBLE_DEVICES="")
        assert (done.returncode, done.stdout) == (2, "") and says in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_package_of_the_same_name_beside_the_user_is_not_ours(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").write_text("raise SystemExit('not ours')")
    (tmp_path / "theirs.py").write_text("import numpy\narray = numpy.ones(3)")
    done = advised(tmp_path, "--source", "__import__('theirs').array", "--to", "torch", "--own")
    assert done.returncode == 0 and "`torch." in done.stdout, done.stderr


def test_processes_work_one_at_a_time_in_turns(tmp_path):
    """Preparation first, then a step each; one of them ends early, another dies."""

    def work(name, turn):
        for letter in name * {"b": 1, "d": 0}.get(name, 3):
            with turn.turn(), open(tmp_path / "log", "a") as file:
                file.write(letter)
        return name if name != "d" else os._exit(3)

    assert core.in_turns([partial(work, name) for name in "abcd"], 10) == [
        "a",
        "b",
        "c",
        {"fails": "ended the process"},
    ]
    assert (tmp_path / "log").read_text() == "abc" + "ac" * 2


def test_a_process_that_dies_between_two_turns_is_a_failure():
    pids = mmap.mmap(-1, 8)  # shared by the processes

    def asleep(turn):
        pids[:] = os.getpid().to_bytes(8, "big")
        with turn.turn():
            raise AssertionError

    def killer(turn):
        os.kill(int.from_bytes(pids[:], "big"), signal.SIGKILL)
        time.sleep(0.2)
        return "done"

    assert core.in_turns([asleep, killer], 10) == [{"fails": "died with SIGKILL"}, "done"]


def test_a_process_that_ends_early_is_a_failure():
    assert core.in_fork(lambda: os._exit(3), 10) == {"fails": "ended the process"}
    assert core.in_fork(lambda: os.kill(os.getpid(), signal.SIGKILL), 10) == {"fails": "died with SIGKILL"}
    assert core.in_fork(lambda: time.sleep(60), 0.1) == {"fails": "took more than 0 s"}


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_behind(tmp_path):
    words = ["--source", "__import__('time').sleep(300)", "--to", "torch"]
    command = [sys.executable, ROOT / "scripts" / "advise.py", "--results", tmp_path, *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert "importing torch" in process.stderr.readline()
        time.sleep(5)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130 and "interrupted" in process.stderr.read()
    gone, alive = psutil.wait_procs(children, 10)
    assert gone and not alive and not [*tmp_path.iterdir()]


def test_a_source_that_takes_long_shows_progress(monkeypatch, capsys):
    monkeypatch.setattr("measuring.question.PROGRESS_SECONDS", 0.1)
    case = Case("numpy", "torch", 0, expression="(__import__('time').sleep(0.5), np.ones(2))[1]")
    with serve() as server:
        assert server.make_source(question(case))["shape"] == [2]
    assert "measuring: making the source, 0 s so far" in capsys.readouterr().err
