"""Results -> values of programs, and the bytes that stay here."""

from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import CallToolResult, TextContent

from bridge.mcp.result import Blobs, failure_of, kept, parsed, value_of


@given(st.lists(st.binary(max_size=40)))
def test_blobs_are_bounded_and_the_oldest_go_first(datas: list[bytes]) -> None:
    blobs = Blobs(limit=100)
    handles = [blobs.keep(data, "a/b") for data in datas]
    assert blobs.size == sum(len(blob.data) for blob in blobs.values()) <= 100
    left = [handle for handle in handles if handle in blobs]
    assert left == handles[len(handles) - len(left) :]
    assert [blobs[handle].data for handle in left] == datas[len(datas) - len(left) :]


def test_one_blob_over_the_limit_is_not_kept_and_costs_no_other() -> None:
    blobs = Blobs(limit=10)
    small = blobs.keep(b"small", "a/b")
    large = blobs.keep(b"x" * 11, "a/b")
    assert list(blobs) == [small]
    assert blobs.get(large) is None


def test_handles_are_never_the_same() -> None:
    blobs = Blobs()
    assert len({blobs.keep(b"x", "a/b") for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("given", "kept_as"),
    [
        ("image/png", "image/png"),
        ("Image/PNG; q=1", "image/png"),
        ("application/vnd.api+json", "application/vnd.api+json"),
        ("x" * 100 + "/y", "application/octet-stream"),
        ("a/b\n<script>", "application/octet-stream"),
        ("", "application/octet-stream"),
    ],
)
def test_a_type_is_kept_only_if_it_is_one(given: str, kept_as: str) -> None:
    assert kept("image", base64.b64encode(b"x").decode(), given, Blobs())["mime_type"] == kept_as


def test_base64_with_line_breaks_is_read() -> None:
    blobs = Blobs()
    text = base64.encodebytes(b"x" * 200).decode()
    assert blobs[kept("image", text, "a/b", blobs)["handle"]].data == b"x" * 200


@pytest.mark.parametrize(
    "text", ["", "word", "12", '"a"', "null", "true", "{", "[1,]", "{'a': 1}", "[NaN]", '["\\ud800"]']
)
def test_text_that_is_no_json_object_or_array_stays_text(text: str) -> None:
    assert parsed(text) == text


@pytest.mark.parametrize("text", ['{"a": 12345678901234567890123, "b": 1.10}', " [1, 2]\n", "[]"])
def test_text_that_is_json_is_passed_on_as_it_is(text: str) -> None:
    found = parsed(text)
    assert isinstance(found, msgspec.Raw)
    assert bytes(found) == text.strip().encode()


def result(text: str = "", **options: object) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)] if text else [], **options)


def test_a_described_tool_keeps_its_text_and_an_undescribed_one_has_it_parsed() -> None:
    assert value_of(result("[1]"), described=True, unwrap=False, blobs=Blobs()) == "[1]"
    found = value_of(result("[1]"), described=False, unwrap=False, blobs=Blobs())
    assert bytes(found) == b"[1]"


@pytest.mark.parametrize(
    ("structured", "unwrap", "json"),
    [
        ({"result": [1]}, True, b"[1]"),
        ({"result": None}, True, b"null"),
        ({"result": 1, "more": 2}, True, b'{"result":1,"more":2}'),
        ({"result": [1]}, False, b'{"result":[1]}'),
    ],
)
def test_a_wrapped_result_is_unwrapped_only_where_the_schema_says_so(
    structured: dict[str, object], unwrap: bool, json: bytes
) -> None:
    found = value_of(result("x", structured_content=structured), described=True, unwrap=unwrap, blobs=Blobs())
    assert bytes(found) == json


def test_a_failure_without_words_says_so_and_large_details_are_left_out() -> None:
    error = failure_of(result(is_error=True, structured_content={"big": "x" * 20_000}))
    assert (error.code, error.message, error.details) == ("failed", "the tool failed and did not say why", None)
