"""Steps of the gate that stand behind others: each is seen only where those before it let a call through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge import Annotations, Approve, Executor, Policy, StateError, Tool, ToolContext, ToolError, ask
from bridge.approval import ApprovalRequest, Verdict
from bridge.gate import DETAILS_BYTES, may_send_again, read_only
from sandbox import Sandbox
from tests.bridge.scripted import OBJECT, Tools

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # decisions know no event loop


async def test_an_approver_that_changes_what_it_is_shown_changes_nothing_that_is_sent(
    tools: Tools, opened: Sandbox
) -> None:
    def approver(requests: list[ApprovalRequest]) -> Mapping[str, Verdict]:
        for request in requests:
            request.arguments["n"] = 99
        return {request.id: Approve() for request in requests}

    policy = Policy([ask("write")])
    async with Executor(tools.all(), policy=policy, approver=approver, sandbox=opened) as executor:
        result = await executor.run("return await tools.write({ n: 1 })")
    assert (tools.reached, result.value) == ([{"n": 1}], {"wrote": {"n": 1}})


@pytest.mark.parametrize("code", ["denied", "expired", "unknown_tool", "invalid_arguments", "limit", "cancelled"])
async def test_a_tool_cannot_say_what_only_the_host_says(code: str, opened: Sandbox) -> None:
    async def speak(_: Any, __: ToolContext) -> Any:
        raise ToolError(code, "said the tool", details="x" * DETAILS_BYTES)  # and no data as details of an error

    async with Executor([Tool(name="speak", input_schema=OBJECT, handler=speak)], sandbox=opened) as executor:
        result = await executor.run("try { await tools.speak({}) } catch (e) { return [e.code, e.message, e.details] }")
    assert result.value == ["failed", "said the tool", None]


@pytest.mark.parametrize("trusted", [True, False])
def test_a_server_is_believed_that_a_call_is_harmless_only_where_it_is_trusted(trusted: bool) -> None:
    hints = Annotations(read_only=True, idempotent=True, trusted=trusted)
    tool = Tool(name="get", server="shop", input_schema=OBJECT, annotations=hints)
    again = Tool(
        name="put", server="shop", input_schema=OBJECT, annotations=Annotations(idempotent=True, trusted=trusted)
    )
    assert (read_only(tool), may_send_again(tool), may_send_again(again)) == (trusted,) * 3


async def test_a_run_in_a_store_is_for_the_executors_of_its_audience(
    tools: Tools, opened: Sandbox, tmp_path: Path
) -> None:
    store, policy = f"sqlite:///{tmp_path}/runs.db", Policy([ask("write")])
    async with Executor(tools.all(), policy=policy, sandbox=opened, store=store, audience="one") as first:
        run = await first.start("return await tools.write({ n: 1 })")
        assert run.status == "paused"
    async with Executor(tools.all(), policy=policy, sandbox=opened, store=store, audience="two") as second:
        with pytest.raises(StateError, match=f"^run {run.id} is for 'one', and this executor is 'two'$"):
            await second.load(run.id)


async def test_a_tool_that_changed_since_the_run_began_is_asked_about_though_policy_allows_it(
    tools: Tools, opened: Sandbox
) -> None:
    changed = [replace(tool, description="by now another") if tool.name == "write" else tool for tool in tools.all()]
    async with Executor(tools.all(), sandbox=opened, key="k" * 40) as first:
        run = await first.start(
            "await tools.write({ n: 1 }); await tools.person({ n: 1 }); return await tools.write({ n: 2 })"
        )
        state = run.dump()
    async with Executor(changed, sandbox=opened, key="k" * 40) as second:
        run = await second.load(state)
        await run.resume({run.pending[0].id: 1})
        assert ([request.tool for request in run.approvals], tools.reached) == (["write"], [{"n": 1}])
        assert run.approvals[0].definition_changed
