"""What may stand in a line that a model or a person reads: visible characters, within a length."""

from __future__ import annotations

import unicodedata
from typing import Any, Final

import msgspec

# Unicode categories of what nobody sees (control, format such as bidi and zero-width, surrogates, private use) or that
# breaks a line. U+E0000 to U+E007F, which smuggle text past a reader, are format characters too.
INVISIBLE: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
# Letters, marks and signs that print as nothing: fillers, and variation selectors, of which any text can be made.
FILLERS: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, [*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]))
)


def unseen(character: str) -> bool:
    """Whether a person does not see it."""
    if character.isascii():
        return not character.isprintable()
    return unicodedata.category(character) in INVISIBLE or character in FILLERS


def visible(text: str) -> str:
    """The text on one line: white space of any kind becomes one space, invisible characters go."""
    if text.isascii() and text.isprintable():
        return text if "  " not in text and text[:1] != " " and text[-1:] != " " else " ".join(text.split())
    return " ".join("".join(c for c in text if c.isspace() or not unseen(c)).split())


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
