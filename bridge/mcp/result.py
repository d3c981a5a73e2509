"""A server's answer to a call -> the JSON value that a program gets, and the bytes that stay here.

Structured content comes first; one text that is a JSON object or array is parsed where the tool has no output schema;
anything that is not one text becomes `{text, images, resources}`. Pictures, sound and other bytes never enter a
program or a model's context: they are kept here under a handle that cannot be guessed.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bridge import replies
from bridge.dialect import is_object
from bridge.errors import ToolError
from bridge.mcp.text import depth, printable

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

KEPT_BYTES: Final = 64 << 20  # of blobs for each server; the oldest go first
ERROR_TEXT: Final = 8_000  # characters of a failed tool's own words
ERROR_DETAILS: Final = 16 << 10  # bytes of a failed tool's structured content
DEPTH: Final = 500  # levels of lists and objects; encoders and decoders give up somewhere beyond
_MIME: Final = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,60}/[A-Za-z0-9!#$&^_.+-]{1,60}")  # RFC 6838, without parameters


@dataclass(frozen=True)
class Blob:
    """Bytes that a tool returned, and what the server says they are (untrusted)."""

    data: bytes
    mime_type: str


class Blobs(Mapping[str, Blob]):
    """Bytes by handle, at most `limit` of them together: the oldest go first, one over the limit is not kept at all."""

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self.limit = limit
        self.size = 0
        self._kept: OrderedDict[str, Blob] = OrderedDict()

    def keep(self, data: bytes, mime_type: str) -> str:
        """Keep bytes and return their handle, which cannot be guessed."""
        handle = f"blob_{secrets.token_urlsafe(18)}"
        if len(data) <= self.limit:
            self._kept[handle] = Blob(data, mime_type)
            self.size += len(data)
        while self.size > self.limit:
            self.size -= len(self._kept.popitem(last=False)[1].data)
        return handle

    def __getitem__(self, handle: str) -> Blob:
        return self._kept[handle]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


def value_of(
    result: CallToolResult, *, described: bool, unwrap: bool, blobs: Blobs, wrapped: bool = False, written: bool = False
) -> Any:
    """The value that a successful result is for a program.

    Args:
        result: As the SDK read it.
        described: Whether the tool has an output schema.
        unwrap: Whether that schema says that `{"result": X}` stands for X.
        blobs: Where bytes are kept.
        wrapped: Whether a repair made `{"result": X}` of X.
        written: Whether a repair made one text of structured content.

    Returns:
        A JSON value, or JSON text as `msgspec.Raw` in which no digit is lost and NaN is null.

    Raises:
        ToolError: `failed`, when it nests too deeply for anyone to read.
    """
    structured = result.structured_content
    if structured is not None:
        if depth(structured, DEPTH) > DEPTH:
            raise ToolError("failed", f"the result nests more than {DEPTH} levels deep: ask the tool for less")
        if (wrapped or unwrap) and is_object(structured) and "result" in structured and len(structured) == 1:
            structured = structured["result"]
        return msgspec.Raw(replies.encode(structured))
    if len(result.content) == 1 and result.content[0].type == "text":
        text = result.content[0].text
        return text if described and not written else parsed(text)
    return mixed(result.content, blobs)


def parsed(text: str) -> Any:
    """A text that is a JSON object or array, as `msgspec.Raw`; any other text as it is."""
    if text.lstrip(" \t\r\n")[:1] not in ("{", "["):
        return text
    try:
        data = text.strip().encode()
        msgspec.json.decode(data)
    except (UnicodeEncodeError, msgspec.DecodeError, RecursionError):
        return text
    return msgspec.Raw(data)


def mixed(content: list[ContentBlock], blobs: Blobs) -> dict[str, Any]:
    """`{text, images, resources}` of a content list: texts joined by newlines, the rest in order, bytes as handles."""
    texts: list[str] = []
    images: list[dict[str, Any]] = []
    resources: list[dict[str, Any]] = []
    for block in content:
        if block.type == "text":
            texts.append(block.text)
        elif block.type == "image":
            images.append(kept("image", block.data, block.mime_type, blobs))
        elif block.type == "audio":
            resources.append(kept("audio", block.data, block.mime_type, blobs))
        elif block.type == "resource_link":
            about = {"title": block.title, "description": block.description, "mime_type": block.mime_type}
            link = {"type": "link", "uri": block.uri, "name": block.name}
            resources.append(link | {key: value for key, value in about.items() if value is not None})
        else:
            inner = block.resource
            if hasattr(inner, "text"):
                known = {} if inner.mime_type is None else {"mime_type": inner.mime_type}
                resources.append({"type": "text", "uri": inner.uri, **known, "text": getattr(inner, "text", "")})
            else:
                found = kept("blob", getattr(inner, "blob", ""), inner.mime_type or "", blobs)
                resources.append({**found, "uri": inner.uri})
    return {"text": "\n".join(texts), "images": images, "resources": resources}


def kept(kind: str, data: str, mime_type: str, blobs: Blobs) -> dict[str, Any]:
    """What a program gets in place of bytes: `{type, mime_type, bytes, handle}`; no handle if they are no base64."""
    mime = mime_type.partition(";")[0].strip().lower()
    mime = mime if _MIME.fullmatch(mime) else "application/octet-stream"
    try:
        raw = base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        return {"type": kind, "mime_type": mime, "bytes": 0, "handle": None, "error": "the server sent no valid base64"}
    return {"type": kind, "mime_type": mime, "bytes": len(raw), "handle": blobs.keep(raw, mime)}


def failure_of(result: CallToolResult) -> ToolError:
    """The error that a result with `isError` is for a program: the tool's own words, bounded."""
    texts = [block.text for block in result.content if block.type == "text"]
    said = printable("\n".join(texts).strip(), ERROR_TEXT, keep="\n\t")
    details = result.structured_content
    if details is not None and (depth(details, DEPTH) > DEPTH or _size(details) > ERROR_DETAILS):
        details = None
    return ToolError("failed", said or "the tool failed and did not say why", details=details)


def _size(value: Any) -> int:
    try:
        return len(msgspec.json.encode(value))
    except (UnicodeEncodeError, OverflowError, RecursionError):
        return ERROR_DETAILS + 1
