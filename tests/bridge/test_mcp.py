"""Calls to a server that does everything wrong, and what a program and an operator get of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge import ToolError
from bridge.mcp import owner
from tests.bridge.odd_servers import call, frames, odd, opened, refused, tool
from tests.servers.odd import PNG

pytestmark = pytest.mark.anyio
UNKNOWN = "Whether the call took effect is not known: look before calling it again."


async def test_a_call_brings_back_structured_content_with_every_digit() -> None:
    server = odd()
    async with opened(server):
        assert await call(server, "echo", {"a": [1, {"b": "é😀"}], "n": 10**30}) == {
            "a": [1, {"b": "é😀"}],
            "n": 10**30,
        }
        found = await call(server, "big-integer")
    assert found == {"id": 9007199254740993, "bigger": 123456789012345678901234567890}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nan", {"a": None, "b": None, "c": None, "d": 1.5}),
        ("surrogate", {"lone": "a\ufffdb", "pair": "😀"}),
        ("bad-utf8", "caf\ufffd"),
        ("duplicate-keys", {"a": 2}),
        ("answers-twice", "first"),
        ("text-id", "id as text"),
        ("float-id", "id as float"),
        ("no-version", "no jsonrpc"),
        ("glued", "glued"),
        ("batch", "in a batch"),
        ("garbage", "after garbage"),
        ("stderr-flood", "still here"),
    ],
)
async def test_an_odd_answer_is_read_all_the_same_and_the_session_goes_on(name: str, value: Any) -> None:
    server = odd()
    async with opened(server):
        assert await call(server, name) == value
        assert await call(server, "echo", {"next": 1}) == {"next": 1}
        assert server.error is None


async def test_an_answer_three_hundred_levels_deep_arrives() -> None:
    server = odd()
    async with opened(server):
        value = await call(server, "deep", {"levels": 300})
    levels, inner = 0, value["deep"]
    while inner:
        levels, inner = levels + 1, inner[0]
    assert levels == 299


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("fails", "failed", "no such order"),
        ("text-code", "failed", "server 'odd': odd (E_ODD) (code -32603)"),
        ("code-32000", "failed", "server 'odd': Connection closed (code -32000)"),
        (
            "truncated",
            "unknown_outcome",
            f"server 'odd': the server answered, but it is no JSON that can be read. {UNKNOWN}",
        ),
        (
            "result-list",
            "unknown_outcome",
            f"server 'odd': the server answered, but its result is no object. {UNKNOWN}",
        ),
    ],
)
async def test_a_call_that_brings_no_result_rejects_at_once_and_the_session_goes_on(
    name: str, code: str, text: str
) -> None:
    server = odd()
    async with opened(server):
        error = await refused(server, name)
        assert (error.code, error.message) == (code, text)
        assert await call(server, "echo", {"next": 1}) == {"next": 1}


async def test_a_tools_own_failure_keeps_its_words_bounded_and_its_details() -> None:
    server = odd()
    async with opened(server):
        error = await refused(server, "fails", {"text": "\x1b[31mred\n" + "x" * 9_000})
    assert error.message == "\\x1b[31mred\n" + "x" * (8_000 - 12) + "… (9,009 characters)"
    assert error.details == {"order": 7}
    assert error.retryable is False


async def test_a_tool_that_is_not_there_is_the_servers_protocol_error() -> None:
    server = odd()
    async with opened(server):
        outcome = await server._owner.link.call("nothing", {}, lambda *progress: None)
    assert (outcome.code, outcome.message) == (-32602, "Unknown tool: nothing")


async def test_a_line_over_the_bound_rejects_only_its_own_call() -> None:
    server = odd()
    async with opened(server):
        error = await refused(server, "huge", {"bytes": 33 << 20})
        assert error.code == "too_large"
        assert error.message == (
            "server 'odd': the server answered, but with more than 33,554,432 bytes: ask it for less"
        )
        assert await call(server, "huge-unknown", {"bytes": 33 << 20}) == "after a huge line"
    assert server.warnings == [
        "a line of more than 33,554,432 bytes was dropped; it does not say which call it answers"
    ]


async def test_a_line_just_under_the_bound_arrives() -> None:
    server = odd()
    async with opened(server):
        assert len(await call(server, "huge", {"bytes": (32 << 20) - 1_000})) == (32 << 20) - 1_000


async def test_pictures_and_other_bytes_stay_here_and_the_program_gets_handles() -> None:
    server = odd()
    async with opened(server):
        value = await call(server, "picture")
    handles = [item.pop("handle") for item in [*value["images"], *value["resources"]] if "handle" in item]
    assert value == {
        "text": 'first\n{"type": "hologram", "depth": 3}\nlast',
        "images": [
            {"type": "image", "mime_type": "image/png", "bytes": len(PNG)},
            {"type": "image", "mime_type": "image/png", "bytes": 0, "error": "the server sent no valid base64"},
            {"type": "image", "mime_type": "application/octet-stream", "bytes": len(PNG)},
        ],
        "resources": [
            {"type": "audio", "mime_type": "audio/wav", "bytes": len(PNG)},
            {"type": "link", "uri": "file:///a", "name": "a"},
            {"type": "text", "uri": "odd://t", "text": "words"},
            {"type": "blob", "mime_type": "x/y", "bytes": len(PNG), "uri": "odd://b"},
        ],
    }
    assert [server.blobs[handle].data if handle else None for handle in handles] == [PNG, None, PNG, PNG, PNG]
    assert server.warnings == [
        "a result had an image without its type",
        "a result had content of an unknown shape (hologram): its JSON was taken as text",
    ]


async def test_progress_reaches_the_context() -> None:
    server, seen = odd(), list[tuple[float, float | None, str | None]]()
    async with opened(server):
        assert await call(server, "progress", progress=lambda *told: seen.append(told)) == "done"
    assert seen == [(1.0, 2.0, None), (2.0, 2.0, None)]


async def test_a_server_that_asks_during_a_call_is_answered_and_the_call_completes() -> None:
    server = odd()
    async with opened(server):
        # ping is answered; what was never offered (roots, sampling, elicitation) and the unheard of do not exist
        expected = {"p": {}, "r": -32601, "s": -32601, "e": -32601, "u": -32601}
        assert await call(server, "asks") == expected


async def test_lone_surrogates_in_arguments_are_made_well_formed_in_keys_too() -> None:
    server = odd()
    async with opened(server):
        assert await call(server, "echo", {"a\udfff": ["x\ud800y", "\ud83d\ude00"]}) == {"a\ufffd": ["x\ufffdy", "😀"]}


async def test_arguments_that_no_server_can_be_sent_are_refused_before_sending(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    log = tmp_path / "log"
    server = odd(log=log)
    async with opened(server):
        error = await refused(server, "echo", {"deep": deep})
        assert (error.code, error.message) == ("invalid_arguments", "the arguments nest more than 200 levels deep")
        handler = tool(server, "echo").handler
        assert handler is not None
        with pytest.raises(ToolError) as caught:
            await handler([1], None)  # never reached
        assert caught.value.message == "odd/echo takes one object, not list"
        assert await call(server, "echo", {"fine": 1}) == {"fine": 1}
    assert [frame["params"]["arguments"] for frame in frames(log) if frame["method"] == "tools/call"] == [{"fine": 1}]


async def test_a_cancelled_call_tells_the_server_once_and_the_connection_stays_usable(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = odd(log=log)
    async with opened(server):
        async with anyio.create_task_group() as calls:
            calls.start_soon(call, server, "silence")
            await call(server, "hold", {"count": 1})  # the server has seen the silent call when this one is back
            calls.cancel_scope.cancel()
        assert await call(server, "echo", {"next": 1}) == {"next": 1}
    sent = frames(log)
    silent = [frame["id"] for frame in sent if frame.get("params", {}).get("name") == "silence"]
    cancelled = [frame["params"]["requestId"] for frame in sent if frame["method"] == "notifications/cancelled"]
    assert cancelled == silent


async def test_a_deadline_cancels_its_own_call_and_no_other() -> None:
    server = odd()
    async with opened(server), anyio.create_task_group() as calls:
        answers: list[str] = []

        async def held() -> None:
            answers.append(await call(server, "hold", {"count": 2}))

        calls.start_soon(held)
        with anyio.move_on_after(0.2) as scope:
            await call(server, "silence")
        assert scope.cancelled_caught
        await held()
        while len(answers) < 2:
            await anyio.lowlevel.checkpoint()
    assert answers == ["2 at once", "2 at once"]


async def test_calls_run_side_by_side() -> None:
    server, answers = odd(), list[str]()
    async with opened(server), anyio.create_task_group() as calls:
        for _ in range(20):
            calls.start_soon(_collect, server, answers, {"count": 20})
    assert answers == ["20 at once"] * 20


@pytest.mark.parametrize("limit", [1, 2])
async def test_no_more_calls_than_allowed_are_with_the_server_at_once(limit: int) -> None:
    server, answers = odd(max_concurrent=limit), list[str]()

    async def one() -> None:
        answers.append(await call(server, "gather"))

    async with opened(server), anyio.create_task_group() as calls:
        for _ in range(6):
            calls.start_soon(one)
    assert len(answers) == 6
    assert max(map(int, answers)) <= limit


async def _collect(server: Any, answers: list[str], arguments: dict[str, Any]) -> None:
    answers.append(await call(server, "hold", arguments))


async def test_a_call_beyond_the_rate_of_its_server_is_not_sent_before_its_turn(tmp_path: Path) -> None:
    server = odd(rate="1/h", log=tmp_path / "log")
    async with opened(server):
        await call(server, "no-version")
        with anyio.move_on_after(0.05) as turn:
            await call(server, "no-version")
    assert turn.cancelled_caught
    assert [frame["method"] for frame in frames(tmp_path / "log")].count("tools/call") == 1


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("exits", "exit code 3; last output: about to; Out of cheese in …/state.db"),
        ("kills-itself", "signal SIGKILL"),
        ("closes-stdout", "closed its stdout"),
    ],
)
async def test_a_server_that_goes_away_rejects_all_its_calls_and_the_next_one_starts_it_again(
    name: str, how: str
) -> None:
    server = odd()
    async with opened(server):
        errors: list[ToolError] = []

        async def silent() -> None:
            errors.append(await refused(server, "silence"))

        async with anyio.create_task_group() as calls:
            calls.start_soon(silent)
            await anyio.lowlevel.checkpoint()
            errors.append(await refused(server, name))
        assert {error.code for error in errors} == {"unknown_outcome"}
        assert {error.message for error in errors} == {f"server 'odd' went away during the call ({how}). {UNKNOWN}"}
        version, before = server.version, server.tools
        assert await call(server, "echo", {"again": 1}) == {"again": 1}
        assert server.error is None
        assert (server.version, server.tools) == (version, before)  # the same list is no change


async def test_a_server_that_reads_no_more_is_given_up_and_started_again() -> None:
    server = odd()
    async with opened(server):
        assert await call(server, "closes-stdin") == "closed"
        error = await refused(server, "echo")
        assert error.message == f"server 'odd' went away during the call (closed its stdin). {UNKNOWN}"
        assert await call(server, "echo", {"again": 1}) == {"again": 1}


async def test_the_operator_reads_how_a_server_ended_and_what_it_wrote_last() -> None:
    server = odd()
    async with opened(server):
        await refused(server, "exits")
        while server.error is None:
            await anyio.lowlevel.checkpoint()
        assert server.error == (
            f"server 'odd' ({server.shown}) ended (exit code 3); it wrote to stderr:"
            "\n  | about to\n  | Out of cheese in /var/lib/odd/state.db"
        )
        assert server.tools  # kept: their calls try again


async def test_a_change_of_the_list_during_a_call_is_read_without_stopping_the_call() -> None:
    server = odd()
    async with opened(server):
        before = server.version
        assert await call(server, "add-tool", {"name": "brand-new"}) == "added"
        while server.version == before:
            await anyio.lowlevel.checkpoint()
        assert tool(server, "brand-new").name == "brand-new"
        assert [each.name for each in server.tools] == sorted(each.name for each in server.tools)


async def test_a_change_that_a_server_does_not_tell_of_is_found_by_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "POLL_S", 0.05)
    server = odd("silent")
    async with opened(server):
        assert await call(server, "add-tool", {"name": "brand-new"}) == "added"
        while not any(each.name == "brand-new" for each in server.tools):
            await anyio.lowlevel.checkpoint()


async def test_a_server_that_tells_of_changes_is_not_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(owner, "POLL_S", 0.0)
    server = odd(log=tmp_path / "log")
    async with opened(server):
        assert server.revision == "2025-11-25"
        for number in range(5):
            await call(server, "echo", {"n": number})
    assert [frame["method"] for frame in frames(tmp_path / "log")].count("tools/list") == 1


async def test_a_tool_whose_definition_changed_is_not_called_under_the_old_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = odd(log=log)
    async with opened(server):
        old = tool(server, "echo").handler
        before = server.version
        await call(server, "redescribe", {"description": "something else"})
        while server.version == before:
            await anyio.lowlevel.checkpoint()
        assert old is not None
        with pytest.raises(ToolError) as caught:
            await old({}, None)  # never reached
        assert (caught.value.code, caught.value.retryable) == ("failed", True)
        assert caught.value.message == (
            "server 'odd' changed the definition of 'echo'; nothing was sent. Call again to have the new one checked."
        )
        assert await call(server, "echo", {"new": 1}) == {"new": 1}
    assert [frame["params"]["arguments"] for frame in frames(log) if frame.get("params", {}).get("name") == "echo"] == [
        {"new": 1}
    ]


async def test_a_closed_server_rejects_and_can_be_opened_again() -> None:
    server = odd()
    async with opened(server):
        assert re.fullmatch(r"<Server 'odd' \(.*\): \d+ tools>", repr(server))
    error = await refused(server, "echo")
    assert (error.code, error.message) == ("failed", "server 'odd' is not open. Nothing was sent.")
    assert error.retryable
    async with opened(server):
        assert await call(server, "echo", {"again": 1}) == {"again": 1}


async def test_instructions_of_a_server_are_kept() -> None:
    server = odd()
    async with opened(server):
        assert server.instructions == "Be odd."


async def test_text_that_is_json_is_parsed_and_other_text_is_not() -> None:
    server = odd()
    async with opened(server):
        for text, value in [('{"a": [1]}', {"a": [1]}), (" [1] ", [1]), ("7", "7"), ("{no", "{no"), ("null", "null")]:
            result = {"content": [{"type": "text", "text": text}]}
            assert await call(server, "say", {"result": result}) == value
        none = {"text": "", "images": [], "resources": []}
        assert await call(server, "say", {"result": {"content": []}}) == none
        two = {"content": [{"type": "text", "text": json.dumps(n)} for n in (1, 2)]}
        assert await call(server, "say", {"result": two}) == {"text": "1\n2", "images": [], "resources": []}
