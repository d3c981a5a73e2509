"""What a result says beside its value: nothing that was dropped, misread or that failed is silent."""

from __future__ import annotations

import logging
from typing import Any, cast

import anyio
import pytest

from bridge import Approve, Executor, Policy, ask, tool
from sandbox import Sandbox

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@tool
async def echo(a: int = 0) -> int:
    return a


@tool
async def breaks_its_word() -> int:
    return cast("int", "five")


async def said(sandbox: Sandbox, program: str) -> list[tuple[str, str, int | None]]:
    with anyio.fail_after(60):
        async with Executor([echo, breaks_its_word], sandbox=sandbox) as running:
            result = await running.run(program)
    assert result.error is None
    return [(warning.code, warning.message, warning.line) for warning in result.warnings]


LEFT_OUT = "left out: null, undefined and functions tell it nothing, and no callback is called."


@pytest.mark.parametrize("surplus", ["undefined", "null", "() => 1", "function done() {}", "class A {}"])
async def test_an_argument_that_is_no_data_is_left_out_and_said(opened: Sandbox, surplus: str) -> None:
    message = f"echo takes one object: echo({{ a?: number }}). The last argument was {LEFT_OUT}"
    assert await said(opened, f"return await echo({{a: 1}}, {surplus})") == [("positional_arguments", message, 1)]


async def test_an_argument_too_many_that_is_data_is_refused_with_the_signature(opened: Sandbox) -> None:
    async with Executor([echo], sandbox=opened) as running:
        result = await running.run("return await echo({a: 1}, {b: 2})")
    assert result.error is not None
    assert result.error.code == "invalid_arguments"
    assert result.error.message == "echo: takes one object, got 2 arguments. Signature: echo({ a?: number })"


async def test_a_function_that_breaks_its_word_is_said(opened: Sandbox) -> None:
    why = "Input should be a valid integer, unable to parse string as an integer"
    message = f"a reply of breaks_its_word is not what its output schema says: {why}"
    assert await said(opened, "return await breaks_its_word()") == [("output_schema", message, 1)]


# ---- approvers that fail --------------------------------------------------------------------------------------------


def raises(requests: Any) -> Any:
    raise RuntimeError("password=sesame")


async def raises_later(requests: Any) -> Any:
    raise KeyError("r.1")


WAYS = "Approve(), Deny(reason), Edit(arguments), Answer(value) or Defer()"


@pytest.mark.parametrize(
    ("approver", "why"),
    [
        (raises, "RuntimeError; the log has the details"),
        (raises_later, "KeyError; the log has the details"),
        (lambda requests: None, f"verdicts are a mapping from call id to {WAYS}, not NoneType"),
        (lambda requests: True, f"verdicts are a mapping from call id to {WAYS}, not bool"),
        (lambda requests: [Approve()], f"verdicts are a mapping from call id to {WAYS}, not list"),
        (lambda requests: {"x": Approve()}, "no call 'x' waits for a verdict; those that do: {id}"),
        (
            lambda requests: {requests[0].id: Approve},
            f"the verdict on call {{id}} must be {WAYS}, not the class Approve",
        ),
        (lambda requests: {requests[0].id: "yes"}, f"the verdict on call {{id}} must be {WAYS}, not a str"),
    ],
    ids="raises raises_later none bool list unknown class text".split(),
)
async def test_an_approver_that_fails_is_in_the_result_and_the_call_stays_undecided(
    opened: Sandbox, approver: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with anyio.fail_after(60):
        async with Executor([echo], policy=Policy([ask("echo")]), approver=approver, sandbox=opened) as running:
            with caplog.at_level(logging.ERROR, "sandbridge"):
                run = await running.start("return await echo({a: 3})")
            paused = run.paused_result()
            (request,) = paused.approvals
            text = f"the approver failed, so echo stays undecided: {why.format(id=request.id)}"
            assert [(warning.code, warning.message, warning.line) for warning in paused.warnings] == [
                ("approver_failed", text, 1)
            ]
            assert "sesame" not in paused.text
            await run.resume({request.id: Approve()})
    assert run.result is not None
    assert (run.result.value, [warning.message for warning in run.result.warnings]) == (3, [text])
    assert [record.getMessage() for record in caplog.records if record.name == "sandbridge"] == [
        f"the approver failed in run {run.id}: its calls stay undecided"
    ]


async def test_an_approver_that_fails_for_several_calls_says_how_many(opened: Sandbox) -> None:
    async with Executor([echo], policy=Policy([ask("echo")]), approver=raises, sandbox=opened) as running:
        result = await running.run("return await Promise.all([1, 2].map(a => echo({a})))")
    assert [warning.message for warning in result.warnings] == [
        "the approver failed, so 2 call(s) stay undecided: RuntimeError; the log has the details"
    ]
