"""Pictures of a program as blocks that the API takes. One that it would refuse makes the whole transcript useless.

What a program says of a picture is its claim: the kind is read from the bytes, and what is no picture is left out in
words.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from typing import Any, Final

from bridge.anthropic.wire import Block
from bridge.errors import StateError
from sandbox import Image

PICTURES: Final = 20  # of one result; more would crowd out the conversation
PICTURE_BYTES: Final = 5_000_000  # of base64 text; what the API takes
_KINDS: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def with_pictures(block: Block, images: Iterable[Image], fetch: Callable[[str], Any]) -> Block:
    """A `tool_result` with the pictures after its text.

    Args:
        fetch: Gives the bytes behind a handle (`Executor.fetch`).
    """
    parts: list[Block] = []
    left_out: list[str] = []
    for number, image in enumerate(images, 1):
        try:
            if len(parts) == PICTURES:
                raise ValueError(f"there are {PICTURES} already")
            parts.append(_picture(_bytes(image, fetch)))
        except (ValueError, StateError) as error:
            left_out.append(f"[sandbridge] picture {number} was left out: {error}")
    if not parts and not left_out:
        return block
    text = "\n".join(filter(None, [block.get("content", ""), *left_out]))
    return {**block, "content": [*([{"type": "text", "text": text}] if text else []), *parts]}


def _bytes(image: Image, fetch: Callable[[str], Any]) -> bytes:
    if image.handle:
        data = getattr(fetch(image.handle), "data", None)
        if not isinstance(data, bytes):
            raise ValueError("its handle stands for something else")
        return data
    try:
        return base64.b64decode(image.data, validate=True)
    except binascii.Error:
        raise ValueError("its data is no base64 text") from None


def _picture(data: bytes) -> Block:
    kind = next((kind for magic, kind in _KINDS.items() if data.startswith(magic)), "")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if not kind:
        raise ValueError("it is no PNG, JPEG, GIF or WebP")
    text = base64.b64encode(data).decode()
    if len(text) > PICTURE_BYTES:
        raise ValueError(f"it has {len(text):,} bytes of base64 text, more than {PICTURE_BYTES:,}")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": text}}
