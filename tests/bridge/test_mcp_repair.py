"""Repairs of lists and results: whatever a server sends, what is left passes the SDK and no drop is silent."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage
from mcp_types import methods

from bridge.mcp.repair import WRAPPED, WRITTEN, Repairs, repair_list, repair_result
from bridge.mcp.result import Blobs, value_of
from tests.bridge.test_mcp_wire import JSON

TOOL = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text(max_size=5) | JSON,
        "inputSchema": st.just({"type": "object"}) | JSON,
        "outputSchema": st.just({"type": "object"}) | JSON,
        "annotations": JSON | st.dictionaries(st.sampled_from(["readOnlyHint", "title", "openWorldHint"]), JSON),
        "title": JSON,
        "description": JSON,
        "icons": JSON,
        "_meta": JSON,
        "execution": JSON | st.dictionaries(st.just("taskSupport"), JSON),
    },
)
BLOCK = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["text", "image", "audio", "resource", "resource_link"]) | JSON,
        "text": st.text() | JSON,
        "data": st.text() | JSON,
        "mimeType": st.text() | JSON,
        "uri": st.text() | JSON,
        "name": st.text() | JSON,
        "title": JSON,
        "description": JSON,
        "resource": JSON
        | st.fixed_dictionaries(
            {"uri": st.text()}, optional={"text": JSON, "blob": JSON, "mimeType": JSON, "_meta": JSON}
        ),
        "annotations": JSON,
        "_meta": JSON,
        "icons": JSON,
        "size": JSON,
    },
)
VERSIONS = [(False, "2025-11-25"), (True, "2026-07-28")]


@pytest.mark.parametrize(("modern", "version"), VERSIONS)
@given(tools=JSON | st.lists(TOOL, max_size=3), cursor=JSON)
def test_every_list_passes_the_sdk_after_its_repair(modern: bool, version: str, tools: Any, cursor: Any) -> None:
    result = {"tools": tools, "nextCursor": cursor} | ({"ttlMs": 0, "cacheScope": "private"} if modern else {})
    if modern:
        result["resultType"] = "complete"
    repair_list(result, modern, list[str]().append)
    methods.validate_server_result("tools/list", version, result)
    types.ListToolsResult.model_validate(result, by_name=False)


@pytest.mark.parametrize(("modern", "version"), VERSIONS)
@given(
    result=st.fixed_dictionaries(
        {},
        optional={
            "content": JSON | st.lists(BLOCK | JSON, max_size=3),
            "structuredContent": JSON,
            "isError": JSON,
            "_meta": JSON,
        },
    )
)
def test_every_result_passes_the_sdk_after_its_repair(modern: bool, version: str, result: dict[str, Any]) -> None:
    if modern:
        result = {**result, "resultType": "complete"}
    repair_result(result, modern, list[str]().append)
    methods.validate_server_result("tools/call", version, result)
    types.CallToolResult.model_validate(result, by_name=False)


def value(result: dict[str, Any], *, modern: bool = False) -> Any:
    """What a program gets of a raw result, after repair."""
    repair_result(result, modern, list[str]().append)
    read = types.CallToolResult.model_validate(result, by_name=False)
    marks = read.meta or {}
    found = value_of(
        read, described=True, unwrap=False, blobs=Blobs(), wrapped=WRAPPED in marks, written=WRITTEN in marks
    )
    return (
        json.loads(bytes(found)) if hasattr(found, "__buffer__") or not isinstance(found, (str, dict, list)) else found
    )


@pytest.mark.parametrize("structured", [[1, 2], "text", 7, True, {"result": 1}, {"a": 1}])
def test_structured_content_of_any_type_arrives_as_it_was_sent(structured: Any) -> None:
    assert value({"content": [], "structuredContent": structured}) == structured


def test_structured_content_too_deep_for_the_sdk_arrives_as_it_was_sent() -> None:
    deep: Any = {}
    for _ in range(300):
        deep = {"a": deep}
    assert value({"content": [], "structuredContent": deep}) == deep


@pytest.mark.parametrize(
    ("content", "text", "warning"),
    [
        ("words", "words", "a result had a text where a list of content belongs"),
        (
            {"type": "text", "text": "words"},
            '{"type": "text", "text": "words"}',
            "a result had content that is no list",
        ),
        ([{"type": "text"}], '{"type": "text"}', None),
        ([{"type": 7}], '{"type": 7}', None),
        (["words"], "words", None),
        ([{"type": "video", "data": "x" * 2_000}], '{"type": "video", "data": "(2,000 characters)"}', None),
    ],
)
def test_content_of_an_odd_shape_is_kept_as_text(content: Any, text: str, warning: str | None) -> None:
    result, warnings = {"content": content}, list[str]()
    repair_result(result, False, warnings.append)
    assert result["content"] == [{"type": "text", "text": text}]
    assert warning is None or warnings == [warning]


def test_a_result_that_asks_for_input_is_left_alone() -> None:
    result = {"resultType": "input_required", "inputRequests": {}}
    repair_result(result, True, list[str]().append)
    assert result == {"resultType": "input_required", "inputRequests": {}}


def test_a_sound_list_is_not_touched_and_nothing_is_said() -> None:
    tool = {
        "name": "a",
        "title": "A",
        "description": "d",
        "inputSchema": {"type": "object", "properties": {"x": {"type": "integer"}}},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True, "title": "T"},
    }
    result, warnings = {"tools": [tool], "nextCursor": ""}, list[str]()
    before = json.dumps(result)
    repair_list(result, False, warnings.append)
    assert (json.dumps(result), warnings) == (before, [])


def test_an_output_schema_of_any_type_is_fine_for_the_newest_revision() -> None:
    result = {"tools": [{"name": "a", "inputSchema": {"type": "object"}, "outputSchema": {"type": "array"}}]}
    repair_list(result, True, list[str]().append)
    assert result["tools"][0]["outputSchema"] == {"type": "array"}


def test_a_tool_with_an_impossible_header_annotation_is_left_out_and_said() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "object", "x-mcp-header": "A"}}}
    result, warnings = {"tools": [{"name": "a", "inputSchema": schema}]}, list[str]()
    repair_list(result, True, warnings.append)
    assert result["tools"] == []
    assert len(warnings) == 1


def nested(levels: int) -> Any:
    deep: Any = 1
    for _ in range(levels):
        deep = {"properties": {"a": deep}}
    return deep


def test_a_tool_that_nests_too_deeply_is_left_out_and_said() -> None:
    good = {"name": "good", "inputSchema": {"type": "object"}}
    bad = {"name": "bad", "inputSchema": {"type": "object", **nested(150)}}
    result, warnings = {"tools": [bad, good]}, list[str]()
    repair_list(result, True, warnings.append)
    assert result["tools"] == [good]
    assert warnings == ["tool 'bad' was left out: it nests more than 200 levels deep"]


@pytest.mark.parametrize("levels", [30, 150])
def test_what_nests_deeply_beside_the_data_does_not_cost_the_result(levels: int) -> None:
    block = {"type": "text", "text": "words", "_meta": nested(levels), "annotations": nested(levels)}
    result = {"content": [block], "_meta": nested(levels), "unheardOf": nested(levels)}
    repair_result(result, False, list[str]().append)
    methods.validate_server_result("tools/call", "2025-11-25", result)
    assert result == {"content": [{"type": "text", "text": "words"}]}


def test_what_nests_too_deeply_to_be_repaired_costs_its_answer_and_not_the_session() -> None:
    warnings = list[str]()
    repairs = Repairs(warnings.append, lambda: None)
    repairs.sent(SessionMessage(types.JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call", params={})))
    answer = types.JSONRPCResponse(jsonrpc="2.0", id=1, result={"content": [nested(5_000)]})
    repairs.received(SessionMessage(answer))
    text = "the answer nests too deeply to be read"
    assert answer.result == {"content": [{"type": "text", "text": text}], "isError": True}
    assert warnings == [
        "a result had content of an unknown shape (None): its JSON was taken as text",
        "tools/call: the answer nests too deeply to be read",
    ]
