"""fanout: K independent calls, K from 2 to 500, with replies of log-normal size; 2% of them fail.

The question wants a sum and the names of those that failed, so that a program returns next to nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from bridge.bench.tasks import Call, Open, Programs, Task, Turn
from bridge.bench.workloads.making import literal, sentence, tool
from bridge.errors import ToolError
from bridge.tools import Tool

SIZES: Final = (2, 5, 20, 60, 200, 500)
_FAILING: Final = 0.02
_BYTES: Final = (7.5, 1.2)  # of the logarithm of a reply's size: a median of 1,800 bytes, one in ten over 8,400


def tasks(seed: int, count: int | None = None) -> Sequence[Task]:
    """`count` tasks of each size; 3 by default."""
    return [
        _task(size, number, random.Random(f"fanout/{seed}/{size}/{number}"))  # noqa: S311  data, not a secret
        for size in SIZES
        for number in range(3 if count is None else count)
    ]


def _task(size: int, number: int, chance: random.Random) -> Task:
    sensors = [f"S-{chance.randrange(10**5, 10**6)}-{each}" for each in range(size)]
    replies: dict[str, Any] = {}
    for sensor in sensors:
        if size > 2 and chance.random() < _FAILING:
            replies[sensor] = None
            continue
        reading = {"sensor": sensor, "value": round(chance.uniform(0, 100), 2), "unit": "kWh"}
        words = max(1, round(chance.lognormvariate(*_BYTES) - 80) // 8)
        replies[sensor] = reading | {"log": sentence(chance, words)}
    failing = [sensor for sensor in sensors if replies[sensor] is None]
    total = sum(reply["value"] for reply in replies.values() if reply is not None)
    ids = literal(sensors)
    every = f"""\
const ids = {ids};
const all = await Promise.allSettled(ids.map(sensor => tools.read_sensor({{ sensor }})));
"""
    programs = Programs(
        oracle={
            "projection": every
            + "const total = all.reduce((sum, one) => sum + (one.value?.value ?? 0), 0);\n"
            + "return { total, failed: ids.filter((_, index) => all[index].status === 'rejected') };",
            "full": every + "return all.map(one => one.value ?? one.reason.message);",
        },
        explore=f"return await tools.read_sensor({{ sensor: {sensors[-1]!r} }});"
        if replies[sensors[-1]] is not None
        else f"return await tools.read_sensor({{ sensor: {sensors[-1]!r} }}).catch(error => error.code);",
    )
    listed = ", ".join(sensors)
    turn = Turn(
        question=f"What is the sum of these sensors' readings, and which of them cannot be read? {listed}",
        levels=[[Call("read_sensor", {"sensor": sensor}) for sensor in sensors]],
        programs=programs,
        answer=f"The sum is {total:.2f} kWh; not readable: {', '.join(failing) or 'none'}.",
        facts=failing,
    )
    return Task(
        id=f"fanout-{size}-{number}",
        workload="fanout",
        turns=[turn],
        open=lambda: Open(tools=_tools(replies)),
        group=f"fanout-{size}",
        explore_calls=1,
        size={"calls": size},
    )


def _tools(replies: dict[str, Any]) -> list[Tool]:
    def read(given: dict[str, Any]) -> Any:
        reply = replies[given["sensor"]]
        if reply is None:
            raise ToolError("offline", f"the sensor {given['sensor']} does not answer", retryable=True)
        return reply

    sensor = {"sensor": ("string", "Its id.")}
    return [
        tool("read_sensor", "The present reading of a sensor, with its log.", sensor, read),
        tool("list_sensors", "All sensors of a site.", {"site": ("string", "Name of the site.")}, read),
        tool("reset_sensor", "Restart a sensor; it is offline for a minute.", sensor, read, changes=True),
    ]
