"""Pictures of a program as blocks that the API takes; what is a picture, `bridge.pictures` says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from bridge.anthropic.wire import Block
from bridge.pictures import readable
from sandbox import Image


def with_pictures(block: Block, images: Iterable[Image], fetch: Callable[[str], Any]) -> Block:
    """A `tool_result` with the pictures after its text.

    Args:
        fetch: Gives the bytes behind a handle (`Executor.fetch`).
    """
    pictures, left_out = readable(images, fetch)
    if not pictures and not left_out:
        return block
    text = "\n".join(filter(None, [block.get("content", ""), *left_out]))
    parts = [
        {"type": "image", "source": {"type": "base64", "media_type": picture.kind, "data": picture.data}}
        for picture in pictures
    ]
    return {**block, "content": [*([{"type": "text", "text": text}] if text else []), *parts]}
