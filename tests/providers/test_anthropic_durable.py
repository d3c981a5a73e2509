"""A paused conversation that goes on in another process: nothing is run twice, and the vendor takes the transcript."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anthropic as sdk
import anyio
import pytest
from anthropic import AsyncAnthropic

from bridge import Approve, Deny, Executor, Policy, StateError, anthropic, ask
from sandbox import Sandbox
from tests.bridge.scripted import Tools
from tests.providers.anthropic_application import CODE, QUERY
from tests.providers.anthropic_shop import HELLO, client, wire
from tests.providers.anthropic_wire import Block, Wire, call, hosted_program, hosted_result, program, text

__all__ = ["client", "wire"]

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
KEY = "0123456789abcdef0123456789abcdef"
GIVEN: dict[str, Any] = {"model": "m", "max_tokens": 100, "direct": True}
POLICY = Policy([ask("write")])
ELSEWHERE = """
import sys
import anyio
from anthropic import AsyncAnthropic
from bridge import Approve, Executor, Policy, anthropic, ask
from tests.bridge.scripted import Tools

async def main(url, store, state):
    tools = Tools()
    async with (
        Executor(tools.all(), policy=Policy([ask("write")]), store=store) as executor,
        AsyncAnthropic(api_key="none", base_url=url, max_retries=0) as client,
    ):
        conversation = await anthropic.load(client, executor, state, model="m", max_tokens=100, direct=True)
        answers = {request.id: Approve() for request in conversation.approvals}
        await conversation.resume(answers | {call.id: "Ada" for call in conversation.pending})
        print(conversation.text, tools.reached)

anyio.run(main, *sys.argv[1:])
"""


def mixed() -> list[Block]:
    """Everything that a response may hold: what waits, what has ended, and what never began."""
    return [
        text("so"),
        program("const a = await tools.read({ n: 1 }); return [a, await tools.write({ n: 2 })]", "toolu_1"),
        program("return 3", "toolu_2"),
        call("person", {"n": 4}, "toolu_3"),
        call("read", {"n": 5}, "toolu_4"),
        call("nope", {}, "toolu_5"),
    ]


ANSWERS = [
    '[sandbridge] completed; 2 calls\n[{"n":1},{"wrote":{"n":2}}]',
    "[sandbridge] completed\n3",
    "Ada",
    '{"n":5}',
]


def ready() -> Tools:
    tools = Tools()
    tools.go.set()
    return tools


async def test_a_conversation_goes_on_in_another_process_by_its_store(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox, tmp_path: Path
) -> None:
    wire.play(mixed(), [text("done")])
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    tools = ready()
    async with Executor(tools.all(), sandbox=opened, policy=POLICY, store=store) as executor:
        conversation = await anthropic.run(client, executor, messages=HELLO, **GIVEN)
        assert conversation.status == "paused"
        state = conversation.dump()
    command = [sys.executable, "-c", ELSEWHERE, wire.base_url, store, state]
    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=ROOT, check=False)
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == "done [{'n': 2}]\n"  # the reads of the first process are not repeated
    assert sorted(each["n"] for each in tools.reached) == [1, 5]
    said = [block["content"] for block in wire.results]
    assert said[:4] == ANSWERS
    assert said[4].startswith("[sandbridge] error unknown_tool: ")


async def test_without_a_store_the_key_vouches_for_the_runs(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox
) -> None:
    wire.play(mixed(), [text("done")], [text("and on")])
    async with Executor(ready().all(), sandbox=opened, policy=POLICY, key=KEY) as executor:
        state = (await anthropic.run(client, executor, messages=HELLO, **GIVEN)).dump()
    tools = ready()
    async with Executor(tools.all(), sandbox=opened, policy=POLICY, key=KEY) as executor:
        conversation = await anthropic.load(client, executor, state, turns=2, **GIVEN)
        assert conversation.messages == HELLO
        [request], [pending] = conversation.approvals, conversation.pending
        assert (request.arguments, pending.arguments) == ({"n": 2}, {"n": 4})
        await conversation.resume({request.id: Approve(), pending.id: "Ada"})
        assert (conversation.text, conversation.turns) == ("done", 2)
        await conversation.say("more?")
    assert conversation.text == "and on"
    assert [block["content"] for block in wire.requests[1]["messages"][-1]["content"]][:4] == ANSWERS
    async with Executor(ready().all(), sandbox=opened, policy=POLICY, key="f" * 32) as other:
        with pytest.raises(StateError):
            await anthropic.load(client, other, state, **GIVEN)


async def test_a_state_with_a_store_works_once(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox, tmp_path: Path
) -> None:
    wire.play([program("return await tools.write({ n: 1 })")], [text("done")])
    tools = ready()
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    async with Executor(tools.all(), sandbox=opened, policy=POLICY, store=store) as executor:
        state = (await anthropic.run(client, executor, messages=HELLO, **GIVEN)).dump()
        first = await anthropic.load(client, executor, state, **GIVEN)
        with pytest.raises(StateError):
            await anthropic.load(client, executor, state, **GIVEN)
        await first.resume({first.approvals[0].id: Deny("no")})
    assert (first.text, tools.reached) == ("done", [])


async def test_a_program_of_the_vendor_finds_its_container_again(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox
) -> None:
    given = {**GIVEN, "hosted": True, "direct": False}
    wire.play([hosted_program("..."), call("write", {"n": 1}, "toolu_1", "srvtoolu_1")])
    wire.play([call("write", {"n": 2}, "toolu_2", "srvtoolu_1")], [hosted_result("ok"), text("done")])
    async with Executor(ready().all(), sandbox=opened, policy=POLICY, key=KEY) as executor:
        state = (await anthropic.run(client, executor, messages=HELLO, **given)).dump()
    async with Executor(ready().all(), sandbox=opened, policy=POLICY, key=KEY) as executor:
        conversation = await anthropic.load(client, executor, state, **given)
        while conversation.status == "paused":
            await conversation.resume({request.id: Approve() for request in conversation.approvals})
    assert conversation.text == "done"
    assert [request.get("container") for request in wire.requests] == [None, "container_2", "container_2"]
    assert wire.results[0]["content"] == '{"wrote":{"n":2}}'


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("nonsense", "this is no state of a conversation: give what Conversation.dump() returned"),
        ("[1]", "this is no state of a conversation: give what Conversation.dump() returned"),
        (json.dumps({"version": 9}), "this state has version 9, and only 1 is known here"),
    ],
)
async def test_what_is_no_state_is_told_in_words(
    client: AsyncAnthropic, opened: Sandbox, state: str, message: str
) -> None:
    async with Executor(ready().all(), sandbox=opened) as executor:
        with pytest.raises(StateError) as refused:
            await anthropic.load(client, executor, state, **GIVEN)
    assert str(refused.value) == message


async def test_only_a_paused_conversation_of_an_executor_with_a_store_or_key_can_be_put_away(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox
) -> None:
    wire.play([program("return await tools.write({ n: 1 })")], [text("done")])
    async with Executor(ready().all(), sandbox=opened, policy=POLICY) as executor:
        conversation = await anthropic.run(client, executor, messages=HELLO, **GIVEN)
        with pytest.raises(StateError):
            conversation.dump()
        await conversation.resume({conversation.approvals[0].id: Approve()})
        with pytest.raises(StateError) as refused:
            conversation.dump()
    assert str(refused.value) == "the conversation is finished: only a paused one can be resumed, cancelled or dumped"


async def test_a_program_of_the_hosted_form_served_here_goes_on_in_another_process_by_its_store(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox, tmp_path: Path
) -> None:
    code = "const a = await tools.query({sql: 'a'}); const b = await tools.query({sql: 'b'}); return a + b"
    wire.play([program(code, "toolu_1"), program("return 3", "toolu_2"), call("by_itself", {}, "toolu_3")])
    wire.play([text("done")])
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    by_itself = {"name": "by_itself", "input_schema": {"type": "object"}}
    given: Any = {"model": "m", "max_tokens": 9, "tools": [CODE, QUERY, by_itself]}
    async with Executor([], sandbox=opened, store=store) as executor:
        reply = await anthropic.local(client, executor).messages.create(messages=HELLO, **given)
    messages: list[Any] = HELLO[:]
    for answer in ("12", "34"):  # each in an executor of its own
        said = [block.to_dict() for block in reply.content]
        waits = [block["id"] for block in said if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": each, "content": answer} for each in waits]
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": results}]
        async with Executor([], sandbox=opened, store=store) as executor:
            local, options = anthropic.local(client, executor), {"container": reply.container.id, **given}
            if answer == "12":
                few = [*messages[:-1], {"role": "user", "content": results[:1]}]
                with pytest.raises(sdk.BadRequestError, match="a tool_result is needed for every pending call"):
                    await local.messages.create(messages=few, **options)
            reply = await local.messages.create(messages=messages, **options)
    assert [block.type for block in reply.content] == ["code_execution_tool_result", "text"]
    assert sorted(result["content"] for result in wire.results) == ["12", "1234", "3"]
    assert {result["tool_use_id"] for result in wire.results} == {"toolu_1", "toolu_2", "toolu_3"}


async def test_the_same_failure_again_and_again_is_counted_over_pauses(
    wire: Wire, client: AsyncAnthropic, opened: Sandbox
) -> None:
    worse = "await tools.person({ n: 1 }); throw new Error('no')"
    wire.play(*([program(worse, f"toolu_{number}")] for number in (1, 2, 3)))
    async with Executor(Tools().all(), sandbox=opened, key=KEY) as executor:
        talk = await anthropic.run(client, executor, messages=HELLO, **GIVEN)
        for _ in range(2):
            talk = await anthropic.load(client, executor, talk.dump(), **GIVEN)
            await talk.resume({talk.pending[0].id: 1})
        talk = await anthropic.load(client, executor, talk.dump(), **GIVEN)
        with pytest.raises(anthropic.RepeatedFailure, match="the model failed 3 times in the same way"):
            await talk.resume({talk.pending[0].id: 1})
    assert len(wire.requests) == 3
