"""The hosted form of programmatic calls, and the plain form that any model speaks: one into the other. Pure.

Hosted: a program is a `server_tool_use` of code execution, its calls are `tool_use` blocks with it as `caller`, and
`code_execution_tool_result` is its end, all within assistant messages. Plain: a program is a `tool_use` of the code
tool, and its end a `tool_result`; what the program called is no part of the conversation with the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final, cast

from bridge.anthropic import wire
from bridge.anthropic.wire import Block
from bridge.approval import Answer
from bridge.code_tool import CodeTool
from bridge.declarations import declare
from bridge.errors import CatalogError, ToolError
from bridge.loop import Answered, ModelCall
from bridge.results import PendingCall
from bridge.searching import NAME
from bridge.tools import Tool

VERSIONS: Final = frozenset({"code_execution_20260120", "code_execution_20260521"})  # those that can call tools
_SERVER: Final = "srv"  # before the id of a model's call: what the hosted form calls it
_GIVEN: Final = "arguments"  # what the model gave, where it was not just a program: it goes back as it came
_RESULTS: Final = "code_execution_tool_result"
_SEARCH: Final = "srvtoolu_sb_"  # before the id of a model's search that is executed here
_FOUND: Final = "tool_search_tool_result"
_FOUND_ERROR: Final = "tool_search_tool_result_error"
_CALL_ID: Final = re.compile(r"toolu_(.+)_[0-9]+")  # of a program's call: its run's id is in it


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
                defer=bool(tool.get("defer_loading")),
                input_schema=tool["input_schema"],
                callers=frozenset({"programmatic"}),
            )
        )
    return made


def for_model(tools: Iterable[Block], own: Iterable[Block]) -> list[Block]:
    """The tools of the plain form: the code tool first, then what the model may call by itself.

    Args:
        own: The code tool, and the search where there is one. The vendor's own is kept where it has something to find.
    """
    made = list(own)
    for tool in tools:
        if tool.get("type") in VERSIONS:
            continue
        callers = tool.get("allowed_callers")
        if callers is None or "direct" in callers:
            made.append({key: part for key, part in tool.items() if key != "allowed_callers"})
    kept = any(tool.get("defer_loading") for tool in made)
    return [tool for tool in made if kept or not wire.searches([tool])]


def search_name(tools: Iterable[Block]) -> str:
    """The name under which searches are shown: that of the vendor's tool search in the request, if it has one."""
    return next((tool["name"] for tool in tools if wire.searches([tool])), "tool_search_tool_bm25")


def choice_for_model(choice: object, code_tool: str) -> object:
    """`tool_choice` of the plain form."""
    if wire.field(choice, "name") == wire.CODE_EXECUTION:
        return {**cast("Block", choice), "name": code_tool}
    return choice


# ---- the conversation, as the model has it ---------------------------------------------------------------------------


class Reader:
    """One form into the other, for one request.

    Args:
        code: The code tool, and the search.
        tools: Those of the plain form.
        search_name: How a search is named in the hosted form.
    """

    def __init__(self, code: CodeTool, tools: Iterable[Block], search_name: str) -> None:
        self.code = code
        self._names = {str(tool.get("name")) for tool in tools}
        self._search_name = search_name
        self._searches: dict[str, Block] = {}

    def messages(self, messages: Iterable[Block]) -> list[Block]:
        """A conversation in the hosted form as the model knows it."""
        made = _Plain(self)
        for message in messages:
            content = message["content"]
            blocks: list[Block] = [{"type": "text", "text": content}] if isinstance(content, str) else content
            for block in blocks:
                made.add(message["role"], block)
        return made.finished()

    def is_ours(self, block: Block) -> bool:
        """Whether a call of the model is answered here: a program, or a search."""
        return block["name"] == self.code.name or self._is_search(block)

    def _is_search(self, block: Block) -> bool:
        return self.code.search is not None and block["name"] == NAME

    def shown(self, block: Block) -> Block:
        """A block of the model's response in the hosted form."""
        if block["type"] != "tool_use":
            return block
        if self._is_search(block):
            self._searches[block["id"]] = block
            made = {"type": "server_tool_use", "id": _SEARCH + block["id"], "name": self._search_name}
            return {**made, "input": block["input"], "caller": {"type": "direct"}}
        if block["name"] != self.code.name:
            return {**block, "caller": {"type": "direct"}}
        try:
            program = self.code.program_of(wire.model_call(block))
        except ToolError:
            program = ""  # the answer to the call says what is wrong with it
        return {
            "type": "server_tool_use",
            "id": _SERVER + block["id"],
            "name": wire.CODE_EXECUTION,
            "input": {"code": program} | ({} if block["input"] == {"program": program} else {_GIVEN: block["input"]}),
            "caller": {"type": "direct"},
        }

    def result(self, answered: Answered) -> Block:
        """The end of a program or of a search."""
        if answered.name == self.code.name:
            return hosted_result(answered)
        if answered.failed or self.code.search is None:
            content: Block = {"type": _FOUND_ERROR, "error_code": "invalid_tool_input", "error_message": answered.text}
        else:
            entries = self.code.search.find(wire.model_call(self._searches[answered.id])).entries
            references = [{"type": "tool_reference", "tool_name": entry.name} for entry in entries]
            content = {"type": "tool_search_tool_search_result", "tool_references": references}
        return {"type": _FOUND, "tool_use_id": _SEARCH + answered.id, "content": content}

    def references(self, content: Sequence[Block]) -> list[Block]:
        """What the application found, for the model: tools of programs as declarations."""
        found = [part["tool_name"] for part in content if part["type"] == "tool_reference"]
        entries = [
            e for e in self.code.executor.catalog.entries if e.name in found and "programmatic" in e.tool.callers
        ]
        kept = [part for part in content if part["type"] != "tool_reference" or part["tool_name"] in self._names]
        text = f"For programs:\n```ts\n{declare(entries, deferred=True)}```"
        return [*([{"type": "text", "text": text}] if entries else []), *kept]

    def searched(self, block: Block) -> str:
        """What the model was told of a search that was shown: the same for the same."""
        call = ModelCall(id=block["id"], name=NAME, arguments=block["input"])
        return "" if self.code.search is None else self.code.search.said(call)


class _Plain:
    """Blocks in order, put into messages. Results wait until something else comes: they belong into one message."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._searches: dict[str, Block] = {}  # id of a search that was executed here -> as it was shown
        self._messages: list[Block] = []
        self._results: list[Block] = []
        self._nested: set[str] = set()  # calls of programs: they and their results are not the model's own

    def add(self, role: str, block: Block) -> None:
        kind = block["type"]
        if kind == "tool_use" and wire.caller_of(block).program is not None:
            self._nested.add(block["id"])
        elif kind == "tool_result":
            if block["tool_use_id"] not in self._nested:
                content = block.get("content")
                if isinstance(content, list):
                    block = {**block, "content": self._reader.references(cast("list[Block]", content))}
                self._results.append(block)
        elif kind == _FOUND and block["tool_use_id"] in self._searches:
            call = self._searches[block["tool_use_id"]]
            made: Block = {"type": "tool_result", "tool_use_id": call["id"].removeprefix(_SEARCH)}
            failed = {"is_error": True} if block["content"]["type"] == _FOUND_ERROR else {}
            self._results.append({**made, "content": self._reader.searched(call), **failed})
        elif kind == _RESULTS:
            self._results.append(_plain_result(block))
        else:
            self._flush()
            if kind == "server_tool_use" and block["id"].startswith(_SEARCH):
                self._searches[block["id"]] = block
                given, own = block["input"], block["id"].removeprefix(_SEARCH)
                block = {"type": "tool_use", "id": own, "name": NAME, "input": given}
            elif kind == "server_tool_use" and block["name"] == wire.CODE_EXECUTION:
                given = block["input"]
                given = given.get(_GIVEN, {"program": given.get("code", "")})
                kept = {"cache_control": block["cache_control"]} if block.get("cache_control") else {}
                made = {"type": "tool_use", "id": plain_id(block["id"]), "name": self._reader.code.name, "input": given}
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


def ended_in(messages: Iterable[Block]) -> set[str]:
    """Ids of the model's calls whose end is in a conversation."""
    blocks = [block for message in messages for block in wire.content_of(message)]
    ended = [block["tool_use_id"] for block in blocks if block["type"] in (_RESULTS, _FOUND)]
    return {plain_id(each.removeprefix(_SEARCH)) for each in ended}


def is_nested(block: Block) -> bool:
    """Whether a program made a call."""
    return wire.caller_of(block).program is not None


def runs_of(messages: Iterable[Block]) -> dict[str, str]:
    """Id of each program that made calls -> id of its run, which its calls' ids hold."""
    blocks = [block for message in messages for block in wire.calls_in(wire.content_of(message))]
    found = {wire.caller_of(block).program: _CALL_ID.fullmatch(block["id"]) for block in blocks}
    return {program: held[1] for program, held in found.items() if program is not None and held is not None}


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
