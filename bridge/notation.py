"""How TypeScript types are spelled: the text of unions, objects, literals and names, apart from what they mean."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final, TypeGuard

from bridge.names import RESERVED_WORDS
from bridge.text import cut, visible

_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*", re.ASCII)
# Names that a type must not take from the language.
_TAKEN: Final = RESERVED_WORDS | {"Array", "Promise", "Record", "tools"}


def first_sentence(text: str, length: int) -> str:
    """The start of a description: up to the end of its last whole sentence within `length`, else cut."""
    paragraph = visible(re.split(r"\n\s*\n", text.strip(), maxsplit=1)[0])
    if len(paragraph) <= length:
        return paragraph
    ends = [m.end() for m in re.finditer(r"[.!?。](?=\s)", paragraph[: length + 1])]
    return paragraph[: ends[-1]] if ends else cut(paragraph, length)


def braces(fields: list[tuple[str, str]], indent: str) -> str:
    """An object type: on one line where it is short and has no comments."""
    line = "; ".join(text for text, _ in fields)
    if not fields:
        return "{}"
    if not any(note for _, note in fields) and "\n" not in line and len(line) + len(indent) <= 100:
        return f"{{ {line} }}"
    rows = "".join(f"{indent}  {text};{f' // {note}' if note else ''}\n" for text, note in fields)
    return f"{{\n{rows}{indent}}}"


def union(parts: Iterable[str]) -> str:
    """Any of the types; `unknown` swallows the others, `never` says nothing."""
    members = list(dict.fromkeys(part for part in parts if part != "never"))
    if "unknown" in members:
        return "unknown"
    return " | ".join(grouped(m, "&") for m in members) or "never"


def intersection(parts: list[str]) -> str:
    """All of the types; `never` swallows the others, `unknown` says nothing."""
    members = list(dict.fromkeys(part for part in parts if part != "unknown"))
    if "never" in members:
        return "never"
    if len(members) == 1:
        return members[0]
    return " & ".join(grouped(m, "|") for m in members) or "unknown"


def array_of(item: str) -> str:
    """An array of that type."""
    return f"({item})[]" if item.endswith("*/") else f"{grouped(grouped(item, '|'), '&')}[]"


def grouped(text: str, operator: str) -> str:
    """The type in parentheses if the operator stands in it outside of any brackets and quotes."""
    depth, quoted, position = 0, False, 0
    while position < len(text):
        character = text[position]
        if quoted:
            position += character == "\\"
            quoted = character != '"'
        elif character == '"':
            quoted = True
        elif text.startswith("//", position):
            position = text.find("\n", position)
            if position < 0:
                break
        elif character in "{[(<":
            depth += 1
        elif character in "}])>":
            depth -= 1
        elif character == operator and depth == 0:
            return f"({text})"
        position += 1
    return text


def literal(value: Any) -> str:
    """A literal type; for arrays and objects the type that they have."""
    if isinstance(value, str):
        return quoted(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if is_number(value):
        return json.dumps(value)
    return kind_of(value)


def kind_of(value: Any) -> str:
    """The type that a JSON value has."""
    for types, name in ((str, "string"), (bool, "boolean"), ((int, float), "number"), (list, "unknown[]")):
        if isinstance(value, types):
            return name
    return "null" if value is None else "Record<string, unknown>"


def is_text(value: object) -> TypeGuard[str]:
    """Whether a JSON value is a string."""
    return isinstance(value, str)


def is_number(value: object) -> bool:
    """Whether a JSON value is a number that both JSON and TypeScript can write."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value and abs(value) < 10**300


def quoted(text: str) -> str:
    """A string literal in ASCII where anything invisible is in it, so that no line says more than it shows."""
    return json.dumps(text, ensure_ascii=visible(text) != text)


def key_of(name: str) -> str:
    """A property name, quoted where it is no identifier."""
    return name if _IDENTIFIER.fullmatch(name) else quoted(name)


def type_name(name: str) -> str:
    """A name for a type, in the way types are written."""
    words = re.findall(r"[A-Za-z0-9]+", name.rpartition(".")[2] if "__" not in name else name)
    joined = "".join(word[0].upper() + word[1:] for word in words)[:60] or "Type"
    joined = f"T{joined}" if joined[0].isdigit() else joined
    return f"{joined}_" if joined in _TAKEN else joined
