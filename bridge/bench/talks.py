"""One conversation in one format, through the provider adapters: what is offered, and who answers what a model writes.

Everything between the model's message and its answers is the adapters', the gate's and the executor's, as in any agent
loop: what is called here is the inside of `handle` of bridge.openai, bridge.openai.chat and bridge.anthropic, with one
offer for the whole conversation. Only the model's words are scripted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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


class Talk(Protocol):
    """A conversation.

    Attributes:
        tools: Definitions as plain data: the code tool first, then every tool for direct calls.
        instructions: What the system's words are to say of programs; empty where the code tool's description has it.
    """

    tools: list[dict[str, Any]]
    instructions: str

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

    async def answer(self, output: Sequence[Part]) -> Answers:
        items = [json.loads(part.text) for part in output]
        response = SimpleNamespace(
            id="resp_scripted", status="completed", output=items, tools=(), incomplete_details=None, error=None
        )
        handled = await self._handle(cast("Any", response), self._offer)
        names = {item["call_id"]: item["name"] for item in items if item["type"] == "function_call"}
        back = [Part(_result_kind(names[item["call_id"]]), compact(item)) for item in handled.items]
        unknown = [WireResult(item["call_id"], _unknown(item["name"]), failed=True) for item in handled.left]
        back += FORMATS["responses"].results(unknown)
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

    async def answer(self, output: Sequence[Part]) -> Answers:
        message = json.loads(output[0].text)
        choice = SimpleNamespace(message=message, finish_reason="tool_calls")
        completion = SimpleNamespace(id="chatcmpl_scripted", choices=[choice])
        handled = await self._handle(cast("Any", completion), self._tool, leave=True)
        names = {call["id"]: call["function"]["name"] for call in message["tool_calls"]}
        back = [Part(_result_kind(names[item["tool_call_id"]]), compact(item)) for item in handled.items]
        unknown = [WireResult(item["id"], _unknown(names[item["id"]]), failed=True) for item in handled.left]
        back += FORMATS["chat"].results(unknown)
        return Answers([Part(output[0].kind, compact(handled.transcript[0])), *back], handled.runs)


class _Anthropic:
    def __init__(self, executor: Executor) -> None:
        from bridge.anthropic import Offer

        self._offer = Offer(executor, direct=True)
        self.tools = cast("list[dict[str, Any]]", self._offer.tools)
        self.instructions = ""

    async def answer(self, output: Sequence[Part]) -> Answers:
        message = json.loads(output[0].text)
        before = len(self._offer.runs)
        turn = await self._offer.handle({"content": message["content"], "stop_reason": "tool_use"})
        called = next(block["name"] for block in message["content"] if block["type"] == "tool_use")
        kinds: list[Kind] = [output[0].kind, _result_kind(called)]
        history = [Part(kind, compact(each)) for kind, each in zip(kinds, turn.messages, strict=True)]
        return Answers(history, self._offer.runs[before:])


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


def _unknown(name: str) -> str:
    """What a model reads that called a tool which is not there: in a loop of one's own that is one's own to say."""
    return f"error unknown_tool: there is no tool {name!r}; call one that is defined"


def _result_kind(name: str) -> Kind:
    return "result" if name == TOOL_NAME else "results"
