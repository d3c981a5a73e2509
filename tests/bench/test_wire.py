"""Bodies: compact JSON in three formats, divided so that the tokens of the pieces are those of the whole."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge import tokens
from bridge.bench.count import count
from bridge.bench.wire import FORMATS, Body, Format, Part, WireCall, WireResult, compact

TEXT = st.text(max_size=60)
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}


def conversation(form: Format, words: list[str], tools: int = 2) -> Body:
    """A conversation of every kind of part, with these words in it."""
    items: list[Part] = []
    for number, text in enumerate(words):
        calls = [WireCall(f"call_{number}_{each}", "look", compact({"q": text})) for each in range(2)]
        items.append(form.user(text))
        items += form.calls(calls)
        items += form.results([WireResult(call.id, text, failed=bool(number % 2)) for call in calls])
        items.append(form.answer(text))
    return form.body(" ".join(words), [form.tool(f"look_{each}", "Looks.", SCHEMA) for each in range(tools)], items)


@pytest.mark.parametrize("name", FORMATS)
def test_a_body_is_the_compact_json_of_a_request(name: str) -> None:
    body = conversation(FORMATS[name], ["one", "two"])
    request = json.loads(body.text)
    assert json.dumps(request, separators=(",", ":"), ensure_ascii=False) == body.text
    assert body.sha256 == hashlib.sha256(body.text.encode()).hexdigest()
    items = {"responses": "input", "chat": "messages", "anthropic": "messages"}[name]
    assert list(request)[-2:] == ["tools", items]


@pytest.mark.parametrize(
    ("name", "call", "result"),
    [
        (
            "responses",
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"q":"x"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "found"},
        ),
        (
            "chat",
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q":"x"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "found"},
        ),
        (
            "anthropic",
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {"q": "x"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "found"}]},
        ),
    ],
)
def test_calls_and_results_are_those_of_the_format(name: str, call: Any, result: Any) -> None:
    form = FORMATS[name]
    assert [json.loads(part.text) for part in form.calls([WireCall("c1", "look", '{"q":"x"}')])] == [call]
    assert [json.loads(part.text) for part in form.results([WireResult("c1", "found")])] == [result]


@given(st.lists(TEXT, min_size=1, max_size=4), st.sampled_from(sorted(FORMATS)), st.integers(0, 2))
@settings(max_examples=150, deadline=None)
def test_the_tokens_of_the_pieces_are_those_of_the_whole(words: list[str], name: str, tools: int) -> None:
    body = conversation(FORMATS[name], words, tools)
    pieces = [piece.text for piece in body.pieces()]
    assert "".join(pieces) == body.text
    assert tokens.load().total(pieces) == tokens.load().count(body.text)


@pytest.mark.parametrize("name", FORMATS)
def test_every_kind_of_part_is_counted_as_its_kind(name: str, counter: tokens.Tokens) -> None:
    found = count(conversation(FORMATS[name], ["one"]), [], None, counter)
    assert set(found.tokens) == {"system", "tools", "user", "calls", "results", "answer"}
    assert found.input_bytes == len(conversation(FORMATS[name], ["one"]).text)
