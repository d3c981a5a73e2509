"""Whatever programs, people and limits do, in whichever order: the transcript is one that the vendor takes."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import ExitStack
from typing import Any

import anyio.from_thread
import pytest
from anthropic import AsyncAnthropic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge import Answer, Approve, Defer, Deny, Edit, Executor, Policy, Tool, ToolError, anthropic, ask
from bridge import deny as forbid
from sandbox import Limits, Sandbox
from tests.bridge.scripted import Tools
from tests.providers.anthropic_application import CODE, QUERY, Application
from tests.providers.anthropic_rules import check_messages, programs
from tests.providers.anthropic_wire import (
    Block,
    Turn,
    Wire,
    call,
    hosted_program,
    hosted_result,
    program,
    serving,
    text,
)

LIMITS = Limits(cpu_s=5, wall_s=30, memory_bytes=64 << 20, calls=6)
PROGRAMS = [
    "return 1",
    "return await tools.write({ n: 1 })",
    "return await Promise.all([tools.write({ n: 1 }), tools.person({ n: 2 }), tools.read({ n: 3 })])",
    "try { await tools.write({ n: 1 }) } catch (e) { return [e.code, await tools.person({ n: 2 })] }",
    "const a = await tools.person({ n: 1 }); return await tools.person({ n: a.n ?? 0 })",
    "for (let n = 0; n < 9; n++) await tools.read({ n })",
    "throw new Error('no')",
    "await new Promise(() => {})",
    "const = ;",
    "return tools.refuse({})",
]
DIRECT = [
    ("write", {"n": 1}),
    ("person", {"n": 2}),
    ("read", {"n": 3}),
    ("refuse", {}),
    ("write", {"x": 1}),
    ("nope", {}),
    ("search_tools", {"query": "later"}),
    ("search_tools", {}),
]
VERDICTS = [Approve(), Approve("run"), Deny("no"), Deny("stop", stop=True), Edit({"n": 9}), Answer({"n": 4}), Defer()]
ANSWERS = [{"n": 5}, "text", None, Answer(1), Deny("no"), ToolError("BUSY", "later")]

use = st.one_of(
    st.sampled_from(PROGRAMS).map(lambda code: ("program", code)),
    st.sampled_from(DIRECT).map(lambda pair: ("call", pair)),
    st.sampled_from([{}, {"program": 1}, {"code": "return 2"}]).map(lambda given: ("odd", given)),
)
turns = st.lists(
    st.tuples(
        st.lists(use, min_size=1, max_size=3),
        st.sampled_from(["", "", "", "max_tokens", "pause_turn", "refusal"]),
    ),
    min_size=1,
    max_size=3,
)
decisions = st.lists(st.tuples(st.booleans(), st.sampled_from(VERDICTS), st.sampled_from(ANSWERS)), max_size=12)


@pytest.fixture(scope="module")
def world(
    portal: anyio.from_thread.BlockingPortal,
) -> Generator[tuple[anyio.from_thread.BlockingPortal, Wire, AsyncAnthropic, Sandbox]]:
    with ExitStack() as stack:
        wire = stack.enter_context(serving())
        sandbox = stack.enter_context(portal.wrap_async_context_manager(Sandbox(limits=LIMITS)))
        client = portal.call(lambda: AsyncAnthropic(api_key="none", base_url=wire.base_url, max_retries=0))
        stack.enter_context(portal.wrap_async_context_manager(client))
        yield portal, wire, client, sandbox


def ready() -> list[Tool]:
    """The tools; those that can be made to wait do not."""
    tools = Tools()
    tools.go.set()
    return [*tools.all(), Tool(name="later", description="Found by a search.", defer=True)]


class Scripted:
    """Turns as blocks, with ids that no other turn has."""

    def __init__(self) -> None:
        self.number = 0

    def fresh(self) -> str:
        self.number += 1
        return f"toolu_{self.number}"

    def blocks(self, uses: list[tuple[str, Any]], parent: str | None = None) -> list[Block]:
        return [self.block(kind, given, parent) for kind, given in uses]

    def block(self, kind: str, given: Any, parent: str | None) -> Block:
        if parent is not None:
            return call(*(given if kind == "call" else ("write", {"n": 7})), self.fresh(), parent)
        if kind == "program":
            return program(given, self.fresh())
        if kind == "call":
            return call(*given, self.fresh())
        if kind == "search":
            return call("search_tools", given, self.fresh())
        return {**program("", self.fresh()), "input": given}


async def to_the_end(conversation: anthropic.Conversation, choices: list[tuple[bool, Any, Any]]) -> None:
    """Go on with whatever was chosen, in whatever portions, until it is finished."""
    while conversation.status == "paused":
        given: dict[str, Any] = {}
        for waiting in [*conversation.approvals, *conversation.pending]:
            later, verdict, answer = choices.pop(0) if choices else (False, Deny(), None)
            if not later or not given:
                given[waiting.id] = verdict if waiting in conversation.approvals else answer
        if not choices and any(isinstance(verdict, Defer) for verdict in given.values()):
            await conversation.cancel()
            await conversation.say("never mind")
        else:
            await conversation.resume(given)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=turns, choices=decisions, stream=st.booleans(), forbidden=st.booleans())
def test_any_course_of_programs_leaves_a_transcript_that_the_vendor_takes(
    world: Any, turns: list[Any], choices: list[Any], stream: bool, forbidden: bool
) -> None:
    portal, wire, client, sandbox = world
    script = Scripted()
    wire.turns.clear()
    for uses, stop in turns:
        wire.play(Turn(script.blocks(uses), stop))
    wire.play(*[[text("done")]] * 9)
    policy = Policy([forbid("read") if forbidden else ask("read"), ask("write")])

    async def course() -> anthropic.Conversation:
        async with Executor(ready(), sandbox=sandbox, policy=policy, limits=LIMITS) as executor:
            messages = [{"role": "user", "content": "hi"}]
            conversation = await anthropic.run(
                client, executor, model="m", max_tokens=9, messages=messages, direct=True, stream=stream
            )
            await to_the_end(conversation, list(choices))
            await conversation.say("and?")
            await to_the_end(conversation, [])
            return conversation

    try:
        conversation = portal.call(course)
    except anthropic.RepeatedFailure as ended:
        conversation = ended.reply
    assert wire.refusals == []
    assert conversation.status in ("finished", "ready")


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(waves=turns, choices=decisions, stream=st.booleans())
def test_any_course_of_the_vendors_programs_leaves_one_too(
    world: Any, waves: list[Any], choices: list[Any], stream: bool
) -> None:
    portal, wire, client, sandbox = world
    script = Scripted()
    parent = f"srvtoolu_{id(script)}"
    wire.turns.clear()
    for number, (uses, _) in enumerate(waves):
        begin = [hosted_program("...", parent)] if not number else []
        wire.play([*begin, *script.blocks(uses, parent)])
    wire.play([hosted_result("", parent), text("done")], *[[text("done")]] * 9)

    async def course() -> anthropic.Conversation:
        policy = Policy([ask("write"), ask("read")])
        async with Executor(ready(), sandbox=sandbox, policy=policy, limits=LIMITS) as executor:
            messages = [{"role": "user", "content": "hi"}]
            conversation = await anthropic.run(
                client, executor, model="m", max_tokens=9, messages=messages, hosted=True, stream=stream
            )
            await to_the_end(conversation, list(choices))
            return conversation

    try:
        conversation = portal.call(course)
    except anthropic.RepeatedFailure as ended:
        conversation = ended.reply
    assert wire.refusals == []
    assert conversation.status in ("finished", "ready")


QUERIES = [
    "return 1",
    "return await tools.query({ sql: 'a' })",
    "return await Promise.all(['a', 'b'].map((sql) => tools.query({ sql })))",
    "try { await tools.query({ sql: 'bad' }) } catch (e) { return await tools.query({ sql: e.code }) }",
    "return [await tools.write({ n: 1 }), await tools.query({ sql: 'c' })]",
    "await tools.query({ sql: 'd' }); throw new Error('no')",
    "tools.query({ sql: 'left behind' }); return 2",
    "await new Promise(() => {})",
    "const = ;",
]
PLAIN: Block = {"name": "plain", "input_schema": {"type": "object"}}
asked = st.one_of(
    st.sampled_from(QUERIES).map(lambda code: ("program", code)),
    st.sampled_from([("call", ("plain", {})), ("search", {"query": "later"}), ("search", {"odd": 1})]),
    st.sampled_from([{}, {"code": "return 2"}]).map(lambda given: ("odd", given)),
)
exchanges = st.lists(
    st.tuples(st.lists(asked, max_size=3), st.sampled_from(["", "", "", "max_tokens", "refusal"])), max_size=4
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said=exchanges, stream=st.booleans(), asks=st.booleans())
def test_any_course_of_the_hosted_form_is_sound_for_the_application_and_for_the_model(
    world: Any, said: list[Any], stream: bool, asks: bool
) -> None:
    portal, wire, client, sandbox = world
    script = Scripted()
    wire.turns.clear()
    for uses, stop in said:
        own = any(kind == "call" for kind, _ in uses)  # cut off, these would be the application's to mend
        wire.play(Turn([text("so"), *script.blocks(uses)], "" if own else stop))
    wire.play(*[[text("done")]] * 9)

    def answer(call: Any) -> Any:
        return {"is_error": True, "content": "bad"} if call.input.get("sql") == "bad" else json.dumps([call.input])

    async def course() -> Application:
        policy = Policy([ask("write")] if asks else [])
        async with Executor(ready(), sandbox=sandbox, policy=policy, limits=LIMITS) as executor:
            local = anthropic.local(client, executor)
            application = Application(local, [CODE, QUERY, PLAIN], answer, stream=stream)
            await application.ask("go")
            await application.ask("and?")
            return application

    application = portal.call(course)
    assert wire.refusals == []
    check_messages(application.messages, {})
    assert programs(application.messages) == {}
