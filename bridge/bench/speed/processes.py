"""node and deno as contenders: a process a program, tool calls as lines of JSON over its pipes."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from bridge.bench.speed.contender import Contender, environment, private_bytes
from bridge.bench.speed.workloads import WORKLOADS, Workload, call_tool

LINE_BYTES: Final = 1 << 24  # a line of JSON in a pipe; asyncio would stop at 64 KiB


class Node(Contender):
    """A `node -e` process a program: no walls, no limits."""

    PRELUDE: ClassVar = """
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

    def __init__(self, name: str = "node", binary: str = "node") -> None:
        super().__init__(name)
        self._binary = binary

    def _words(self, text: str) -> list[str]:
        return [self._binary, "-e", text]

    def _command(self, workload: Workload) -> list[str]:
        body = (
            f"(async () => {{{workload.javascript}}})().then(value => {{ say({{ value }}); process.stdin.destroy() }})"
        )
        return self._words(self.PRELUDE + body)

    async def run(self, workload: Workload) -> Any:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self._command(workload), stdin=pipe, stdout=pipe, limit=LINE_BYTES, env=environment()
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
        return self._words("console.log(1+1)")

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


class Deno(Node):
    """A `deno run` process a program: deno's own walls, which deny files and network where nothing is granted."""

    PRELUDE: ClassVar = f"import process from 'node:process';{Node.PRELUDE}"

    def __init__(self, binary: str) -> None:
        super().__init__("deno", binary)

    def _words(self, text: str) -> list[str]:
        module = f"data:application/javascript;base64,{base64.b64encode(text.encode()).decode()}"
        return [self._binary, "run", "--quiet", "--no-config", "--no-lock", "--no-prompt", module]
