"""Tokens: the published encoding, from ranks that come with the package."""

from __future__ import annotations

import gzip
import hashlib
import sys
from importlib.resources import files
from typing import Any

import pytest
import tiktoken_ext.openai_public
from hypothesis import given
from hypothesis import strategies as st

from bridge import tokens
from bridge.errors import ConfigurationError

PACKED = files("bridge").joinpath("data", "o200k_base.tiktoken.gz").read_bytes()


@pytest.fixture(scope="module")
def counter() -> tokens.Tokens:
    return tokens.load()


def test_the_encoding_is_the_one_that_tiktoken_itself_defines(
    counter: tokens.Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []

    def ranks(url: str, expected_hash: str | None = None) -> dict[bytes, int]:
        asked.append(expected_hash)
        return tokens.ranks(PACKED)

    monkeypatch.setattr(tiktoken_ext.openai_public, "load_tiktoken_bpe", ranks)
    published: dict[str, Any] = tiktoken_ext.openai_public.o200k_base()
    ours = counter._encoding
    assert asked == [tokens.RANKS_SHA256]
    assert (ours.name, ours._pat_str, ours._special_tokens) == (
        published["name"],
        published["pat_str"],
        published["special_tokens"],
    )


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("hello world", [24912, 2375]),
        ("", []),
        ("<|endoftext|>", [27, 91, 419, 1440, 919, 91, 29]),
    ],
)
def test_texts_have_the_tokens_that_they_are_known_to_have(counter: tokens.Tokens, text: str, ids: list[int]) -> None:
    assert counter.ids(text) == ids
    assert counter.count(text) == len(ids)


def test_loading_twice_gives_the_same_counter(counter: tokens.Tokens) -> None:
    assert tokens.load() is counter
    assert tokens.loaded() is counter


def test_ranks_that_are_not_the_published_ones_are_refused() -> None:
    damaged = gzip.decompress(PACKED).replace(b"IQ== 0\n", b"IQ== 1\n")
    with pytest.raises(ConfigurationError) as caught:
        tokens.ranks(gzip.compress(damaged))
    assert str(caught.value) == (
        f"bridge/data/o200k_base.tiktoken.gz: sha256 of the ranks is {hashlib.sha256(damaged).hexdigest()}, "
        f"not {tokens.RANKS_SHA256}: install sandbridge again"
    )


@pytest.mark.parametrize("packed", [b"", b"no gzip", PACKED[:1000]])
def test_ranks_that_cannot_be_read_are_refused(packed: bytes) -> None:
    with pytest.raises(ConfigurationError, match=r"not 446a9538\w+: install sandbridge again$"):
        tokens.ranks(packed)


def test_without_tiktoken_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_tokens", None)
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(ConfigurationError) as caught:
        tokens.load()
    assert str(caught.value) == (
        "counting tokens needs tiktoken, which is not installed: pip install 'sandbridge[bench]'"
    )


def test_a_long_text_is_counted_once_and_then_remembered(counter: tokens.Tokens) -> None:
    text = "the same definitions again and again, " * 100
    first = counter.count(text)
    encoding, counter._encoding = counter._encoding, None
    try:
        assert counter.count(text) == first == len(encoding.encode_ordinary(text))
    finally:
        counter._encoding = encoding


def test_blanks_without_end_are_counted(counter: tokens.Tokens) -> None:
    """A million of them in one piece overflow the encoder's stack."""
    assert 7_000 < counter.count("a" + " " * 1_000_000 + "b") < 9_000
    assert counter.count(" " * 19_999) == len(counter._encoding.encode_ordinary(" " * 19_999))


def test_half_characters_count_as_the_replacement_character(counter: tokens.Tokens) -> None:
    assert counter.ids("a\ud83d") == counter.ids("a\ufffd")
    assert counter.count("\ud83d" * 300) == counter.count("\ufffd" * 300)


@given(st.text(max_size=400))
def test_the_count_is_the_number_of_tokens_whatever_the_text(text: str) -> None:
    counter = tokens.load()
    assert counter.count(text) == len(counter.ids(text))
    assert b"".join(counter._encoding.decode_tokens_bytes(counter.ids(text))) == text.encode()
