"""Hosts to be killed: `python -m tests.durable.victim`, told on standard input what to do, a line of JSON each.

Each order is carried out by a forked process of its own with an executor and a sandbox of its own, which kills itself
(SIGKILL) after so many of the moments that count: after each write of the store that was committed, and after each
effect of a tool. Between two of them nothing outside the process changes, so that dying at any other moment is the
same: before a write is after what was before it, before a call is sent is after its record was written.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio

from bridge import Answer, Approve
from bridge.run import Run
from bridge.store import Store
from sandbox import Limits, Sandbox
from tests.durable.world import Effects, Host, Tools

PROGRAM = """\
const say = call => call.then(value => value?.n ?? value, error => error.code)
const out = [await say(tools.write({n: 1}))]
out.push(...await Promise.all([say(tools.write({n: 2})), say(tools.again({n: 3})), say(tools.fail({n: 4}))]))
out.push(await say(tools.echo({n: 5})))
out.push(await say(tools.gated({n: 6})))
out.push(await say(tools.person({n: 7})))
await sleep(1)
for (const n of [8, 9]) out.push(await say(tools.again({n})))
out.push(...await Promise.all([say(tools.both({n: 10})), say(tools.gated({n: 11}))]))
tools.write({n: 12})
return out
"""
LIMITS = Limits(cpu_s=5, wall_s=60, memory_bytes=64 << 20)
WRITES = frozenset(("create", "append", "release", "acquire"))


class Counted:
    """Kills this process after the n-th moment."""

    def __init__(self, at: int) -> None:
        self._left = at

    def moment(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


async def go_on(run: Run) -> Run:
    """Answer whatever it asks, until it is over."""
    while run.status == "paused":
        answers: dict[str, Any] = {request.id: Approve() for request in run.approvals}
        await run.resume(answers | {call.id: Answer(f"person {call.arguments['n']}") for call in run.pending})
    return run


async def host(order: dict[str, Any]) -> dict[str, Any]:
    """One host, with a sandbox of its own."""
    async with Sandbox(limits=LIMITS, spares=0) as sandbox:
        return await carry_out(order, sandbox)


async def carry_out(order: dict[str, Any], sandbox: Sandbox) -> dict[str, Any]:
    """Start the program, or go on with its run, to its end."""
    counted = Counted(order["kill_after"])
    effects = Effects(Path(order["effects"]))
    take = effects.take

    def taken(*arguments: Any) -> None:
        take(*arguments)
        counted.moment()

    effects.take = taken
    with Store(order["url"]) as store:
        async with Host(sandbox, Tools(effects).all(), store, ahead_s=order["ahead_s"]) as opened:
            assert opened.store is not None
            opened.store.after = lambda operation: counted.moment() if operation in WRITES else None
            if order["run"]:
                run = await opened.executor.load(order["run"])
            else:
                run = await opened.executor.start(PROGRAM)
            await go_on(run)
    effects.close()
    assert run.result is not None
    return {
        "run": run.id,
        "status": run.result.status,
        "value": run.result.value,
        "calls": [[row.tool, row.outcome] for row in run.result.calls],
    }


def main() -> None:
    """One forked process for each line; what it ended with goes to standard output."""
    for line in sys.stdin:
        order = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            try:
                done = anyio.run(host, order, backend=order["backend"])
            except BaseException as error:  # noqa: BLE001  whatever it is, the test is to see it
                done = {"error": repr(error)}
            os.write(writing, json.dumps(done).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            said = pipe.read()
        _, ended = os.waitpid(child, 0)
        print(json.dumps({"killed": os.WIFSIGNALED(ended), **json.loads(said or "{}")}), flush=True)


if __name__ == "__main__":
    main()
