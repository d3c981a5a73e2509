"""One conversation in one format, through the provider adapters: what is offered, and who answers what a model writes.

Everything between the model's message and its answers is the adapters', the gate's and the executor's, as in any agent
loop: what is called here is the inside of `handle` of bridge.openai, bridge.openai.chat and bridge.anthropic, with one
offer for the whole conversation. Only the model's words are scripted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from bridge.bench.wire import FORMATS, Kind, Part, WireResult, compact
from bridge.code_tool import TOOL_NAME

if TYPE_CHECKING:
    from bridge.executor import Executor
    from bridge.run import Run

_DECLARATIONS: Final = "\n\n```ts\n"  # where they begin, in instructions


@dataclass(frozen=True)
class Answers:
    """What a history grows by after a message of the model, and the runs that made the answers."""

    history: list[Part]
    runs: list[Run]


Other = Callable[[str, str], tuple[str, bool]]
"""Answers a call by name and JSON text of its arguments: the text, and whether it failed."""


class Talk(Protocol):
    """A conversation.

    Attributes:
        tools: Definitions as plain data: the code tool first, then every tool for direct calls.
        instructions: What the system's words are to say of programs; empty where the code tool's description has it.
        other: Answers calls of what is no tool of the executor; says that there is none, unless somebody sets another.
    """

    tools: list[dict[str, Any]]
    instructions: str
    other: Other

    async def answer(self, output: Sequence[Part]) -> Answers:
        """Answer what the model wrote, through the adapter."""
        ...


class _Responses:
    def __init__(self, executor: Executor) -> None:
        from bridge.openai.answering import Offer, answer

        self._handle = answer
        self._offer = Offer(executor, direct=True, leave=True)
        self.tools = self._offer.tools(raw=False)
        self.instructions = self._offer.instructions
        self.other: Other = unknown

    async def answer(self, output: Sequence[Part]) -> Answers:
        items = [json.loads(part.text) for part in output]
        response = SimpleNamespace(
            id="resp_scripted",
            status="completed",
            output=items,
            tools=(),
            incomplete_details=None,
            error=None,
            previous_response_id=None,
            conversation=None,
        )
        handled = await self._handle(cast("Any", response), self._offer)
        names = {item["call_id"]: item["name"] for item in items if item["type"] == "function_call"}
        back = [Part(_result_kind(names[item["call_id"]]), compact(item)) for item in handled.items]
        left = [WireResult(item["call_id"], *self.other(item["name"], item["arguments"])) for item in handled.left]
        back += FORMATS["responses"].results(left)
        own = handled.transcript[: len(items)]
        history = [Part(part.kind, compact(item)) for part, item in zip(output, own, strict=True)]
        return Answers([*history, *back], handled.runs)


class _Chat:
    def __init__(self, executor: Executor) -> None:
        from bridge.code_tool import CodeTool
        from bridge.openai import definitions
        from bridge.openai.chat import answer

        self._handle = answer
        self._tool = CodeTool(executor, direct=True)
        self.tools = definitions.of(self._tool, api="chat")
        self.instructions = self._tool.instructions
        self.other: Other = unknown

    async def answer(self, output: Sequence[Part]) -> Answers:
        message = json.loads(output[0].text)
        choice = SimpleNamespace(message=message, finish_reason="tool_calls")
        completion = SimpleNamespace(id="chatcmpl_scripted", choices=[choice])
        handled = await self._handle(cast("Any", completion), self._tool, leave=True)
        names = {call["id"]: call["function"]["name"] for call in message["tool_calls"]}
        back = [Part(_result_kind(names[item["tool_call_id"]]), compact(item)) for item in handled.items]
        made = {call["id"]: call["function"]["arguments"] for call in message["tool_calls"]}
        left = [WireResult(item["id"], *self.other(names[item["id"]], made[item["id"]])) for item in handled.left]
        back += FORMATS["chat"].results(left)
        return Answers([Part(output[0].kind, compact(handled.transcript[0])), *back], handled.runs)


class _Anthropic:
    def __init__(self, executor: Executor) -> None:
        from bridge.anthropic import Offer

        self._offer = Offer(executor, direct=True)
        self.tools = self._offer.tools
        self.instructions = ""
        self.other: Other = unknown
        self._own = {str(tool["name"]) for tool in self.tools}

    async def answer(self, output: Sequence[Part]) -> Answers:
        message = json.loads(output[0].text)
        before = len(self._offer.runs)
        called = [block for block in message["content"] if block["type"] == "tool_use"]
        own = [block for block in message["content"] if block["type"] != "tool_use" or block["name"] in self._own]
        results: dict[str, Any] = {}
        if any(block["type"] == "tool_use" for block in own):
            turn = await self._offer.handle({"content": own, "stop_reason": "tool_use"})
            results = {block["tool_use_id"]: block for block in cast("Any", turn.messages[1])["content"]}
        for block in called:
            if block["id"] not in results:
                text, failed = self.other(block["name"], compact(block["input"]))
                (made,) = FORMATS["anthropic"].results([WireResult(block["id"], text, failed)])
                results[block["id"]] = json.loads(made.text)["content"][0]
        back = compact({"role": "user", "content": [results[block["id"]] for block in called]})
        kind = _result_kind(called[0]["name"])
        return Answers([Part(output[0].kind, output[0].text), Part(kind, back)], self._offer.runs[before:])


_TALKS: Final[Mapping[str, Any]] = {"responses": _Responses, "chat": _Chat, "anthropic": _Anthropic}
assert _TALKS.keys() == FORMATS.keys()


def talk(format_name: str, executor: Executor) -> Talk:
    """A conversation in a format of `wire.FORMATS`."""
    return _TALKS[format_name](executor)


def without_declarations(text: str) -> str:
    """Instructions, or a description that ends in them, without the declarations of the tools."""
    return text.partition(_DECLARATIONS)[0]


def declarations_of(text: str) -> str:
    """The declarations at the end of instructions."""
    return text.partition(_DECLARATIONS)[2].rpartition("```")[0]


def unknown(name: str, _: str) -> tuple[str, bool]:
    """What a model reads that called a tool which is not there: in a loop of one's own that is one's own to say."""
    return f"error unknown_tool: there is no tool {name!r}; call one that is defined", True


def _result_kind(name: str) -> Kind:
    return "result" if name == TOOL_NAME else "results"
