"""Lines of a server's stdout: what is a message, what is repaired, what is noise, and that nothing else comes out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mcp import wire
from bridge.mcp.wire import Read, fate_of, read

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


def only(line: bytes) -> Any:
    """The one message of a line, as JSON data."""
    (message,) = read(line).messages
    return json.loads(message.model_dump_json(by_alias=True, exclude_unset=True))


@pytest.mark.parametrize("line", [b"", b"  \r", b"\xef\xbb\xbf"])
def test_a_blank_line_is_nothing(line: bytes) -> None:
    assert read(line) == Read()


@pytest.mark.parametrize(
    "line", [b"listening on 8080", b'{"level":"info"}', b"[INFO] ready", b"{", b"[1, 2]", b'"text"', b"7", b"\x00\xff"]
)
def test_what_is_no_message_is_noise(line: bytes) -> None:
    assert read(line) == Read(noise=True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'\xef\xbb\xbf{"jsonrpc":"2.0","method":"a"}\r', {"jsonrpc": "2.0", "method": "a"}),
        (b'{"method":"a"}', {"jsonrpc": "2.0", "method": "a"}),
        (b'{"id":3.0,"result":{}}', {"jsonrpc": "2.0", "id": 3, "result": {}}),
        (b'{"id":3,"result":{"a":1},"error":null}', {"jsonrpc": "2.0", "id": 3, "result": {"a": 1}}),
        (
            b'{"id":3,"result":{},"error":{"code":1.5,"message":["m"]}}',
            {"jsonrpc": "2.0", "id": 3, "error": {"code": -32603, "message": '["m"] (1.5)', "data": None}},
        ),
        (
            b'{"id":3,"error":"plain text"}',
            {"jsonrpc": "2.0", "id": 3, "error": {"code": -32603, "message": "plain text", "data": None}},
        ),
        (b'{"jsonrpc":"2.0","id":3,"result":{"a":"\xe9"}}', {"jsonrpc": "2.0", "id": 3, "result": {"a": "\ufffd"}}),
        (rb'{"jsonrpc":"2.0","id":3,"result":{"a":"\udc00"}}', {"jsonrpc": "2.0", "id": 3, "result": {"a": "\ufffd"}}),
    ],
)
def test_a_message_with_a_flaw_is_repaired(line: bytes, message: dict[str, Any]) -> None:
    assert only(line) == message


@pytest.mark.parametrize(
    ("line", "number"),
    [
        (b'{"jsonrpc":"2.0","id":5,"result":{"content":[{"ty', 5),
        (b'{"jsonrpc": "2.0", "id": "x-1", "result": {"content"', "x-1"),
        (b'{"id":5,"result":tru', 5),
        (b'{"result":{"content":nope},"jsonrpc":"2.0","id":5}', 5),
        (b'{"result":{"content":nope},"id":5,"jsonrpc":"2.0"}', 5),
        (b'{"jsonrpc":"2.0","id":5,"result":' + b"[" * 100_000, 5),
        (b'{"jsonrpc":"2.0","id":5,"result":7}', 5),
    ],
)
def test_a_line_that_cannot_be_read_is_an_error_for_the_call_it_answers(line: bytes, number: int | str) -> None:
    message = only(line)
    assert message["id"] == number
    assert fate_of(message["error"]["data"]) == "unreadable"


def test_a_line_that_does_not_say_what_it_answers_is_noise() -> None:
    assert read(b'{"jsonrpc":"2.0","result":{"id":5,"x":nope}') == Read(noise=True)


def test_a_message_after_other_text_is_found_once_and_not_looked_for_without_end() -> None:
    found = read(b'loading... {"jsonrpc":"2.0","method":"a"}')
    assert (len(found.messages), found.noise) == (1, True)
    assert read(b'x{"jsonrpc"' * 100_000) == Read(noise=True)


def test_an_error_of_a_server_is_never_taken_for_one_made_here() -> None:
    assert fate_of(None) is None
    assert fate_of({"fate": "not_sent", "sandbridge": "not_sent"}) is None
    made = wire.error(1, "not_sent", "gone", "aside")
    assert (fate_of(made.error.data), wire.aside_of(made.error.data)) == ("not_sent", "aside")


@given(st.binary(max_size=200))
def test_no_bytes_raise(line: bytes) -> None:
    read(line)


@given(JSON)
def test_no_json_raises(value: Any) -> None:
    read(json.dumps(value).encode("utf-8", "surrogatepass"))


@given(st.fixed_dictionaries({}, optional={"jsonrpc": JSON, "id": JSON, "result": JSON, "error": JSON, "method": JSON}))
def test_what_comes_out_can_be_written_again(value: dict[str, Any]) -> None:
    for message in read(json.dumps(value).encode("utf-8", "surrogatepass")).messages:
        json.loads(message.model_dump_json(by_alias=True, exclude_unset=True))


@given(JSON.filter(lambda value: isinstance(value, dict)), st.integers(0, 2**40))
def test_a_sound_answer_comes_through_with_every_value(result: dict[str, Any], number: int) -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": number, "result": result}, ensure_ascii=False, allow_nan=True)
    try:
        encoded = line.encode()
    except UnicodeEncodeError:
        return  # lone surrogates have their own tests
    (message,) = read(encoded).messages
    assert json.dumps(message.result) == json.dumps(result)
