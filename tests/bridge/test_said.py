"""What a result says beside its value: nothing that was dropped, misread or that failed is silent."""

from __future__ import annotations

from typing import cast

import anyio
import pytest

from bridge import Executor, tool
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
