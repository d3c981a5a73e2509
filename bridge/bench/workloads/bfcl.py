"""bfcl: the multi-turn tasks of the Berkeley Function Calling Leaderboard v4, base and long context (bfcl-eval).

The tools are the leaderboard's own Python classes, executed; the ground truth is its call strings, turn by turn.
Direct: all calls of a turn in one message, an oracle that knows them. Program: one `await` a call; an argument that is
not in the user's words and equals a leaf of an earlier reply of the turn becomes a reference to it. Both arms, and the
call strings executed without either, must end in the same state: each row is checked. One task of each set (173) is not
executed in any arm: its ground truth closes a ticket by a text, where the tool's own schema wants an integer.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import importlib
import importlib.util
import inspect
import json
import random
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, cast

from bridge.bench.datasets import folder
from bridge.bench.tasks import Call, Open, Programs, Task, Turn
from bridge.errors import ConfigurationError, ToolError
from bridge.tools import Tool, ToolContext

_CLASSES: Final = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
_STATELESS: Final = ("MathAPI",)
_TYPES: Final = {"dict": "object", "float": "number", "tuple": "array"}
_REFERABLE: Final = 2  # characters of a text, at least, that is taken for one from a reply
_SOURCES: Final = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"


def tasks(seed: int, count: int | None = None) -> Sequence[Task]:
    """The base tasks: a sample of `count`, all 200 by default."""
    return _sample("base", seed, count)


def long_context(seed: int, count: int | None = None) -> Sequence[Task]:
    """The same tasks in surroundings full of other files, bookings and messages."""
    return _sample("long_context", seed, count)


def _sample(kind: str, seed: int, count: int | None) -> Sequence[Task]:
    place = folder("bfcl")
    if importlib.util.find_spec("mpmath") is None:
        raise ConfigurationError("the tools of bfcl need mpmath: pip install 'sandbridge[bench]'")
    if str(place) not in sys.path:
        sys.path.append(str(place))
    name = f"BFCL_v4_multi_turn_{kind}.json"
    entries = _lines(place / "bfcl_eval" / "data" / name)
    truths = {each["id"]: each for each in _lines(place / "bfcl_eval" / "data" / "possible_answer" / name)}
    if count is not None and count < len(entries):
        chosen = sorted(random.Random(f"bfcl/{seed}").sample(range(len(entries)), count))  # noqa: S311
        entries = [entries[number] for number in chosen]
    return [_task(entry, truths[entry["id"]]["ground_truth"], kind) for entry in entries]


def _lines(file: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]


class World:
    """Fresh instances of a task's classes, and their methods by name."""

    def __init__(self, entry: dict[str, Any], kind: str) -> None:
        self.instances: dict[str, Any] = {}
        self.methods: dict[str, Callable[..., Any]] = {}
        for name in entry["involved_classes"]:
            module = importlib.import_module(f"{_SOURCES}.{_CLASSES[name]}")
            made: Any = getattr(module, name)()
            if name not in _STATELESS:
                scenario = copy.deepcopy(entry["initial_config"].get(name, {}))
                made._load_scenario(scenario, long_context=kind == "long_context")  # noqa: SLF001  as the checker does
            self.instances[name] = made
            for method, bound in inspect.getmembers(made, predicate=inspect.ismethod):
                if not method.startswith("_"):
                    self.methods.setdefault(method, bound)

    def call(self, call: Call) -> Any:
        """Execute a call. The reply is a copy: a later call may change what it was made of."""
        reply = self.methods[call.tool](**copy.deepcopy(dict(call.arguments)))
        try:
            return json.loads(json.dumps(reply))
        except (TypeError, ValueError):
            return str(reply)

    def digest(self) -> str:
        """Of all public attributes, as the leaderboard compares them."""
        state = {name: _public(made, set()) for name, made in self.instances.items() if name not in _STATELESS}
        return hashlib.sha256(json.dumps(state, sort_keys=True, default=str).encode()).hexdigest()


def _public(value: Any, above: set[int]) -> Any:
    """A value as plain data; what it is part of is left out."""
    if isinstance(value, dict):
        return {str(key): _public(part, above) for key, part in cast("dict[Any, Any]", value).items()}
    if isinstance(value, (list, tuple, set)):
        parts = [_public(part, above) for part in cast("list[Any]", value)]
        return sorted(parts, key=str) if isinstance(value, set) else parts
    if isinstance(value, float) and value.is_integer():
        return int(value)  # JSON knows one kind of number: 2000.0 comes back as 2000
    public: dict[str, Any] | None = getattr(value, "__dict__", None)
    if public is None:
        return value
    if id(value) in above:
        return "..."
    above = above | {id(value)}
    shown = {name: part for name, part in public.items() if not name.startswith("_") and name != "parent"}
    return {name: _public(part, above) for name, part in shown.items()}


def _task(entry: dict[str, Any], truth: list[list[str]], kind: str) -> Task:
    world = World(entry, kind)
    signatures = {name: list(inspect.signature(method).parameters) for name, method in world.methods.items()}
    turns: list[Turn] = []
    for messages, strings in zip(entry["question"], truth, strict=True):
        question = "\n".join(message["content"] for message in messages)
        calls = [_call(text, signatures) for text in strings]
        replies = [world.call(call) for call in calls]
        lines = _program(calls, replies, question)
        names = ", ".join(f"r{number}" for number in range(1, len(calls) + 1))
        programs = Programs(
            oracle={
                "full": "\n".join([*lines, f"return [{names}];"]),
                "projection": "\n".join([*lines, f"return r{len(calls)};"]),
            }
        )
        answer = "It is done." if calls else "I need to know more before I can do that."
        turns.append(Turn(question=question, levels=[calls] if calls else [], programs=programs, answer=answer))
    return Task(
        id=entry["id"],
        workload="bfcl" if kind == "base" else "bfcl-long",
        turns=turns,
        open=lambda: _open(entry, kind),
        group=entry["id"],
        size={"calls": sum(len(turn.calls) for turn in turns)},
        state=world.digest(),
    )


def _open(entry: dict[str, Any], kind: str) -> Open:
    world = World(entry, kind)
    return Open(tools=_tools(entry, world), state=world.digest)


def _call(text: str, signatures: dict[str, list[str]]) -> Call:
    """A call string, read and not executed; positional arguments by the method's signature."""
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    arguments = {
        name: ast.literal_eval(given) for name, given in zip(signatures[node.func.id], node.args, strict=False)
    }
    arguments |= {str(word.arg): ast.literal_eval(word.value) for word in node.keywords}
    return Call(node.func.id, arguments)


def _program(calls: Sequence[Call], replies: Sequence[Any], question: str) -> list[str]:
    """One `await` a call."""
    lines: list[str] = []
    for number, call in enumerate(calls, 1):
        parts = [
            f"{name}: {_reference(value, replies[: number - 1], question) or json.dumps(value, ensure_ascii=False)}"
            for name, value in call.arguments.items()
        ]
        given = f"{{ {', '.join(parts)} }}" if parts else "{}"
        lines.append(f"const r{number} = await tools.{call.tool}({given});")
    return lines


def _reference(value: Any, replies: Sequence[Any], question: str) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    text = str(value)
    if len(text) < _REFERABLE or text.lower() in question.lower():
        return None
    for number in range(len(replies), 0, -1):
        path = _path(replies[number - 1], value)
        if path is not None:
            return f"r{number}{path}"
    return None


def _path(reply: Any, value: Any) -> str | None:
    """Where a leaf of a reply is this value, as JavaScript."""
    if isinstance(reply, dict):
        for key, part in cast("dict[str, Any]", reply).items():
            inner = _path(part, value)
            if inner is not None:
                return (f".{key}" if key.isidentifier() else f"[{json.dumps(key)}]") + inner
    elif isinstance(reply, list):
        for index, part in enumerate(cast("list[Any]", reply)):
            inner = _path(part, value)
            if inner is not None:
                return f"[{index}]{inner}"
    elif type(reply) is type(value) and reply == value:
        return ""
    return None


@cache
def _documents(name: str) -> list[dict[str, Any]]:
    return _lines(folder("bfcl") / "bfcl_eval" / "data" / "multi_turn_func_doc" / f"{_CLASSES[name]}.json")


def _tools(entry: dict[str, Any], world: World) -> list[Tool]:
    made: dict[str, Tool] = {}
    for name in entry["involved_classes"]:
        for document in _documents(name):
            if document["name"] in entry.get("excluded_function", ()) or document["name"] in made:
                continue
            made[document["name"]] = _tool(document, world)
    return list(made.values())


def _tool(document: dict[str, Any], world: World) -> Tool:
    name = document["name"]

    async def handler(arguments: Any, context: ToolContext) -> Any:
        try:
            return world.call(Call(name, arguments))
        except Exception as error:  # noqa: BLE001  what the leaderboard turns into a text for the model
            raise ToolError("failed_inside", f"Error during execution: {error}") from None

    return Tool(
        name=name,
        description=document["description"],
        input_schema=_schema(document["parameters"]),
        handler=handler,
    )


def _schema(given: Any) -> Any:
    """Their schemas, with the names that JSON Schema has for types."""
    if isinstance(given, list):
        return [_schema(part) for part in cast("list[Any]", given)]
    if not isinstance(given, dict):
        return given
    made: dict[str, Any] = {}
    for key, part in cast("dict[str, Any]", given).items():
        if key == "type" and isinstance(part, str):
            if part != "any":
                made[key] = _TYPES.get(part, part)
        elif key == "properties":
            made[key] = {name: _schema(each) for name, each in part.items()}
        elif key != "optional":
            made[key] = _schema(part)
    return made
