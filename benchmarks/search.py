"""How well and how fast tool search finds: recall on labelled questions, latency, start, and size of declarations.

The catalogue and the questions are data of the tests (`tests/data/catalogue.txt`, `pinned_tools.jsonl`). There are two
sets of questions. Those of `blind_questions.txt` were written without sight of the tools' names, from purposes alone,
and no ranking is tuned on them: they are the figure to go by, and a hard one, for most share no word with their tool.
Those of `questions.txt` come from the authors of the general synonyms in `bridge/words.py`, with sight of the names:
they compare ways of ranking.

A start is everything from nothing to instructions and a first search: a process that lists 1,000 tools of the sizes
that public servers' have, over stdio.

    python benchmarks/search.py [--embedding]     # by meaning as well: the extra `embedding`, and half a minute
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bridge import Executor, mcp
from bridge.declarations import BUDGET, TOKEN_BYTES, declare, within
from bridge.ranking import Fts, Index, columns
from bridge.search import Session
from bridge.tools import Entry
from bridge.words import words
from tests.bridge.catalogue import Question, blind_questions, catalogue, questions, sized

Search = Callable[[str], Sequence[Entry]]
PLACES = (1, 5, 10)
SIZED = 1_000
SERVER = Path(__file__).resolve().parents[1] / "tests/servers/listed.py"


def plain_bm25(entries: Sequence[Entry]) -> Search:
    """FTS5 alone: stems, split names and weighted columns, every word of the question, and nothing else."""
    index = Fts([columns(entry) for entry in entries])

    def search(query: str) -> list[Entry]:
        scores = index.scores(list(dict.fromkeys(words(query))))
        return [entries[number] for number in sorted(scores, key=lambda number: (-scores[number], number))]

    return search


def recalls(search: Search, asked: Sequence[Question]) -> list[float]:
    """The share of questions with an answer among the first 1, 5 and 10."""
    places = [
        next((place for place, entry in enumerate(search(q.text)) if entry.name in q.answers), 1 << 30) for q in asked
    ]
    return [sum(place < first for place in places) / len(places) for first in PLACES]


def milliseconds(search: Search, asked: Sequence[Question]) -> tuple[float, float]:
    """Median and 99th percentile of a search."""
    spent: list[float] = []
    for question in [*asked] * 3:
        began = time.perf_counter()
        search(question.text)
        spent.append((time.perf_counter() - began) * 1e3)
    return statistics.median(spent), statistics.quantiles(spent, n=100)[98]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embedding", action="store_true", help="rank by meaning as well")
    chosen = parser.parse_args()
    entries, asked, blind = catalogue().entries, questions(), blind_questions()
    ways: dict[str, Search] = {
        "plain bm25": plain_bm25(entries),
        "search": Index(entries).search,
        "search without FTS5": Index(entries, plain=True).search,
    }
    if chosen.embedding:
        from bridge.embedding import multilingual

        ways["search with embedding"] = Index(entries, embed=multilingual()).search
    for kind, those in (("without sight of names", blind), ("with sight of names", asked)):
        print(f"{len(those)} questions written {kind}, {len(entries)} tools\n")
        print("| ranking | recall@1 | recall@5 | recall@10 | median | p99 |\n|---|---|---|---|---|---|")
        for name, search in ways.items():
            recall = " | ".join(f"{share:.2f}" for share in recalls(search, those))
            median, worst = milliseconds(search, those)
            print(f"| {name} | {recall} | {median:.1f} ms | {worst:.1f} ms |")
        print()
    print("| kind of question | questions | recall@5 |\n|---|---|---|")
    for kind in dict.fromkeys(question.kind for question in asked):
        those = [question for question in asked if question.kind == kind]
        print(f"| {kind} | {len(those)} | {recalls(ways['search'], those)[1]:.2f} |")
    print("\n| tools | index | session, with a first search | search, median | p99 | declared at once | all declared |")
    print("|---|---|---|---|---|---|---|")
    for times in (1, 3, 14):
        catalog = catalogue(times)
        began = time.perf_counter()
        index = Index(catalog.entries)
        indexed = time.perf_counter() - began
        began = time.perf_counter()
        session = Session(catalog)
        assert session.instructions
        session.search("first of all")
        opened = time.perf_counter() - began
        median, worst = milliseconds(index.search, asked)
        at_once = len(declare(within(catalog.entries, 2_000)).encode()) // TOKEN_BYTES
        whole = len(declare(catalog.entries).encode()) // TOKEN_BYTES
        print(
            f"| {len(catalog.entries):,} | {indexed * 1e3:.0f} ms | {opened * 1e3:.0f} ms | {median:.1f} ms "
            f"| {worst:.1f} ms | {at_once:,} tokens | {whole:,} tokens |"
        )
    anyio.run(start, asked)


async def start(asked: Sequence[Question]) -> None:
    """Print what a start with 1,000 tools of real sizes takes, a search among them, and their declarations."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tools.json"
        shown = ("name", "description", "inputSchema")
        rows = [dict(zip(shown, (t.name, t.description, t.input_schema), strict=True)) for t in sized(SIZED)]
        file.write_text(json.dumps(rows))
        began, computed = time.perf_counter(), time.process_time()
        server = mcp.stdio("all", sys.executable, [str(SERVER), str(file)])
        async with Executor([server]) as executor:
            listed = time.perf_counter() - began
            session = Session(executor.catalog)
            declared = len(session.instructions.encode()) // TOKEN_BYTES
            session.search("first of all")
            ready, computed = time.perf_counter() - began, time.process_time() - computed
            median, worst = milliseconds(session.index.search, asked)
    print(
        f"\n{SIZED:,} tools of real sizes: {ready:.2f} s from nothing to the end of a first search, V8 and the server's"
    )
    print(
        f"process included ({listed:.2f} s until all were listed, {computed:.2f} s of computing here); a search takes "
        f"{median:.1f} ms (p99 {worst:.1f} ms);"
    )
    print(f"instructions have {declared:,} tokens, of which declarations and counts may take {BUDGET:,}")


if __name__ == "__main__":
    main()
