"""Which tools a question names: a name is an answer, whatever the words of the question are worth by themselves.

`ranking.py` puts these first. A name may be written in any case style (`get_order`, `getOrder`, `get-order`,
`GET_ORDER`, `get order`), alone, after its server or as programs call it, and among other words. A name of one plain
word (`find`) among other words is taken for that word, unless it stands in backticks or after its server or `tools.`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from bridge.words import parts, telling

if TYPE_CHECKING:
    from bridge.tools import Entry

_TOKEN: Final = re.compile(r"[^\s()\[\]{}<>,;\"'`?!|=]+")
_EDGES: Final = ".:/-*&@#"  # of a token: what a sentence puts around a name
LONGEST: Final = 16  # words of a name that are looked for among other words

Place = tuple[int, int, int, int]
"""How a question names a tool, the clearest first: kind, order within it, spelled otherwise, without its server."""

_WHOLE, _TOKENS, _PHRASE = range(3)
_FULL, _SERVER_SAID, _BARE = range(3)


class Names:
    """The names of tools.

    Args:
        entries: By their numbers from 0.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._servers: list[frozenset[str]] = []
        # Each name as it is, its letters alone, and its words: number -> whether it is less than the full name.
        self._spelled: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self._letters: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self._worded: defaultdict[tuple[str, ...], dict[int, int]] = defaultdict(dict)
        self._plain: set[str] = set()  # names of one word
        pieces: dict[str, tuple[str, ...]] = {}

        def of(piece: str) -> tuple[str, ...]:
            return pieces.get(piece) or pieces.setdefault(piece, tuple(parts(piece)))

        for number, entry in enumerate(entries):
            tool, expression = entry.tool, entry.expression
            server, own, last = of(tool.server or ""), of(tool.name), of(entry.path[-1])
            self._servers.append(frozenset(server))
            called = tuple(part for piece in entry.path for part in of(piece))
            for name, its in ((entry.name, server + own), (expression, called)):
                self._add(name, its, number, _FULL)
            for name, its in ((tool.name, own), (entry.path[-1], last)):
                self._add(name, its, number, _BARE)

    def _add(self, name: str, its: tuple[str, ...], number: int, level: int) -> None:
        if not its:
            return
        self._spelled[name].setdefault(number, level)
        self._letters["".join(its)].setdefault(number, level)
        if len(its) > 1:
            self._worded[its].setdefault(number, level)
        else:
            self._plain.update(its)

    def named(self, question: str) -> dict[int, Place]:
        """Numbers of the tools that a question names; the lower its place, the clearer."""
        found: dict[int, Place] = {}
        said = parts(question)
        there = frozenset(said)

        def take(numbers: dict[int, int], kind: int, order: int, otherwise: int) -> None:
            for number, known in numbers.items():
                said_too = known == _BARE and self._servers[number] and self._servers[number] <= there
                place = (kind, order, otherwise, _SERVER_SAID if said_too else known)
                found[number] = min(place, found.get(number, place))

        take(self._spelled.get(question.strip(), {}), _WHOLE, 0, 0)
        take(self._letters.get("".join(said), {}), _WHOLE, 0, 1)
        if len(alone := telling(said)) == 1:  # "how do I find it": nothing else is meant
            take(self._letters.get(alone[0], {}), _WHOLE, 0, 1)
        for order, match in enumerate(_TOKEN.finditer(question)):
            token = match.group().strip(_EDGES)
            name = token.removeprefix("tools.")
            its = parts(name)
            letters = "".join(its)
            marked = name != token
            marked |= question[match.start() - 1 : match.start()] == "`" == question[match.end() : match.end() + 1]
            if len(its) == 1 and letters in self._plain and not marked:
                continue
            take(self._spelled.get(name, {}), _TOKENS, order, 0)
            take(self._letters.get(letters, {}), _TOKENS, order, 1)
        for start in range(len(said)):
            for length in range(2, min(LONGEST, len(said) - start) + 1):
                take(self._worded.get(tuple(said[start : start + length]), {}), _PHRASE, -length, 1)
        return found
