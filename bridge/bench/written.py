"""Files that measurements are written to and read from again: JSON, and JSON lines.

A measurement takes minutes, or money: `ready` says before it begins what would fail at its end.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable
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
    put(file, msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")


def put(file: Path, content: bytes) -> None:
    """Write a file, and make its folder.

    Raises:
        ConfigurationError: The file cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    except OSError as error:
        raise _unwritable(file, error) from None


def delete(files: Iterable[Path]) -> None:
    """Delete files, where they are there.

    Raises:
        ConfigurationError: One cannot be deleted.
    """
    for file in files:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(file, error) from None


def ready(file: Path) -> None:
    """See that a file can be written later, its folder made with it; leaves nothing behind.

    Raises:
        ConfigurationError: It could not.
    """
    try:
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        place = file.parent
        while not place.exists():
            place = place.parent
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise _unwritable(file, error) from None


def _unwritable(file: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"{file} cannot be written: {error.strerror or error}")


def _bytes(file: Path, what: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror or error}; it is to be {what}") from None
