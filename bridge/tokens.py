"""Counts tokens by the o200k_base encoding, whose ranks come with the package: nothing is ever downloaded.

Bytes are always there; tokens are there once somebody has called `load`, which needs the extra `bench` (tiktoken),
about half a second and 90 MB. This module decides what a token is, and that no text can make counting fail.

The counts are exact for o200k_base. What a provider bills for the same request is another number: it renders requests
by templates of its own, and other vendors have other vocabularies. Compare counts with counts.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import re
import threading
from binascii import a2b_base64
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from bridge.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

ENCODING: Final = "o200k_base"
RANKS_SHA256: Final = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"  # as tiktoken's source pins it
_RANKS: Final = "o200k_base.tiktoken.gz"
_SPECIAL: Final = {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}
_PATTERN: Final = (  # how the encoding divides a text before it merges, as published
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)
_BLANK: Final = re.compile(r"\s{20000}")  # the encoder's regular expression overflows its stack on some 10^6 of them
_REMEMBERED: Final = 65_536  # texts whose count is kept, by digest: definitions and histories come again and again
_WORTH_REMEMBERING: Final = 256  # characters; a shorter text is counted sooner than it is looked up


class Tokens:
    """Counts tokens of texts. Made by `load`; safe to use from any thread."""

    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding
        self._known: dict[bytes, int] = {}

    def __repr__(self) -> str:
        return f"<Tokens by {ENCODING}>"

    def count(self, text: str) -> int:
        """Tokens of a text. Markup of special tokens counts as the text that it is; half characters as U+FFFD.

        A run of 20,000 blanks or more is counted in pieces, so that its count may be some tokens high.
        """
        if len(text) < _WORTH_REMEMBERING:
            return len(self._encoding.encode_ordinary(text))
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        count = self._known.get(key)
        if count is None:
            count = sum(len(self._encoding.encode_ordinary(piece)) for piece in _pieces(text))
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = count
        return count

    def total(self, texts: Iterable[str]) -> int:
        """Tokens of texts, each counted by itself."""
        return sum(map(self.count, texts))

    def ids(self, text: str) -> list[int]:
        """The tokens themselves."""
        return [token for piece in _pieces(text) for token in self._encoding.encode_ordinary(piece)]


def installed() -> bool:
    """Whether `load` can succeed: tiktoken, of the extra `bench`, is there."""
    return importlib.util.find_spec("tiktoken") is not None


def loaded() -> Tokens | None:
    """The counter, if somebody has loaded it."""
    return _tokens


def load() -> Tokens:
    """The counter, made at the first call. From then on every ledger can be counted in tokens too.

    Raises:
        ConfigurationError: tiktoken is not installed, or the ranks are not those that were published.
    """
    global _tokens
    with _lock:
        if _tokens is None:
            _tokens = _made()
    return _tokens


def _made() -> Tokens:
    try:
        import tiktoken
    except ImportError:
        hint = "pip install 'sandbridge[bench]'"
        raise ConfigurationError(f"counting tokens needs tiktoken, which is not installed: {hint}") from None
    return Tokens(
        tiktoken.Encoding(ENCODING, pat_str=_PATTERN, mergeable_ranks=ranks(_packed()), special_tokens=_SPECIAL)
    )


def _packed() -> bytes:
    return files("bridge").joinpath("data", _RANKS).read_bytes()


def ranks(packed: bytes) -> dict[bytes, int]:
    """The merge ranks from the compressed file.

    Raises:
        ConfigurationError: It is not the published file.
    """
    try:
        text = gzip.decompress(packed)
        digest = hashlib.sha256(text).hexdigest()
    except (OSError, EOFError, ValueError) as error:
        digest, text = f"unreadable ({error})", b""
    if digest != RANKS_SHA256:
        raise ConfigurationError(
            f"bridge/data/{_RANKS}: sha256 of the ranks is {digest}, not {RANKS_SHA256}: install sandbridge again"
        )
    return {a2b_base64(token): int(rank) for token, rank in map(bytes.split, text.splitlines())}


def _pieces(text: str) -> list[str]:
    """The text, divided where it has more blanks in a row than the encoder stands."""
    if _BLANK.search(text) is None:
        return [text]
    ends = [match.end() for match in _BLANK.finditer(text)]
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True) if end > start]


_lock: Final = threading.Lock()
_tokens: Tokens | None = None
