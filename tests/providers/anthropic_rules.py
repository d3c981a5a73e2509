"""What the Messages API refuses beyond types: unpaired calls, altered history, tools and continuations it cannot take.

Pure functions over one request. Each raises `Refused`, which the server answers with 400. The words are the vendor's
where they are known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs

Block = dict[str, Any]
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
HOSTED = ("code_execution_20260120", "code_execution_20260521")


class Refused(Exception):
    """A request that the vendor answers with an error."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def blocks(message: Block) -> list[Block]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def check_request(request: Block, issued: Mapping[str, list[Block]]) -> None:
    """Everything that can be said of one request. `issued` has the blocks with ids that the server sent, by id."""
    tools = request.get("tools", [])
    check_tools(tools)
    check_choice(request.get("tool_choice"), tools)
    check_messages(request["messages"], issued)
    check_references(request["messages"], tools)
    running = programs(request["messages"])
    if running:
        check_continuation(request, running)


# ---- tools -----------------------------------------------------------------------------------------------------------


def check_tools(tools: list[Block]) -> None:
    names = [tool["name"] for tool in tools]
    if len(set(names)) != len(names):
        raise Refused("tools: Tool names must be unique.")
    if tools and all(tool.get("defer_loading") for tool in tools):
        raise Refused("All tools have defer_loading set. At least one tool must be non-deferred.")
    code = any(tool.get("type", "").startswith("code_execution_") for tool in tools)
    for index, tool in enumerate(tools):
        where = f"tools.{index}.custom"
        if not NAME.fullmatch(tool["name"]):
            raise Refused(f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'")
        if tool.get("type", "custom") != "custom":
            continue
        check_schema(tool["input_schema"], where)
        callers = tool.get("allowed_callers", ["direct"])
        if not callers:
            raise Refused(f"{where}.allowed_callers: at least one caller is needed")
        if any(caller in HOSTED for caller in callers):
            if not code:
                raise Refused(f"{where}.allowed_callers: the code execution tool is not among the tools")
            if tool.get("strict"):
                raise Refused(f"{where}.strict: strict tools cannot be called from code execution")
            if circular(tool["input_schema"]):
                raise Refused(f"{where}.input_schema: recursive $ref is not supported with code execution")


def check_schema(schema: Block, where: str) -> None:
    if schema.get("type") != "object":
        raise Refused(f"{where}.input_schema.type: Input should be 'object'")
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            raise Refused(
                f"{where}.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
            )
    if any(not KEY.fullmatch(name) for name in schema.get("properties", {})):
        raise Refused(f"{where}.input_schema.properties: Property keys should match '^[a-zA-Z0-9_.-]{{1,64}}$'")
    try:
        jsonschema_rs.meta.validate(schema)
        jsonschema_rs.validator_for(schema)
    except (ValueError, jsonschema_rs.ValidationError) as error:
        raise Refused(f"{where}.input_schema: JSON schema is invalid: {error}") from None


def circular(schema: Block) -> bool:
    """Whether a reference leads back to where it is used."""

    def walk(value: Any, above: tuple[str, ...]) -> bool:
        if isinstance(value, list):
            return any(walk(part, above) for part in value)
        if not isinstance(value, dict):
            return False
        reference = value.get("$ref")
        if isinstance(reference, str):
            if reference in above or reference == "#":
                return True
            target: Any = schema
            for part in reference[2:].split("/"):
                target = target[part]
            return walk(target, (*above, reference))
        return any(walk(part, above) for key, part in value.items() if key not in ("$defs", "definitions"))

    return walk(schema, ())


def check_choice(choice: Block | None, tools: list[Block]) -> None:
    if choice is None:
        return
    if choice["type"] == "tool" and choice["name"] not in [tool["name"] for tool in tools]:
        raise Refused(f"tool_choice: Tool '{choice['name']}' not found in provided tools")
    from_programs = [tool for tool in tools if set(HOSTED) & set(tool.get("allowed_callers", ()))]
    if from_programs and choice.get("disable_parallel_tool_use"):
        raise Refused("tool_choice: disable_parallel_tool_use cannot be used with programmatic tool calling")
    if choice["type"] == "tool" and choice["name"] in [tool["name"] for tool in from_programs]:
        raise Refused("tool_choice: a programmatic call cannot be forced")


# ---- messages --------------------------------------------------------------------------------------------------------


def check_messages(messages: list[Block], issued: Mapping[str, list[Block]]) -> None:
    if not messages:
        raise Refused("messages: at least one message is required")
    if messages[0]["role"] != "user":
        raise Refused("messages.0: the first message must be of the user")
    seen: set[str] = set()
    open_calls: dict[str, Block] = {}
    for index, message in enumerate(joined(messages)):
        content = blocks(message)
        if not content:
            raise Refused(f"messages.{index}: all messages must have non-empty content")
        if any(block["type"] == "text" and not block["text"] for block in content):
            raise Refused(f"messages.{index}: text content blocks must be non-empty")
        check_results(index, message, content, open_calls)
        open_calls = {}
        if message["role"] == "assistant":
            for block in content:
                check_unchanged(index, block, issued)
                if block["type"] == "tool_use":
                    if block["id"] in seen:
                        raise Refused(f"messages.{index}: `tool_use` ids must be unique")
                    seen.add(block["id"])
                    open_calls[block["id"]] = block
    if open_calls:
        raise Refused(
            f"messages.{len(messages) - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            + ", ".join(open_calls)
        )


def joined(messages: list[Block]) -> list[Block]:
    """Messages of the user that follow one another are one to the vendor."""
    made: list[Block] = []
    for message in messages:
        if made and message["role"] == made[-1]["role"] == "user" and blocks(message):
            made[-1] = {"role": "user", "content": [*blocks(made[-1]), *blocks(message)]}
        else:
            made.append(message)
    return made


def check_results(index: int, message: Block, content: list[Block], open_calls: dict[str, Block]) -> None:
    results = [block for block in content if block["type"] == "tool_result"]
    ids = [block["tool_use_id"] for block in results]
    if message["role"] == "assistant" and results:
        raise Refused(f"messages.{index}: `tool_result` blocks can only be in `user` messages")
    missing = [call for call in open_calls if call not in ids]
    if missing:
        raise Refused(
            f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            + ", ".join(missing)
        )
    for call in ids:
        if call not in open_calls:
            raise Refused(f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {call}")
    if len(set(ids)) != len(ids):
        raise Refused(f"messages.{index}: each `tool_use` must have a single result")
    if results and content[: len(results)] != results:
        raise Refused(f"messages.{index}: `tool_result` blocks must come first")
    from_programs = [call for call in ids if is_program(open_calls[call])]
    if from_programs and len(results) != len(content):
        raise Refused(f"messages.{index}: only `tool_result` blocks may answer calls of a program")
    for block in results:
        parts = block.get("content", "")
        texts = isinstance(parts, str) or all(part["type"] == "text" for part in parts)
        if block["tool_use_id"] in from_programs and not texts:
            raise Refused(f"messages.{index}: results for a program are text")


def check_references(messages: list[Block], tools: list[Block]) -> None:
    """What a search found has a definition that is deferred; a deferred tool is called only when it was found."""
    deferred = {tool["name"] for tool in tools if tool.get("defer_loading")}
    loaded: set[str] = set()
    for block in every(messages):
        if block["type"] == "tool_result" and isinstance(block.get("content"), list):
            for part in block["content"]:
                if part["type"] == "tool_reference" and part["tool_name"] not in deferred:
                    raise Refused(f"Tool reference '{part['tool_name']}' has no corresponding tool definition")
                loaded |= {part["tool_name"]} if part["type"] == "tool_reference" else set()
        elif block["type"] == "tool_search_tool_result":
            loaded |= {part["tool_name"] for part in block["content"].get("tool_references", ())}
        elif block["type"] == "tool_use" and block["name"] in deferred - loaded:
            raise Refused(f"tool_use: {block['name']} was called before a search has loaded it")


def is_program(call: Block) -> bool:
    return call.get("caller", {"type": "direct"})["type"] != "direct"


def check_unchanged(index: int, block: Block, issued: Mapping[str, list[Block]]) -> None:
    """What the model sent must come back as it was: calls, programs, their results, and signed thoughts."""
    for key in ("id", "signature", "tool_use_id"):
        if key in block:
            name = f"{block['type']}:{block[key]}"
            if name in issued and block not in issued[name]:
                raise Refused(f"messages.{index}: the block {name} was changed")


def programs(messages: list[Block]) -> dict[str, Block]:
    """Programs that wait for results: `server_tool_use` blocks without theirs."""
    found: dict[str, Block] = {}
    for block in every(messages):
        if block["type"] == "server_tool_use" and block["name"] == "code_execution":
            found[block["id"]] = block
        elif block["type"] == "code_execution_tool_result":
            found.pop(block["tool_use_id"], None)
    return found


def every(messages: list[Block]) -> Iterator[Block]:
    for message in messages:
        yield from blocks(message)


def check_continuation(request: Block, running: dict[str, Block]) -> None:
    container = request.get("container")
    if container is None:
        raise Refused(
            "container_id is required when there are pending tool uses generated by code execution with tools."
        )
    if not any(tool.get("type") in HOSTED for tool in request.get("tools", [])):
        raise Refused(f"tools: the code execution tool is missing, and {', '.join(running)} still runs")
