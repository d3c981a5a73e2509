"""catalogue: one to five needed tools among N, N from 5 to 1,000; the sizes of definitions are those of real servers.

The tools are generated. Their definitions follow the sizes of 5,571 descriptions of 276 public MCP servers: 75, 108,
170, 278, 492 and 1,364 tokens of JSON at the quantiles 10, 25, 50, 75, 90 and 99 (mean 251).
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from bridge.bench.tasks import Call, Open, Programs, Task, Turn
from bridge.bench.workloads.making import WORDS, schema, sentence
from bridge.errors import ToolError
from bridge.tools import Tool, ToolContext

SIZES: Final = (5, 20, 100, 1000)
LARGE: Final = 5000
NEEDED: Final = (1, 2, 5)
_QUANTILES: Final = ((0.0, 45), (0.1, 75), (0.25, 108), (0.5, 170), (0.75, 278), (0.9, 492), (0.99, 1364), (1.0, 2400))
_TOKEN_BYTES: Final = 5.9  # of such JSON, whose words are short and common
_VERBS: Final = "list get create update delete search archive export approve assign merge count".split()


def tasks(seed: int, count: int | None = None) -> Sequence[Task]:
    """`count` tasks of each size and number of needed tools; 1 by default."""
    return [
        _task(size, needed, number, seed)
        for size in SIZES
        for needed in NEEDED
        for number in range(1 if count is None else count)
    ]


def large(seed: int) -> Sequence[Task]:
    """The same with 5,000 tools: minutes."""
    return [_task(LARGE, needed, 0, seed) for needed in NEEDED]


def _task(size: int, needed: int, number: int, seed: int) -> Task:
    chance = random.Random(f"catalogue/{seed}/{size}/{needed}/{number}")  # noqa: S311  data, not a secret
    definitions = generated(size, random.Random(f"catalogue/{seed}/{size}"))  # noqa: S311
    readers = [each for each in definitions if each["verb"] in ("list", "get", "count")]
    chosen = chance.sample(readers if len(readers) >= needed else definitions, needed)
    calls: list[Call] = []
    replies: dict[str, Any] = {}
    for each in chosen:
        keys = {key: f"{key}-{chance.randrange(100, 999)}" for key in each["schema"]["required"]}
        calls.append(Call(each["name"], keys))
        replies[each["name"]] = {
            "id": chance.randrange(10**6),
            "score": chance.randrange(1000),
            "remark": sentence(chance, 40),
        }
    lines = ",\n".join(f"  tools.{call.tool}({json.dumps(dict(call.arguments))})" for call in calls)
    all_of = f"const all = await Promise.all([\n{lines},\n]);\n"
    wanted = "; ".join(
        f"{each['said']} for {', '.join(call.arguments.values()) or 'everything'}"
        for each, call in zip(chosen, calls, strict=True)
    )
    scores = [replies[each["name"]]["score"] for each in chosen]
    turn = Turn(
        question=f"I need the score of each of these: {wanted}.",
        levels=[calls],
        programs=Programs(
            oracle={
                "projection": f"{all_of}return all.map(one => one.score);",
                "full": f"{all_of}return all;",
            },
            explore=f"return await tools.{calls[0].tool}({json.dumps(dict(calls[0].arguments))});",
        ),
        answer="The scores are " + ", ".join(map(str, scores)) + ".",
        facts=[f"{score}" for score in scores],
    )
    return Task(
        id=f"catalogue-{size}-{needed}-{number}",
        workload="catalogue",
        turns=[turn],
        open=lambda: Open(tools=_tools(definitions, replies)),
        group=f"catalogue-{size}-{needed}",
        explore_calls=1,
        size={"calls": needed, "tools": size},
    )


def generated(size: int, chance: random.Random) -> list[dict[str, Any]]:
    """Definitions of different names whose sizes follow those of real ones."""
    made: dict[str, dict[str, Any]] = {}
    while len(made) < size:
        verb, first, second = chance.choice(_VERBS), chance.choice(WORDS), chance.choice(WORDS)
        name = f"{verb}_{first}_{second}" if len(made) % 3 else f"{verb}_{first}s"
        if name in made:
            continue
        said = f"{verb.capitalize()} the {first}s of a {second}"
        room = _tokens(chance) * _TOKEN_BYTES - 120  # what any definition has, whatever it says
        properties: dict[str, tuple[str, str]] = {}
        for each in range(max(0, min(12, round(room / 160)))):
            key = f"{chance.choice(WORDS)}_{chance.choice(['id', 'name', 'type', 'state'])}"
            kind = "string" if each == 0 else chance.choice(["string?", "integer?", "boolean?", "string[]?"])
            properties[key] = (kind, sentence(chance, 6))
            room -= 110
        made[name] = {
            "name": name,
            "verb": verb,
            "said": said,
            "description": f"{said}. {sentence(chance, max(0, round(room / 8)))}" if room > 16 else f"{said}.",
            "schema": schema(properties),
        }
    return list(made.values())


def _tokens(chance: random.Random) -> float:
    """A size by the quantiles, linear between them."""
    at = chance.random()
    for (low, least), (high, most) in pairwise(_QUANTILES):
        if at <= high:
            return least + (most - least) * (at - low) / (high - low)
    return _QUANTILES[-1][1]


def _tools(definitions: list[dict[str, Any]], replies: dict[str, Any]) -> list[Tool]:
    def tool_of(each: dict[str, Any]) -> Tool:
        async def handler(arguments: Any, context: ToolContext) -> Any:
            if each["name"] not in replies:
                raise ToolError("not_needed", f"{each['name']} is no part of the task")
            return replies[each["name"]]

        return Tool(name=each["name"], description=each["description"], input_schema=each["schema"], handler=handler)

    return [tool_of(each) for each in definitions]
