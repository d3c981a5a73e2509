"""A catalogue of more than 300 tools, and questions to it, as data (`tests/data`).

`pinned_tools.jsonl` is what the servers that `.ci/servers` installs list; `catalogue.txt` has tools in the manner of
other common servers; `questions.txt` says which tool answers which question.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
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
