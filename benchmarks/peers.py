"""What a user would pick instead: pydantic-monty, mini-racer as its README shows it, a `node -e` process a program."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, Self

from benchmarks.contender import ROOT, Contender, Mismatch, children, private_bytes
from benchmarks.workloads import WORKLOADS, Workload, call_tool, rows_text

LINE_BYTES: Final = 1 << 24  # a line of JSON in a pipe; asyncio would stop at 64 KiB


# ---- pydantic-monty ------------------------------------------------------------------------------------------------


class Monty(Contender):
    """A pool of monty's processes; a fresh session for each program."""

    COLD: Final = """
import asyncio
from pydantic_monty import AsyncMonty

async def main():
    async with AsyncMonty() as pool, pool.checkout() as session:
        print(await session.feed_run("1+1"), flush=True)

asyncio.run(main())
"""

    def __init__(self, *, text: bool = False) -> None:
        super().__init__("monty" + " text" * text)
        self._text = text

    async def __aenter__(self) -> Self:
        from pydantic_monty import AsyncMonty

        self._pool = AsyncMonty(max_processes=200)  # its default, the cores, would let W8 wait 10 s
        await self._pool.__aenter__()

        async def item(number: int) -> Any:
            return await call_tool("item", {"id": number})

        async def nap(ms: float, number: int) -> Any:
            return await call_tool("nap", {"ms": ms, "id": number})

        async def rows() -> Any:
            return rows_text() if self._text else await call_tool("rows", {})

        self._lookup = {"item": item, "nap": nap, "rows": rows}
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.__aexit__(None, None, None)

    async def run(self, workload: Workload) -> Any:
        program = workload.python
        if self._text:
            program = "import json\n" + program.replace("await rows()", "json.loads(await rows())")
        async with self._pool.checkout() as session:
            return await session.feed_run(program, external_lookup=self._lookup)

    def cold(self) -> Sequence[str]:
        return [sys.executable, "-c", self.COLD]

    async def paused_bytes(self, count: int) -> list[float]:
        from pydantic_monty import AsyncMonty

        waiting, go_on = asyncio.Semaphore(0), asyncio.Event()

        async def item(_: int) -> None:
            waiting.release()
            await go_on.wait()

        others = children()
        async with AsyncMonty(max_processes=count) as pool:

            async def pause() -> None:
                async with pool.checkout() as session:
                    await session.feed_run(WORKLOADS["W7"].python, external_lookup={"item": item})

            async with asyncio.TaskGroup() as tasks:
                for _ in range(count):
                    tasks.create_task(pause())
                for _ in range(count):
                    await waiting.acquire()
                found = [private_bytes(pid) for pid in children() - others]
                go_on.set()
        assert len(found) == count
        return found


# ---- mini-racer ----------------------------------------------------------------------------------------------------


class MiniRacerHere(Contender):
    """mini-racer as its README shows it, in this process: no walls, no limits, an isolate a program."""

    COLD: Final = """
from py_mini_racer import MiniRacer
print(MiniRacer().eval("1+1"), flush=True)
"""
    PRELUDE: Final = """
const tools = new Proxy({}, { get: (_, tool) => async given =>
  JSON.parse(await call(tool, JSON.stringify(given))) });
"""

    def __init__(self, *, text: bool = False) -> None:
        super().__init__("mini-racer" + " text" * text)
        self._text = text

    async def run(self, workload: Workload) -> Any:
        from py_mini_racer import MiniRacer

        async def call(tool: Any, given: Any) -> str:
            if self._text and tool == "rows":
                return rows_text()
            return json.dumps(await call_tool(tool, json.loads(given)))

        with MiniRacer() as racer:
            if "tools" not in workload.javascript:
                return json.loads(str(racer.eval(f"JSON.stringify((() => {{{workload.javascript}}})())")))
            async with racer.wrap_py_function(call) as function:
                realm: Any = racer.eval("globalThis")
                realm["call"] = function
                program = (
                    f"{self.PRELUDE}(async () => JSON.stringify(await (async () => {{{workload.javascript}}})()))()"
                )
                promise: Any = racer.eval(program)
                return json.loads(await promise)

    def cold(self) -> Sequence[str]:
        return [sys.executable, "-c", self.COLD]

    async def paused_bytes(self, count: int) -> list[float]:
        from py_mini_racer import MiniRacer

        async with AsyncExitStack() as stack:
            found: list[float] = []
            for _ in range(count + 1):  # the first also brings V8 in
                before = private_bytes("self")
                waiting = asyncio.Event()

                async def call(_: Any, __: Any, waiting: asyncio.Event = waiting) -> str:
                    waiting.set()
                    await asyncio.Event().wait()
                    return ""

                racer = stack.enter_context(MiniRacer())
                realm: Any = racer.eval("globalThis")
                realm["call"] = await stack.enter_async_context(racer.wrap_py_function(call))
                racer.eval(f"{self.PRELUDE}(async () => {{{WORKLOADS['W7'].javascript}}})(); 0")
                await waiting.wait()
                found.append(private_bytes("self") - before)
            return found[1:]


class MiniRacer(Contender):
    """`MiniRacerHere` in a process of its own (V8 is initialised once a process), timed there."""

    def __init__(self, *, text: bool = False) -> None:
        super().__init__("mini-racer" + " text" * text)

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.naive", self.name),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def measure(self, workload: Workload, count: int) -> list[float]:
        if workload.name == "W1":
            return await super().measure(workload, count)
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{workload.name} {count}\n".encode())
        line = await stdout.readline()
        if not line:
            raise Mismatch(f"{workload.name}: the process of {self.name} ended")
        answer = json.loads(line)
        if isinstance(answer, str):
            raise Mismatch(answer)
        return answer

    async def run(self, workload: Workload) -> Any:
        raise NotImplementedError("timed in its own process: measure it")

    def cold(self) -> Sequence[str]:
        return MiniRacerHere().cold()

    async def paused_bytes(self, count: int) -> list[float]:
        raise NotImplementedError("read in its own process: measure it")


# ---- node ----------------------------------------------------------------------------------------------------------


class Node(Contender):
    """A `node -e` process a program, tool calls as lines of JSON over its pipes: no walls, no limits."""

    PRELUDE: Final = """
const waiting = []; let left = '';
process.stdin.setEncoding('utf8').on('data', piece => {
  left += piece;
  for (let end; (end = left.indexOf('\\n')) >= 0; left = left.slice(end + 1)) {
    const reply = JSON.parse(left.slice(0, end)); waiting[reply.id](reply.value);
  }
});
const say = message => process.stdout.write(JSON.stringify(message) + '\\n');
const tools = new Proxy({}, { get: (_, tool) => given =>
  new Promise(settle => say({ id: waiting.push(settle) - 1, tool, given })) });
"""

    def __init__(self) -> None:
        super().__init__("node")

    def _command(self, workload: Workload) -> list[str]:
        body = (
            f"(async () => {{{workload.javascript}}})().then(value => {{ say({{ value }}); process.stdin.destroy() }})"
        )
        return ["node", "-e", self.PRELUDE + body]

    async def run(self, workload: Workload) -> Any:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self._command(workload), stdin=pipe, stdout=pipe, limit=LINE_BYTES
        )
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        async def serve(message: dict[str, Any]) -> None:
            value = await call_tool(message["tool"], message["given"])
            stdin.write(json.dumps({"id": message["id"], "value": value}).encode() + b"\n")

        async with asyncio.TaskGroup() as tasks:
            while "value" not in (message := json.loads(await stdout.readline())):
                tasks.create_task(serve(message))
        stdin.close()
        await process.wait()
        return message["value"]

    def cold(self) -> Sequence[str]:
        return ["node", "-e", "console.log(1+1)"]

    async def paused_bytes(self, count: int) -> list[float]:
        found: list[float] = []
        for _ in range(count):
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(*self._command(WORKLOADS["W7"]), stdin=pipe, stdout=pipe)
            assert process.stdout is not None
            await process.stdout.readline()  # its call: from here on it waits
            found.append(private_bytes(process.pid))
            process.kill()
            await process.communicate()
        return found
