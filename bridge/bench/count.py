"""Counting: tokens and bytes of bodies, what a prefix cache would have had of them, and what they cost.

Three levels are never mixed. `wire`: o200k tokens of what is sent and written, exact, the same for every provider.
`calibrated`: wire times a stored factor plus an intercept, per model (calibrate.py). `usage`: what a provider billed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from bridge.bench import written
from bridge.bench.wire import KINDS, Body, Part, Piece
from bridge.errors import ConfigurationError

if TYPE_CHECKING:
    from bridge.tokens import Tokens

Cohort = Literal["none", "prefix"]
COHORTS: Final[tuple[Cohort, ...]] = ("none", "prefix")
_CACHE_LEAST: Final = 1024  # tokens: a shorter prefix is not cached (both large providers)
_CACHE_BLOCK: Final = 128  # tokens: what is cached comes in blocks


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request, counted.

    Attributes:
        sha256: Of the body.
        tokens, bytes: Of its parts, by kind. `output_*`: of what the model wrote, an item each.
        prefix: Tokens of the objects at its beginning that the request before it had, too.
    """

    sha256: str
    tokens: dict[str, int]
    bytes: dict[str, int]
    prefix: int
    output_tokens: int
    output_bytes: int

    @property
    def input_tokens(self) -> int:
        """Of the whole body."""
        return sum(self.tokens.values())

    @property
    def input_bytes(self) -> int:
        """Of the whole body."""
        return sum(self.bytes.values())


def count(body: Body, output: Sequence[Part], before: Body | None, counter: Tokens) -> Request:
    """Count one request and what the model wrote in answer to it."""
    tokens, sizes = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
    for piece in body.pieces():
        many, large = _sizes(piece, counter)
        tokens[piece.kind] += many
        sizes[piece.kind] += large
    written = [part.text for part in output]
    return Request(
        sha256=body.sha256,
        tokens={kind: number for kind, number in tokens.items() if number},
        bytes={kind: number for kind, number in sizes.items() if number},
        prefix=_prefix(body, before, counter),
        output_tokens=counter.total(written),
        output_bytes=sum(len(text.encode("utf-8", "replace")) for text in written),
    )


def _prefix(body: Body, before: Body | None, counter: Tokens) -> int:
    """Tokens of what both begin with, in whole objects: a cache can have no more of it, and hardly less."""
    if before is None or body.head != before.head:
        return 0
    ours, theirs = (tuple(part.text for part in (*each.tools, *each.items)) for each in (body, before))
    if body.tools != before.tools:
        ours, theirs = ours[: len(body.tools)], theirs[: len(before.tools)]
    same = 0
    for mine, other in zip(ours, theirs, strict=False):
        if mine != other:
            break
        same += 1
    return sum(_sizes(piece, counter)[0] for piece in islice(body.pieces(), same + 1))


_known: Final[dict[tuple[str, str], tuple[int, int]]] = {}  # by object and glue: histories come again and again
_KNOWN_MOST: Final = 200_000


def _sizes(piece: Piece, counter: Tokens) -> tuple[int, int]:
    """Tokens and bytes of a piece."""
    key = (piece.whole, piece.glue)
    found = _known.get(key)
    if found is None:
        if len(_known) >= _KNOWN_MOST:
            _known.clear()
        text = piece.text
        found = _known[key] = (counter.count(text), len(text.encode("utf-8", "replace")))
    return found


class Price(msgspec.Struct, frozen=True):
    """US dollars per million tokens. `cache_write` is what input costs that a cache takes in, None where no more."""

    input: float
    cached: float
    output: float
    cache_write: float | None = None


class Prices(msgspec.Struct, frozen=True):
    """A price file: where its figures come from, of which day, and which of them is the default."""

    date: str
    source: str
    default: str
    models: dict[str, Price]


@cache
def prices(file: str | None = None) -> Prices:
    """The price file that comes with the package, or another.

    Raises:
        ConfigurationError: It cannot be read, or is none.
    """
    place = Path(__file__).with_name("prices.json") if file is None else Path(file)
    found = written.read(place, Prices, "a price file, of the form of bridge/bench/prices.json")
    if found.default not in found.models:
        raise ConfigurationError(f"price file {file}: default {found.default!r} is no model of it")
    return found


def cached_tokens(request: Request) -> int:
    """What of a request a prefix cache has: whole blocks, and nothing of a short prefix."""
    return 0 if request.prefix < _CACHE_LEAST else request.prefix // _CACHE_BLOCK * _CACHE_BLOCK


def cost(requests: Iterable[Request], price: Price, cohort: Cohort) -> float:
    """US dollars for requests.

    Args:
        cohort: `none`: nothing is cached. `prefix`: each request finds the whole prefix of the one before it.
    """
    total = 0.0
    for request in requests:
        cached = 0 if cohort == "none" else cached_tokens(request)
        fresh = request.input_tokens - cached
        rate = price.input if cohort == "none" or price.cache_write is None else price.cache_write
        total += fresh * rate + cached * price.cached + request.output_tokens * price.output
    return total / 1e6


@dataclass(frozen=True)
class Totals:
    """A row's requests, added up."""

    requests: int
    input_tokens: int
    output_tokens: int
    bytes: int
    peak: int
    resent: int

    @property
    def tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens


def totals(requests: Sequence[Request]) -> Totals:
    """Add up: `peak` is the largest request with its answer, `resent` what a request before had sent already."""
    return Totals(
        requests=len(requests),
        input_tokens=sum(each.input_tokens for each in requests),
        output_tokens=sum(each.output_tokens for each in requests),
        bytes=sum(each.input_bytes + each.output_bytes for each in requests),
        peak=max((each.input_tokens + each.output_tokens for each in requests), default=0),
        resent=sum(each.prefix for each in requests),
    )


def json_line(value: Any) -> str:
    """A line of a file that must come out the same every time: keys sorted, no blanks, ASCII."""
    return json.dumps(msgspec.to_builtins(value), sort_keys=True, separators=(",", ":"))
