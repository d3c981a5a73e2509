"""The hosted form of programmatic calls, and the plain form that any model speaks: one into the other. Pure.

Hosted: a program is a `server_tool_use` of code execution, its calls are `tool_use` blocks with it as `caller`, and
`code_execution_tool_result` is its end, all within assistant messages. Plain: a program is a `tool_use` of the code
tool, and its end a `tool_result`; what the program called is no part of the conversation with the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final, cast

from bridge.anthropic import wire
from bridge.anthropic.wire import Block
from bridge.approval import Answer
from bridge.errors import CatalogError, ToolError
from bridge.loop import Answered
from bridge.results import PendingCall
from bridge.tools import Tool

VERSIONS: Final = frozenset({"code_execution_20260120", "code_execution_20260521"})  # those that can call tools
_SERVER: Final = "srv"  # before the id of a model's call: what the hosted form calls it
_GIVEN: Final = "arguments"  # what the model gave, where it was not just a program: it goes back as it came
_RESULTS: Final = "code_execution_tool_result"


def speaks_hosted(tools: Iterable[Block]) -> bool:
    """Whether a request asks for programs: its tools have code execution in a version that can call others."""
    return any(tool.get("type") in VERSIONS for tool in tools)


def for_programs(tools: Iterable[Block]) -> list[Tool]:
    """The functions that programs may call, as client-owned tools; the vendor's default is that they may not.

    Raises:
        CatalogError: One that cannot be a tool.
    """
    made: list[Tool] = []
    for tool in tools:
        if not VERSIONS & set(tool.get("allowed_callers", ())):
            continue
        if tool.get("type", "custom") != "custom":
            raise CatalogError(f"{tool.get('name')}: a tool of the vendor's own cannot be called from programs here")
        made.append(
            Tool(
                name=tool["name"],
                description=tool.get("description", ""),
                input_schema=tool["input_schema"],
                callers=frozenset({"programmatic"}),
            )
        )
    return made


def for_model(tools: Iterable[Block], code_tool: Block) -> list[Block]:
    """The tools of the plain form: the code tool first, then what the model may call by itself."""
    made = [code_tool]
    for tool in tools:
        if tool.get("type") in VERSIONS:
            continue
        callers = tool.get("allowed_callers")
        if callers is None or "direct" in callers:
            made.append({key: part for key, part in tool.items() if key != "allowed_callers"})
    return made


def choice_for_model(choice: object, code_tool: str) -> object:
    """`tool_choice` of the plain form."""
    if wire.field(choice, "name") == wire.CODE_EXECUTION:
        return {**cast("Block", choice), "name": code_tool}
    return choice


# ---- the conversation, as the model has it ---------------------------------------------------------------------------


def plain_messages(messages: Iterable[Block], code_tool: str) -> list[Block]:
    """A conversation in the hosted form as the model knows it."""
    made = _Plain(code_tool)
    for message in messages:
        content = message["content"]
        blocks: list[Block] = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            made.add(message["role"], block)
    return made.finished()


class _Plain:
    """Blocks in order, put into messages. Results wait until something else comes: they belong into one message."""

    def __init__(self, code_tool: str) -> None:
        self._code_tool = code_tool
        self._messages: list[Block] = []
        self._results: list[Block] = []
        self._nested: set[str] = set()  # calls of programs: they and their results are not the model's own

    def add(self, role: str, block: Block) -> None:
        kind = block["type"]
        if kind == "tool_use" and wire.caller_of(block).program is not None:
            self._nested.add(block["id"])
        elif kind == "tool_result":
            if block["tool_use_id"] not in self._nested:
                self._results.append(block)
        elif kind == _RESULTS:
            self._results.append(_plain_result(block))
        else:
            self._flush()
            if kind == "server_tool_use" and block["name"] == wire.CODE_EXECUTION:
                given = block["input"]
                given = given.get(_GIVEN, {"program": given.get("code", "")})
                kept = {"cache_control": block["cache_control"]} if block.get("cache_control") else {}
                made = {"type": "tool_use", "id": plain_id(block["id"]), "name": self._code_tool, "input": given}
                block = {**made, **kept}
            elif kind == "tool_use":
                block = {key: part for key, part in block.items() if key != "caller"}
            self._append(role, block)

    def finished(self) -> list[Block]:
        self._flush()
        return self._messages

    def _flush(self) -> None:
        if self._results:
            results, self._results = self._results, []
            self._messages.append({"role": "user", "content": results})

    def _append(self, role: str, block: Block) -> None:
        if not self._messages or self._messages[-1]["role"] != role:
            self._messages.append({"role": role, "content": []})
        self._messages[-1]["content"].append(block)


def plain_id(hosted: str) -> str:
    """The id of the model's call, of that of the program in the hosted form."""
    return hosted.removeprefix(_SERVER)


def _plain_result(block: Block) -> Block:
    content = block["content"]
    made: Block = {"type": "tool_result", "tool_use_id": plain_id(block["tool_use_id"])}
    failed = content["type"] != "code_execution_result" or content["return_code"] != 0
    text = content.get("stdout", "") + content.get("stderr", "") or content.get("error_code", "")
    if text:
        made["content"] = text
    return made | ({"is_error": True} if failed else {})


# ---- what the application gets ---------------------------------------------------------------------------------------


def hosted_block(block: Block, code_tool: str, program: str) -> Block:
    """A block of the model's response in the hosted form; `program` is the text of a call of the code tool."""
    if block["type"] != "tool_use":
        return block
    if block["name"] != code_tool:
        return {**block, "caller": {"type": "direct"}}
    return {
        "type": "server_tool_use",
        "id": _SERVER + block["id"],
        "name": wire.CODE_EXECUTION,
        "input": {"code": program} | ({} if block["input"] == {"program": program} else {_GIVEN: block["input"]}),
        "caller": {"type": "direct"},
    }


def hosted_result(answered: Answered) -> Block:
    """The end of a program. There is no other place for why it failed than the text."""
    text = answered.text
    if answered.result is not None and not answered.failed:
        text = answered.result.body
        if images := len(answered.result.images):
            text += f"\n[sandbridge] {images} picture(s) are not shown: a program's output is text here"
    content: Block = {
        "type": "code_execution_result",
        "stdout": "" if answered.failed else text,
        "stderr": text if answered.failed else "",
        "return_code": int(answered.failed),
        "content": [],
    }
    return {"type": _RESULTS, "tool_use_id": _SERVER + answered.id, "content": content}


def hosted_call(call: PendingCall, program: str) -> Block:
    """A call that the application is to answer; `program` is the id of the model's call that gave the program."""
    return {
        "type": "tool_use",
        "id": call_id(call),
        "name": call.tool,
        "input": call.arguments,
        "caller": {"type": wire.HOSTED, "tool_id": _SERVER + program},
    }


def call_id(call: PendingCall) -> str:
    """The id of a program's call on the wire, whose ids have letters, digits, `_` and `-` only."""
    return "toolu_" + call.id.replace(".", "_")


def answer_of(block: Block) -> Answer | ToolError:
    """What the application answered, as the program gets it: JSON objects and lists parsed, other text as it is."""
    content = block.get("content", "")
    if not isinstance(content, str):
        parts = cast("Sequence[Block]", content)
        content = "".join(part["text"] for part in parts if part["type"] == "text")
    if block.get("is_error"):
        return ToolError("failed", content)
    if content.lstrip()[:1] in ("{", "["):
        try:
            return Answer(json.loads(content))
        except (ValueError, RecursionError):
            pass
    return Answer(content)
