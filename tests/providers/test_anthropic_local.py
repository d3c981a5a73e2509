"""The hosted form of programmatic calls, served here: an application written for it changes one line."""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio
import pytest
from anthropic import Anthropic, AsyncAnthropic

from bridge import Executor, Policy, anthropic, ask, mcp
from sandbox import Sandbox
from tests.bridge.scripted import Tools
from tests.providers.anthropic_application import CODE, QUERY, Application, said
from tests.providers.anthropic_rules import programs
from tests.providers.anthropic_shop import client, wire
from tests.providers.anthropic_wire import Turn, Wire, call, hosted_program, hosted_result, program, text
from tests.test_examples import SHOP, WORST

__all__ = ["client", "wire"]

pytestmark = pytest.mark.anyio

TWO_WAVES = """
const found = await Promise.all(["a", "b"].map((sql) => tools.query({ sql })));
const more = await tools.query({ sql: "c" + found.length });
text("so");
return [...found, more];
"""


# ---- the same as the hosted service ----------------------------------------------------------------------------------


async def test_an_application_for_the_hosted_service_gets_the_same_blocks_in_the_same_order(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox, stream: bool
) -> None:
    parent = {"parent": "srvtoolu_1"}
    wire.play(
        [text("I look."), hosted_program("..."), *(call("query", {"sql": s}, f"toolu_{s}", **parent) for s in "ab")]
    )
    wire.play([call("query", {"sql": "c2"}, "toolu_c", **parent)], [hosted_result("so"), text("Three.")])
    hosted = Application(client, [CODE, QUERY], stream=stream)
    await hosted.ask("how many?")

    wire.play([text("I look."), program(TWO_WAVES)], [text("Three.")])
    async with Executor([], sandbox=opened) as executor:
        local = Application(anthropic.local(client, executor), [CODE, QUERY], stream=stream)
        response = await local.ask("how many?")
    assert local.kinds == hosted.kinds
    assert local.stops == hosted.stops
    assert said(response) == "Three."
    assert local.container is not None
    assert response.container.expires_at.tzinfo is not None
    done = response.content[0]
    assert (done.content.return_code, done.content.stderr) == (0, "")
    assert done.content.stdout == 'so\n[[{"sql":"a"}],[{"sql":"b"}],[{"sql":"c2"}]]'
    nested = local.messages[1]["content"]
    assert nested[1]["input"] == {"code": TWO_WAVES}
    assert nested[2]["caller"] == {"type": "code_execution_20260120", "tool_id": nested[1]["id"]}
    assert programs(local.messages) == {}


async def test_the_model_sees_one_code_tool_and_nothing_of_the_calls(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox
) -> None:
    wire.play([text("I look."), program(TWO_WAVES)], [text("Three.")], [text("Yes.")])
    both = {**QUERY, "name": "both", "allowed_callers": ["direct", "code_execution_20260521"]}
    plain = {"name": "plain", "input_schema": {"type": "object"}}
    async with Executor([], sandbox=opened) as executor:
        application = Application(anthropic.local(client, executor), [CODE, QUERY, both, plain])
        await application.ask("how many?", tool_choice={"type": "tool", "name": "code_execution"})
        await application.ask("sure?")
    assert [tool["name"] for tool in wire.tools] == ["run_program", "both", "plain"]
    description = wire.tools[0]["description"]
    assert [f"  {name}(" in description for name in ("query", "both", "plain")] == [True, True, False]
    assert "allowed_callers" not in json.dumps(wire.requests)
    assert "container" not in wire.requests[-1]
    assert [request.get("tool_choice") for request in wire.requests] == [
        {"type": "tool", "name": "run_program"},
        None,
        None,
    ]
    [_, asked, answered, final, _] = wire.requests[-1]["messages"]
    assert asked["content"] == [text("I look."), program(TWO_WAVES)]
    assert answered["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": "toolu_1",
            "content": 'so\n[[{"sql":"a"}],[{"sql":"b"}],[{"sql":"c2"}]]',
        }
    ]
    assert final["content"] == [text("Three.")]


async def test_a_synchronous_application_works_as_well(wire: Wire) -> None:
    wire.play([program("return await tools.query({ sql: 'a' })")], [text("done")])

    def application() -> Any:
        with (
            Executor([]) as executor,
            Anthropic(api_key="none", base_url=wire.base_url, max_retries=0) as upstream,
            anthropic.local(upstream, executor) as client,
        ):
            given: dict[str, Any] = {"model": "m", "max_tokens": 10, "tools": [CODE, QUERY]}
            first = client.messages.create(messages=[{"role": "user", "content": "hi"}], **given)
            result = {"type": "tool_result", "tool_use_id": first.content[-1].id, "content": "7"}
            messages: list[Any] = [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": first.content},
                {"role": "user", "content": [result]},
            ]
            assert first.container is not None
            with client.messages.stream(messages=messages, container=first.container.id, **given) as stream:
                return stream.get_final_message()

    response = await anyio.to_thread.run_sync(application)
    assert response.content[0].content.stdout == "7"
    assert response.content[1].text == "done"


# ---- what programs and models do -------------------------------------------------------------------------------------


async def test_tools_of_the_executor_are_called_beside_those_of_the_application(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox
) -> None:
    tools = Tools()
    wire.play([program("return [await tools.write({ n: 1 }), await tools.query({ sql: 'a' })]")], [text("ok")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        application = Application(anthropic.local(client, executor), [CODE, QUERY])
        response = await application.ask("go")
    assert tools.reached == [{"n": 1}]
    assert response.content[0].content.stdout == '[{"wrote":{"n":1}},[{"sql":"a"}]]'
    assert application.kinds[0] == ["server_tool_use", "tool_use"]


async def test_a_program_that_needs_nobody_ends_within_the_same_response(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox
) -> None:
    wire.play([text("a"), program("return 1", "toolu_1")], [program("return 2", "toolu_2")], [text("b")])
    async with Executor([], sandbox=opened) as executor:
        application = Application(anthropic.local(client, executor), [CODE, QUERY])
        response = await application.ask("go")
    pair = ["server_tool_use", "code_execution_tool_result"]
    assert application.kinds == [["text", *pair, *pair, "text"]]
    assert response.usage.input_tokens == 300


async def test_failures_of_a_program_are_told_in_stderr(wire: Wire, client: AsyncAnthropic, opened: Sandbox) -> None:
    wire.play([program("const a = ;", "toolu_1"), {**program("", "toolu_2"), "input": {}}], [text("hm")])
    async with Executor([], sandbox=opened) as executor:
        response = await Application(anthropic.local(client, executor), [CODE, QUERY]).ask("go")
    first, second = (block.content for block in response.content if block.type == "code_execution_tool_result")
    assert (first.stdout, first.return_code) == ("", 1)
    assert first.stderr.startswith("[sandbridge] failed\n[sandbridge] error syntax_error at line 1")
    assert second.stderr.startswith("[sandbridge] error invalid_arguments: run_program takes")
    assert wire.results[0] == {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": first.stderr,
        "is_error": True,
    }


async def test_an_error_of_the_application_is_one_that_the_program_can_catch(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox
) -> None:
    wire.play(
        [program("try { await tools.query({ sql: '' }) } catch (e) { return [e.code, e.message] }")], [text("ok")]
    )
    async with Executor([], sandbox=opened) as executor:
        application = Application(
            anthropic.local(client, executor),
            [CODE, QUERY],
            lambda _: {"is_error": True, "content": [{"type": "text", "text": "no such table"}]},
        )
        response = await application.ask("go")
    assert response.content[0].content.stdout.split("\n")[0] == '["failed","no such table"]'


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ('{"a":1}', "object"),
        (" [1]", "object"),
        ("12", "string"),
        ("", "string"),
        ("{no", "string"),
        ("null", "string"),
    ],
)
async def test_text_that_is_json_is_parsed_where_it_is_an_object_or_a_list(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox, given: str, kind: str
) -> None:
    wire.play([program("return typeof await tools.query({ sql: '' })")], [text("ok")])
    async with Executor([], sandbox=opened) as executor:
        application = Application(anthropic.local(client, executor), [CODE, QUERY], lambda _: given)
        response = await application.ask("go")
    assert response.content[0].content.stdout == kind


async def test_calls_of_the_model_and_of_its_program_are_answered_together(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox
) -> None:
    plain = {"name": "plain", "input_schema": {"type": "object"}}
    code = "await tools.query({ sql: 'a' }); return await tools.query({ sql: 'b' })"  # the second wave is its own
    wire.play([program(code), call("plain", {}, "toolu_2")], [text("ok")])
    async with Executor([], sandbox=opened) as executor:
        application = Application(anthropic.local(client, executor), [CODE, QUERY, plain])
        response = await application.ask("go")
    assert application.kinds[0] == ["server_tool_use", "tool_use", "tool_use"]
    assert application.messages[1]["content"][1]["caller"] == {"type": "direct"}
    assert sorted(block["tool_use_id"] for block in wire.results) == ["toolu_1", "toolu_2"]
    assert said(response) == "ok"


async def test_a_response_that_was_cut_off_runs_nothing(wire: Wire, client: AsyncAnthropic, opened: Sandbox) -> None:
    tools = Tools()
    wire.play(Turn([text("so"), program("return await tools.write({ n: 1 })")], "max_tokens"), [text("again")])
    async with Executor(tools.all(), sandbox=opened) as executor:
        application = Application(anthropic.local(client, executor), [CODE, QUERY])
        response = await application.ask("go")
        assert response.stop_reason == "max_tokens"
        assert response.content[-1].content.stderr == (
            "[sandbridge] error limit: not carried out: the response was cut off before its end (max_tokens)"
        )
        await application.ask("go on")
    assert tools.reached == []


async def test_a_long_row_of_programs_pauses_the_turn_as_the_vendor_does(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox
) -> None:
    wire.play(*([program(f"return {n}", f"toolu_{n}")] for n in range(12)), [text("at last")])
    async with Executor([], sandbox=opened) as executor:
        application = Application(anthropic.local(client, executor), [CODE, QUERY])
        response = await application.ask("go")
    assert application.stops == ["pause_turn", "end_turn"]
    assert said(response) == "at last"


async def test_what_would_have_to_be_approved_is_denied_where_nobody_can_be_asked(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox
) -> None:
    tools = Tools()
    code = "try { await tools.write({ n: 1 }) } catch (e) { return [e.code, await tools.query({ sql: e.code })] }"
    wire.play([program(code)], [text("ok")])
    async with Executor(tools.all(), sandbox=opened, policy=Policy([ask("write")])) as executor:
        response = await Application(anthropic.local(client, executor), [CODE, QUERY]).ask("go")
    assert response.content[0].content.stdout.split("\n")[0] == '["denied",[{"sql":"denied"}]]'
    assert tools.reached == []


async def test_a_request_without_code_execution_goes_through_unchanged(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox, stream: bool
) -> None:
    plain = {"name": "plain", "input_schema": {"type": "object"}}
    wire.play([call("plain", {}, "toolu_1")], [text("ok")])
    async with Executor([], sandbox=opened) as executor:
        application = Application(anthropic.local(client, executor), [plain], stream=stream)
        assert said(await application.ask("go", system="s")) == "ok"
    assert wire.requests[0]["tools"] == [plain]
    assert wire.requests[0]["system"] == "s"
    assert wire.requests[1]["messages"] == application.messages[:3]


# ---- the main job ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "anyio_backend", ["asyncio"], indirect=True, scope="module"
)  # what it adds is no matter of loops
async def test_the_shop_gives_the_same_answer_in_the_hosted_form(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox
) -> None:
    code = (SHOP / "late_orders.js").read_text("utf-8")
    shop = mcp.stdio("shop", sys.executable, [str(SHOP / "server.py")], require_approval="never")
    goodwill = {
        "name": "goodwill",
        "input_schema": {
            "type": "object",
            "properties": {"total": {"type": "number"}, "days_late": {"type": "integer"}},
            "required": ["total", "days_late"],
        },
        "allowed_callers": ["code_execution_20260120"],
    }

    def owed(call: Any) -> str:
        total, days = call.input["total"], call.input["days_late"]
        return str(round(min(total * 0.02 * (days - 1), total * 0.15), 2))

    wire.play([program(code)], [text("done")])
    async with Executor([shop], sandbox=opened) as executor:
        response = await Application(anthropic.local(client, executor), [CODE, goodwill], owed).ask("which are late?")
    found = json.loads(response.content[0].content.stdout.split("\n")[0])
    assert [row["order"] for row in found["worst"]] == [row[0] for row in WORST]
