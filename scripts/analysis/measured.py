"""The answer to a case whose routes were measured for it: candidates, stop rule, ranking.

Its routes move the same bytes within seconds, and take their samples in turns. A disturbance makes
neighbouring samples of all routes longer alike, so what they share is taken away: no sample need be
quiet. The routes share one variance between processes: that of their own processes, pooled over all
of them. Ranks, ties and recommendations follow the rules of all other answers (ranking.py).
"""

import ast
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from cli import UserError
from pandas import DataFrame, Series, concat
from store import quiet
from store.schema import RunRecord, TimedProcess

from benchmarks.contracts import ALIAS, COPY, ONE_THREAD, PARALLEL, Route
from benchmarks.routes import ROUTES

from .answers import Answer
from .cells import itemsize
from .costs import MachineAnswers
from .estimates import ANY_SIZE, MEASURED
from .judging import MIN_TURNS
from .needs import NEED_FIELDS, NUMPY, Case, Need, uses
from .ranking import FEW_SD, SLOWER, Steadiness, rank, recommendable
from .statistics import MIN_PROCESSES, Floats, means
from .suite import undisturbed_samples

MIN_SD = 0.01  # of log seconds, between processes of one route: no machine is steadier
MIN_ROUNDS = 2  # of the fastest route, even if it is alone
NOISE = "question"  # one family of noise: all routes of a question
CAST_DTYPE = "float32"  # that routes of the catalogue name; a question's goal takes its place
POLISHES = 10  # rounds of the median polish: it converges in a few
OTHER_CASTS = (".float()", ".half()", ".bfloat16()")  # routes that name a dtype in another way


Checks = Mapping[str, Mapping[str, Any]]  # route -> what it returned


@dataclass(frozen=True)
class Measured:
    """The measured routes of a case.

    question  the case as it was put
    case    with the dtype, size and layout that its source has
    user_routes  routes of the user, besides those of the catalogue
    checks  route -> what it returned
    lines   processes that took samples
    run     record of the measurement
    """

    question: Case
    case: Case
    user_routes: tuple[str, ...]
    checks: dict[str, dict[str, Any]]
    lines: list[TimedProcess]
    run: RunRecord

    def outside(self, memory: str) -> list[str]:
        """Return the user's routes that give another memory."""
        return [route for route in self.user_routes if self.checks[route]["memory"] != memory]


# --- candidates -----------------------------------------------------------------------------------


def candidates(case: Case) -> dict[str, Route]:
    """Return the safe routes of the catalogue for a case: expression -> contract. Casts name the
    case's goal."""
    names = ("arrays", "tensors") if case.batch else ("a", "t")
    name = "values" if case.values else names[case.source != NUMPY]
    selected: dict[str, Route] = {}
    for route in ROUTES:
        is_fitting = route.direction == case.direction and uses(route.expression, name)
        if is_fitting and route.safe and not route.per_element:
            candidate = _with_goal(route, case.goal or case.dtype)
            if candidate is None:
                continue
            if case.batch or case.values or bool(candidate.casts_to) == bool(case.goal):
                selected[candidate.expression] = candidate
    return selected


def _with_goal(route: Route, goal: str) -> Route | None:
    """Return a route that casts to ``goal``, made from one that casts to another dtype; None if
    its expression does not name its dtype. Routes that do not cast stay as they are."""
    if route.view or route.casts_to in ("", "python", goal):
        return route
    if route.casts_to != CAST_DTYPE or any(cast in route.expression for cast in OTHER_CASTS):
        return None
    numpy_goal = "bool_" if goal == "bool" else goal
    expression = route.expression.replace(f"np.{CAST_DTYPE}", f"np.{numpy_goal}")
    expression = expression.replace(f"torch.{CAST_DTYPE}", f"torch.{goal}")
    return replace(route, expression=expression, casts_to=goal, caution="")


def suitable(
    case: Case, checks: Checks, user_routes: Collection[str] = ()
) -> tuple[list[str], str]:
    """Return the routes that give what the case asks for, the fastest at first sight first, and the
    memory that they give. UserError if there are none.

    user_routes  any that give an array or a tensor
    """
    shape = [case.batch, *case.shape] if case.batch else [*case.shape]
    goal = {"dtype": case.goal or case.dtype, "shape": shape}
    memory_of = {
        route: check["memory"]
        for route, check in checks.items()
        if route not in user_routes and check.items() >= goal.items()
    }
    default_memory = ALIAS if ALIAS in memory_of.values() else COPY
    memory = case.memory or default_memory
    routes = [route for route in memory_of if memory_of[route] == memory]
    if not routes:
        raise UserError(_no_route(memory, checks))
    routes += [route for route in user_routes if "fails" not in checks[route]]
    return sorted(routes, key=lambda route: float(checks[route]["seconds"])), memory


def _no_route(memory: str, checks: Checks) -> str:
    """Return why no route gives the result."""
    reasons = dict.fromkeys(str(check["fails"]) for check in checks.values() if "fails" in check)
    failed = f": {next(iter(reasons))}" if reasons else ""
    return f"no safe route gives such a result ({memory}){failed}"


# --- stop rule ------------------------------------------------------------------------------------


def undecided(
    routes: Sequence[str], lines: Sequence[TimedProcess], case: Case, outside: Collection[str] = ()
) -> list[str]:
    """Return the routes that need another process: those not significantly slower than the fastest,
    two at least. None if one is left, or those that are left tie and all may be recommended.

    outside  routes of the user that give another memory: they have MIN_PROCESSES, whatever they
             take
    """
    cells = rank(_evidence(lines, case, outside))
    ranked = cells[~cells["route"].isin(outside)]
    fastest = ranked["seconds"].min()
    open_cells = ranked[ranked["kind"] != SLOWER]
    fewest = open_cells["n"].min()
    is_close = np.all(recommendable(open_cells["seconds"], fastest, open_cells["excess_limit"]))
    is_tie = open_cells["quiet"].all() and is_close
    is_decided = len(open_cells) == 1 and fewest >= MIN_ROUNDS
    names = set(cells["route"][cells["route"].isin(outside) & (cells["n"] < MIN_PROCESSES)])
    if not (is_decided or (is_tie and fewest >= MIN_PROCESSES)):
        names |= set(open_cells["route"])
    if len(names) == 1:  # alone, its noise could not be told from its time
        others = ranked[~ranked["route"].isin(names)]
        names |= set(others.nsmallest(1, "seconds")["route"])
    return [route for route in routes if route in names]


def _evidence(
    lines: Sequence[TimedProcess], case: Case, outside: Collection[str] = ()
) -> DataFrame:
    """Return one row per measured route with the columns that ranking.py needs, and upper_bound:
    whether none of its processes was quiet. A route whose samples were all disturbed has its
    fastest one; on several threads that is no evidence, see ranking.py."""
    run = quiet.Run(lines)
    by_route = processes_of(run).groupby("route", sort=False)
    logs = shared_level(run)
    is_judged = logs.notna().any(axis=1)
    logs[0] = logs[0].where(is_judged, by_route["log"].min())
    variance, df = pooled_variance(logs[is_judged].to_numpy())
    cells = DataFrame(
        {
            "seconds": np.exp(logs.median(axis=1)),
            "low": np.exp(logs.min(axis=1)),
            "high": np.exp(logs.max(axis=1)),
            "mean": logs.mean(axis=1),
            "n": logs.count(axis=1).astype(float),
            "upper_bound": ~by_route["quiet"].any(),
            "quiet": is_judged,
            "variance": np.where(is_judged, variance, _noisy_variance(case)),
            "df": np.where(is_judged, df, math.inf),
            "present": [*logs.notna().to_numpy()],
            "shares": [np.ones(1)] * len(logs),
        },
        index=logs.index,
    )
    # one need, one size, one noise: what else ``rank`` asks for
    return cells.reset_index().assign(
        role="",
        nbytes=0,
        order=range(len(cells)),
        keeps=True,
        safe=~logs.index.isin(outside),
        non_blocking=False,
        noise=NOISE,
        excess_limit=Steadiness(run.quiet_share()).excess_limit,
        shared=0.0,
        shared_df=0.0,
    )


def processes_of(run: quiet.Run) -> DataFrame:
    """Return one row per process: route, round, log (of its figure), quiet."""
    return DataFrame(
        {
            "route": [ast.literal_eval(line.params[0]) for line in run.lines],
            "round": [line.round for line in run.lines],
            "log": np.log(run.figures),
            "quiet": run.quiet,
        }
    )


def shared_level(run: quiet.Run) -> DataFrame:
    """Return the log seconds of each process, (routes, rounds), as if all had met the same noise;
    NaN without a process, or with fewer than MIN_TURNS samples that had the processor.

    The same sample of all routes of a round is one moment. What a moment adds to all routes alike
    is found by median polish (Tukey 1977) and taken away. The level is that of the fastest route's
    figures.
    """
    processes = processes_of(run)
    logs_of_lines = [Series(np.log(undisturbed_samples(line))) for line in run.lines]
    samples = concat(
        dict(zip(zip(processes["route"], processes["round"]), logs_of_lines)),
        names=["route", "round", "sample"],
    )
    logs = samples.unstack(["round", "sample"]).reindex(processes["route"].unique())
    for _ in range(POLISHES):
        logs = logs.sub(logs.sub(logs.median(axis=1), axis=0).median())
    by_round = logs.T.groupby(level="round")
    logs = by_round.median().where(by_round.count() >= MIN_TURNS).T
    figures = processes.pivot(index="route", columns="round", values="log")
    from_fastest = logs.median(axis=1).sort_values().index
    levels = (figures - logs).median(axis=1)[from_fastest]
    return logs + levels.iloc[0]


def _noisy_variance(case: Case) -> float:
    """The variance of a route whose samples were all disturbed; infinite where torch spreads the
    case over several threads."""
    is_spread = case.threads != ONE_THREAD and case.total >= PARALLEL * itemsize(case.dtype)
    return math.inf if is_spread else FEW_SD**2


def pooled_variance(logs: Floats) -> tuple[float, float]:
    """Return the variance between processes of one route, pooled over routes, and its degrees of
    freedom; that of few processes on a busy machine if no two routes have two.

    logs  of ``shared_level``: the level of each round was taken away, which takes a degree of
          freedom each
    """
    is_known = np.isfinite(logs)
    routes, rounds = is_known.any(axis=1).sum(), is_known.any(axis=0).sum()
    df = float(is_known.sum() - routes - rounds + 1)
    if df <= 0:
        return FEW_SD**2, math.inf
    deviations = logs - means(logs)[:, np.newaxis]
    return max(float(np.nansum(deviations**2)) / df, MIN_SD**2), df


# --- answer ---------------------------------------------------------------------------------------


def measured_answer(measured: Measured, name: str) -> Answer:
    """Return the ranked routes of a measured case on the machine ``name``; the user's own that give
    another memory come last."""
    case = measured.case
    checks = DataFrame.from_dict(measured.checks, "index")
    _, memory = suitable(case, measured.checks, measured.user_routes)
    ranked = rank(_evidence(measured.lines, case, measured.outside(memory)))
    need = Need(
        case.direction,
        memory,
        case.dtype,
        case.goal,
        case.layout,
        case.grad,
        case.batch,
        case.threads,
    )
    contracts = candidates(case)
    routes = ranked.assign(
        **{field: getattr(need, field) for field in NEED_FIELDS if field != "memory"},
        need=need,
        nbytes=case.total,
        memory=checks["memory"][ranked["route"]].to_numpy(),
        quiet=~ranked["upper_bound"],
        contract=[contracts.get(route, Route(route, "")) for route in ranked["route"]],
        rate=math.nan if memory == ALIAS else case.total / ranked["seconds"],
        share=math.nan,
        paid="",
        once=0.0,
        how=MEASURED,
        is_range=False,
        total=ranked["seconds"],
        within=0.0,
        sizes=[()] * len(ranked),
    )
    share = quiet.Run(measured.lines).quiet_share()
    machine = MachineAnswers(name, measured.run, share, routes, ANY_SIZE, [], {})
    return Answer(case, machine, routes, measured=measured)
