"""Which tools fit a question, best first: an index over the words of a catalog, made once and searched often.

The index is SQLite's FTS5 in memory: bm25 over stemmed words, with columns weighted by how much they say of a tool. A
Python whose SQLite lacks FTS5 counts words itself, and `Index.warnings` says so. The words of a question are
alternatives; none is required. Nothing of a question is read as a query language: it is cut into words first.

Two kinds of tools stand before all others, whatever the index says: those that the question names (`naming.py`), then
those whose names have every word of it.
"""

from __future__ import annotations

import math
import sqlite3
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from bridge.dialect import Document, children, is_object, listed, mapped
from bridge.names import identifier
from bridge.naming import Names
from bridge.words import Spelling, asked, parts, stem, synonyms, telling, words

if TYPE_CHECKING:
    from bridge.tools import Entry

Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""Texts to vectors of length one, in the same order: for ranking by meaning beside ranking by words."""

QUERY_CHARACTERS: Final = 2_000  # of a question that are read
QUERY_WORDS: Final = 40  # distinct words of it that are looked for
TEXT_CHARACTERS: Final = 4_000  # of a description that are indexed; the longest real ones have about 3,200
DETAIL_WORDS: Final = 80  # of parameters' descriptions: bm25 counts a long text against its tool
SCHEMA_PARTS: Final = 300  # subschemas that are looked through for names
ALIKE: Final = 0.35  # what a word counts that only means the same as one that was asked for, or begins with it
# Share of the tools that have a word somewhere, from which on its rarity among names counts too. bm25 knows one rarity
# of a word for all columns: where the descriptions of a catalog share a vocabulary, "region" is in most of them and
# worth nothing, even in the one name that has it, and the commonest verb of names decides alone.
FREQUENT: Final = 0.2
FUSION: Final = 10  # reciprocal rank fusion: how little the very first places count before the next
MEANT: Final = 20  # places of the ranking by meaning that count at all


MOST_SEEN: Final = 10_000  # tools whose words are kept; some 2 KB each
_SEEN: Final[dict[tuple[str, str | None, str], Columns]] = {}


class Columns(NamedTuple):
    """What a tool is found by. Each field is one column of the index."""

    name: str
    server: str
    title: str
    parameters: str
    description: str
    details: str


WEIGHTS: Final = (6.0, 3.0, 3.0, 2.0, 2.0, 0.7)  # of the fields of `Columns`, in their order


class Words(Protocol):
    """An index of documents by their words."""

    def scores(self, terms: Sequence[str], beginnings: Sequence[str] = ()) -> dict[int, float]:
        """Document number -> how well it fits; those without any of the words are left out."""
        ...

    def has(self, word: str) -> bool:
        """Whether any document has the word."""
        ...


class Index:
    """The tools of a catalog, to be searched.

    Args:
        entries: In the order that decides between equals.
        embed: For ranking by meaning as well; called once with all tools, and once with each question.
        plain: Do without FTS5 even where it is there.
    """

    def __init__(self, entries: Iterable[Entry], *, embed: Embed | None = None, plain: bool = False) -> None:
        self.entries: tuple[Entry, ...] = tuple(entries)
        self.warnings: list[str] = []
        self._embed = embed
        rows = [_columns(entry) for entry in self.entries]
        self._names = Names(self.entries)
        self._spread: Counter[str] = Counter()  # stem -> tools that have it anywhere
        self._in_name: defaultdict[str, set[int]] = defaultdict(set)  # stem -> tools that have it in their own name
        self._in_full_name: defaultdict[str, set[int]] = defaultdict(set)  # the same with the server
        self._count(rows)
        self._spelling = Spelling(word for row in rows for text in row[:5] for word in text.split())
        self._words: Words
        try:
            self._words = Scan(rows) if plain else Fts(rows)
        except sqlite3.OperationalError as error:
            self.warnings.append(f"tool search has no FTS5 in this Python's SQLite ({error}): it counts words instead")
            self._words = Scan(rows)

    def __repr__(self) -> str:
        return f"<Index of {len(self.entries)} tools by {type(self._words).__name__.lower()}>"

    def _count(self, rows: Sequence[Columns]) -> None:
        root = lru_cache(maxsize=None)(stem)  # texts repeat their words
        for number, row in enumerate(rows):
            self._spread.update({root(word) for text in row for word in text.split()})
            for word in row.name.split():
                self._in_name[root(word)].add(number)
                self._in_full_name[root(word)].add(number)
            for word in row.server.split():
                self._in_full_name[root(word)].add(number)

    def search(self, query: str) -> list[Entry]:
        """All tools that have anything of the question, best first; the same question gives the same order."""
        question = query[:QUERY_CHARACTERS]
        terms = asked(question)[:QUERY_WORDS]
        if not terms:
            return []
        meant = {term: [term] if self._words.has(term) else self._spelling.nearest(term) for term in terms}
        known = [term for term in terms if term in meant[term]]
        known += [near for term in terms if term not in known for near in meant[term]]
        scores: defaultdict[int, float] = defaultdict(float, self._words.scores(known))
        wider = dict.fromkeys(other for term in [*terms, *known] for other in synonyms(term))
        beginnings = [term for term in terms if len(term) >= 4 and term.isalpha()]
        for number, score in self._words.scores([word for word in wider if word not in known], beginnings).items():
            scores[number] += ALIKE * score
        for number, score in self._rare_in_names(known):
            scores[number] += score
        order = sorted(scores, key=lambda number: (-round(scores[number], 9), number))
        if self._vectors is not None:
            order = self._fused(order, self._by_meaning(question))
        named = self._names.named(question)
        places = {number: place for place, number in enumerate(order)}
        first = sorted(named, key=lambda number: (named[number], places.get(number, len(order)), number))
        said = parts(question)
        for each in (said, telling(said)):  # the former tells "turn on" from "turn off"
            fitting = self._with_every_word(each, meant)
            first += [number for number in order if number in fitting]
        return [self.entries[number] for number in dict.fromkeys([*first, *order])]

    def _rare_in_names(self, terms: Iterable[str]) -> Iterator[tuple[int, float]]:
        """What frequent words add to the tools that have them in their name: by how much rarer they are there."""
        for root in dict.fromkeys(map(stem, terms)):
            numbers = self._in_name.get(root, ())
            if numbers and self._spread[root] > FREQUENT * len(self.entries):
                rarer = _rarity(len(numbers), len(self.entries)) - _rarity(self._spread[root], len(self.entries))
                yield from ((number, rarer) for number in numbers)

    def _with_every_word(self, said: Sequence[str], meant: Mapping[str, Sequence[str]]) -> set[int]:
        """The tools whose names (servers included) have every word, or what it is a slip for."""
        every: set[int] | None = None
        for word in said:
            having = {n for each in meant.get(word, [word]) for n in self._in_full_name.get(stem(each), ())}
            every = having if every is None else every & having
            if not every:
                break
        return every or set()

    @cached_property
    def _vectors(self) -> list[Sequence[float]] | None:
        if self._embed is None or not self.entries:
            return None
        return list(self._embed([_said(entry) for entry in self.entries]))

    def _by_meaning(self, question: str) -> list[int]:
        assert self._embed is not None
        assert self._vectors is not None
        (asked_for,) = self._embed([question.encode("utf-8", "replace").decode()])
        near = [math.fsum(a * b for a, b in zip(asked_for, vector, strict=True)) for vector in self._vectors]
        return sorted(range(len(near)), key=lambda number: (-round(near[number], 6), number))[:MEANT]

    @staticmethod
    def _fused(*orders: Sequence[int]) -> list[int]:
        places: defaultdict[int, float] = defaultdict(float)
        for order in orders:
            for place, number in enumerate(order):
                places[number] += 1 / (FUSION + place)
        return sorted(places, key=lambda number: (-round(places[number], 12), number))


def columns(entry: Entry) -> Columns:
    """The words of a tool, column by column. A name that JavaScript sees differently gives both."""
    tool = entry.tool
    names: dict[str, None] = {}
    details: list[str] = []
    for schema in (tool.input_schema, tool.output_schema):
        found, said = _names(schema)
        details += said
        if schema is tool.input_schema:
            names.update(dict.fromkeys(found))
        else:
            details += found
    name = [tool.name, *([entry.path[-1]] if identifier(tool.name) != entry.path[-1] else [])]
    return Columns(
        _joined(name),
        _joined([tool.server or ""]),
        _joined([tool.title or ""]),
        _joined(names),
        _joined([tool.description[:TEXT_CHARACTERS]]),
        " ".join(_joined(details).split(" ")[:DETAIL_WORDS]),
    )


def _columns(entry: Entry) -> Columns:
    """The same, of a definition that was seen before as it was: a server that changes one tool changes no others."""
    key = (entry.tool.digest, entry.tool.server, entry.path[-1])
    known = _SEEN.get(key)
    if known is None:
        if len(_SEEN) >= MOST_SEEN:
            _SEEN.clear()
        known = _SEEN[key] = columns(entry)
    return known


def _names(schema: Any) -> tuple[list[str], list[str]]:
    """Property names of a schema at any depth, breadth first, and what it says of them (descriptions, enums)."""
    names: list[str] = []
    said: list[str] = []
    waiting: list[Any] = [Document(schema).root] if is_object(schema) else []
    for part in waiting:  # grows while it is walked, up to a bound; definitions are part of it, references not followed
        names += mapped(part, "properties")
        if isinstance(part.get("description"), str):
            said.append(part["description"][:300])
        said += [value for value in listed(part, "enum")[:20] if isinstance(value, str)]
        waiting += [child for child in children(part) if is_object(child)][: max(0, SCHEMA_PARTS - len(waiting))]
    return names, said


def _joined(texts: Iterable[str]) -> str:
    return " ".join(word for text in texts for word in words(text))


def _rarity(tools: int, among: int) -> float:
    """What it says to have something that so many have."""
    return math.log1p((among - tools + 0.5) / (tools + 0.5))


def _said(entry: Entry) -> str:
    """A tool in a sentence, for ranking by meaning."""
    tool = entry.tool
    text = f"{' '.join(words(tool.server or ''))} {' '.join(words(tool.name))}: {tool.title or ''} {tool.description}"
    return text[:1_000].encode("utf-8", "replace").decode()


class Fts:
    """Words by SQLite's FTS5.

    Raises:
        sqlite3.OperationalError: This SQLite has no FTS5.
    """

    def __init__(self, rows: Sequence[Columns]) -> None:
        fields = ", ".join(Columns._fields)
        # Python's SQLite is compiled to be used by any thread; a search is one statement, and nothing is ever changed.
        self._database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        weakref.finalize(self, self._database.close)
        self._database.execute(
            f"CREATE VIRTUAL TABLE tools USING fts5({fields}, tokenize='porter unicode61 remove_diacritics 2')"
        )
        marks = ", ".join("?" * (len(Columns._fields) + 1))
        texts = [(number, *(_whole(text) for text in row)) for number, row in enumerate(rows)]
        self._database.execute("BEGIN")
        self._database.executemany(f"INSERT INTO tools(rowid, {fields}) VALUES ({marks})", texts)  # noqa: S608  ours
        self._database.execute("COMMIT")
        weights = ", ".join(map(str, WEIGHTS))
        self._query = f"SELECT rowid, -bm25(tools, {weights}) FROM tools WHERE tools MATCH ?"  # noqa: S608  numbers

    def scores(self, terms: Sequence[str], beginnings: Sequence[str] = ()) -> dict[int, float]:
        match = " OR ".join([*(_quoted(term) for term in terms), *(f"{_quoted(term)}*" for term in beginnings)])
        if not match:
            return {}
        return dict(self._database.execute(self._query, (match,)).fetchall())

    def has(self, word: str) -> bool:
        found = self._database.execute("SELECT 1 FROM tools WHERE tools MATCH ? LIMIT 1", (_quoted(word),))
        return found.fetchone() is not None


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode()  # SQLite takes no lone surrogate


def _quoted(word: str) -> str:
    """A string of the FTS5 query language: a word, whatever it says."""
    return '"' + _whole(word).replace('"', '""').replace("\0", "") + '"'


class Scan:
    """Words by going through all of them: no more than is needed where FTS5 is missing."""

    def __init__(self, rows: Sequence[Columns]) -> None:
        self._documents: list[dict[str, float]] = []
        for row in rows:
            weights: defaultdict[str, float] = defaultdict(float)
            for text, weight in zip(row, WEIGHTS, strict=True):
                for word in text.split():
                    weights[stem(word)] += weight
            self._documents.append(dict(weights))
        self._spread = Counter(root for document in self._documents for root in document)

    def scores(self, terms: Sequence[str], beginnings: Sequence[str] = ()) -> dict[int, float]:
        roots = dict.fromkeys(map(stem, terms))
        for start in beginnings:
            roots.update(dict.fromkeys(root for root in self._spread if root.startswith(start)))
        found: dict[int, float] = {}
        for number, document in enumerate(self._documents):
            score = math.fsum(
                _rarity(self._spread[root], len(self._documents)) * document[root] / (document[root] + 3)
                for root in roots
                if root in document
            )
            if score:
                found[number] = score
        return found

    def has(self, word: str) -> bool:
        return stem(word) in self._spread
