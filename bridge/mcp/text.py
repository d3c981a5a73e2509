"""What a server says, made fit to be read: bounded, without control characters, without the secrets it was given.

Pure functions and one ring of bytes; nothing here knows the MCP SDK.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from bridge.dialect import is_list, is_object
from bridge.text import unseen

TAIL_BYTES: Final = 16 << 10  # of stderr that are kept for each server
SHOWN_LINES: Final = 8  # of stderr, in an error that an operator reads
SHOWN_LINE: Final = 300  # characters of each
SECRET_LENGTH: Final = 6  # shorter values (`1`, `true`, `eu`) are no secrets, and hiding them garbles the text
_SECRET_OPTION: Final = re.compile(r"(?i)^(--?[\w-]*(?:key|token|secret|passw|credential|auth)[\w-]*)(=.*)?$")
_SECRET_NAME: Final = re.compile(r"(?i)key|token|secret|passw|credential|auth|cookie|dsn|session")
_DIRECTORIES: Final = re.compile(r"(?<![\w.:/])/(?:[^\s/:'\"`]+/)+")
_FRAME: Final = re.compile(r"^(\s|Traceback |\[?\s*at )")


class Tail:
    """The last bytes of a stream that nobody else reads; everything before is counted and gone."""

    def __init__(self, limit: int = TAIL_BYTES) -> None:
        self.limit = limit
        self.total = 0
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        """Take more of the stream."""
        self.total += len(data)
        self._kept += data[-self.limit :]
        if len(self._kept) > self.limit:
            del self._kept[: -self.limit]

    def lines(self, count: int = SHOWN_LINES) -> list[str]:
        """The last lines that are not blank, oldest first, safe to print."""
        text = bytes(self._kept).decode("utf-8", "replace")
        found = [printable(line.rstrip(), SHOWN_LINE) for line in text.splitlines() if line.strip()]
        return found[-count:]


def printable(text: str, limit: int, *, keep: str = "\t") -> str:
    """Text of at most `limit` characters in which control, format and surrogate characters are escapes.

    Terminals act on control characters and people do not see format characters (bidi, zero width, tags), so what an
    untrusted server wrote shows them as `\\x1b` or `\\u202e`.
    """
    shown = "".join(c if c in keep or not unseen(c) else _escape(c) for c in text[: limit + 1])
    return shown if len(shown) <= limit else f"{shown[:limit]}… ({len(text):,} characters)"


def invisible(text: str) -> list[str]:
    """The characters of a text that a reader does not see, as `U+200B`, each once; not those that shape an emoji."""
    return [f"U+{ord(c):04X}" for c in dict.fromkeys(text) if c not in "\n\r\t\ufe0e\ufe0f" and unseen(c)]


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def well_formed(value: Any) -> Any:
    """A JSON value whose lone surrogates are U+FFFD, as `String.prototype.toWellFormed` makes them.

    Unchanged values come back as they are. One lone surrogate on the wire ends the whole connection to a server.

    Raises:
        RecursionError: It is nested too deeply.
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if is_object(value):
        return {well_formed(key): well_formed(item) for key, item in value.items()}
    if is_list(value):
        return [well_formed(item) for item in value]
    return value


def depth(value: Any, limit: int) -> int:
    """How deeply lists and objects nest in a JSON value, counted up to `limit` + 1 and no further."""
    level, here = 0, [value]
    while here and level <= limit:
        below: list[Any] = []
        for item in here:
            if is_object(item):
                below.extend(item.values())
            elif is_list(item):
                below.extend(item)
        if not below:
            break
        level, here = level + 1, below
    return level


def secrets_of(named: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The values among environment variables or headers that must not be shown, longest first."""
    found: set[str] = set()
    for name, value in named:
        if _SECRET_NAME.search(name) and len(value) >= SECRET_LENGTH:
            found.update((value, value.removeprefix("Bearer ").removeprefix("Basic ")))
    return tuple(sorted(found, key=len, reverse=True))


def hidden(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret replaced by `***`."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def shown_command(command: str, args: Iterable[str]) -> str:
    """A command line for people: what follows an option that is named like a secret is not shown."""
    shown, hide = [command], False
    for arg in args:
        option = _SECRET_OPTION.match(arg)
        if hide and not arg.startswith("-"):
            shown.append("***")
        elif option and option[2]:
            shown.append(f"{option[1]}=***")
        else:
            shown.append(arg if re.fullmatch(r"[^\s'\"]+", arg) else repr(arg))
        hide = bool(option) and not (option and option[2])
    return printable(" ".join(shown), 400)


def last_words(lines: list[str]) -> str:
    """What a program may know of a dead server's last output: no stack frames, no directories, three lines.

    An operator reads all of it in `Server.error`.
    """
    said = [line for line in lines if not _FRAME.match(line)][-3:]
    return "; ".join(_DIRECTORIES.sub("…/", line) for line in said)
