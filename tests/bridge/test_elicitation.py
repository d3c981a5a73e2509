"""What servers ask of a person: over both revisions, through a real executor."""

from __future__ import annotations

import inspect
import logging
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import mcp_types as types
import pytest

from bridge import Elicitation, ElicitationAnswer, Executor, ToolContext, mcp, tool
from bridge.elicitation import answered
from bridge.mcp.questions import Questions
from bridge.tools import Tool
from sandbox import Limits, Sandbox
from tests.servers.asks import FORM, PAGE

pytestmark = pytest.mark.anyio
SCRIPT = Path(__file__).parent.parent / "servers" / "asks.py"
ELICITATION = "return (await tools.asks.echo({})).said.elicitation"
JUNK = "elicit answered server asks with no answer, which counts as cancel: "
UNFIT = "its content does not fit the requested schema at"
CANCEL = {"action": "cancel", "content": None}
YES = ElicitationAnswer.accept({"ok": True})


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


def asks(words: list[str], **options: Any) -> mcp.Server:
    return mcp.stdio("asks", sys.executable, [str(SCRIPT), *words], require_approval="never", **options)


class Person:
    """Who is asked through the open executors of this module; what `elicit` does is for each test to say."""

    def __init__(self) -> None:
        self.elicit: Any = None

    async def __call__(self, question: Elicitation) -> Any:
        given = self.elicit(question)
        return await given if inspect.isawaitable(given) else given


class Shared(NamedTuple):
    person: Person
    executor: Executor
    server: mcp.Server


@pytest.fixture(scope="module", params=[[], ["--older"]], ids=["2026", "2025"])
async def shared(request: pytest.FixtureRequest, opened: Sandbox) -> AsyncGenerator[Shared]:
    person, server = Person(), asks(request.param)
    async with executor(opened, server, person) as running:
        yield Shared(person, running, server)


@asynccontextmanager
async def executor(sandbox: Sandbox, server: mcp.Server, elicit: Any, **options: Any) -> AsyncGenerator[Executor]:
    async with Executor([server], elicit=elicit, sandbox=sandbox, **options) as running:
        yield running


async def value(running: Executor, program: str, **options: Any) -> Any:
    with anyio.fail_after(60):
        result = await running.run(program, **options)
    assert result.error is None
    return result.value


def saying(answer: Any) -> tuple[list[Elicitation], Callable[[Elicitation], Any]]:
    """A callback that gives this answer, and what it was asked."""
    heard: list[Elicitation] = []

    async def elicit(question: Elicitation) -> Any:
        heard.append(question)
        return answer

    return heard, elicit


# ---- questions and answers ------------------------------------------------------------------------------------------


async def test_a_question_names_its_server_and_its_call_and_the_answer_reaches_the_server(shared: Shared) -> None:
    heard, elicit = saying(ElicitationAnswer.accept({"ok": True, "amount": 2}))
    shared.person.elicit = elicit
    run = await shared.executor.start("return await tools.asks.confirm({})", context={"user": "ada"})
    assert run.result is not None
    assert run.result.value == {"said": [{"action": "accept", "content": {"ok": True, "amount": 2}}]}
    (question,) = heard
    assert (question.server, question.message, question.mode) == ("asks", "Really?", "form")
    assert (question.requested_schema, question.url) == (FORM, None)
    assert (question.run_id, question.call_id) == (run.id, f"{run.id}.1")
    assert (question.tool, question.caller_context) == ("asks/confirm", {"user": "ada"})


@pytest.mark.parametrize("answer", [ElicitationAnswer.decline(), ElicitationAnswer.cancel()], ids=lambda a: a.action)
async def test_a_person_may_decline_or_go_away(shared: Shared, answer: ElicitationAnswer) -> None:
    shared.person.elicit = saying(answer)[1]
    said = await value(shared.executor, "return (await tools.asks.confirm({})).said")
    assert said == [{"action": answer.action, "content": None}]


async def test_several_questions_of_one_call_are_all_asked(shared: Shared) -> None:
    heard, elicit = saying(YES)
    shared.person.elicit = elicit
    said = await value(shared.executor, "return (await tools.asks.twice({})).said")
    assert said == [{"action": "accept", "content": {"ok": True}}] * 2
    assert sorted(question.message for question in heard) == ["One?", "Two?"]


async def test_a_person_is_sent_to_a_page_and_nothing_else_opens_it(shared: Shared) -> None:
    heard, elicit = saying(ElicitationAnswer.accept())
    shared.person.elicit = elicit
    said = await value(shared.executor, "return (await tools.asks.pay({})).said")
    assert said == [{"action": "accept", "content": None}]
    assert [(question.mode, question.url, question.requested_schema) for question in heard] == [("url", PAGE, None)]


async def test_a_call_that_is_refused_until_a_page_was_visited_is_sent_again_after_it(shared: Shared) -> None:
    heard, shared.person.elicit = saying(ElicitationAnswer.accept())
    said = await value(shared.executor, 'return (await tools.asks["page-first"]({key: "a"})).said.arguments')
    assert said == {"key": "a"}
    assert [(question.url, question.tool) for question in heard] == [(PAGE, "asks/page-first")]


async def test_a_call_is_not_sent_again_where_the_person_declines_the_page(shared: Shared) -> None:
    shared.person.elicit = saying(ElicitationAnswer.decline())[1]
    result = await shared.executor.run('return await tools.asks["page-first"]({key: "b"})')
    assert result.error is not None
    assert result.error.message == "server 'asks': go to a page first (code -32042)"


@pytest.mark.parametrize("name", ["lures", "unreadable"])
async def test_what_no_person_can_answer_is_not_asked(shared: Shared, name: str) -> None:
    heard, elicit = saying(ElicitationAnswer.accept())
    shared.person.elicit = elicit
    result = await shared.executor.run(f"return (await tools.asks.{name}({{}})).said")
    if shared.server.revision == "2025-11-25":
        assert result.value == [{"error": -32602}]  # and not -32601, as if it were never to ask
    else:
        assert result.error is not None
    assert (await value(shared.executor, "return await tools.asks.echo({n: 1})"))["said"]["arguments"] == {"n": 1}
    assert heard == []


async def test_the_words_of_a_server_are_shown_escaped_and_indented() -> None:
    question = Elicitation(
        server="a\u202eb", message="\x1b[2Jhi\nserver bank asks:", url="https://x/\u200b", mode="url"
    )
    assert question.lines() == [
        "server a\\u{202e}b asks:",
        "  \\u{1b}[2Jhi",
        "  server bank asks:",
        "  page: https://x/\\u{200b}",
    ]


# ---- nobody to ask --------------------------------------------------------------------------------------------------


async def test_a_server_is_told_that_it_may_ask(shared: Shared) -> None:
    assert await value(shared.executor, ELICITATION) == {"form": {}, "url": {}}


async def test_a_server_is_told_that_there_is_nobody_and_goes_without(opened: Sandbox) -> None:
    async with executor(opened, asks(["--older"]), None) as running:
        assert await value(running, ELICITATION) is None
        assert await value(running, "return (await tools.asks.confirm({})).said") == [{"error": -32601}]
    async with executor(opened, asks([]), None) as running:
        assert await value(running, ELICITATION) is None
        result = await running.run("return await tools.asks.confirm({})")
        assert result.error is not None
        assert result.error.message == (
            "asks/confirm asks a person before it goes on, and there is nobody to ask (elicit is not set)"
        )


async def test_a_question_is_no_approval(opened: Sandbox) -> None:
    heard, elicit = saying(YES)
    server = mcp.stdio("asks", sys.executable, [str(SCRIPT)])
    async with executor(opened, server, elicit) as running:
        result = await running.run("return await tools.asks.confirm({})")
        assert result.status == "paused"
        assert [request.tool for request in result.approvals] == ["asks/confirm"]
        assert heard == []


# ---- callbacks that fail --------------------------------------------------------------------------------------------


def raises(question: Elicitation) -> Any:
    raise RuntimeError("no screen")


async def exits(question: Elicitation) -> Any:
    sys.exit(3)


async def is_cancelled_inside(question: Elicitation) -> Any:
    stray: list[BaseException] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.lowlevel.checkpoint()
        except BaseException as error:
            stray.append(error)
            raise
    raise stray[0]


@pytest.mark.parametrize(
    ("elicit", "logged"),
    [
        (raises, "elicit failed for a question of server asks: it counts as cancel"),
        (exits, "elicit failed for a question of server asks: it counts as cancel"),
        (is_cancelled_inside, "elicit was cancelled for a question of server asks: it counts as cancel"),
        (saying(True)[1], "it must be an ElicitationAnswer, not a bool"),
        (saying(ElicitationAnswer)[1], "it must be an ElicitationAnswer, not the class ElicitationAnswer"),
        (saying(ElicitationAnswer.accept({"ok": "secret"}))[1], f"{UNFIT} /ok"),
        (saying(ElicitationAnswer.accept())[1], f"{UNFIT} the top"),
        (saying(ElicitationAnswer.accept({"ok": {"a": 1}}))[1], f"{UNFIT} /ok"),
        (saying(ElicitationAnswer.accept({"ok": True, "x": float("nan")}))[1], f"{UNFIT} /x"),
    ],
    ids="raises exits cancelled bool class type missing nested nan".split(),
)
async def test_a_callback_that_fails_counts_as_cancel_and_is_logged(
    elicit: Any, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    question = Elicitation(server="asks", message="Really?", requested_schema=FORM)
    with caplog.at_level(logging.ERROR, "sandbridge"):
        assert await answered(elicit, question) == ElicitationAnswer.cancel()
    (record,) = caplog.records
    assert record.getMessage().removeprefix(JUNK) == logged


@pytest.mark.parametrize(
    "elicit", [raises, exits, is_cancelled_inside, saying(3)[1]], ids="raises exits cancelled junk".split()
)
async def test_a_callback_that_fails_leaves_the_session_as_it_is(shared: Shared, elicit: Any) -> None:
    shared.person.elicit = elicit
    assert await value(shared.executor, "return (await tools.asks.confirm({})).said") == [CANCEL]
    assert (await value(shared.executor, "return await tools.asks.echo({n: 1})"))["said"]["arguments"] == {"n": 1}


async def test_a_callback_that_is_no_function_stops_construction() -> None:
    with pytest.raises(TypeError, match=r"^Executor\(elicit=\) takes a function of one Elicitation, not a str$"):
        Executor([], elicit="yes")  # what is tested


def test_an_answer_that_contradicts_itself_stops_construction() -> None:
    with pytest.raises(ValueError, match=r"^ElicitationAnswer.action must be accept, decline or cancel, not 'yes'$"):
        ElicitationAnswer("yes")  # what is tested
    with pytest.raises(ValueError, match=r"^ElicitationAnswer: only accept has content, decline has none$"):
        ElicitationAnswer("decline", {"ok": True})


async def test_a_synchronous_callback_may_block() -> None:
    loop, threads = threading.get_ident(), set[int]()

    def elicit(question: Elicitation) -> ElicitationAnswer:
        threads.add(threading.get_ident())
        return YES

    assert await answered(elicit, Elicitation(server="asks", message="Really?", requested_schema=FORM)) == YES
    assert threads.isdisjoint({loop})


async def test_half_characters_reach_no_wire(shared: Shared) -> None:
    shared.person.elicit = saying(ElicitationAnswer.accept({"ok": True, "x": "a\ud800"}))[1]
    said = await value(shared.executor, "return (await tools.asks.confirm({})).said")
    assert said == [CANCEL]


# ---- which call it is -----------------------------------------------------------------------------------------------

BOTH = "return await Promise.all([1, 2].map(n => tools.asks.confirm({message: `for ${n}`})))"


async def test_of_calls_made_together_each_question_names_its_own(shared: Shared) -> None:
    heard, elicit = saying(YES)
    shared.person.elicit = elicit
    run = await shared.executor.start(BOTH)
    assert sorted((question.message, question.call_id) for question in heard) == [
        ("for 1", f"{run.id}.1"),
        ("for 2", f"{run.id}.2"),
    ]


THREE = "return await Promise.all([0.1, 0.1, 0.1].map(seconds => tools.asks.wait({seconds})))"


async def test_calls_of_the_older_revision_go_one_by_one_once_somebody_was_asked(shared: Shared) -> None:
    shared.person.elicit = saying(YES)[1]
    await value(shared.executor, "return await tools.asks.confirm({})")
    most = max(each["said"]["most"] for each in await value(shared.executor, THREE))
    assert most == (1 if shared.server.revision < "2026" else 3)


async def test_a_question_with_several_calls_in_flight_names_their_run_and_none_of_them(opened: Sandbox) -> None:
    both, heard = anyio.Event(), list[Elicitation]()

    async def elicit(question: Elicitation) -> ElicitationAnswer:
        heard.append(question)
        if len(heard) == 2:
            both.set()
        await both.wait()
        return YES

    async with executor(opened, asks(["--older"], max_concurrent=2), elicit) as running:
        await value(running, BOTH)
        assert max(each["said"]["most"] for each in await value(running, THREE)) == 2
    assert [(question.call_id, question.tool) for question in heard] == [(None, None)] * 2
    assert len({question.run_id for question in heard} - {None}) == 1


async def test_a_question_is_taken_back_when_its_call_ends(shared: Shared) -> None:
    asked, gone = anyio.Event(), anyio.Event()

    async def elicit(question: Elicitation) -> ElicitationAnswer:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            gone.set()
        raise AssertionError("unreachable")

    shared.person.elicit = elicit
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shared.executor.run, "return await tools.asks.confirm({})")
            await asked.wait()
            tasks.cancel_scope.cancel()
        await gone.wait()
    assert (await value(shared.executor, "return await tools.asks.echo({n: 1})"))["said"]["arguments"] == {"n": 1}


async def test_a_question_is_taken_back_by_itself_where_its_server_forgets_it() -> None:
    asked, gone = anyio.Event(), anyio.Event()

    async def elicit(question: Elicitation) -> ElicitationAnswer:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            gone.set()
        raise AssertionError("unreachable")

    questions = Questions("asks", elicit, print, in_turn=False)
    params = types.ElicitRequestFormParams(message="Really?", requested_schema=FORM)
    context = ToolContext(run_id="r", call_id="r.1", idempotency_key="r.1")
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            async with questions.during(Tool(name="confirm", server="asks"), context, modern=False) as call:
                tasks.start_soon(questions.ask, params, call)
                await asked.wait()
            await gone.wait()


# ---- time -----------------------------------------------------------------------------------------------------------


async def test_the_time_a_person_thinks_counts_neither_for_the_call_nor_for_the_run(shared: Shared) -> None:
    async def elicit(question: Elicitation) -> ElicitationAnswer:
        await anyio.sleep(1.2)
        return YES

    limits = Limits(wall_s=1, call_s=0.6)
    shared.person.elicit = elicit
    said = await value(shared.executor, f"{BOTH}", limits=limits)
    assert [each["said"][0]["action"] for each in said] == ["accept", "accept"]


async def test_a_person_who_never_answers_is_waited_for_no_longer_than_expires_s(shared: Shared) -> None:
    async def elicit(question: Elicitation) -> ElicitationAnswer:
        await anyio.sleep_forever()
        raise AssertionError("unreachable")

    shared.person.elicit = elicit
    said = await value(shared.executor, "return (await tools.asks.confirm({})).said", limits=Limits(expires_s=0.3))
    assert said == [CANCEL]


async def test_the_deadline_of_a_call_goes_on_after_the_answer(opened: Sandbox) -> None:
    @tool
    async def slow(context: ToolContext) -> str:
        with context.on_hold():
            await anyio.sleep(0.5)
        await anyio.sleep_forever()
        raise AssertionError("unreachable")

    with anyio.fail_after(30):
        async with Executor([slow], sandbox=opened) as running:
            result = await running.run("return await slow({})", limits=Limits(call_s=0.3))
    assert [row.outcome for row in result.calls] == ["timeout"]


async def test_a_tool_may_put_its_own_call_on_hold_and_hears_when_patience_ends(opened: Sandbox) -> None:
    @tool
    async def asks_somebody(context: ToolContext) -> str:
        with context.on_hold():
            await anyio.sleep_forever()
        return "nobody came"

    with anyio.fail_after(30):
        async with Executor([asks_somebody], sandbox=opened) as running:
            limits = Limits(call_s=0.2, wall_s=0.5, expires_s=0.6)
            result = await running.run("return await asks_somebody({})", limits=limits)
    assert result.value == "nobody came"
