"""What hurt users of comparable software when calls were approved and results given back: what no other file covers.

The ids are those of tests/data/bugs.jsonl; tests/test_bugs.py has the list of all with the tests that cover them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge import Annotations, Approve, Deny, Executor, Policy, Tool, allow, ask, deny
from bridge.approval import ApprovalRequest, digest
from bridge.events import CallFinished, CallStarted
from sandbox import Limits, Sandbox

pytestmark = pytest.mark.anyio

ANY = {"type": "object"}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


class Tools:
    """Every tool echoes; `reached` lists what came to one."""

    def __init__(self) -> None:
        self.reached: list[tuple[str, Any]] = []

    def tool(self, name: str, schema: Any = ANY, **options: Any) -> Tool:
        async def handler(arguments: Any) -> Any:
            self.reached.append((name, arguments))
            return arguments

        return Tool(name=name, input_schema=schema, handler=handler, **options)


@pytest.fixture
def tools() -> Tools:
    return Tools()


# ---- approval ------------------------------------------------------------------------------------------------------


async def test_whoever_decides_gets_the_whole_call_and_all_that_is_known_of_its_tool(
    tools: Tools, opened: Sandbox
) -> None:  # APR-03, SCH-16
    asked: list[ApprovalRequest] = []

    def approver(requests: list[ApprovalRequest]) -> dict[str, Deny]:
        asked.extend(requests)
        return {request.id: Deny() for request in requests}

    hints = Annotations(read_only=True, idempotent=True)
    remove = tools.tool("delete-account", server="crm", annotations=hints, title="Delete", description="For good.")
    command = "x" * 20_000 + "; rm -rf /"
    async with Executor([remove], sandbox=opened, approver=approver) as executor:
        await executor.run("\nawait tools.crm.delete_account({ command: inputs })", inputs=command)
    [request] = asked
    assert (request.arguments, request.arguments_digest) == ({"command": command}, digest({"command": command}))
    assert (request.server, request.tool, request.title) == ("crm", "crm/delete-account", "Delete")
    assert (request.description, request.annotations, request.line) == ("For good.", hints, 2)
    assert request.definition_digest == remove.digest
    assert tools.reached == []


async def test_what_is_approved_for_the_run_covers_no_tool_that_a_rule_denies(
    tools: Tools, opened: Sandbox
) -> None:  # APR-09
    policy = Policy([allow("*"), ask("mail"), deny("wipe"), deny("mail", when=lambda given: given.get("to") == "all")])
    program = """
        const tried = [];
        for (const call of [() => tools.mail({to: "ada"}), () => tools.wipe({}), () => tools.mail({to: "all"})])
            tried.push(await call().then(() => "sent", (error) => error.code));
        return tried;"""
    everything = lambda asked: {each.id: Approve("run") for each in asked}  # noqa: E731
    async with Executor(
        [tools.tool("mail"), tools.tool("wipe")], sandbox=opened, policy=policy, approver=everything
    ) as executor:
        result = await executor.run(program)
    assert result.value == ["sent", "denied", "denied"]
    assert tools.reached == [("mail", {"to": "ada"})]


async def test_a_loop_of_fifty_calls_is_one_question_for_whoever_says_yes_to_the_run(
    tools: Tools, opened: Sandbox
) -> None:  # APR-11
    questions = 0

    def approver(requests: list[ApprovalRequest]) -> dict[str, Approve]:
        nonlocal questions
        questions += 1
        return {request.id: Approve("run") for request in requests}

    program = "for (let id = 0; id < 50; id++) await tools.archive({id})"
    async with Executor(
        [tools.tool("archive")], sandbox=opened, policy=Policy([ask("archive")]), approver=approver
    ) as executor:
        result = await executor.run(program)
    assert (questions, len(tools.reached)) == (1, 50)
    assert [call.decision for call in result.calls] == ["approve", *["ask"] * 49]  # by a person, by what they granted


async def test_after_a_denial_that_stops_no_other_way_is_asked_about(tools: Tools, opened: Sandbox) -> None:  # APR-16
    asked: list[str] = []

    def approver(requests: list[ApprovalRequest]) -> dict[str, Deny]:
        asked.extend(request.tool for request in requests)
        return {request.id: Deny("stop it", stop=True) for request in requests}

    program = 'for (const name of ["a", "b", "c", "d", "e"]) try { await tools[name]({}) } catch {}\nreturn "done"'
    async with Executor(
        [tools.tool(name) for name in "abcde"], sandbox=opened, policy=Policy([ask("*")]), approver=approver
    ) as executor:
        result = await executor.run(program)
    assert result.error is not None
    assert (asked, result.status, result.error.code) == (["a"], "failed", "denied")


# ---- what the model reads ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("return found", " more characters"),
        ("text(found)", " more characters"),
        ("throw found", " more characters"),
        ("throw new Error(found)", " more characters"),
        ("console.log(found)", "[sandbridge] 1 more console line did not fit into log_bytes"),
    ],
)
async def test_a_verbose_tool_fills_no_context_whatever_the_program_does_with_it(
    end: str, said: str, tools: Tools, opened: Sandbox
) -> None:  # OUT-01
    limits = Limits(output_bytes=4096)
    async with Executor([tools.tool("echo")], sandbox=opened) as executor:
        program = f"const found = (await tools.echo({{a: 'x'.repeat(900_000)}})).a; {end}"
        result = await executor.run(program, limits=limits)
    assert len(result.text.encode()) <= 4096
    assert said in result.text


async def test_a_cut_is_said_first_with_the_size_and_the_rest_is_whole_json(opened: Sandbox) -> None:  # OUT-02
    program = "return Array.from({length: 5000}, (_, n) => ({n, text: 'äöü'.repeat(5)}))"
    async with Executor([], sandbox=opened) as executor:
        result = await executor.run(program, limits=Limits(output_bytes=8192))
        assert result.handle is not None
        whole = executor.fetch(result.handle)
    status, cut, value = result.text.split("\n")
    size = len(f"[sandbridge] completed\n{json.dumps(whole, ensure_ascii=False, separators=(',', ':'))}".encode())
    assert status == "[sandbridge] completed, truncated"
    assert cut.startswith(f"[sandbridge] truncated: the whole is {size:,} bytes, the limit 8,192; ")
    assert cut.endswith(f'the host keeps the whole as "{result.handle}"')
    *shown, left_out = json.loads(value)
    assert (shown, left_out) == (whole[: len(shown)], f"... {len(whole) - len(shown):,} more items")


@pytest.mark.parametrize(
    ("end", "value", "said"),
    [
        ("return Math", {}, ""),
        ("return function(){}", None, "no_value"),
        ("return class A {}", None, "lossy_value no_value"),
        ("return globalThis", {"tools": {}}, ""),
        ("const a = {}; a.a = a; return a", {"a": "[Circular]"}, "lossy_value"),
        ("return new Error('x')", {"name": "Error", "message": "x"}, "error_value"),
        ("return Object.create(null)", {}, ""),
        ("return new Proxy({}, {ownKeys() { throw 1 }})", "[Throws: 1]", "lossy_value"),
    ],
)
async def test_whatever_a_program_returns_is_json_by_the_time_the_host_has_it(
    end: str, value: Any, said: str, opened: Sandbox
) -> None:  # OUT-04
    async with Executor([], sandbox=opened) as executor:
        result = await executor.run(end)
    assert (result.status, json.loads(result.to_json())["value"]) == ("completed", value)
    assert [warning.code for warning in result.warnings] == said.split()


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("{a: NaN, b: 1}", "argument.a is NaN, which JSON cannot say: send a finite number or null"),
        ("{a: [1, -1 / 0]}", "argument.a[1] is -Infinity, which JSON cannot say: send a finite number or null"),
        ("{a: {b: 10n}}", "argument.a.b is a BigInt, which JSON cannot say: send String(value) or Number(value)"),
    ],
)
async def test_a_number_that_json_cannot_say_reaches_no_tool(
    argument: str, message: str, tools: Tools, opened: Sandbox
) -> None:  # OUT-06
    async with Executor([tools.tool("add")], sandbox=opened) as executor:
        result = await executor.run(f"return await tools.add({argument})")
    assert result.error is not None
    assert (result.error.name, result.error.message, result.error.line) == ("TypeError", message, 1)
    assert tools.reached == []


async def test_what_json_has_a_form_for_reaches_a_tool_in_that_form(tools: Tools, opened: Sandbox) -> None:  # OUT-06
    async with Executor([tools.tool("add")], sandbox=opened) as executor:
        await executor.run("await tools.add({a: undefined, b: -0, c: [1, , 2], d: new Date(0)})")
    assert tools.reached == [("add", {"b": 0, "c": [1, None, 2], "d": "1970-01-01T00:00:00.000Z"})]


async def test_a_long_id_comes_back_to_a_tool_with_the_same_digits(tools: Tools, opened: Sandbox) -> None:  # OUT-07
    async def get(arguments: Any) -> Any:
        return {"id": 9007199254740993}

    schema = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    found = Tool(name="get", input_schema=ANY, handler=get)
    async with Executor([found, tools.tool("remove", schema)], sandbox=opened) as executor:
        result = await executor.run("const r = await tools.get({}); return await tools.remove({id: r.id})")
    assert tools.reached == [("remove", {"id": 9007199254740993})]
    assert [call.arguments for call in result.calls] == [{}, {"id": 9007199254740993}]
    assert result.value == {"id": "9007199254740993"}


# ---- traces --------------------------------------------------------------------------------------------------------


async def test_every_record_of_a_call_says_whose_it_is_where_and_when(tools: Tools, opened: Sandbox) -> None:  # OAI-04
    events: list[Any] = []
    async with Executor([tools.tool("echo")], sandbox=opened) as executor:
        result = await executor.run("await tools.echo({n: 1});\nawait tools.echo({n: 2});", on_event=events.append)
    rows = [(call.id, call.line, call.started is not None, call.duration_s >= 0) for call in result.calls]
    assert rows == [(f"{result.run_id}.{n}", n, True, True) for n in (1, 2)]
    told = [event for event in events if isinstance(event, (CallStarted, CallFinished))]
    ids = [call.id for call in result.calls]
    assert [(event.run_id, event.parent) for event in told] == [(result.run_id, result.run_id)] * 4
    assert [event.call_id for event in told] == [ids[0], ids[0], ids[1], ids[1]]
