"""pydantic-monty as a contender: programs in its Python, in a pool of its worker processes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, Self

from bridge.bench.speed.contender import Contender, children, private_bytes
from bridge.bench.speed.workloads import WORKLOADS, Workload, call_tool, rows_text


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

    def __init__(self, name: str = "monty") -> None:
        super().__init__(name)
        self._text = name.endswith(" text")

    async def __aenter__(self) -> Self:
        self._pool = _pool(200)  # its default, the cores, would let W8 wait 10 s
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
        waiting, go_on = asyncio.Semaphore(0), asyncio.Event()

        async def item(_: int) -> None:
            waiting.release()
            await go_on.wait()

        others = children()
        async with _pool(count) as pool:

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


def _pool(processes: int) -> Any:
    return import_module("pydantic_monty").AsyncMonty(max_processes=processes)
