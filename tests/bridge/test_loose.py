"""What nobody waits for is said: async functions, promises used as text, functions given to tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from bridge import Executor, Policy, Tool, allow
from sandbox import Sandbox
from tests.bridge.conftest import opened

__all__ = ["opened"]
pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def executor(opened: Sandbox) -> AsyncGenerator[Executor]:
    async def item(arguments: dict[str, object], _: object) -> object:
        return {"name": "lamp", **arguments}

    async with Executor(
        [Tool(name="item", input_schema={"type": "object"}, handler=item)],
        policy=Policy([allow("item")]),
        sandbox=opened,
    ) as executor:
        yield executor


def warnings_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("[sandbridge] warning missing_await")]


@pytest.mark.parametrize(
    ("program", "line", "said"),
    [
        ("(async () => { throw new Error('lost') })();\nreturn 1", 1, "this async function"),
        ("async function save() { await tools.item({}); }\nsave();\nreturn 1", 2, "`save`"),
        ("const save = async () => { throw 1 };\nsave();\nreturn 1", 2, "`save`"),
        ("const save = (async function () {});\nif (inputs) { } else {\nsave();\n}\nreturn 1", 3, "`save`"),
        ("[1].forEach(async (id) => { await tools.item({ id }) });\nreturn 1", 1, "forEach() does not wait"),
    ],
)
async def test_an_async_function_that_nobody_waits_for_is_named_with_its_line(
    executor: Executor, program: str, line: int, said: str
) -> None:
    result = await executor.run(program)
    (warning,) = warnings_of(result.text)
    assert f"(line {line})" in warning
    assert said in warning


@pytest.mark.parametrize(
    "program",
    [
        "async function save() { return 1 }\nawait save();\nreturn 1",
        "async function save() { return 1 }\nsave()",  # the last statement is the value, and waited for
        "save();\nasync function save() { return 1 }",
        "function plain() {}\nplain();\n[1].forEach((x) => x);\n(() => {})();\nreturn 1",
        "async function save() { return 1 }\nconst saved = save();\nreturn await saved",
        "async function save() { return 1 }\nreturn await Promise.all([save()])",
    ],
)
async def test_what_is_waited_for_is_not_warned_about(executor: Executor, program: str) -> None:
    result = await executor.run(program)
    assert (result.status, result.value) == ("completed", result.value)
    assert warnings_of(result.text) == []


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("'got ' + tools.item({})", "got [object Promise]"),
        ("`${tools.item({})}`", "[object Promise]"),
        ("String(tools.item({}))", "[object Promise]"),
        ("[tools.item({})].join()", None),
        ("Number(tools.item({}))", None),
    ],
)
async def test_a_promise_used_as_text_or_number_is_said(executor: Executor, expression: str, value: str | None) -> None:
    result = await executor.run(f"const said = {expression};\nreturn typeof said === 'string' ? said : 'a number'")
    assert any("(line 1): a promise was used as" in line for line in warnings_of(result.text)), result.text
    assert value is None or result.value == value


async def test_a_function_is_no_argument_of_a_tool(executor: Executor) -> None:
    result = await executor.run("return await tools.item(() => 1)")
    assert result.status == "failed"
    assert "a tool cannot be given a function" in result.text
    assert not result.calls
