"""QuickJS as a contender, in two packages: quickjs-ng as an extension module, quickjs-rs inside WebAssembly."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import Any, Final

from bridge.bench.speed.contender import Contender, Mismatch, private_bytes
from bridge.bench.speed.workloads import WORKLOADS, Workload, call_tool


class QuickJSNG(Contender):
    """quickjs-ng in this process: no walls, a context a program; the package knows no await, so that glue drives it."""

    COLD: Final = """
import quickjs
print(quickjs.Context().eval("1+1"), flush=True)
"""
    PRELUDE: Final = """
var waiting = [], ended, failed;
const tools = new Proxy({}, { get: (_, tool) => given =>
  new Promise(settle => call(waiting.push(settle) - 1, tool, JSON.stringify(given))) });
function reply(id, text) { waiting[id](JSON.parse(text)); }
"""

    def __init__(self, name: str = "quickjs-ng") -> None:
        super().__init__(name)

    async def run(self, workload: Workload) -> Any:
        context, made = self._started(workload)
        reply = context.get("reply")
        while context.get("ended") is None and context.get("failed") is None:
            if not made:
                raise Mismatch(f"{workload.name}: {self.name} waits for nothing")
            asked = [asyncio.ensure_future(_served(*each)) for each in made]
            made.clear()
            for done in asyncio.as_completed(asked):
                number, text = await done
                reply(number, text)
            _drained(context)
        if context.get("failed") is not None:
            raise Mismatch(f"{workload.name}: {self.name}: {context.get('failed')}")
        return json.loads(context.get("ended"))

    def _started(self, workload: Workload) -> tuple[Any, list[tuple[int, str, str]]]:
        """A fresh context in which the program has run as far as it can, and the calls that it made."""
        context = import_module("quickjs").Context()
        made: list[tuple[int, str, str]] = []

        def call(number: int, tool: str, given: str) -> None:
            made.append((number, tool, given))

        context.add_callable("call", call)
        context.eval(
            f"{self.PRELUDE}(async () => {{{workload.javascript}}})()"
            ".then(value => { ended = JSON.stringify(value) }, error => { failed = String(error) }); 0"
        )
        _drained(context)
        return context, made

    def cold(self) -> Sequence[str]:
        return [sys.executable, "-c", self.COLD]

    async def paused_bytes(self, count: int) -> list[float]:
        kept = [self._started(WORKLOADS["W7"])]  # the first also brings the engine in
        before = private_bytes("self")
        kept += [self._started(WORKLOADS["W7"]) for _ in range(count)]
        return [(private_bytes("self") - before) / count]  # one alone is less than a page of the allocator


def _drained(context: Any) -> None:
    while context.execute_pending_job():
        pass


async def _served(number: int, tool: str, given: str) -> tuple[int, str]:
    return number, json.dumps(await call_tool(tool, json.loads(given)))


class QuickJSRS(Contender):
    """quickjs-rs in this process: the engine inside WebAssembly, a runtime and context a program."""

    COLD: Final = """
from quickjs_rs import Runtime
with Runtime() as runtime, runtime.new_context() as context:
    print(context.eval("1+1"), flush=True)
"""
    PRELUDE: Final = """
const tools = new Proxy({}, { get: (_, tool) => async given =>
  JSON.parse(await call(tool, JSON.stringify(given))) });
"""

    def __init__(self, name: str = "quickjs-rs") -> None:
        super().__init__(name)

    async def run(self, workload: Workload) -> Any:
        async def call(tool: str, given: str) -> str:
            return json.dumps(await call_tool(tool, json.loads(given)))

        with ExitStack() as stack:
            context = _context(stack)
            context.register("call", call, is_async=True)
            program = f"{self.PRELUDE}JSON.stringify(await (async () => {{{workload.javascript}}})())"
            return json.loads(await context.eval_async(program))

    def cold(self) -> Sequence[str]:
        return [sys.executable, "-c", self.COLD]

    async def paused_bytes(self, count: int) -> list[float]:
        found: list[float] = []
        paused: list[asyncio.Task[Any]] = []
        with ExitStack() as stack:
            for _ in range(count + 1):  # the first also compiles the engine
                before = private_bytes("self")
                waiting = asyncio.Event()

                async def call(_: str, __: str, waiting: asyncio.Event = waiting) -> str:
                    waiting.set()
                    await asyncio.Event().wait()
                    return ""

                context = _context(stack)
                context.register("call", call, is_async=True)
                program = f"{self.PRELUDE}await (async () => {{{WORKLOADS['W7'].javascript}}})()"
                paused.append(asyncio.create_task(context.eval_async(program)))
                await waiting.wait()
                found.append(private_bytes("self") - before)
            for task in paused:
                task.cancel()
            await asyncio.gather(*paused, return_exceptions=True)
        return found[1:]


def _context(stack: ExitStack) -> Any:
    runtime = stack.enter_context(import_module("quickjs_rs").Runtime())
    return stack.enter_context(runtime.new_context(timeout=60))
