"""This project as a contender."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, Self

import msgspec

from bridge.bench.speed.contender import Contender, Mismatch, children, private_bytes
from bridge.bench.speed.workloads import TOOLS, WORKLOADS, Workload, call_tool, rows_text
from bridge.executor import Executor
from bridge.tools import Tool, ToolContext
from sandbox import Sandbox


class Sandbridge(Contender):
    """An open `Executor`, default limits and policy, one jailed process a program."""

    COLD: Final = """
import asyncio
from bridge import Executor

def add(left: int, right: int) -> int:
    '''Add two numbers.'''
    return left + right

async def main():
    async with Executor([add]) as executor:
        print((await executor.run("return 1+1")).value, flush=True)

asyncio.run(main())
"""

    def __init__(self, name: str = "sandbridge") -> None:
        super().__init__(name)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.sandbox = await self._stack.enter_async_context(Sandbox(jit=self.name.endswith(" jit")))
        tools = [self._tool(name) for name in TOOLS]
        self.executor = await self._stack.enter_async_context(Executor(tools, sandbox=self.sandbox))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def _tool(self, name: str) -> Tool:
        async def handler(arguments: Any, _: ToolContext) -> Any:
            return await call_tool(name, arguments)

        async def as_text(_: Any, __: ToolContext) -> Any:
            return msgspec.Raw(rows_text().encode())

        schema = {"type": "object", "properties": {"id": {"type": "integer"}, "ms": {"type": "number"}}}
        text = self.name.endswith(" text") and name == "rows"
        return Tool(name=name, input_schema=schema, handler=as_text if text else handler)

    async def run(self, workload: Workload) -> Any:
        result = await self.executor.run(workload.javascript)
        if result.status != "completed":
            raise Mismatch(f"{workload.name}: {result.text}")
        return result.value

    def cold(self) -> Sequence[str]:
        return [sys.executable, "-c", self.COLD]

    async def paused_bytes(self, count: int) -> list[float]:
        item = Tool(name="item", input_schema={"type": "object"})  # without a handler: the application answers
        others = children()
        async with Sandbox(spares=0) as sandbox, Executor([item], sandbox=sandbox) as executor:
            runs = [await executor.start(WORKLOADS["W7"].javascript) for _ in range(count)]
            assert [run.status for run in runs] == ["paused"] * count
            (zygote,) = children() - others
            found = [private_bytes(worker) for worker in children(zygote)]
            for run in runs:
                await run.cancel()
            assert len(found) == count
            return found
