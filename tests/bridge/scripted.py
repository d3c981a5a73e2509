"""Tools whose every move a test decides."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import msgspec

from bridge import Annotations, Tool, ToolContext, ToolError

OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}


class Tools:
    """`write` counts what reaches it; `person` is client-owned; the rest fails or waits in its own way."""

    def __init__(self) -> None:
        self.reached: list[Any] = []
        self.contexts: list[ToolContext] = []
        self.cancelled = 0
        self.now = self.most = 0
        self.go = anyio.Event()
        self.began = anyio.Event()

    async def write(self, arguments: Any, context: ToolContext) -> Any:
        self.reached.append(arguments)
        self.contexts.append(context)
        return {"wrote": arguments}

    async def hang(self, arguments: Any, context: ToolContext) -> Any:
        self.reached.append(arguments)
        self.began.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise

    async def gate(self, arguments: Any, context: ToolContext) -> Any:
        self.reached.append(arguments)
        self.now += 1
        self.most = max(self.most, self.now)
        self.began.set()
        await self.go.wait()
        self.now -= 1
        return arguments

    async def boom(self, arguments: Any, context: ToolContext) -> Any:
        raise RuntimeError("/secret/path password=1")

    async def leave(self, arguments: Any, context: ToolContext) -> Any:
        raise SystemExit(3)

    async def refuse(self, arguments: Any, context: ToolContext) -> Any:
        await anyio.lowlevel.checkpoint()
        raise ToolError("EMPTY", "nothing there", retryable=True, details={"left": 0})

    async def big(self, arguments: Any, context: ToolContext) -> Any:
        return "x" * arguments["n"]

    async def ids(self, arguments: Any, context: ToolContext) -> Any:
        return msgspec.Raw(b'{"id":9007199254740993,"small":7,"half":"\\ud800"}')

    async def garbage(self, arguments: Any, context: ToolContext) -> Any:
        return msgspec.Raw(b'{"id":')

    def all(self) -> list[Tool]:
        names = "write hang gate boom leave refuse big ids garbage".split()
        return [Tool(name=name, input_schema=OBJECT, handler=getattr(self, name)) for name in names] + [
            Tool(name="read", input_schema=OBJECT, handler=self.gate, annotations=Annotations(read_only=True)),
            Tool(name="person", input_schema=OBJECT),
        ]
