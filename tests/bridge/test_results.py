"""Results: what a run leaves, as data, and what it cost."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.results import Failure, PendingCall, Result, decode_value
from sandbox import Image, Limits, Log, Notice, Usage
from tests.bridge.finished import finished, row

# ---- the value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"null", None),
        (b"[1,2.5,true,{}]", [1, 2.5, True, {}]),
        (b"12345678901234567890123", 12345678901234567890123),
        (rb'"\ud83d\ude00"', "😀"),
        (rb'"\ud83dx"', "\ufffdx"),
        (rb'"\ude00\ud83d"', "\ufffd\ufffd"),
        (rb'{"\uD83D":"\\ud83d \ud83d\ud83d\ude00"}', {"\ufffd": "\\ud83d \ufffd😀"}),
    ],
)
def test_a_value_is_read_and_half_characters_are_replaced(text: bytes, value: Any) -> None:
    assert decode_value(text) == value
    assert finished(value_json=text).value == value


@given(text=st.text(st.characters(), max_size=30))
def test_any_text_that_javascript_can_hold_is_a_value(text: str) -> None:
    value = decode_value(json.dumps(text).encode())
    assert value == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "it is no JSON"),
        (b"{", "it is no JSON"),
        (b"NaN", "it is no JSON"),
        (b"1e999", "it is no JSON"),
        (b'"\xff"', "it is no JSON"),
        (rb'"\ud83d', "it is no JSON"),
        (b"9" * 5000, "it is no JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "it is nested too deeply"),
    ],
)
def test_a_value_that_cannot_be_read_is_dropped_with_a_warning(text: bytes, why: str) -> None:
    result = finished(value_json=text)
    assert (result.status, result.value) == ("completed", None)
    assert result.warnings == (Notice("value_unreadable", f"the value ({len(text):,} bytes) was dropped: {why}"),)


def test_the_value_is_whole_whatever_the_model_is_shown() -> None:
    value = list(range(10_000))
    result = finished(value_json=json.dumps(value).encode(), limits=Limits(output_bytes=1000))
    assert result.value == value
    assert len(result.text.encode()) <= 1000


def test_what_was_cut_has_a_handle_and_a_warning() -> None:
    result = finished(value_json=b'"' + b"x" * 5000 + b'"', limits=Limits(output_bytes=1000))
    assert result.handle == "h"
    what = f"the model was shown {len(result.text):,} bytes (output_bytes=1,000), not all there is"
    assert result.warnings == (Notice("truncated", what),)


def test_console_lines_that_log_bytes_did_not_hold_are_warned_of_wherever_the_model_reads_it() -> None:
    result = finished(value_json=b"1", logs=[Log("log", "a")], dropped_logs=992, limits=Limits(log_bytes=200))
    assert result.warnings == (
        Notice("truncated", "992 console line(s) did not fit into log_bytes=200: counted, not kept"),
    )


def test_what_was_not_cut_has_neither() -> None:
    result = finished(value_json=b"1")
    assert (result.handle, result.warnings) == (None, ())


# ---- as data

FULL: dict[str, Any] = {
    "status": "failed",
    "emitted": ["a"],
    "images": [Image("image/png", "aGk=", "")],
    "logs": [Log("warn", "w")],
    "failure": Failure(code="limit", name="", message="m", line=1, column=None, limit="calls", hint="h"),
    "notices": [Notice("w", "m"), Notice("v", "n", 2)],
    "rows": [row(arguments_made=["1"], arguments_executed={"a": 1})],
}


def test_the_data_of_a_result_has_the_fields_of_the_contract_in_their_order() -> None:
    data = finished(**FULL).to_data()
    assert list(data) == [
        *("status", "value", "text", "run_id", "pending", "approvals", "handle", "error", "warnings"),
        *("emitted", "images", "logs", "calls", "usage", "ledger"),
    ]
    assert data["error"] == {
        "code": "limit",
        "name": "",
        "message": "m",
        "line": 1,
        "column": None,
        "limit": "calls",
        "hint": "h",
    }
    assert data["warnings"] == [{"code": "w", "message": "m", "line": None}, {"code": "v", "message": "n", "line": 2}]
    assert data["images"] == [{"mime_type": "image/png", "data": "aGk=", "handle": ""}]
    assert data["logs"] == [{"level": "warn", "message": "w"}]
    assert (data["calls"][0]["arguments_made"], data["calls"][0]["arguments_executed"]) == (["1"], {"a": 1})


def test_forms_of_arguments_that_do_not_differ_are_left_out() -> None:
    assert set(finished(rows=[row()]).to_data()["calls"][0]) == {
        *("id", "tool", "arguments", "decision", "outcome", "started", "duration_s", "argument_bytes", "reply_bytes"),
        *("reused", "line", "error", "preview"),
    }


def test_the_json_of_a_result_is_its_data() -> None:
    result = finished(**FULL)
    assert json.loads(result.to_json()) == result.to_data()
    assert msgspec.json.decode(result.to_json()) == result.to_data()


def test_the_json_of_a_result_can_hold_what_utf_8_cannot() -> None:
    result = finished(rows=[row(arguments={"a": "\ud83d", "b": 10**30})])
    assert json.loads(result.to_json())["calls"][0]["arguments"] == {"a": "\ud83d", "b": 10**30}


def test_the_deepest_value_that_can_be_read_can_be_shown_and_written() -> None:
    def nested(depth: int) -> Result:
        return finished(value_json=b"[" * depth + b"]" * depth)

    deepest, too_deep = 100, 100_000
    while too_deep - deepest > 1:
        middle = (deepest + too_deep) // 2
        deepest, too_deep = (deepest, middle) if nested(middle).warnings else (middle, too_deep)
    result = nested(deepest)
    assert result.body == "[" * deepest + "]" * deepest
    assert f'"value":{result.body},' in result.to_json()


# ---- pauses


def test_a_pause_has_what_it_waits_for_as_plain_data() -> None:
    waiting = PendingCall(id="r.2", run_id="r", tool="choose", arguments={"n": 1}, line=None, expires_at=5.0)
    result = finished(status="paused", pending=[waiting])
    assert result.pending == (waiting,)
    assert result.to_data()["pending"] == [dataclasses.asdict(waiting)]


# ---- what it cost


def test_usage_knows_the_bytes_of_value_and_text() -> None:
    result = finished(value_json=b'"\xc3\xa9"', usage=Usage(calls=3))
    assert result.usage == Usage(calls=3, value_bytes=4, output_bytes=len(result.text.encode()))
