"""Names, descriptions and questions as words, and which words stand for each other, for tool search.

Pure functions over text that servers and models wrote; whatever is walked or compared is bounded by its caller.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

_RUN: Final = re.compile(r"[^\W_]+")
# getHTTPResponse2 -> get HTTP Response 2
_SEAM: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
# What a question has and a tool's purpose does not: with them, long descriptions would win by their grammar.
STOP_WORDS: Final = frozenset(
    """
    a about all am an and any are as at be been but by can could did do does for from had has have he help her him his
    how i if in into is it its just let like me my need no not of off on or our out over please she should so some
    somebody someone something than that the their them then there these they this those to tool tools up us use want
    was we were what when where which who whose why will with would you your
    """.split()
)
# Words that people say where an interface says another of the same line. General vocabulary only: no product's names.
_SYNONYMS: Final = """
    add create new make insert register
    delete remove erase drop destroy trash discard clear
    update edit change modify patch alter adjust rewrite
    get fetch retrieve read show view load lookup see tell
    list enumerate browse all every
    search find query lookup locate grep
    send post deliver submit dispatch
    message text chat dm reply
    email mail inbox letter
    file document doc attachment
    folder directory dir
    image picture photo screenshot
    issue bug ticket problem defect task
    pr pull merge request review
    repo repository codebase
    person people user member contact employee colleague teammate human somebody
    customer client buyer shopper account
    meeting event appointment calendar schedule invite
    pay payment charge bill invoice money transaction
    refund reimburse return
    order purchase checkout sale
    price cost quote amount
    start run launch trigger execute begin invoke
    stop cancel abort kill terminate halt end
    restart reboot reload
    move transfer relocate
    rename name title
    copy duplicate clone replicate
    download export save pull
    upload import attach push
    deploy release publish rollout ship
    log logs history trace audit
    error exception failure crash incident outage
    server machine instance host vm node
    container pod docker
    table row record spreadsheet sheet cell
    database db sql
    channel room group
    share permission access grant invite
    assign owner assignee delegate
    comment note remark annotate
    label tag category
    close resolve finish complete done
    page site website url web link
    weather forecast temperature rain
    map route direction distance navigate
    place location address nearby
    convert conversion translate transform
    compare diff difference changed
    branch fork
    status state health condition
    count number total
    statistics metrics analytics report figures
    subscription plan membership
    key secret credential token password
    song track music playlist
    alert alarm notify notification page
    video clip recording
    phone call telephone dial
    stock inventory quantity
    time hour clock date
    summary overview info details information describe about
    """
_SUFFIXES: Final = ("ions", "ings", "ion", "ing", "ies", "ers", "ed", "er", "es", "s", "e", "y")
TYPO_LENGTH: Final = 4  # characters: shorter words have a neighbour in every vocabulary


def _runs(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Letters and digits that stand together, and the words that they are, in lower case and without accents."""
    if not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFKD", text) if unicodedata.category(c) != "Mn")
    return map(_taken_apart, _RUN.findall(text))


@lru_cache(maxsize=20_000)  # texts of a catalogue repeat their words
def _taken_apart(run: str) -> tuple[str, tuple[str, ...]]:
    return run.lower(), tuple(_SEAM.sub(" ", run).lower().split(" "))


def words(text: str) -> list[str]:
    """The words of a name or a text, in lower case, without accents, in order; a name with seams gives itself too."""
    return [word for run, its in _runs(text) for word in ([run, *its] if len(its) > 1 else its)]


def parts(text: str) -> list[str]:
    """The same, and a name with seams gives only what it is made of: one list for a name in every case style."""
    return [word for _, its in _runs(text) for word in its]


def telling(said: Iterable[str]) -> list[str]:
    """Those of some words that say something, each once: no stop words, unless there is nothing else."""
    every = list(dict.fromkeys(said))
    found = [word for word in every if word not in STOP_WORDS and (len(word) > 1 or not word.isascii())]
    return found or every


def asked(query: str) -> list[str]:
    """The words of a question that say something, each once."""
    return telling(words(query))


def stem(word: str) -> str:
    """A word without the ending that English gives it; coarser than Porter's, and enough to tell two words alike."""
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            word = word[: -len(suffix)]
            break
    return word[:-2] if word.endswith("at") and len(word) >= 6 else word  # translat-e, translat-ion


def _groups() -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for line in _SYNONYMS.strip().splitlines():
        group = line.split()
        for word in group:
            found.setdefault(stem(word), {}).update(dict.fromkeys(group))
    return {root: tuple(group) for root, group in found.items()}


_BY_STEM: Final = _groups()


def synonyms(word: str) -> list[str]:
    """Other words for the same, in a fixed order."""
    root = stem(word)
    return [other for other in _BY_STEM.get(root, ()) if stem(other) != root]


class Spelling:
    """The words that there are, and the nearest of them to one that there is not."""

    def __init__(self, vocabulary: Iterable[str]) -> None:
        self._by_trigram: dict[str, list[str]] = {}
        self._count = Counter(word for word in vocabulary if len(word) >= TYPO_LENGTH)
        for word in sorted(self._count):
            for part in _trigrams(word):
                self._by_trigram.setdefault(part, []).append(word)

    def nearest(self, word: str) -> list[str]:
        """At most two words within one slip of a short word, two of a long one; none where the word is too short.

        A slip is a letter too many, too few, another one, or two that have changed places.
        """
        if not TYPO_LENGTH <= len(word) <= 40:
            return []
        allowed = 1 if len(word) < 6 else 2
        shared = Counter(
            other
            for part in _trigrams(word)
            for other in self._by_trigram.get(part, ())
            if abs(len(other) - len(word)) <= allowed
        )
        likely = sorted(shared, key=lambda other: (-shared[other], other))[:30]
        measured = [(slips(word, other), -shared[other], -self._count[other], other) for other in likely]
        near = sorted(each for each in measured if each[0] <= allowed)
        return [other for distance, _, _, other in near if distance == near[0][0]][:2]


def _trigrams(word: str) -> set[str]:
    padded = f"  {word} "
    return {padded[at : at + 3] for at in range(len(padded) - 2)}


def slips(left: str, right: str) -> int:
    """Edits between two words: insertions, deletions, substitutions, and swaps of neighbours (optimal alignment)."""
    before: list[int] = []
    last = list(range(len(right) + 1))
    for row, letter in enumerate(left, 1):
        now = [row]
        for column, other in enumerate(right, 1):
            cost = min(last[column] + 1, now[-1] + 1, last[column - 1] + (letter != other))
            if row > 1 and column > 1 and letter == right[column - 2] and left[row - 2] == other:
                cost = min(cost, before[column - 2] + 1)
            now.append(cost)
        before, last = last, now
    return last[-1]
