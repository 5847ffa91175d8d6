"""The first step of a machine's page: all that its views read, made once from the results."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from analysis import verdicts
from analysis.cells import Limit, cells_of, conversions, limit_of, usual_dtype
from analysis.findings import Gain, Semantics, worst_neighbour_costs
from analysis.needs import choices, rows_per_answer
from analysis.results import Results
from analysis.transfers import Transfers, transfers_of
from analysis.verdicts import CountRange
from pandas import DataFrame

from benchmarks.contracts import ALL_THREADS, ONE_THREAD

from .tables import Missing, missing_reasons


@dataclass(frozen=True)
class MachineData:
    """The results of one machine and one toolchain, with what follows from them.

    prior_run           results of the run before on this machine; None if there is none
    other_results       names of results of this machine that the page does not show
    cells               the timed cells whose bytes memory could move, see analysis.cells.cells_of
    one_thread          of these, cells with one torch thread and cells of a device
    conversions         of these, plain conversions of ``dtype``, the usual one
    choices             ranked routes per need and size, see analysis.needs.choices
    threads             torch threads of ``answers``: torch's default if it was measured, else 1
    one_thread_answers  the rows of ``choices`` per answer, with one torch thread
    default_answers     the same with torch's default number; empty if it was not measured
    memcpy              the limit of copies in this run
    missing             benchmark and parameters of a cell -> why it has no figure
    instructions        of calls, see analysis.verdicts.counts_by_call
    neighbour_costs     copies that are slow between neighbours in memory
    quiet               share of quiet samples of each run, as far as known
    """

    machine: str
    results: Results
    prior_run: Results | None
    other_results: Sequence[str]
    cells: DataFrame
    one_thread: DataFrame
    conversions: DataFrame
    dtype: str
    choices: DataFrame
    threads: int
    one_thread_answers: Sequence[DataFrame]
    default_answers: Sequence[DataFrame]
    transfers: Transfers
    memcpy: Limit
    semantics: Semantics
    missing: Missing
    instructions: Mapping[Hashable, CountRange]
    neighbour_costs: Sequence[Gain]
    quiet: Sequence[float]

    @property
    def answers(self) -> Sequence[DataFrame]:
        """The rows of ``choices`` per answer of the page."""
        return self.default_answers or self.one_thread_answers


def read_machine(
    results: Results,
    machine: str = "",
    prior_run: Results | None = None,
    other_results: Sequence[str] = (),
) -> MachineData:
    """Read the data of a machine's page. results: of one file."""
    timed = cells_of(results)
    cells = timed[timed["credible"]]
    one_thread = cells[(cells["threads"] == ONE_THREAD) | cells["device"]]
    plain = conversions(one_thread)
    ranked = choices(cells)
    default_answers = rows_per_answer(ranked, ALL_THREADS)
    return MachineData(
        machine=machine,
        results=results,
        prior_run=prior_run,
        other_results=other_results,
        cells=cells,
        one_thread=one_thread,
        conversions=plain,
        dtype=usual_dtype(plain),
        choices=ranked,
        threads=(results.last.settings.torch_threads or 1) if default_answers else 1,
        one_thread_answers=rows_per_answer(ranked, ONE_THREAD),
        default_answers=default_answers,
        transfers=transfers_of(results, timed),
        memcpy=limit_of(one_thread),
        semantics=Semantics(results),
        missing=missing_reasons(results),
        instructions=verdicts.counts_by_call(results),
        neighbour_costs=worst_neighbour_costs(cells),
        quiet=results.quiet,
    )
