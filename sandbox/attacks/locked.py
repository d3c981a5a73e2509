"""Native code in a worker with all its walls: a zygote of its own, real workers, `native.py` in place of programs.

    python -I -c "... from sandbox.attacks.locked import main; main()" SETTINGS    prints what was found as JSON

It runs in a process of its own because the walls go up round it. Everything is as for a program, isolate and realm
included; only the last step, the program, is replaced. The first worker has a filter that refuses what it would
otherwise end the worker for, so that one process can try everything; then each of those calls is made once by a worker
with the real filter.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from sandbox import jail, seccomp
from sandbox.attacks.native import CALLS, attempts, make, with_python
from sandbox.engine import Isolate
from sandbox.messages import Settings
from sandbox.worker import Engine, cell


def main() -> NoReturn:
    """Attack, print one JSON object, end: `walls`, `attempts` (group -> what -> answer), `violations` (call -> end)."""
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    walls = cell(settings)
    raised = jail.in_zygote(walls, parent=settings.parent)
    loaded = Engine(settings)
    jail.seal_code_pages(walls, raised)
    jail.before_forking(walls, raised, parent=settings.parent)
    isolate = Isolate(loaded.dll)

    async def life() -> NoReturn:
        await loaded.realm(isolate)
        os.write(1, json.dumps(_found(walls, raised)).encode())
        os._exit(0)  # an ordinary exit frees callbacks on the page that was sealed, and crashes

    isolate.live(life)


def _found(walls: jail.Jail, raised: jail.Raised) -> dict[str, Any]:
    groups = attempts(os.getpid(), walls.channel)

    def everything() -> Any:
        tried = {group: {what: make(call, given) for what, call, given in rows} for group, rows in groups.items()}
        return {"walls": raised.walls, "attempts": tried | {"Python": with_python()}}

    found, _ = _in_worker(dataclasses.replace(walls, violations=()), raised, everything)
    ends: dict[str, str] = {}
    for name in seccomp.VIOLATIONS:
        if name in CALLS:
            answer, status = _in_worker(walls, raised, lambda name=name: make(name, (0,) * 6))
            killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSYS
            ends[name] = "ended" if killed else f"{answer}"
    return {**(found or {"walls": raised.walls, "attempts": {}}), "violations": ends}


def _in_worker(walls: jail.Jail, raised: jail.Raised, deed: Callable[[], Any]) -> tuple[Any, int]:
    """What a deed returned in a worker with these walls (None: nothing came), and the worker's wait status."""
    reading, writing = os.pipe()
    zygote = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            jail.in_worker(walls, raised, channel=writing, parent=zygote)
            jail.before_program(walls, raised)
            data = memoryview(json.dumps(deed()).encode())
            while data:
                data = data[os.write(walls.channel, data) :]
        finally:
            os._exit(0)  # a worker must never go on as a second zygote
    os.close(writing)
    data = b"".join(iter(lambda: os.read(reading, 65536), b""))
    os.close(reading)
    status = os.waitpid(pid, 0)[1]
    return (json.loads(data) if data else None), status
