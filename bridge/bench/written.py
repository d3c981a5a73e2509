"""Files that measurements are written to and read from again: JSON, and JSON lines."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from bridge.errors import ConfigurationError

T = TypeVar("T")


def read(file: Path, kind: type[T], what: str) -> T:
    """What a file of JSON holds.

    Args:
        what: What it is meant to be, and what writes one: the text of the error goes on with it.

    Raises:
        ConfigurationError: It cannot be read, or is none.
    """
    content = _bytes(file, what)
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise ConfigurationError(f"{file} is not {what}: {error}") from None


def read_lines(file: Path, kind: type[T], what: str) -> list[T]:
    """What each line of a file holds; as `read`."""
    content = _bytes(file, what)
    try:
        return msgspec.json.Decoder(kind).decode_lines(content)
    except msgspec.MsgspecError as error:
        raise ConfigurationError(f"{file} is not {what}: {error}") from None


def write(file: Path, content: object) -> None:
    """Write it as JSON that people can read.

    Raises:
        ConfigurationError: The file cannot be written.
    """
    try:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror or error}") from None


def _bytes(file: Path, what: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror or error}; it is to be {what}") from None
