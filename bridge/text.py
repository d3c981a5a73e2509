"""What may stand in a line that a model or a person reads: visible characters, within a length."""

from __future__ import annotations

import unicodedata
from typing import Any, Final

import msgspec

# Unicode categories of what nobody sees (control, format such as bidi and zero-width, surrogates, private use) or that
# breaks a line. U+E0000 to U+E007F, which smuggle text past a reader, are format characters too.
INVISIBLE: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})


def visible(text: str) -> str:
    """The text on one line: white space of any kind becomes one space, invisible characters go."""
    if text.isascii() and text.isprintable():
        return text if "  " not in text and text[:1] != " " and text[-1:] != " " else " ".join(text.split())
    return " ".join("".join(c for c in text if c.isspace() or unicodedata.category(c) not in INVISIBLE).split())


def cut(text: str, length: int) -> str:
    """The text, or its start and `…`: at most `length` characters."""
    return text if len(text) <= length else text[: max(length - 1, 0)] + "…"


def shown(value: Any, length: int = 60) -> str:
    """A JSON value in a few visible characters of JSON."""
    if isinstance(value, str):
        value = value[:length]  # the rest would be cut anyway: do not encode megabytes
    if isinstance(value, (list, dict)) and value:
        return "[…]" if isinstance(value, list) else "{…}"
    try:
        return cut(visible(msgspec.json.encode(value).decode()), length)
    except (OverflowError, TypeError, ValueError):  # a lone surrogate, an integer of any size, no JSON at all
        return cut(visible(f"{value}"), length)
