"""A host in a setting that has less than this machine, for `test_settings.py`: filters are put round it first.

    python hosted.py '{"user": "self", "pretend": [...], "require": [null, "all"]}'

Runs a program in a real `Sandbox` for each `require`, and prints what it came to, or why it was refused.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from locked import become_an_ordinary_user, pretend

from sandbox import Limits, Sandbox, WallMissing
from sandbox.attacks.player import play

LIMITS = Limits(memory_bytes=64 << 20, wall_s=20)
PROGRAM = "const a = await tools.echo(6, 7); text('said'); await sleep(1); return a[0] * a[1]"


async def attempt(require: Any, options: dict[str, Any]) -> dict[str, Any]:
    try:
        async with Sandbox(limits=LIMITS, spares=0, require=require, **options) as sandbox:
            out = await play(sandbox, PROGRAM, lambda _, arguments: arguments, ("echo",), LIMITS)
            walls = {wall: why for wall, why in sandbox.walls.items() if why}
            return {"missing": walls, "value": out.value, "text": out.text}
    except WallMissing as error:
        return {"refused": str(error)}


async def main(given: dict[str, Any]) -> None:
    print(json.dumps([await attempt(require, given.get("options", {})) for require in given["require"]]))


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    if settings["user"] == "nobody":
        become_an_ordinary_user()
    if settings["pretend"]:
        pretend(settings["pretend"])
    asyncio.run(main(settings))
