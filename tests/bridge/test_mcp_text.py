"""What a server says, made fit to be read by people and programs."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mcp.text import (
    Tail,
    depth,
    hidden,
    invisible,
    last_words,
    printable,
    secrets_of,
    shown_command,
    well_formed,
)

ANY_TEXT = st.text(st.characters(codec=None, min_codepoint=0, max_codepoint=sys.maxunicode))


@given(st.lists(st.binary(max_size=50)), st.integers(1, 64))
def test_a_tail_is_the_end_of_all_that_was_written(parts: list[bytes], limit: int) -> None:
    tail = Tail(limit)
    for part in parts:
        tail.add(part)
    whole = b"".join(parts)
    assert bytes(tail._kept) == whole[-limit:]
    assert tail.total == len(whole)


def test_the_last_lines_are_the_last_that_are_not_blank() -> None:
    tail = Tail()
    tail.add(b"one\n\ntwo  \n" + b"\xff\x1b[0m\n\n")
    assert tail.lines(2) == ["two", "\ufffd\\x1b[0m"]
    assert Tail().lines() == []


@given(ANY_TEXT, st.integers(1, 50))
def test_printable_text_holds_nothing_that_a_terminal_acts_on(text: str, limit: int) -> None:
    shown = printable(text, limit)
    assert all(c.isprintable() or c == "\t" or not _unseen(c) for c in shown)
    assert len(shown) <= limit + 30


def _unseen(character: str) -> bool:
    return bool(invisible(character)) or (character < " " and character != "\t") or character == "\x7f"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 😀", "plain é 😀"),
        ("\x1b]0;x\x07", "\\x1b]0;x\\x07"),
        ("a\u202eb\u200b", "a\\u202eb\\u200b"),
        ("\ud800\U000e0041", "\\ud800\\U000e0041"),
        ("line\nline\ttab", "line\\x0aline\ttab"),
        ("x" * 21, "x" * 20 + "… (21 characters)"),
    ],
)
def test_what_cannot_be_seen_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert printable(text, 20) == shown


def test_characters_that_nobody_sees_are_named() -> None:
    assert invisible("fine\n\tfine é") == []
    assert invisible("\u202ea\u202e\U000e0041") == ["U+202E", "U+E0041"]


@given(ANY_TEXT)
def test_well_formed_text_can_be_encoded_and_sound_text_is_unchanged(text: str) -> None:
    made = well_formed(text)
    made.encode()
    try:
        text.encode()
    except UnicodeEncodeError:
        assert "\ufffd" in made or text != made
    else:
        assert made == text


def test_a_surrogate_pair_becomes_its_character_and_a_lone_half_one_replacement() -> None:
    assert well_formed({"\ud83d\ude00": ["a\udc00\ud800b", 1, None]}) == {"😀": ["a\ufffd\ufffdb", 1, None]}


@pytest.mark.parametrize(("value", "levels"), [(1, 0), ([], 0), ([1], 1), ({"a": [{}]}, 2), ([[[[[[[]]]]]]], 4)])
def test_depth_counts_levels_up_to_its_limit(value: Any, levels: int) -> None:
    assert depth(value, 3) == levels


def test_values_named_like_secrets_are_hidden_and_short_ones_are_not() -> None:
    secrets = secrets_of(
        [("API_KEY", "key-123456"), ("AUTHORIZATION", "Bearer tok-123456"), ("REGION", "eu-central"), ("TOKEN", "1")]
    )
    assert hidden("key-123456 tok-123456 eu-central 1", secrets) == "*** *** eu-central 1"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["npx", "-y", "carrier-mcp"], "npx -y carrier-mcp"),
        (["x", "--api-key", "abc", "--verbose"], "x --api-key *** --verbose"),
        (["x", "--token=abc", "y z"], "x --token=*** 'y z'"),
        (["x", "--password", "--flag", "v"], "x --password --flag v"),
        (["x", "\x1b[0m"], "x \\x1b[0m"),
    ],
)
def test_a_command_line_is_shown_without_what_options_keep_secret(command: list[str], shown: str) -> None:
    assert shown_command(command[0], command[1:]) == shown


def test_a_programs_words_of_a_dead_server_have_no_frames_and_no_directories() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/srv/app/main.py", line 3, in <module>',
        "    raise KeyError",
        "KeyError: 'X' in /srv/app/conf.toml",
        "    at Object.<anonymous> (/srv/x.js:1:1)",
        "see https://example.org/a/b",
    ]
    assert last_words(lines) == "KeyError: 'X' in …/conf.toml; see https://example.org/a/b"
    assert last_words([]) == ""
