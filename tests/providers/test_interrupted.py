"""Loops and served requests that break off: no half call is made, nothing is left running, nothing runs twice."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from types import SimpleNamespace
from typing import Any

import anthropic as sdk
import anyio
import httpx2
import openai as other_sdk
import pytest

from bridge import Approve, ConfigurationError, Deny, Executor, Policy, anthropic, approval, ask, openai
from bridge.code_tool import LoopError
from bridge.events import Paused
from bridge.loop import Answered
from bridge.openai.items import OUTPUT_CHARACTERS, for_program
from sandbox import Sandbox
from tests.bridge.scripted import Tools
from tests.providers import anthropic_wire as messages
from tests.providers import openai_wire as responses
from tests.providers.anthropic_application import CODE
from tests.providers.anthropic_shop import speaking
from tests.providers.openai_shop import STREAMS, client_of
from tests.providers.openai_wire import calls, chat_calls, chat_says, says, served

pytestmark = [pytest.mark.anyio, STREAMS]

HELLO = [{"role": "user", "content": "hello"}]
GIVEN: dict[str, Any] = {"model": "m", "max_tokens": 9}
HOSTED: dict[str, Any] = {"model": "m", "tools": [{"type": "programmatic_tool_calling"}]}
WRITE = "return await tools.write({ n: 1 })"
ASKED = Policy([ask("write")])
BROKEN = "the stream ended without a response: the connection was closed on the way"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def tools() -> Tools:
    tools = Tools()
    tools.go.set()
    return tools


def finished(value: Any) -> Any:
    return SimpleNamespace(value=value)


def code(text: str, number: int = 1) -> Any:
    return calls("run_program", {"program": text}, number)


def left(executor: Executor) -> list[str]:
    """The states of runs that are not over."""
    return [run.status for run in executor._roster.runs.values()]


async def breaks_off(call: Callable[[], Any]) -> Any:
    with pytest.raises(LoopError, match="the connection was closed on the way") as caught:
        await call()
    return caught.value.reply


# ---- streams that end too early --------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [3, 4, 5, 6])
async def test_a_call_in_the_middle_of_which_a_stream_ends_is_not_made_and_the_request_can_be_sent_again(
    tools: Tools, opened: Sandbox, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    with messages.serving() as wire:
        wire.play([messages.call("write", {"n": 1})], [messages.text("ok")])
        async with speaking(wire) as client, Executor(tools.all(), sandbox=opened) as executor:
            with monkeypatch.context() as patch:
                whole = messages.events
                patch.setattr(messages, "events", lambda *given: islice(whole(*given), pieces))
                options = {**GIVEN, "messages": HELLO, "direct": True, "stream": True}
                reply = await breaks_off(lambda: anthropic.run(client, executor, **options))
            assert (await reply.go()).text == "ok"
    assert (tools.reached, wire.refusals) == ([], [])


async def test_the_other_vendors_streams_that_end_too_early_say_where_the_loop_stood(
    tools: Tools, opened: Sandbox
) -> None:
    with served() as wire:
        whole, chunks = wire.events, wire.chunks
        async with client_of(wire) as client, Executor(tools.all(), sandbox=opened) as executor:
            wire.events = lambda response: islice(whole(response), 5)
            wire.play([code(WRITE)])
            reply = await breaks_off(lambda: openai.run(client, executor, model="m", input="?", stream=True))
            wire.events = whole
            wire.play([says("ok")])
            assert (await reply.go()).text == "ok"
            wire.chunks = lambda made, usage: islice(chunks(made, usage=usage), 4)
            wire.play([chat_says(None, chat_calls("run_program", {"program": WRITE}))])
            await breaks_off(lambda: openai.chat.run(client, executor, model="m", messages=HELLO, stream=True))
            wire.events = lambda response: islice(whole(response), 4)
            wire.play([code(WRITE)])
            local = openai.local(client, executor)
            events = [event async for event in await local.responses.create(input="?", stream=True, **HOSTED)]
            assert (events[-1].type, events[-1].message) == ("error", BROKEN)
    assert tools.reached == []


async def test_clients_that_keep_the_response_to_themselves_are_refused(tools: Tools, opened: Sandbox) -> None:
    with served() as wire, messages.serving() as other:
        async with client_of(wire) as client, speaking(other) as speaker, Executor([], sandbox=opened) as executor:
            with pytest.raises(ConfigurationError, match="give the client, without"):
                await openai.run(client.with_raw_response, executor, model="m", input="?")
            for given in (speaker.with_raw_response, speaker.with_streaming_response):
                with pytest.raises(ConfigurationError, match="give the client, without"):
                    await anthropic.run(given, executor, messages=HELLO, **GIVEN)
            with pytest.raises(ConfigurationError, match="not the class AsyncAnthropic"):
                await anthropic.run(sdk.AsyncAnthropic, executor, messages=HELLO, **GIVEN)
            wire.play([says("hi")], [says("hi")])
            own = client.with_options(timeout=5)
            reply = await openai.run(own, executor, model="m", input="?", timeout=3, extra_body={"user": "u"})
            raw = await openai.local(own, executor).responses.with_raw_response.create(
                input="?", timeout=3, extra_body={"user": "u"}, **HOSTED
            )
    assert (reply.text, raw.parse().output_text) == ("hi", "hi")
    assert [request["user"] for request in wire.requests] == ["u", "u"]


# ---- nothing is left -------------------------------------------------------------------------------------------------


async def test_a_cancelled_loop_leaves_no_run_though_one_of_its_programs_waits_for_a_person(
    tools: Tools, opened: Sandbox
) -> None:
    asked = anyio.Event()

    def watch(event: Any) -> None:
        if isinstance(event, Paused):
            asked.set()

    with served() as wire:
        wire.play([code(WRITE), code("return await tools.hang({ n: 2 })", 2)])
        options: dict[str, Any] = {"sandbox": opened, "policy": ASKED, "on_event": watch}
        async with client_of(wire) as client, Executor(tools.all(), **options) as executor:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: openai.run(client, executor, model="m", input="?"))
                await tools.began.wait()
                await asked.wait()
                tasks.cancel_scope.cancel()
            assert (left(executor), tools.cancelled) == ([], 1)


async def test_a_stream_that_is_dropped_before_its_end_leaves_no_run(tools: Tools, opened: Sandbox) -> None:
    with served() as wire, messages.serving() as other:
        wire.play([code(WRITE)], [code(WRITE)])
        other.play([messages.program("return await tools.person({ n: 1 })")])
        async with client_of(wire) as client, speaking(other) as speaker:
            async with Executor(tools.all(), sandbox=opened, policy=ASKED) as executor:
                for last, states in (("mcp_approval_request", []), ("response.completed", ["paused"])):
                    local = openai.local(client, executor)
                    stream = await local.responses.create(input="?", stream=True, **HOSTED)
                    async for event in stream:
                        if last in (event.type, getattr(getattr(event, "item", None), "type", "")):
                            break
                    await stream.close()
                    assert left(executor) == states
            async with Executor(tools.all(), sandbox=opened) as executor:
                local = anthropic.local(speaker, executor)
                async with local.messages.stream(messages=HELLO, tools=[CODE], **GIVEN) as events:
                    async for event in events:
                        if event.type == "content_block_start" and event.content_block.type == "tool_use":
                            break
                assert left(executor) == []


async def test_giving_verdicts_can_be_cancelled_and_the_conversation_goes_on(tools: Tools, opened: Sandbox) -> None:
    with served() as wire:
        first = "await tools.write({ n: 1 }); return await tools.hang({ n: 2 })"
        wire.play([code(first), code("return await tools.write({ n: 3 })", 2)], [says("ok")])
        async with client_of(wire) as client, Executor(tools.all(), sandbox=opened, policy=ASKED) as executor:
            reply = await openai.run(client, executor, model="m", input="?")
            one, other = reply.approvals
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(reply.resume, {one.id: Approve()})
                await tools.began.wait()
                tasks.cancel_scope.cancel()
            assert (reply.status, left(executor)) == ("paused", ["paused"])
            await reply.resume({other.id: Approve()})
    assert (reply.text, wire.refusals) == ("ok", [])
    assert [item["output"].split(";")[0] for item in reply.transcript if "output" in item] == [
        "[sandbridge] cancelled",
        "[sandbridge] completed",
    ]


async def test_the_loop_in_the_modules_text_asks_about_a_call_in_the_middle_of_a_program(
    tools: Tools, opened: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = str(openai.__doc__).partition("::\n")[2].partition("\nDeferred")[0].strip("\n")
    source = f"async def loop():\n{shown}\n    return reply"
    with served() as wire:
        wire.play([code(f"await tools.read({{ n: 5 }});\n{WRITE} // \\x1b[2J")], [says("ok")])
        async with client_of(wire) as client, Executor(tools.all(), sandbox=opened, policy=ASKED) as executor:
            given = {"client": client, "executor": executor, "input": lambda text: "y", "openai": openai}
            exec(source, given | {"approval": approval, "Approve": Approve, "Deny": Deny}, scope := {})
            reply = await scope["loop"]()
    assert (reply.text, tools.reached, len(source.splitlines())) == ("ok", [{"n": 5}, {"n": 1}], 10)
    assert capsys.readouterr().out.splitlines()[:2] == ["write {'n': 1}, line 2 of", "await tools.read({ n: 5 });"]


async def test_an_executor_that_is_closed_ends_what_a_loop_waits_for(tools: Tools, opened: Sandbox) -> None:
    with served() as wire:
        wire.play([code("return await tools.hang({ n: 1 })")], [says("closed")])
        async with client_of(wire) as client:
            replies: list[Any] = []

            async def loop(executor: Executor) -> None:
                replies.append(await openai.run(client, executor, model="m", input="?"))

            async with (
                anyio.create_task_group() as tasks,
                Executor(tools.all(), sandbox=opened) as executor,
            ):
                tasks.start_soon(loop, executor)
                await tools.began.wait()
    assert (replies[0].text, tools.cancelled, wire.refusals) == ("closed", 1, [])


# ---- nothing runs twice, nothing is lost -----------------------------------------------------------------------------


def overloaded(history: Any) -> Any:
    raise responses.Refused("overloaded", status=500)


def too_busy(request: Any) -> Any:
    raise messages.Refused("too busy", 529)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_of_the_vendor_after_a_program_ran_is_no_reason_to_run_it_again(
    tools: Tools, opened: Sandbox, stream: bool
) -> None:
    with served() as wire:
        wire.play([code(WRITE)], overloaded, [says("ok")])
        async with client_of(wire) as client, Executor(tools.all(), sandbox=opened) as executor:
            local = openai.local(client, executor)
            made = await local.responses.create(input="?", stream=stream, **HOSTED)
            first = [event async for event in made][-1].response if stream else made
            assert [item.type for item in first.output] == ["program", "program_output"]
            again = await local.responses.create(input=[], previous_response_id=first.id, **HOSTED)
    assert (again.output_text, tools.reached) == ("ok", [{"n": 1}])


async def test_nor_is_it_in_the_other_form(tools: Tools, opened: Sandbox) -> None:
    with messages.serving() as wire:
        wire.play([messages.program(WRITE)], too_busy, [messages.text("ok")])
        async with speaking(wire) as client, Executor(tools.all(), sandbox=opened) as executor:
            local, options = anthropic.local(client, executor), {"tools": [CODE], **GIVEN}
            first = await local.messages.create(messages=HELLO, **options)
            assert first.stop_reason == "pause_turn"
            said = {"role": "assistant", "content": [block.to_dict() for block in first.content]}
            again = await local.messages.create(messages=[*HELLO, said], container=first.container.id, **options)
    assert (again.content[0].text, tools.reached, wire.refusals) == ("ok", [{"n": 1}], [])


async def test_a_continuation_that_the_vendor_failed_can_be_sent_again(tools: Tools, opened: Sandbox) -> None:
    both = [code("return await tools.person({ n: 1 })"), code("return 2", 2)]
    with served() as wire:
        wire.play([*both, calls("alone", {}, 3)], overloaded, [says("ok")])
        async with client_of(wire) as client, Executor(tools.all(), sandbox=opened) as executor:
            local = openai.local(client, executor)
            alone = {"type": "function", "name": "alone", "parameters": None, "strict": None}
            given = HOSTED | {"tools": [*HOSTED["tools"], alone]}
            first = await local.responses.create(input="?", **given)
            kind = {"type": "function_call_output", "output": "9"}
            waits = [item for item in first.output if item.type == "function_call"]
            new = [kind | {"call_id": call.call_id} for call in waits]
            with pytest.raises(other_sdk.InternalServerError):
                await local.responses.create(input=new, previous_response_id=first.id, **given)
            again = await local.responses.create(input=new, previous_response_id=first.id, **given)
    assert [item.type for item in again.output] == ["program_output", "program_output", "message"]
    assert [item["output"] for item in wire.requests[2]["input"]] == ["9", "2", "9"]


async def test_so_it_can_in_the_other_form(tools: Tools, opened: Sandbox) -> None:
    both = [messages.program("return await tools.person({ n: 1 })"), messages.program("return 2", "toolu_2")]
    with messages.serving() as wire:
        wire.play(both, too_busy, [messages.text("ok")])
        async with speaking(wire) as client, Executor(tools.all(), sandbox=opened) as executor:
            local, options = anthropic.local(client, executor), {"tools": [CODE], **GIVEN}
            first = await local.messages.create(messages=HELLO, **options)
            said = {"role": "assistant", "content": [block.to_dict() for block in first.content]}
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": "5"}
                for block in first.content
                if block.type == "tool_use"
            ]
            options |= {"messages": [*HELLO, said, {"role": "user", "content": results}]}
            with pytest.raises(sdk.APIStatusError):
                await local.messages.create(container=first.container.id, **options)
            again = await local.messages.create(container=first.container.id, **options)
    assert [block.type for block in again.content] == ["code_execution_tool_result", "text"]
    assert sorted(result["content"] for result in wire.results) == ["2", "5"]
    assert wire.refusals == []


# ---- what an application sets for one request ------------------------------------------------------------------------


class Noted:
    """What came to the vendor beside bodies."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self.inner = inner
        self.seen: list[tuple[Any, ...]] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        timeout = request.extensions["timeout"]["read"]
        self.seen.append((request.headers.get("x-mine"), request.url.params.get("q"), timeout))
        return await self.inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self.inner.aclose()


async def test_headers_query_and_timeout_of_a_request_go_with_every_request_to_the_model(opened: Sandbox) -> None:
    own: dict[str, Any] = {"extra_headers": {"x-mine": "1"}, "extra_query": {"q": "2"}, "timeout": 33}
    noted = Noted(httpx2.AsyncHTTPTransport())
    http = httpx2.AsyncClient(transport=noted)
    with served() as wire, messages.serving() as other:
        wire.play([code("return 1")], [says("one")], [chat_says("two")])
        other.play([messages.program("return 1")], [messages.text("one")])
        async with client_of(wire, http_client=http) as client, Executor([], sandbox=opened) as executor:
            await openai.local(client, executor).responses.create(input="?", **HOSTED, **own)
            await openai.local(client, executor, api="chat").responses.create(input="?", **HOSTED, **own)
            speaker = sdk.AsyncAnthropic(api_key="sk-none", base_url=other.base_url, http_client=http)
            local = anthropic.local(speaker, executor)
            await local.messages.create(messages=HELLO, tools=[CODE], **GIVEN, **own)
    assert noted.seen == [("1", "2", 33)] * 5
    assert (wire.refusals, other.refusals) == ([], [])


def test_a_result_that_the_vendor_would_refuse_the_whole_request_for_is_told_as_too_large() -> None:
    result = finished("x" * (OUTPUT_CHARACTERS + 1))
    said = for_program(Answered(id="1", name="big", text="", failed=False, result=result), declared=False)
    assert said == (
        '{"error":{"code":"too_large","message":"the result has 10,485,761 characters, more than the 10,485,760 that '
        'an output may have","retryable":false,"tool":"big"}}'
    )
