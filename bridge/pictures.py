"""Pictures that a program gave to `image()`, for models: what is one by its bytes, within a size.

What a program says of a picture is its claim, and a vendor refuses the whole conversation for one that it cannot read:
so the kind is read from the bytes, and what is no picture is left out in words.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from bridge.errors import StateError
from sandbox import Image

PICTURES: Final = 20  # of one result; more would crowd out the conversation
PICTURE_BYTES: Final = 5_000_000  # of base64 text; what every vendor takes
_KINDS: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


@dataclass(frozen=True)
class Picture:
    """A picture as vendors take it: its media type, and base64 text."""

    kind: str
    data: str


def readable(images: Iterable[Image], fetch: Callable[[str], Any]) -> tuple[list[Picture], list[str]]:
    """The pictures among images, and a line for each image that is left out.

    Args:
        fetch: Gives the bytes behind a handle (`Executor.fetch`).
    """
    pictures: list[Picture] = []
    left_out: list[str] = []
    for number, image in enumerate(images, 1):
        try:
            if len(pictures) == PICTURES:
                raise ValueError(f"there are {PICTURES} already")
            pictures.append(_picture(_bytes(image, fetch)))
        except (ValueError, StateError) as error:
            left_out.append(f"[sandbridge] picture {number} was left out: {error}")
    return pictures, left_out


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


def _picture(data: bytes) -> Picture:
    kind = next((kind for magic, kind in _KINDS.items() if data.startswith(magic)), "")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if not kind:
        raise ValueError("it is no PNG, JPEG, GIF or WebP")
    text = base64.b64encode(data).decode()
    if len(text) > PICTURE_BYTES:
        raise ValueError(f"it has {len(text):,} bytes of base64 text, more than {PICTURE_BYTES:,}")
    return Picture(kind, text)
