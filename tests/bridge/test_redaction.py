"""Secrets in a journal: by which keys and forms they are known, and that nothing else goes with them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge import ConfigurationError
from bridge.redaction import Redaction, is_secret_key


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("Authorization", True),
        ("proxy-authorization", True),
        ("x-api-key", True),
        ("apiKey", True),
        ("API_KEY", True),
        ("serviceAPIKey", True),
        ("client_secret", True),
        ("dbPassword", True),
        ("refresh_token", True),
        ("Set-Cookie", True),
        ("max_tokens", False),
        ("key", False),
        ("tokenizer", False),
        ("secretary", False),
        ("compass", False),
        ("", False),
    ],
)
def test_keys_are_known_by_their_last_words(name: str, secret: bool) -> None:
    assert is_secret_key(name) is secret
    assert is_secret_key(name, ["Max-Tokens"]) is (secret or name == "max_tokens")


def journal_of(value: Any, text: str = "") -> list[bytes]:
    """A journal whose one call came back with this value."""
    came = {"type": "reply", "call": 1, "at": 1.0, "outcome": "completed", "value": value, "message": text}
    return [json.dumps(came, ensure_ascii=False).encode()]


@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-api03-abcdefghijklmnop",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "github_pat_11ABCDEFG0123456789_abcdefghij",
        "xoxb-123456789012-abcdefghijkl",
        "AKIAIOSFODNN7EXAMPLE",
        "AIzaSyA1234567890abcdefghijklmnopqrstuvw",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "sk_live_abcdefghijklmnopqrst",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_keys_of_well_known_forms_are_found_in_any_text(secret: str) -> None:
    [line], count = Redaction().apply(journal_of({"note": f"take {secret}, and go"}, f"<{secret}>"))
    record = json.loads(line)
    assert (record["value"], record["message"], count) == (
        {"note": "take [redacted 1], and go"},
        "<[redacted 1]>",
        1,
    )


def test_of_a_header_or_url_only_the_secret_goes() -> None:
    given = {"a": "Bearer abcdefghijklmnop", "b": "postgresql://me:pass-word@db/x", "c": "GET /?q=1"}
    [line], _ = Redaction().apply(journal_of(given))
    assert json.loads(line)["value"] == {
        "a": "Bearer [redacted 1]",
        "b": "postgresql://me:[redacted 2]@db/x",
        "c": "GET /?q=1",
    }


def test_a_short_secret_takes_no_part_of_other_words_along() -> None:
    given = {"password": "ab", "pwd": "pass", "said": ["ab", "abc", "pass", "passport", "a pass"]}
    [line], _ = Redaction().apply(journal_of(given))
    assert json.loads(line)["value"]["said"] == ["[redacted 1]", "abc", "[redacted 2]", "passport", "a [redacted 2]"]


def test_a_line_without_secrets_stays_as_it_is_and_the_journals_own_words_are_no_data() -> None:
    lines = [
        b'{"type":"reply","call":1,"at":1.0,"outcome":"completed","value":{"n":-0,"e":1e2}}',
        b'{"type":"decided","call":1,"at":1.0,"stage":"done","kind":"allow","checked":{"password":"allow"}}',
    ]
    made, count = Redaction().apply(lines)
    assert (made[0], count, json.loads(made[1])["kind"], json.loads(made[1])["checked"]) == (
        lines[0],
        1,
        "allow",
        {"password": "[redacted 1]"},
    )


def test_own_rules_name_keys_patterns_and_secrets_themselves() -> None:
    rules = Redaction(keys=["employee number"], patterns=[r"case-(\d+)"], known=["swordfish"])
    [line], count = rules.apply(journal_of({"employeeNumber": "E-77", "text": "case-42 of swordfish"}))
    assert (json.loads(line)["value"], count) == (
        {"employeeNumber": "[redacted 1]", "text": "case-[redacted 3] of [redacted 2]"},
        3,
    )
    with pytest.raises(ConfigurationError, match=r"^'\(' is no regular expression: "):
        Redaction(patterns=["("])
