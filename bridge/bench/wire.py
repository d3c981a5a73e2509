"""Request bodies as they go over the wire, in three formats, as pieces that can be counted one by one.

This module decides what a body looks like and where it may be divided. A body is the compact JSON text of a request.
Every piece begins at the first letter of an object, behind its `{"`: there the encoding begins a new token whatever
stands before, so that the tokens of the pieces add up to those of the body, exactly (`verify` checks it).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

Kind = Literal["system", "tools", "user", "calls", "results", "code", "result", "answer"]
KINDS: Final[tuple[Kind, ...]] = ("system", "tools", "user", "calls", "results", "code", "result", "answer")
MODEL: Final = "scripted"  # what bodies name as their model: of one length, whatever it is
_OPEN: Final = '{"'


@dataclass(frozen=True)
class Part:
    """One object of a body (a tool's definition, an item, a message) and what it counts as."""

    kind: Kind
    text: str


@dataclass(frozen=True)
class Body:
    """One request: `head`, the tools, `middle`, the items, `tail`."""

    head: str
    tools: tuple[Part, ...]
    middle: str
    items: tuple[Part, ...]
    tail: str

    @property
    def text(self) -> str:
        """The compact JSON text."""
        tools, items = (",".join(part.text for part in parts) for parts in (self.tools, self.items))
        return f"{self.head}{tools}{self.middle}{items}{self.tail}"

    @property
    def sha256(self) -> str:
        """Of the text, in UTF-8."""
        return hashlib.sha256(self.text.encode("utf-8", "replace")).hexdigest()

    def pieces(self) -> Iterator[Piece]:
        """The text, divided so that tokens add up."""
        parts = [*self.tools, *self.items]
        after = [f",{_OPEN}"] * len(parts)
        after[-1] = self.tail
        if self.tools:
            after[len(self.tools) - 1] = self.middle + _OPEN
            yield Piece("system", _OPEN + self.head, _OPEN)
        else:
            yield Piece("system", _OPEN + self.head, self.middle + _OPEN)
        for part, glue in zip(parts, after, strict=True):
            yield Piece(part.kind, part.text, glue)


class Piece(NamedTuple):
    """A piece of a body: `whole` without its first two characters, and what follows up to the next object's."""

    kind: Kind
    whole: str
    glue: str

    @property
    def text(self) -> str:
        """As it stands in the body."""
        return self.whole[len(_OPEN) :] + self.glue


@dataclass(frozen=True)
class WireCall:
    """A call on the wire. `arguments` is JSON text; `kind` what it counts as: `calls`, or `code` for a program."""

    id: str
    name: str
    arguments: str
    kind: Kind = "calls"


@dataclass(frozen=True)
class WireResult:
    """What goes back for a call. `kind`: `results`, or `result` for a program's text."""

    id: str
    text: str
    failed: bool = False
    kind: Kind = "results"


class Format(Protocol):
    """A provider's format. Each method gives objects as compact JSON text."""

    name: str

    def body(self, system: str, tools: Sequence[Part], items: Sequence[Part]) -> Body:
        """A whole request."""
        ...

    def tool(self, name: str, description: str, schema: Mapping[str, Any]) -> Part:
        """The definition of a function."""
        ...

    def user(self, text: str) -> Part:
        """A user's message."""
        ...

    def calls(self, calls: Sequence[WireCall]) -> list[Part]:
        """What a model writes when it calls tools; stays in the history as it is."""
        ...

    def results(self, results: Sequence[WireResult]) -> list[Part]:
        """What goes back for these calls."""
        ...

    def answer(self, text: str) -> Part:
        """A model's final message."""
        ...


def compact(value: Any) -> str:
    """Compact JSON text."""
    return msgspec.json.encode(value).decode()


class Responses:
    """The OpenAI Responses API, stateless: the whole ordered history in every request."""

    name = "responses"

    def body(self, system: str, tools: Sequence[Part], items: Sequence[Part]) -> Body:
        head = compact({"model": MODEL, "instructions": system})[:-1]
        return Body(f'{head},"store":false,"tools":[', tuple(tools), '],"input":[', tuple(items), "]}")

    def tool(self, name: str, description: str, schema: Mapping[str, Any]) -> Part:
        function = {"type": "function", "name": name, "description": description, "parameters": schema}
        return Part("tools", compact(function | {"strict": False}))  # the vendor wants it said

    def user(self, text: str) -> Part:
        return Part("user", compact({"role": "user", "content": text}))

    def calls(self, calls: Sequence[WireCall]) -> list[Part]:
        return [
            Part(
                call.kind,
                compact({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}),
            )
            for call in calls
        ]

    def results(self, results: Sequence[WireResult]) -> list[Part]:
        return [
            Part(each.kind, compact({"type": "function_call_output", "call_id": each.id, "output": each.text}))
            for each in results
        ]

    def answer(self, text: str) -> Part:
        content = [{"type": "output_text", "text": text}]
        return Part("answer", compact({"type": "message", "role": "assistant", "content": content}))


class Chat:
    """OpenAI Chat Completions, which most other models speak."""

    name = "chat"

    def body(self, system: str, tools: Sequence[Part], items: Sequence[Part]) -> Body:
        first = Part("system", compact({"role": "system", "content": system}))
        head = compact({"model": MODEL})[:-1]
        return Body(f'{head},"tools":[', tuple(tools), '],"messages":[', (first, *items), "]}")

    def tool(self, name: str, description: str, schema: Mapping[str, Any]) -> Part:
        function = {"name": name, "description": description, "parameters": schema}
        return Part("tools", compact({"type": "function", "function": function}))

    def user(self, text: str) -> Part:
        return Part("user", compact({"role": "user", "content": text}))

    def calls(self, calls: Sequence[WireCall]) -> list[Part]:
        made = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
        return [Part(calls[0].kind, compact({"role": "assistant", "content": None, "tool_calls": made}))]

    def results(self, results: Sequence[WireResult]) -> list[Part]:
        return [
            Part(each.kind, compact({"role": "tool", "tool_call_id": each.id, "content": each.text}))
            for each in results
        ]

    def answer(self, text: str) -> Part:
        return Part("answer", compact({"role": "assistant", "content": text}))


class Anthropic:
    """The Anthropic Messages API."""

    name = "anthropic"

    def body(self, system: str, tools: Sequence[Part], items: Sequence[Part]) -> Body:
        head = compact({"model": MODEL, "max_tokens": 4096, "system": system})[:-1]
        return Body(f'{head},"tools":[', tuple(tools), '],"messages":[', tuple(items), "]}")

    def tool(self, name: str, description: str, schema: Mapping[str, Any]) -> Part:
        return Part("tools", compact({"name": name, "description": description, "input_schema": schema}))

    def user(self, text: str) -> Part:
        return Part("user", compact({"role": "user", "content": text}))

    def calls(self, calls: Sequence[WireCall]) -> list[Part]:
        blocks = [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": msgspec.Raw(call.arguments.encode())}
            for call in calls
        ]
        return [Part(calls[0].kind, compact({"role": "assistant", "content": blocks}))]

    def results(self, results: Sequence[WireResult]) -> list[Part]:
        blocks: list[dict[str, Any]] = []
        for each in results:
            block: dict[str, Any] = {"type": "tool_result", "tool_use_id": each.id, "content": each.text}
            blocks.append(block | ({"is_error": True} if each.failed else {}))
        return [Part(results[0].kind, compact({"role": "user", "content": blocks}))]

    def answer(self, text: str) -> Part:
        return Part("answer", compact({"role": "assistant", "content": text}))


FORMATS: Final[Mapping[str, Format]] = {each.name: each for each in (Responses(), Chat(), Anthropic())}
