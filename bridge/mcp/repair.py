"""What servers send that the SDK would refuse, put right before it does, each with a warning.

One malformed tool would cost the whole list, one odd block the whole result. The repairs are pure functions on JSON
data; `repaired` puts them into the streams of any transport.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Final, Self

import anyio
import mcp_types as types
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse
from pydantic import ValidationError

from bridge.dialect import is_list, is_object
from bridge.mcp import wire
from bridge.mcp.text import depth, printable

Warn = Callable[[str], None]
# What is used of a tool and of a result. The rest (icons are never fetched) is dropped, so that it can cost nothing.
TOOL_KEYS: Final = frozenset("name title description inputSchema outputSchema annotations execution _meta".split())
RESULT_KEYS: Final = frozenset("content structuredContent isError resultType _meta".split())
HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
UNDECLARED: Final = frozenset(["roots/list", "sampling/createMessage", "elicitation/create"])
WRAPPED: Final = wire.MARK + "/wrapped"
"""Key in the `_meta` of a result whose structured content was wrapped here, only to get it past the SDK."""
WRITTEN: Final = wire.MARK + "/written"
"""The same, for structured content too deep for the SDK: it is JSON text in the one block of content."""
SDK_DEPTH: Final = 200  # levels; the SDK serialises what it has read and stops at 255, with its own around it
META_DEPTH: Final = 50  # levels of what carries no data
BYTES_SHOWN: Final = 1_000  # characters; a longer text in a block of unknown type is bytes in some encoding

# Of a block of content, by its type: what it must have, and what else is read. All are texts.
REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri", "name"),
}
OPTIONAL: Final[dict[str, tuple[str, ...]]] = {"resource_link": ("title", "description", "mimeType")}


class Repairs:
    """What passes between the SDK and one transport is seen here: requests are remembered, answers repaired.

    Args:
        warn: Told of every repair.
        ended: Called when the server's side of the stream has ended, before anything waiting for it is told.
        asks: Whether the server was told that it may ask a person.
    """

    def __init__(self, warn: Warn, ended: Callable[[], None], *, asks: bool = False) -> None:
        self.warn = warn
        self.ended = ended
        self.modern = False
        self._asked: dict[str | int, str] = {}
        self._never_offered = UNDECLARED - {"elicitation/create"} if asks else UNDECLARED
        self._undeclared: set[str | int] = set()

    def sent(self, item: SessionMessage) -> None:
        """Look at a message that leaves."""
        message = item.message
        if isinstance(message, JSONRPCRequest):
            self._asked[message.id] = message.method
            self.modern = types.PROTOCOL_VERSION_META_KEY in ((message.params or {}).get("_meta") or {})
        elif isinstance(message, JSONRPCError) and message.id in self._undeclared:
            self._undeclared.discard(message.id)
            # To a server that asks for what was never offered, the method does not exist.
            message.error.code = types.METHOD_NOT_FOUND

    def received(self, item: SessionMessage | Exception) -> None:
        """Look at a message that arrives, and repair it."""
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, JSONRPCRequest) and message.method in self._never_offered:
            self._undeclared.add(message.id)
        if isinstance(message, (JSONRPCResponse, JSONRPCError)):
            method = self._asked.pop(_key(message.id, self._asked), None)
            if not isinstance(message, JSONRPCResponse):
                return
            try:
                if method == "tools/list":
                    repair_list(message.result, self.modern, self.warn)
                elif method == "tools/call":
                    repair_result(message.result, self.modern, self.warn)
            except RecursionError:  # it would end the session
                text = "the answer nests too deeply to be read"
                self.warn(f"{method}: {text}")
                failed = {"content": [{"type": "text", "text": text}], "isError": True}
                message.result = {"tools": []} if method == "tools/list" else failed


@asynccontextmanager
async def repaired(
    transport: AbstractAsyncContextManager[tuple[Any, Any]],
    warn: Warn,
    ended: Callable[[], None],
    *,
    asks: bool = False,
) -> AsyncGenerator[tuple[Any, Any]]:
    """Wrap a client transport so that lists and results pass the SDK. Arguments as for `Repairs`."""
    repairs = Repairs(warn, ended, asks=asks)
    async with transport as (read, write):
        yield _Reading(read, repairs), _Writing(write, repairs)


class _Stream:
    """A stream of a transport, watched. No task and no buffer in between: order, deadlines and contexts stay."""

    def __init__(self, inner: Any, repairs: Repairs) -> None:
        self._inner = inner
        self._repairs = repairs

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class _Reading(_Stream):
    @property
    def last_context(self) -> Any:
        """What the SDK's HTTP transport says of who made the last message; None elsewhere."""
        return getattr(self._inner, "last_context", None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            item: SessionMessage | Exception = await anext(self._inner)
        except (StopAsyncIteration, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._repairs.ended()
            raise
        self._repairs.received(item)
        return item

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise anyio.EndOfStream from None


class _Writing(_Stream):
    async def send(self, item: SessionMessage, /) -> None:
        self._repairs.sent(item)
        await self._inner.send(item)


def _key(number: str | int | None, asked: dict[str | int, str]) -> str | int:
    """An id as it was sent: servers answer "7" to 7."""
    if isinstance(number, str) and number not in asked and number.isdecimal() and len(number) < 16:
        return int(number)
    return -1 if number is None else number


def repair_list(result: dict[str, Any], modern: bool, warn: Warn) -> None:
    """Make a `tools/list` result acceptable, in place: what cannot be used is left out, and said.

    Args:
        result: As the server sent it.
        modern: Whether the connection speaks 2026-07-28, where output schemas may be of any type.
        warn: Told of every change that a person may want to know of.
    """
    tools = result.get("tools")
    if not is_list(tools):
        warn("its list of tools is no list: it is taken as empty")
    result["tools"] = [tool for tool in (tools if is_list(tools) else []) if _usable(tool, modern, warn)]
    if not isinstance(result.get("nextCursor"), (str, type(None))):
        warn("its cursor for the next page of tools is no text: that page was taken as the last")
        del result["nextCursor"]


def _usable(tool: Any, modern: bool, warn: Warn) -> bool:
    name = tool.get("name") if is_object(tool) else None
    if not isinstance(name, str):
        warn("a tool without a name was left out")
        return False
    who = f"tool {printable(name, 80)!r}"
    for key in tool.keys() - TOOL_KEYS:
        del tool[key]
    if depth(tool, SDK_DEPTH) > SDK_DEPTH:
        warn(f"{who} was left out: it nests more than {SDK_DEPTH} levels deep")
        return False
    schema = tool.get("inputSchema", True)
    if schema is True or schema is None:
        warn(f"{who} has no input schema: any object is accepted")
        schema = tool["inputSchema"] = {"type": "object"}
    if not is_object(schema):
        warn(f"{who} was left out: its input schema is no object")
        return False
    if schema.get("type") != "object":
        if "type" in schema:
            warn(f"{who} has an input schema of a type that is not 'object': it is taken as one")
        tool["inputSchema"] = {**schema, "type": "object"}
    _repair_output(tool, who, modern, warn)
    _repair_annotations(tool, who, warn)
    for key, kind in (("title", str), ("description", str), ("_meta", dict), ("execution", dict)):
        if not isinstance(tool.get(key), (kind, type(None))):
            warn(f"{who}: {key} is not what it must be and was left out")
            del tool[key]
    execution: dict[str, Any] = tool.get("execution") or {}
    if execution.get("taskSupport") == "required":
        warn(f"{who} was left out: it can only be called as a task, which is not supported")
        return False
    if modern and (reason := find_invalid_x_mcp_header(tool["inputSchema"])) is not None:
        warn(f"{who} was left out: {printable(reason, 200)}")
        return False
    try:
        types.Tool.model_validate(tool, by_name=False)
    except ValidationError as error:
        warn(f"{who} was left out: {printable(error.errors()[0]['msg'], 200)}")
        return False
    return True


def _repair_output(tool: dict[str, Any], who: str, modern: bool, warn: Warn) -> None:
    schema = tool.get("outputSchema")
    if schema is None:
        tool.pop("outputSchema", None)
    elif not is_object(schema):
        warn(f"{who}: its output schema is no object and was left out")
        del tool["outputSchema"]
    elif not modern and schema.get("type") != "object":
        warn(f"{who}: its output schema is not of the type 'object', as its protocol revision demands; it was left out")
        del tool["outputSchema"]


def _repair_annotations(tool: dict[str, Any], who: str, warn: Warn) -> None:
    annotations = tool.get("annotations")
    if annotations is None:
        return
    if not is_object(annotations):
        warn(f"{who}: its annotations are no object and were left out")
        del tool["annotations"]
        return
    for key in (*HINTS, "title"):
        if not isinstance(annotations.get(key), (str if key == "title" else bool, type(None))):
            warn(f"{who}: its annotation {key} is not what it must be and was left out")
            del annotations[key]


def repair_result(result: dict[str, Any], modern: bool, warn: Warn) -> None:
    """Make a `tools/call` result acceptable, in place: nothing that it says is lost.

    Args and effect as for `repair_list`. Results that ask for input (2026-07-28) are left alone.
    """
    if result.get("resultType") not in (None, "complete"):
        return
    for key in result.keys() - RESULT_KEYS:
        del result[key]
    content = result.get("content")
    if isinstance(content, str):
        warn("a result had a text where a list of content belongs")
        result["content"] = [{"type": "text", "text": content}]
    elif content is None:
        if result.get("structuredContent") is None:
            warn("a result had no content")
        result["content"] = []
    elif not is_list(content):
        warn("a result had content that is no list")
        result["content"] = [_as_text(content)]
    result["content"] = [_block(block, warn) for block in result["content"]]
    if not isinstance(failed := result.get("isError", False), bool):
        if failed is not None:
            warn("a result had an isError that is neither true nor false")
        result["isError"] = bool(failed)
    if not isinstance(meta := result.get("_meta"), (dict, type(None))) or depth(meta, META_DEPTH) > META_DEPTH:
        del result["_meta"]
    structured = result.get("structuredContent")
    if depth(structured, SDK_DEPTH) > SDK_DEPTH:
        with suppress(RecursionError):
            result["content"] = [{"type": "text", "text": json.dumps(structured, ensure_ascii=False)}]
            del result["structuredContent"]
            result["_meta"] = {**(result.get("_meta") or {}), WRITTEN: True}
    elif not modern and structured is not None and not is_object(structured):
        warn("a result had structured content that is no object, which its protocol revision does not allow")
        result["structuredContent"] = {"result": structured}
        result["_meta"] = {**(result.get("_meta") or {}), WRAPPED: True}


def _block(block: Any, warn: Warn) -> Any:
    """One block of content in a shape that the SDK accepts: what is read of it, or its JSON as text."""
    kind = block.get("type") if is_object(block) else type(block).__name__
    if is_object(block):
        if kind in ("image", "audio") and not isinstance(block.get("mimeType"), str):
            warn(f"a result had an {kind} without its type")
            block["mimeType"] = "application/octet-stream"
        sound = _sound(kind, block)
        if sound is not None:
            return sound
        block = {
            key: f"({len(value):,} characters)" if isinstance(value, str) and len(value) > BYTES_SHOWN else value
            for key, value in block.items()
        }
    warn(f"a result had content of an unknown shape ({printable(str(kind), 40)}): its JSON was taken as text")
    return _as_text(block)


def _sound(kind: Any, block: dict[str, Any]) -> dict[str, Any] | None:
    """The block with nothing but what is read of it, or None if it has not what its type must have."""
    if kind == "resource":
        resource = block.get("resource")
        inner = _texts(resource, ("uri", "mimeType", "text", "blob")) if is_object(resource) else {}
        fine = "uri" in inner and ("text" in inner or "blob" in inner)
        return {"type": kind, "resource": inner} if fine else None
    if not isinstance(kind, str) or kind not in REQUIRED:
        return None
    found = _texts(block, (*REQUIRED[kind], *OPTIONAL.get(kind, ())))
    return {"type": kind, **found} if found.keys() >= set(REQUIRED[kind]) else None


def _texts(value: dict[str, Any], keys: Iterable[str]) -> dict[str, str]:
    return {key: value[key] for key in keys if isinstance(value.get(key), str)}


def _as_text(value: Any) -> dict[str, Any]:
    return {"type": "text", "text": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}
