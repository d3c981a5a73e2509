"""The process in which mini-racer is measured: reads `workload count` lines, answers with a line of JSON numbers."""

from __future__ import annotations

import asyncio
import json
import sys

from benchmarks.contender import Mismatch
from benchmarks.peers import MiniRacerHere
from benchmarks.workloads import WORKLOADS


async def main() -> None:
    """Until standard input ends. Reading blocks the loop, which has nothing to do meanwhile."""
    racer = MiniRacerHere(text=sys.argv[1].endswith(" text"))
    for line in iter(sys.stdin.readline, ""):
        name, count = line.split()
        try:
            answer: list[float] | str = await racer.measure(WORKLOADS[name], int(count))
        except Mismatch as error:
            answer = str(error)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
