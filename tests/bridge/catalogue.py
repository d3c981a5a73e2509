"""A catalogue of more than 300 tools, and questions to it, as data (`tests/data`).

`pinned_tools.jsonl` is what the servers that `.ci/servers` installs list; `catalogue.txt` has tools in the manner of
other common servers; `questions.txt` says which tool answers which question, and `blind_questions.txt` does so with
questions that were written without sight of the tools' names. `sized` makes as many tools as are wanted, of the sizes
that tools of public servers have.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bridge.tools import Catalog, Tool

DATA = Path(__file__).parents[1] / "data"
TYPES: dict[str, dict[str, Any]] = {
    "": {"type": "string"},
    "n": {"type": "number"},
    "b": {"type": "boolean"},
    "a": {"type": "array", "items": {"type": "string"}},
    "o": {"type": "object"},
}


# Tokens of a tool's definition as JSON, over 5,571 tools of 276 public servers: share of the tools -> at most so many.
SIZES = ((0.0, 40), (0.10, 75), (0.25, 108), (0.50, 170), (0.75, 278), (0.90, 492), (0.99, 1364), (1.0, 3100))
TOKEN_BYTES = 4


class Question(NamedTuple):
    """What somebody asks, and the tools that answer it."""

    kind: str
    text: str
    answers: frozenset[str]


def tools() -> list[Tool]:
    """The servers' tools, pinned ones first."""
    return [*pinned(), *made()]


def catalogue(times: int = 1) -> Catalog:
    """All of them as a catalog; more often than once, the copies' servers have a number."""
    every = tools()
    copies = [_moved(tool, number) for number in range(1, times) for tool in every]
    return Catalog([*every, *copies])


def pinned() -> list[Tool]:
    """What the pinned servers list."""
    found: list[Tool] = []
    for line in (DATA / "pinned_tools.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        found.append(
            Tool(
                name=row["name"],
                server=row["server"],
                title=row.get("title"),
                description=row.get("description", ""),
                input_schema=row["inputSchema"],
                output_schema=row.get("outputSchema"),
            )
        )
    return found


def made() -> list[Tool]:
    """The tools of `catalogue.txt`."""
    found: list[Tool] = []
    server = ""
    for line in _lines("catalogue.txt"):
        if line.startswith("["):
            server = line.strip("[]")
            continue
        name, description, parameters = (part.strip() for part in line.split("|"))
        found.append(Tool(name=name, server=server, description=description, input_schema=_schema(parameters)))
    return found


def questions() -> list[Question]:
    """The labelled questions."""
    found: list[Question] = []
    for line in _lines("questions.txt"):
        kind, text, answers = line.split(" | ")
        found.append(Question(kind, text, frozenset(answers.split(", "))))
    return found


def blind_questions() -> list[Question]:
    """Those that were written without sight of names."""
    rows = (line.rsplit(" | ", 1) for line in _lines("blind_questions.txt"))
    return [Question("blind", text, frozenset(answers.split(", "))) for text, answers in rows]


def sized(count: int, seed: int = 1) -> list[Tool]:
    """Tools of about ten a server, whose definitions have the sizes of `SIZES`. The same for the same arguments."""
    chance = random.Random(seed)
    base = tools()
    vocabulary = sorted({word for tool in base for word in tool.description.split() if word.isalpha()})
    targets = [_size((number + 0.5) / count) * TOKEN_BYTES for number in range(count)]
    chance.shuffle(targets)
    made: list[Tool] = []
    for number, target in enumerate(targets):
        old = base[number % len(base)]
        verb, noun, server = (*chance.sample(vocabulary, 2), f"server_{number // 10}")
        name = f"{verb}_{noun}_{number}".lower()
        made.append(
            _grown(
                Tool(name=name, server=server, description=old.description[: int(target)]), target, chance, vocabulary
            )
        )
    return made


def json_bytes(tool: Tool) -> int:
    """Of a definition as a server lists it."""
    return len(json.dumps({"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}))


def _size(share: float) -> float:
    """Tokens that this share of the tools has at most: between two known sizes the logarithm grows evenly."""
    (low, small), (high, large) = next(pair for pair in itertools.pairwise(SIZES) if pair[0][0] <= share <= pair[1][0])
    return math.exp(math.log(small) + (math.log(large) - math.log(small)) * (share - low) / (high - low))


def _grown(tool: Tool, target: float, chance: random.Random, vocabulary: Sequence[str]) -> Tool:
    """The same with as many parameters as make it as large as wanted."""
    properties: dict[str, Any] = {}
    size = json_bytes(tool)
    while size < target - 150:
        name = "_".join(chance.sample(vocabulary, 2)).lower()
        text = " ".join(chance.sample(vocabulary, min(12, max(1, int((target - size) // 12)))))
        properties[name] = {**chance.choice([*TYPES.values()]), "description": text}
        size += len(json.dumps({name: properties[name]}))
    schema = {"type": "object", "properties": properties, "required": [*properties][:2]}
    return Tool(name=tool.name, server=tool.server, description=tool.description, input_schema=schema)


def _lines(file: str) -> Iterator[str]:
    text = (DATA / file).read_text("utf-8")
    return (line for line in text.splitlines() if line and not line.startswith("#"))


def _schema(parameters: str) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for each in filter(None, parameters.split(", ")):
        name, _, kind = each.rstrip("*").partition(":")
        properties[name] = TYPES[kind]
        if each.endswith("*"):
            required.append(name)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _moved(tool: Tool, number: int) -> Tool:
    return Tool(
        name=tool.name,
        server=f"{tool.server}-{number}",
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
    )
