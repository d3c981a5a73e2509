"""Whatever happens in a loop, in whatever order, the vendor takes the history that is left."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import anyio.from_thread
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai import AsyncOpenAI

from bridge import Answer, Approve, Deny, Edit, Executor, Policy, ToolError, ask, openai
from bridge.code_tool import LoopError
from bridge.openai import chat
from sandbox import Limits, Sandbox
from tests.providers.openai_shop import Tools
from tests.providers.openai_wire import (
    Turn,
    Wire,
    called_by,
    calls,
    chat_calls,
    chat_says,
    program,
    program_output,
    says,
    served,
    thinks,
    writes,
)

TOOLS = ("add", "pay", "person", "fail", "nope")
ARGUMENTS = st.fixed_dictionaries({"a": st.integers(0, 3), "b": st.integers(0, 3)})
ONE = st.tuples(st.sampled_from(TOOLS), ARGUMENTS)
WAVE = st.lists(ONE, min_size=1, max_size=3)
WAVES = st.lists(WAVE, max_size=2)
HOSTED = st.tuples(st.lists(WAVE, min_size=1, max_size=2), st.booleans())  # waves; whether its end is told
CALL = st.one_of(
    st.tuples(st.just("program"), WAVES),
    st.tuples(st.just("direct"), ONE),
    st.tuples(st.just("broken"), st.sampled_from(["{", "[1]", '"return 1"', ""])),
)
TURN = st.tuples(st.lists(CALL, min_size=1, max_size=3), st.booleans())  # the calls of a response; whether it is cut
VERDICTS = st.sampled_from(
    [Approve(), Approve("run"), Deny("no"), Edit({"a": 9, "b": 9}), Answer("x"), ToolError("busy", "later"), "a value"]
)
CHOICES = st.lists(st.tuples(st.integers(0, 5), VERDICTS), max_size=12)


class World:
    """A loop in a thread, an open executor on it, and the vendor."""

    def __init__(self, portal: anyio.from_thread.BlockingPortal, executor: Executor, wire: Wire) -> None:
        self.portal = portal
        self.executor = executor
        self.wire = wire
        self.client = AsyncOpenAI(base_url=wire.base_url, api_key="x", max_retries=0)


@pytest.fixture(scope="module")
def world(portal: anyio.from_thread.BlockingPortal) -> Generator[World]:
    policy = Policy([ask("pay")])
    sandbox = Sandbox(limits=Limits(cpu_s=5, wall_s=30, memory_bytes=64 << 20))
    executor = Executor(Tools().all(), policy=policy, sandbox=sandbox)
    with served() as wire, portal.wrap_async_context_manager(sandbox), portal.wrap_async_context_manager(executor):
        world = World(portal, executor, wire)
        yield world
        portal.call(world.client.close)


def text_of(waves: Any) -> str:
    """A program that makes its calls wave by wave and minds no failure."""
    lines = []
    for wave in waves:
        made = ", ".join(f"tools[{json.dumps(name)}]?.({json.dumps(given)})" for name, given in wave)
        lines.append(f"await Promise.allSettled([{made}]);")
    return "\n".join([*lines, "return 'done'"])


async def decide(conversation: Any, choices: list[Any]) -> Any:
    """Answer what waits as the choices say, in any order and in parts; give up when there are no more."""
    while conversation.status == "paused":
        waits = [*conversation.approvals, *conversation.pending]
        if not choices:
            return await conversation.cancel()
        index, verdict = choices.pop()
        call = waits[index % len(waits)]
        owned = call in conversation.pending
        if owned and isinstance(verdict, (Approve, Edit)):
            verdict = Answer(1)
        elif not owned and isinstance(verdict, str):
            verdict = Deny()
        conversation = await conversation.resume({call.id: verdict})
    return conversation


async def play(world: World, run: Any, choices: list[Any], **options: Any) -> None:
    """Run a loop to whatever end it comes to, and ask one more thing: the vendor must have taken everything."""
    world.wire.refusals.clear()
    world.wire.issued.clear()  # ids are used again: the server has to know only those of this conversation
    try:
        conversation = await run(world.client, world.executor, model="m", direct=True, **options)
        conversation = await decide(conversation, choices)
    except LoopError as error:
        conversation = error.reply
    world.wire.turns[:] = [[says("bye", 99)] if run is openai.run else [chat_says("bye")]]
    assert (await conversation.say("enough")).text == "bye"
    assert world.wire.refusals == []


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(turns=st.lists(TURN, max_size=3), choices=CHOICES, store=st.booleans(), raw=st.booleans(), stream=st.booleans())
def test_programs_and_direct_calls_of_any_kind(
    world: World, turns: Any, choices: Any, store: bool, raw: bool, stream: bool
) -> None:
    script: list[Any] = []
    number = 0
    for made, cut in turns:
        output = [thinks(number)]
        for kind, what in made:
            number += 1
            if kind == "program":
                text = text_of(what)
                output.append(writes(text, number) if raw else calls("run_program", {"program": text}, number))
            elif kind == "direct":
                output.append(calls(what[0], what[1], number))
            else:
                output.append(calls("run_program", what, number))
        script.append(Turn(output, "incomplete", "max_output_tokens") if cut else output)
    world.wire.turns[:] = [*script, [says("end")]]
    world.portal.call(
        lambda: play(
            world, openai.run, list(choices), input="hi", store=store, raw=raw, stream=stream, turns=len(turns) + 1
        )
    )


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(turns=st.lists(HOSTED, max_size=2), choices=CHOICES, store=st.booleans())
def test_waves_of_the_vendors_programs(world: World, turns: Any, choices: Any, store: bool) -> None:
    script: list[Any] = []
    number = 0
    for index, (waves, reported) in enumerate(turns):
        head = [thinks(index), program("the vendor's", index)]
        for wave in waves:
            output = head
            for name, arguments in wave:
                number += 1
                output.append(calls(name, arguments, number, **called_by(index)))
            script.append(output)
            head = []
        script.append([program_output("x", index)] if reported else [])
    world.wire.turns[:] = [*script, [says("end")]]
    world.portal.call(lambda: play(world, openai.run, list(choices), input="hi", store=store, hosted=True))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(turns=st.lists(TURN, max_size=3), choices=CHOICES, stream=st.booleans())
def test_chat_completions(world: World, turns: Any, choices: Any, stream: bool) -> None:
    script: list[Any] = []
    for made, cut in turns:
        found = []
        for number, (kind, what) in enumerate(made):
            if kind == "program":
                found.append(chat_calls("run_program", {"program": text_of(what)}, number))
            elif kind == "direct":
                found.append(chat_calls(what[0], what[1], number))
            else:
                found.append(chat_calls("run_program", what, number))
        message = [chat_says(None, *found)]
        script.append(Turn(message, "incomplete", "length") if cut else message)
    world.wire.turns[:] = [*script, [chat_says("end")]]
    hi = [{"role": "user", "content": "hi"}]
    world.portal.call(lambda: play(world, chat.run, list(choices), messages=hi, stream=stream, turns=len(turns) + 1))
