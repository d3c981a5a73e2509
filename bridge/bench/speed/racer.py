"""mini-racer as a contender, used as its README shows."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from importlib import import_module
from typing import Any, Final

from bridge.bench.speed.contender import Contender, private_bytes
from bridge.bench.speed.workloads import WORKLOADS, Workload, call_tool, rows_text


class MiniRacer(Contender):
    """In this process: no walls, no limits, an isolate a program."""

    COLD: Final = """
from py_mini_racer import MiniRacer
print(MiniRacer().eval("1+1"), flush=True)
"""
    PRELUDE: Final = """
const tools = new Proxy({}, { get: (_, tool) => async given =>
  JSON.parse(await call(tool, JSON.stringify(given))) });
"""

    def __init__(self, name: str = "mini-racer") -> None:
        super().__init__(name)
        self._text = name.endswith(" text")

    async def run(self, workload: Workload) -> Any:
        async def call(tool: Any, given: Any) -> str:
            if self._text and tool == "rows":
                return rows_text()
            return json.dumps(await call_tool(tool, json.loads(given)))

        with _racer() as racer:
            if "tools" not in workload.javascript:
                return json.loads(str(racer.eval(f"JSON.stringify((() => {{{workload.javascript}}})())")))
            async with racer.wrap_py_function(call) as function:
                racer.eval("globalThis")["call"] = function
                program = (
                    f"{self.PRELUDE}(async () => JSON.stringify(await (async () => {{{workload.javascript}}})()))()"
                )
                return json.loads(await racer.eval(program))

    def cold(self) -> Sequence[str]:
        return [sys.executable, "-c", self.COLD]

    async def paused_bytes(self, count: int) -> list[float]:
        async with AsyncExitStack() as stack:
            found: list[float] = []
            for _ in range(count + 1):  # the first also brings V8 in
                before = private_bytes("self")
                waiting = asyncio.Event()

                async def call(_: Any, __: Any, waiting: asyncio.Event = waiting) -> str:
                    waiting.set()
                    await asyncio.Event().wait()
                    return ""

                racer = stack.enter_context(_racer())
                racer.eval("globalThis")["call"] = await stack.enter_async_context(racer.wrap_py_function(call))
                racer.eval(f"{self.PRELUDE}(async () => {{{WORKLOADS['W7'].javascript}}})(); 0")
                await waiting.wait()
                found.append(private_bytes("self") - before)
            return found[1:]


def _racer() -> Any:
    return import_module("py_mini_racer").MiniRacer()
