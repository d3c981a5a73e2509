"""What the vendor refuses beyond types: unpaired calls, a caller not echoed, a broken history, tools it cannot take.

Pure functions over a whole ordered history of items (Responses) or messages (Chat Completions). Every one raises
`Refused`, which the server answers with 400.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

Item = dict[str, Any]
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
OUTPUT_OF = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "mcp_approval_request": "mcp_approval_response",
    "tool_search_call": "tool_search_output",
}
CALL_OF = {output: call for call, output in OUTPUT_OF.items()}
UNCALLED = ("mcp_approval_response", "tool_search_output")  # outputs that name no caller
PROGRAM = "programmatic"
# What strict mode does not take; the vendor names the keyword and refuses the whole request.
NOT_STRICT = frozenset(
    "allOf not dependentRequired dependentSchemas if then else patternProperties oneOf minLength maxLength default "
    "propertyNames unevaluatedProperties prefixItems contains uniqueItems minProperties maxProperties".split()
)


class Refused(Exception):
    """A request that the vendor answers with an error; `param` names the part."""

    def __init__(self, message: str, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param = param
        self.status = status


# ---- tools ---------------------------------------------------------------------------------------------------------


def check_tools(tools: Sequence[Item], *, chat: bool = False, loaded: bool = False) -> None:
    """Names, schemas and callers of all tools of a request, before the model sees anything."""
    names: list[str] = []
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        if chat:
            check_function(tool[tool["type"]], f"{where}.{tool['type']}", custom=tool["type"] == "custom")
            names.append(tool[tool["type"]]["name"])
        elif tool["type"] in ("function", "custom"):
            check_function(tool, where, custom=tool["type"] == "custom")
            names.append(tool["name"])
        elif tool["type"] == "namespace":
            for inner, function in enumerate(tool["tools"]):
                check_function(function, f"{where}.tools[{inner}]", custom=function["type"] == "custom")
                names.append(f"{tool['name']}.{function['name']}")
    for name in names:
        if names.count(name) > 1:
            raise Refused(f"Tool names must be unique: {name!r} is given twice.", "tools")
    searches = [tool for tool in tools if tool["type"] == "tool_search"]
    if len(searches) > 1:
        raise Refused("Only one tool_search tool is allowed.", "tools")
    if not searches and any(tool.get("defer_loading") for tool in flat(tools)):
        raise Refused("Deferred tools need the tool_search tool.", "tools")
    hosted = any(tool["type"] == "programmatic_tool_calling" for tool in tools)
    for index, tool in enumerate(tools):
        callers = tool.get("allowed_callers")
        if callers is not None and (not callers or len(set(callers)) != len(callers)):
            raise Refused("allowed_callers must be non-empty and without duplicates", f"tools[{index}].allowed_callers")
        if callers == ["programmatic"] and not hosted:
            raise Refused("programmatic callers need the programmatic_tool_calling tool", f"tools[{index}]")
    found_later = loaded or any(tool.get("execution") == "client" for tool in searches)
    if hosted and not found_later and not any(PROGRAM in (tool.get("allowed_callers") or ()) for tool in flat(tools)):
        raise Refused("programmatic_tool_calling needs at least one tool that programs may call", "tools")


def flat(tools: Sequence[Item]) -> list[Item]:
    return [each for tool in tools for each in (tool["tools"] if tool["type"] == "namespace" else [tool])]


def check_function(tool: Item, where: str, *, custom: bool) -> None:
    if not NAME.fullmatch(tool["name"]):
        raise Refused(f"Invalid '{where}.name': expected ^[a-zA-Z0-9_-]+$ of at most 64, got {tool['name']!r}", where)
    if custom:
        return
    schema = tool.get("parameters")
    if schema is None:
        return
    if schema.get("type") != "object":
        raise Refused(f"Invalid schema for function {tool['name']!r}: schema must be a JSON Schema of 'type: object'")
    check_schema(schema, tool["name"], ("#",), strict=bool(tool.get("strict")))


def check_schema(schema: Any, name: str, path: tuple[str, ...], *, strict: bool) -> None:
    said = f"Invalid schema for function {name!r}: In context={path}, "
    if schema is True and not strict:
        return
    if not isinstance(schema, dict):
        raise Refused(said + "a schema must be an object")
    kinds = schema.get("type") if isinstance(schema.get("type"), list) else [schema.get("type")]
    if "array" in kinds and "items" not in schema:
        raise Refused(said + "array schema missing items")
    if "object" in kinds and "properties" not in schema and (strict or path == ("#",)):
        raise Refused(said + "object schema missing properties")
    reference = schema.get("$ref")
    if isinstance(reference, str) and not reference.startswith("#"):
        raise Refused(said + f"reference {reference!r} can only point to definitions defined at the top level")
    if strict:
        if bad := sorted(NOT_STRICT & schema.keys()):
            raise Refused(said + f"'{bad[0]}' is not permitted")
        if "object" in kinds:
            if schema.get("additionalProperties") is not False:
                raise Refused(said + "'additionalProperties' is required to be supplied and to be false")
            if set(schema.get("required", ())) != set(schema["properties"]):
                raise Refused(said + "'required' is required to be an array including every key in properties")
    for word in ("properties", "$defs", "definitions"):
        for key, part in schema.get(word, {}).items():
            check_schema(part, name, (*path, word, key), strict=strict)
    for word in ("anyOf", "oneOf", "allOf"):
        for index, part in enumerate(schema.get(word, ())):
            check_schema(part, name, (*path, word, str(index)), strict=strict)
    if "items" in schema:
        check_schema(schema["items"], name, (*path, "items"), strict=strict)


# ---- Responses -----------------------------------------------------------------------------------------------------


def check_history(history: Sequence[Item], tools: Sequence[Item]) -> None:
    """A whole conversation, in order: as if the vendor had seen nothing of it before."""
    check_loaded(history, tools)
    calls: dict[str, Item] = {}
    answered: set[str] = set()
    programs: dict[str, Item] = {}
    closed: set[str] = set()
    for item in history:
        kind = item.get("type", "message")
        if kind in ("tool_search_call", "tool_search_output") and item.get("execution") != "client":
            continue
        if kind in OUTPUT_OF:
            key = item["id"] if kind == "mcp_approval_request" else item["call_id"]
            if key in calls:
                raise Refused(f"Duplicate item: call {key} is there twice.", "input")
            calls[key] = item
            check_caller(item.get("caller"), programs, closed)
        elif kind in CALL_OF:
            key = item["approval_request_id"] if kind == "mcp_approval_response" else item.get("call_id")
            call = calls.get(key)
            if call is None or call["type"] != CALL_OF[kind]:
                raise Refused(f"No tool call found for {kind.replace('_', ' ')} with call_id {key}.", "input")
            if key in answered:
                raise Refused(f"Duplicate tool output for call_id {key}.", "input")
            if kind not in UNCALLED and (item.get("caller") or None) != (call.get("caller") or None):
                raise Refused(f"The caller of call {key} was not echoed: {item.get('caller')}.", "input")
            answered.add(key)
        elif kind == "program":
            if item["call_id"] in programs:
                raise Refused(f"Duplicate item: program {item['call_id']} is there twice.", "input")
            programs[item["call_id"]] = item
        elif kind == "program_output":
            if item["call_id"] not in programs or item["call_id"] in closed:
                raise Refused(f"No open program for program output {item['call_id']}.", "input")
            if item["status"] == "completed":
                closed.add(item["call_id"])
        elif kind == "mcp_call" and item.get("approval_request_id") not in (None, *answered):
            raise Refused(f"{item['id']} was never approved.", "input")
    for key, call in calls.items():
        if key not in answered:
            raise Refused(f"No tool output found for {call['type'].replace('_', ' ')} {key}.", "input")
    if programs and not any(tool["type"] == "programmatic_tool_calling" for tool in tools):
        raise Refused("A program needs the programmatic_tool_calling tool in tools.", "tools")


def check_loaded(history: Sequence[Item], tools: Sequence[Item]) -> None:
    """With tool search, a tool is called only when it is declared, or after a search has loaded it."""
    if not any(tool["type"] == "tool_search" for tool in tools):
        if any(item.get("type") == "tool_search_output" for item in history):
            raise Refused("A tool_search_output needs the tool_search tool in tools.", "tools")
        return
    there = {tool["name"] for tool in flat(tools) if "name" in tool and not tool.get("defer_loading")}
    loaded: dict[str, Item] = {}
    for item in history:
        if item.get("type") == "tool_search_output":
            check_tools([*item["tools"], {"type": "tool_search"}, {"type": "programmatic_tool_calling"}], loaded=True)
            for tool in flat(item["tools"]):
                if tool["name"] in there or loaded.setdefault(tool["name"], tool) != tool:
                    raise Refused(f"Tool names must be unique: {tool['name']!r} was loaded before.", "input")
        elif item.get("type") in ("function_call", "custom_tool_call") and item["name"] not in {*there, *loaded}:
            raise Refused(f"Tool {item['name']!r} was called before it was loaded.", "input")


def check_caller(caller: Any, programs: dict[str, Item], closed: set[str]) -> None:
    if caller and caller["type"] == "program":
        if caller["caller_id"] not in programs:
            raise Refused(f"No program found for caller {caller['caller_id']}.", "input")
        if caller["caller_id"] in closed:
            raise Refused(f"The program of caller {caller['caller_id']} has ended.", "input")


def check_replayed(given: Sequence[Item], issued: Sequence[Sequence[Item]]) -> None:
    """Without storage: what the vendor issued comes back verbatim, whole and in its order.

    Args:
        given: The input items.
        issued: The output of each response, of any conversation.
    """
    keys = Counter(identity(item) for out in issued for item in out)
    issued = [
        [item for item in out if keys[identity(item)] == 1] for out in issued
    ]  # what was given twice names nothing
    positions = {identity(item): (row, column) for row, out in enumerate(issued) for column, item in enumerate(out)}
    expected: tuple[int, int] | None = None
    for item in given:
        key = identity(item)
        if key not in positions:
            if item.get("type") in ("reasoning", "program", "program_output"):
                raise Refused(f"{item['type']} {item.get('id')} was not issued here, or was changed.", "input")
            continue
        row, column = positions[key]
        original = issued[row][column]
        if any(original.get(name) != value for name, value in item.items() if name != "status"):
            raise Refused(f"{item.get('type')} {key} was changed.", "input")
        if original["type"] in ("program", "reasoning") and item != original:
            raise Refused(f"{item.get('type')} {key} was changed.", "input")
        if item.get("type") == "reasoning" and not item.get("encrypted_content"):
            raise Refused(
                f"Item with id '{item['id']}' not found. Items are not persisted when store is false.", "input"
            )
        if expected is not None and (row, column) != expected and expected[1] < len(issued[expected[0]]):
            missing = issued[expected[0]][expected[1]]
            raise Refused(f"{missing['type']} {identity(missing)} is missing or out of order.", "input")
        if column and expected is None:
            raise Refused(f"{original['type']} {key} was given without what came before it.", "input")
        expected = (row, column + 1)
        if column + 1 == len(issued[row]):
            expected = None
    if expected is not None:
        missing = issued[expected[0]][expected[1]]
        raise Refused(f"{missing['type']} {identity(missing)} is missing at the end.", "input")


def identity(item: Item) -> str:
    kind = item.get("type", "message")
    if kind in CALL_OF:
        return f"{kind}:{item.get('call_id') or item.get('approval_request_id')}"
    return f"{kind}:{item.get('call_id') or item.get('id')}"


# ---- Chat Completions ----------------------------------------------------------------------------------------------


def check_messages(messages: Sequence[Item]) -> None:
    """Every tool call is answered, by the messages right after it; nothing is answered that was not asked."""
    waiting: list[str] = []
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                raise Refused("messages with role 'tool' must be a response to a preceding message with 'tool_calls'.")
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            raise Refused(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following did not have response messages: {', '.join(waiting)}",
                f"messages[{index}]",
            )
        calls = message.get("tool_calls") or []
        waiting = [call["id"] for call in calls]
        if len(set(waiting)) != len(waiting):
            raise Refused("tool call ids must be unique", f"messages[{index}]")
        if message["role"] == "assistant" and not calls and message.get("content") is None:
            raise Refused("content is required unless tool_calls is given", f"messages[{index}]")
        if message["role"] == "assistant" and message.get("tool_calls") == []:
            raise Refused("[] is too short - 'tool_calls'", f"messages[{index}]")
    if waiting:
        raise Refused(f"The following tool_call_ids did not have response messages: {', '.join(waiting)}")
