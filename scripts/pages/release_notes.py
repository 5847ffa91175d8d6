"""What a release changed, in one paragraph: for a terminal, an issue, a feed, a program."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import cli
from analysis.pairs import News, news_of
from analysis.verdicts import FASTER, FEWER, MORE, SLOWER, of_verdict
from cli import UserError, put
from toolchains import ledger

from . import comparison_words, show

# the most important first
CHANGED = {SLOWER: "slower", MORE: "more instructions", FASTER: "faster", FEWER: "fewer instructions"}


def name(news: News) -> str:
    """torch 2.6.0"""
    return f"{news.release.history} {news.release.version}"


def changed(news: News) -> dict[str, int]:
    """Verdict -> how many cells have it, of those that say that something changed."""
    by_verdict = {**news.comparison.counts, **news.comparison.counts_decided}
    return {verdict: by_verdict[verdict] for verdict in CHANGED if by_verdict.get(verdict)}


def title(news: News) -> str:
    """torch 2.6.0 against 2.5.1: slower, fewer instructions"""
    what = ", ".join(CHANGED[verdict] for verdict in changed(news)) or comparison_words.headline(news.comparison)
    return f"{name(news)} against {news.before.version}: {what}"


def day(toolchain: ledger.Toolchain) -> str:
    """The day of a release, and whether it is only known when it was seen."""
    seen = ledger.first_seen(toolchain.history, toolchain.version)
    return f"first seen {toolchain.date}" if seen else toolchain.date


def paragraph(news: News) -> str:
    """All in one sentence string: the verdict, what changed most, how much was decided."""
    comparison = news.comparison
    head = f"{name(news)} ({day(news.release)}) against {news.before.version} on {news.machine}"
    most = [f"{comparison_words.cell_line(row)}: {said}" for row, said in _most(news)]
    parts = [f"{head}: {comparison_words.headline(comparison)}."]
    parts += [f"Most of all {'; '.join(most)}."] if most else []
    if len(comparison.cells):
        parts.append(f"Times: {comparison_words.decided_line(comparison)}.")
    counted = comparison_words.counted_line(comparison)
    parts += [f"{counted[0].upper()}{counted[1:]}."] if counted else []
    return " ".join(parts)


def _most(news: News) -> Iterator[tuple[dict[str, object], str]]:
    """The largest change of each verdict: its row, and what is said of it."""
    comparison = news.comparison
    for verdict in CHANGED:
        timed = verdict in (SLOWER, FASTER)
        for row in of_verdict(comparison.cells if timed else comparison.counted, verdict)[:1]:
            yield row, (comparison_words.sentence if timed else comparison_words.count_sentence)(row, comparison)


def tell(results: Path, machine: str, releases: Sequence[ledger.Toolchain], into: Path | None) -> list[int]:
    """Say what each release changed against the one before it, and write it where that is asked; an exit code each."""
    codes = []
    for toolchain in releases:
        try:
            news = news_of(results, machine, toolchain)
        except UserError as why:
            print(cli.line(f"{toolchain.tag} cannot be judged: {why}"))
            codes.append(2)
            continue
        print(show.to_plain(paragraph(news)))
        codes.append(news.comparison.exit_code)
        if into:
            into.mkdir(parents=True, exist_ok=True)
            put(into / f"{toolchain.tag}.md", markdown(news))
            put(into / f"{toolchain.tag}.json", as_json(news))
    return codes


def markdown(news: News) -> str:
    """A heading and the paragraph, with a link into the page of the history."""
    page = f"reports/history/{news.machine}/README.md"
    said = (title(news), paragraph(news))
    heading, text = map(show.to_markdown, said)
    return f"### {heading}\n\n{text} [The history]({page}).\n"


def as_json(news: News) -> str:
    """The same for programs; exit_code as compare.py's, cells by verdict."""
    comparison = news.comparison
    document = {
        "format": 1,
        "tag": news.release.tag,
        "release": name(news),
        "released": news.release.date,
        "first_seen": ledger.first_seen(news.release.history, news.release.version),
        "before": news.before.tag,
        "machine": news.machine,
        "measured": news.measured,
        "title": title(news),
        "paragraph": show.bare(paragraph(news)),
        "exit_code": comparison.exit_code,
        "changed": changed(news),
        "times": comparison.counts,
        "counts": comparison.counts_decided,
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
