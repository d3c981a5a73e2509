"""Programs of the corpus against the sandbox of this tree: `python -m tests.mutants.assault THREAT_OR_ID...`.

Those that are meant to be endless are left out: they take their time, and find what others find. Exit status 1 as soon
as one was not held.
"""

from __future__ import annotations

import sys

import anyio

from sandbox import Limits, Sandbox
from sandbox.attacks.corpus import load
from sandbox.attacks.siege import meet

LIMITS = Limits(cpu_s=2, wall_s=20, memory_bytes=64 << 20)


async def assault(names: list[str]) -> int:
    """How many were not held; stops at the first."""
    cases = [case for case in load() if not case.endless and {case.id, case.threat} & set(names)]
    if not cases:
        raise SystemExit(f"no program of the corpus is named {', '.join(names)}")
    async with Sandbox(limits=LIMITS) as sandbox:
        for case in cases:
            for attempt in await meet(sandbox, case):
                if not attempt.held:
                    print(f"{attempt.threat}: {attempt.name} {attempt.seen}")
                    return 1
    print(f"{len(cases)} held")
    return 0


if __name__ == "__main__":
    raise SystemExit(anyio.run(assault, sys.argv[1:]))
