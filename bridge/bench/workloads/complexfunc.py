"""complexfuncbench: 1,000 tasks of two to eleven calls with the recorded replies of real APIs (nestful-wrapper 0.1.7).

The data say which argument comes from which earlier reply (`$var1.coordinates.latitude$`). Beyond these there are
hidden dependencies: an argument that is written out, stands in an earlier reply and not in the question, so that a
model must have read that reply first. The rule (a text of four characters or more that is no date or time) can miss
some and count too many. The oracle's program ignores them, since it knows everything; the staged one ends at each of
them, gives back the reply that has to be read, and goes on in a next one. The levels of the direct arms have both.

There are no gold answers in the data: what is checked is that the calls are the recorded ones, all of them, no other.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, cast

from bridge.bench.datasets import folder
from bridge.bench.tasks import Call, Open, Programs, Returns, Task, Turn
from bridge.errors import ToolError
from bridge.names import identifier
from bridge.tools import Annotations, Tool, ToolContext

_REFERENCE: Final = re.compile(r"\$(var\d+)((?:\.[A-Za-z_]\w*)*)\$")
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}|\d{1,2}:\d{2}")
_HIDDEN_LEAST: Final = 4  # characters of a text that is taken for one that was read
_DEFAULT: Final = 100
_ANSWER: Final = (
    "I have looked up everything that you asked for and compared it. The details are above in the order of your "
    "question; the best choice by your criteria comes first, and prices are as they were a moment ago."
)


class Recorded:
    """One task of the data: its calls, what depends on what, and the programs that follow from it."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.question: str = raw["input"].strip()
        self.rows: list[dict[str, Any]] = raw["output"]
        self.replies = {row["label"]: row["response"] for row in self.rows}
        self.uses: dict[str, set[str]] = {}
        self.looks: dict[str, set[str]] = {}
        self.hidden: list[str] = []
        self.levels: dict[str, int] = {}
        self.stages: dict[str, int] = {}
        self._steps: dict[str, int] = {}
        texts = {row["label"]: json.dumps(row["response"], ensure_ascii=False) for row in self.rows}
        for number, row in enumerate(self.rows):
            label = row["label"]
            self.uses[label] = {found[1] for found in _REFERENCE.finditer(json.dumps(row["arguments"]))}
            before = [each["label"] for each in self.rows[:number]]
            self.looks[label] = self._looked_at(row["arguments"], before, texts)
            waits = self.uses[label] | self.looks[label]
            self.levels[label] = 1 + max((self.levels[each] for each in waits), default=0)
            self._steps[label] = 1 + max((self._steps[each] for each in self.uses[label]), default=0)
            stage = max((self.stages[each] for each in self.uses[label]), default=0)
            self.stages[label] = max([stage, *(self.stages[each] + 1 for each in self.looks[label])])

    def _looked_at(self, arguments: dict[str, Any], before: list[str], texts: dict[str, str]) -> set[str]:
        """The replies that must have been read for literals in the arguments: for each the first that has it."""
        found: set[str] = set()
        for value in _leaves(arguments):
            text = value if isinstance(value, str) else json.dumps(value)
            if len(text) < _HIDDEN_LEAST or "$" in text or _DATE.match(text) or text.lower() in self.question.lower():
                continue
            inside = json.dumps(text, ensure_ascii=False)[1:-1]
            holders = [label for label in before if inside in texts[label]]
            if holders:
                found.add(min(holders, key=lambda label: self.levels[label]))
                self.hidden.append(text)
        return found

    @property
    def sinks(self) -> list[str]:
        """Replies that no call takes anything from."""
        used = {each for label in self.uses for each in self.uses[label]}
        return [row["label"] for row in self.rows if row["label"] not in used]

    def calls(self) -> list[list[Call]]:
        """By level, with every argument's value."""
        by_level: dict[int, list[Call]] = {}
        for row in self.rows:
            call = Call(row["name"], self.resolved(row["arguments"], known=set(self.replies)))
            by_level.setdefault(self.levels[row["label"]], []).append(call)
        return [by_level[level] for level in sorted(by_level)]

    def oracle(self, returns: Returns) -> str:
        """One program."""
        labels = [row["label"] for row in self.rows]
        shown = labels if returns == "full" else self.sinks
        return "\n".join([*self._lines(labels, known=set()), f"return {{ {', '.join(shown)} }};"])

    def staged(self, returns: Returns) -> list[str]:
        """A program for each stage; each returns what has to be read, or written into a later one."""
        last = max(self.stages.values())
        programs: list[str] = []
        known: set[str] = set()
        for stage in range(last + 1):
            labels = [row["label"] for row in self.rows if self.stages[row["label"]] == stage]
            later = [row for row in self.rows if self.stages[row["label"]] > stage]
            read = {each for row in later for each in self.looks[row["label"]]}
            shown = [each for each in labels if returns == "full" or each in self.sinks or each in read]
            picks = [
                _expression(found[1], found[2], self.replies[found[1]])
                for row in later
                for found in _REFERENCE.finditer(json.dumps(row["arguments"]))
                if found[1] in labels and found[1] not in shown
            ]
            parts = [*shown, *([f"picks: [{', '.join(dict.fromkeys(picks))}]"] if picks else [])]
            programs.append("\n".join([*self._lines(labels, known), f"return {{ {', '.join(parts)} }};"]))
            known |= set(labels)
        return programs

    def _lines(self, labels: Sequence[str], known: set[str]) -> list[str]:
        """The calls, those of one step together. What is `known` is written out."""
        rows = {row["label"]: row for row in self.rows}
        by_step: dict[int, list[str]] = {}
        for label in labels:
            by_step.setdefault(self._steps[label], []).append(label)
        lines: list[str] = []
        for step in sorted(by_step):
            together = [rows[each] for each in by_step[step]]
            calls = [f"tools.{identifier(row['name'])}({self._object(row['arguments'], known)})" for row in together]
            if len(calls) == 1:
                lines.append(f"const {by_step[step][0]} = await {calls[0]};")
            else:
                inner = ",\n".join(f"  {call}" for call in calls)
                lines.append(f"const [{', '.join(by_step[step])}] = await Promise.all([\n{inner},\n]);")
        return lines

    def _object(self, arguments: dict[str, Any], known: set[str]) -> str:
        """Arguments as an object literal."""
        resolved = self.resolved(arguments, known)
        parts: list[str] = []
        for name, value in resolved.items():
            found = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
            text = json.dumps(value, ensure_ascii=False)
            if found is not None:
                text = _expression(found[1], found[2], self.replies[found[1]])
            parts.append(f"{name}: {text}")
        return f"{{ {', '.join(parts)} }}" if parts else "{}"

    def resolved(self, arguments: dict[str, Any], known: set[str]) -> dict[str, Any]:
        resolved: dict[str, Any] = {}
        for name, value in arguments.items():
            found = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
            if found is not None and found[1] in known:
                resolved[name] = _follow(self.replies[found[1]], found[2])
            else:
                resolved[name] = value
        return resolved


def _expression(label: str, path: str, reply: Any) -> str:
    """A reference as JavaScript: of a list, its first item."""
    text, value = label, reply
    for key in path.split(".")[1:]:
        while isinstance(value, list):
            text, value = f"{text}[0]", cast("list[Any]", value)[0]
        text, value = f"{text}.{key}", value[key]
    return text


def _follow(reply: Any, path: str) -> Any:
    value = reply
    for key in path.split(".")[1:]:
        while isinstance(value, list):
            value = cast("list[Any]", value)[0]
        value = value[key]
    return value


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for part in cast("dict[str, Any]", value).values() for leaf in _leaves(part)]
    if isinstance(value, list):
        return [leaf for part in cast("list[Any]", value) for leaf in _leaves(part)]
    return [value] if isinstance(value, (str, int, float)) and not isinstance(value, bool) else []


@cache
def _loaded() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    place = folder("complexfuncbench") / "data_v1" / "complexfuncbench"
    read = [json.loads((place / f"complexfuncbench-{part}.json").read_bytes()) for part in ("data", "spec")]
    return read[0], read[1]


def tasks(seed: int, count: int | None = None) -> Sequence[Task]:
    """A sample of `count` tasks (100 by default), in the order of the data.

    Raises:
        ConfigurationError: The data set has not been fetched.
    """
    data, spec = _loaded()
    count = min(_DEFAULT if count is None else count, len(data))
    chosen = sorted(random.Random(f"complexfuncbench/{seed}").sample(range(len(data)), count))  # noqa: S311
    return [task_of(f"complexfuncbench-{number}", data[number], spec) for number in chosen]


def task_of(name: str, raw: dict[str, Any], spec: list[dict[str, Any]]) -> Task:
    """One task of the data as a task."""
    recorded = Recorded(raw)
    names = sorted({row["name"] for row in recorded.rows})
    levels = recorded.calls()
    everything: list[Returns] = ["full", "projection"]
    turn = Turn(
        question=recorded.question,
        levels=levels,
        programs=Programs(
            oracle={returns: recorded.oracle(returns) for returns in everything},
            staged={returns: recorded.staged(returns) for returns in everything},
        ),
        answer=_ANSWER,
        facts=list(dict.fromkeys(recorded.hidden)),
    )
    return Task(
        id=name,
        workload="complexfuncbench",
        turns=[turn],
        open=lambda: Open(tools=_tools(spec, recorded)),
        group="+".join(names),
        size={"calls": len(recorded.rows)},
    )


def _tools(spec: list[dict[str, Any]], recorded: Recorded) -> list[Tool]:
    """All tools of the data; those of the task answer what was recorded, each recorded call once."""
    left: dict[str, list[Any]] = {}
    given: dict[str, list[Mapping[str, Any]]] = {}
    for row in recorded.rows:
        call = Call(row["name"], recorded.resolved(row["arguments"], set(recorded.replies)))
        left.setdefault(call.key, []).append(row["response"])
        given.setdefault(call.tool, []).append(call.arguments)

    def tool_of(each: dict[str, Any]) -> Tool:
        name = each["name"]

        async def handler(arguments: Any, context: ToolContext) -> Any:
            replies = left.get(Call(name, arguments).key)
            if not replies:
                raise ToolError("not_recorded", f"{name} was not called with these arguments when it was recorded")
            return replies.pop(0)

        return Tool(
            name=name,
            description=each["description"],
            input_schema=_schema(each["query_parameters"], given.get(name, [])),
            handler=handler,
            annotations=Annotations(read_only=True),
        )

    return [tool_of(each) for each in spec]


def _schema(parameters: dict[str, Any], given: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A tool's schema. Where a recorded call does not fit it, the API took it all the same: that part is left open."""
    properties: dict[str, Any] = {}
    for name, about in parameters.items():
        values = [arguments[name] for arguments in given if name in arguments]
        number = any(isinstance(value, (int, float)) for value in values)
        kind: dict[str, Any] = {} if about["type"] == "string" and number else {"type": about["type"]}
        kind |= {"items": {}} if about["type"] == "array" else {}
        properties[name] = kind | {"description": about["description"]}
        if about.get("enum") and all(value in about["enum"] for value in values):
            properties[name]["enum"] = about["enum"]
    required = [name for name, about in parameters.items() if about.get("required")]
    return {"type": "object", "properties": properties, "required": required}
