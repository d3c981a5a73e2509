"""JSON Schema to TypeScript types: compact, always finite, the same bytes for the same schema.

What cannot be said in a type (patterns, `not`, conditions) is left out; properties that a schema allows without naming
them are shown only where it says so. What is broken, too deep or too large becomes `unknown`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from bridge.dialect import Document, is_list, is_object, listed, mapped, types_of
from bridge.names import RESERVED_WORDS
from bridge.text import cut, shown, visible

NODES: Final = 600  # types in the declaration of one side of one tool; the largest real ones have about 200
DEPTH: Final = 16  # levels of nesting
LITERALS: Final = 60  # members of one enum; more are shown as their type
NOTE_LENGTH: Final = 120  # characters of a property's description
_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*", re.ASCII)
_FORMAT: Final = re.compile(r"[A-Za-z0-9-]{1,24}", re.ASCII)
_SCALARS: Final = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}
# Names that a type must not take from the language.
_TAKEN: Final = RESERVED_WORDS | {"Array", "Promise", "Record", "tools"}


@dataclass
class Names:
    """The named types of one text. Equal definitions of several tools share a name; others get a number."""

    bodies: dict[str, str] = field(default_factory=dict[str, str])
    _known: dict[str, str] = field(default_factory=dict[str, str])

    def add_to(self, writer: Writer, text: str) -> str:
        """Take the named types that a writer met; gives its text with the names in place."""
        final: dict[str, str] = {}
        for mark, wished in writer.wished.items():
            # Two definitions are one where they, and all that they lead to, have the same names and bodies.
            key = "\n".join(
                f"{writer.wished[m]} = {_filled(writer.bodies[m], writer.wished)}"
                for m in _reached(mark, writer.bodies)
            )
            if key not in self._known:
                self._known[key] = _free(wished, self._known.values())
            final[mark] = self._known[key]
        for mark, name in final.items():
            self.bodies.setdefault(name, _filled(writer.bodies[mark], final))
        return _filled(text, final)


class Writer:
    """Writes types of one schema document. `types` collects what it names; `Names` gives the final names.

    Args:
        document: The schema.
        name: What a root that refers to itself is called.
        notes: Whether descriptions, defaults and ranges are written as comments.
        nodes: Types that may be written before the rest becomes `unknown`.
    """

    def __init__(self, document: Document, name: str, *, notes: bool = True, nodes: int = NODES) -> None:
        self.document = document
        self.name = name
        self.notes = notes
        self.left = nodes
        self.marks: dict[int, str] = {}
        self.wished: dict[str, str] = {}
        self.bodies: dict[str, str] = {}
        self._waiting: list[tuple[str, dict[str, Any]]] = []
        self._repeated = _repeated(document)

    def write(self, schema: Any, indent: str = "") -> str:
        """The type of a subschema. What is referred to more than once, or by itself, is named by a placeholder."""
        text = self._type(schema, indent, 0, frozenset())
        while self._waiting:
            mark, part = self._waiting.pop(0)
            self.bodies[mark] = _intersection(list(self._parts(part, "", 0, frozenset([id(part)]))))
        return text

    def _type(self, schema: Any, indent: str, depth: int, at_top: frozenset[int]) -> str:
        """One type. `at_top` are the named types whose body begins here: naming them again would define nothing."""
        self.left -= 1
        if schema is False:
            return "never"
        if not is_object(schema) or self.left < 0 or depth > DEPTH:
            return "unknown"
        if id(schema) in self._repeated and id(schema) not in at_top:
            return self._named(schema, at_top)
        return _intersection(list(self._parts(schema, indent, depth, at_top)))

    def _parts(self, schema: dict[str, Any], indent: str, depth: int, at_top: frozenset[int]) -> Iterable[str]:
        if "$ref" in schema:
            target = self.document.resolve(schema["$ref"], schema)
            if is_object(target) and id(target) in self._repeated:
                yield self._named(target, at_top)
            elif is_object(target) and id(target) in at_top:
                yield "unknown"
            else:
                yield self._type(target, indent, depth + 1, at_top | {id(target)})
        yield self._own(schema, indent, depth)
        for part in listed(schema, "allOf"):
            yield self._type(part, indent, depth + 1, at_top)
        for word in ("anyOf", "oneOf"):
            if members := listed(schema, word):
                base = mapped(schema, "properties")  # members that only say which of them are required add nothing
                if base and not any(is_object(m) and ({"properties", "$ref", "type"} & set(m)) for m in members):
                    continue
                yield _union(self._type(part, indent, depth + 1, at_top) for part in members)

    def _named(self, schema: dict[str, Any], at_top: frozenset[int]) -> str:
        key = id(schema)
        if key in at_top or (at_top and self._leads_back(schema, at_top)):
            return "unknown"  # `type A = A` and `type A = B; type B = A` are errors
        if key not in self.marks:
            mark = self.marks[key] = f"\0{len(self.marks)}\0"
            self.wished[mark] = self._wish(schema)
            self._waiting.append((mark, schema))  # later: definitions that lead to each other may be many
        return self.marks[key]

    def _leads_back(self, schema: dict[str, Any], at_top: frozenset[int]) -> bool:
        """Whether a type's body begins, through references and unions alone, with one of `at_top`."""
        waiting, seen = [schema], set[int]()
        while waiting:
            part = waiting.pop()
            if id(part) in seen:
                continue
            seen.add(id(part))
            if id(part) in at_top:
                return True
            more = [p for word in ("allOf", "anyOf", "oneOf") for p in listed(part, word)]
            more.append(self.document.resolve(part.get("$ref"), part))
            waiting.extend(filter(is_object, more))
        return False

    def _wish(self, schema: dict[str, Any]) -> str:
        root: Any = self.document.root
        if schema is root:
            return _type_name(self.name)
        for word in ("$defs", "definitions"):
            for name, part in mapped(root, word).items():
                if part is schema:
                    return _type_name(name)
        return _type_name(f"{self.name}_part")

    def _own(self, schema: dict[str, Any], indent: str, depth: int) -> str:
        """What the schema says itself, without references and combinations."""
        nullable = schema.get("nullable") is True
        if "const" in schema:
            return _union([_literal(schema["const"]), *(["null"] if nullable else [])])
        if is_list(schema.get("enum")):
            members: list[Any] = schema["enum"]
            if len(members) <= LITERALS:
                return _union([*map(_literal, members), *(["null"] if nullable else [])]) if members else "never"
            return _union(dict.fromkeys(_kind(member) for member in members))
        types = types_of(schema)
        if not types:
            if any(word in schema for word in ("properties", "patternProperties", "additionalProperties", "required")):
                types = ["object"]
            elif "prefixItems" in schema or "items" in schema:
                types = ["array"]
            else:
                return "unknown"
        written = [self._one(name, schema, indent, depth) for name in types]
        return _union([*written, *(["null"] if nullable else [])])

    def _one(self, kind: str, schema: dict[str, Any], indent: str, depth: int) -> str:
        if kind == "object":
            return self._object(schema, indent, depth)
        if kind == "array":
            return self._array(schema, indent, depth)
        hint = schema.get("format")
        if kind == "string" and self.notes and isinstance(hint, str) and _FORMAT.fullmatch(hint):
            return f"string /* {hint} */"
        return _SCALARS.get(kind, "unknown")

    def _object(self, schema: dict[str, Any], indent: str, depth: int) -> str:
        properties, required = mapped(schema, "properties"), listed(schema, "required")
        rest = schema.get("additionalProperties", not ("properties" in schema or "patternProperties" in schema))
        inner = indent + "  "
        fields: list[tuple[str, str]] = []
        for name, part in properties.items():
            mark = "" if name in required else "?"
            written = self._type(part, inner, depth + 1, frozenset())
            fields.append((f"{_key(name)}{mark}: {written}", self._note(part) if self.notes else ""))
        fields.extend(
            (f"{_key(name)}: unknown", "") for name in required if isinstance(name, str) and name not in properties
        )
        values = [self._type(p, inner, depth + 1, frozenset()) for p in mapped(schema, "patternProperties").values()]
        if rest is True or is_object(rest):
            values.append(self._type(rest, inner, depth + 1, frozenset()))
        if values and not fields:
            return f"Record<string, {_union(values)}>"
        if values:  # a narrower index would have to cover the properties as well
            fields.append(("[k: string]: unknown", ""))
        return _braces(fields, indent)

    def _array(self, schema: dict[str, Any], indent: str, depth: int) -> str:
        items = schema.get("items")
        first = items if is_list(items) else listed(schema, "prefixItems")
        rest = schema.get("additionalItems", True) if is_list(items) else schema.get("items", True)
        if not first:
            return _array_of(self._type(rest, indent, depth + 1, frozenset()))
        least = schema.get("minItems", 0)
        written = [self._type(part, indent, depth + 1, frozenset()) for part in first]
        if isinstance(least, int) and least < len(first):
            written = [
                w if i < least else f"({w})?" if not _IDENTIFIER.fullmatch(w) else f"{w}?"
                for i, w in enumerate(written)
            ]
        if rest is not False and not (isinstance(schema.get("maxItems"), int) and schema["maxItems"] <= len(first)):
            written.append(f"...{_array_of(self._type(rest, indent, depth + 1, frozenset()))}")
        return f"[{', '.join(written)}]"

    def _note(self, schema: Any) -> str:
        """A property's comment: its description, range and default."""
        if not is_object(schema):
            return ""
        said = schema.get("description")
        notes = [first_sentence(said, NOTE_LENGTH)] if isinstance(said, str) else []
        low, high = schema.get("minimum"), schema.get("maximum")
        if _is_number(low) or _is_number(high):
            notes.append(f"{low if _is_number(low) else ''}..{high if _is_number(high) else ''}")
        if schema.get("default") is not None:
            notes.append(f"default {shown(schema['default'], 40)}")
        return "; ".join(note for note in notes if note)


def first_sentence(text: str, length: int) -> str:
    """The start of a description: up to the end of its last whole sentence within `length`, else cut."""
    paragraph = visible(re.split(r"\n\s*\n", text.strip(), maxsplit=1)[0])
    if len(paragraph) <= length:
        return paragraph
    ends = [m.end() for m in re.finditer(r"[.!?。](?=\s)", paragraph[: length + 1])]
    return paragraph[: ends[-1]] if ends else cut(paragraph, length)


def _braces(fields: list[tuple[str, str]], indent: str) -> str:
    """An object type: on one line where it is short and has no comments."""
    line = "; ".join(text for text, _ in fields)
    if not fields:
        return "{}"
    if not any(note for _, note in fields) and "\n" not in line and len(line) + len(indent) <= 100:
        return f"{{ {line} }}"
    rows = "".join(f"{indent}  {text};{f' // {note}' if note else ''}\n" for text, note in fields)
    return f"{{\n{rows}{indent}}}"


def _union(parts: Iterable[str]) -> str:
    members = list(dict.fromkeys(part for part in parts if part != "never"))
    if "unknown" in members:
        return "unknown"
    return " | ".join(_grouped(m, "&") for m in members) or "never"


def _intersection(parts: list[str]) -> str:
    members = list(dict.fromkeys(part for part in parts if part != "unknown"))
    if "never" in members:
        return "never"
    if len(members) == 1:
        return members[0]
    return " & ".join(_grouped(m, "|") for m in members) or "unknown"


def _array_of(item: str) -> str:
    return f"{_grouped(_grouped(item, '|'), '&')}[]" if "/*" not in item else f"Array<{item}>"


def _grouped(text: str, operator: str) -> str:
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


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if _is_number(value):
        return json.dumps(value)
    return _kind(value)


def _kind(value: Any) -> str:
    for types, name in ((str, "string"), (bool, "boolean"), ((int, float), "number"), (list, "unknown[]")):
        if isinstance(value, types):
            return name
    return "null" if value is None else "Record<string, unknown>"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value and abs(value) < 10**300


def _quoted(text: str) -> str:
    """A string literal in ASCII where anything invisible is in it, so that no line says more than it shows."""
    return json.dumps(text, ensure_ascii=visible(text) != text)


def _key(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else _quoted(name)


def _type_name(name: str) -> str:
    words = re.findall(r"[A-Za-z0-9]+", name.rpartition(".")[2] if "__" not in name else name)
    joined = "".join(word[0].upper() + word[1:] for word in words)[:60] or "Type"
    joined = f"T{joined}" if joined[0].isdigit() else joined
    return f"{joined}_" if joined in _TAKEN else joined


def _free(wished: str, taken: Iterable[str]) -> str:
    used, number, name = set(taken), 2, wished
    while name in used:
        name, number = f"{wished}{number}", number + 1
    return name


def _reached(mark: str, bodies: dict[str, str]) -> list[str]:
    found, waiting = dict.fromkeys([mark]), [mark]
    while waiting:
        for other in re.findall("\0[0-9]+\0", bodies[waiting.pop()]):
            if other not in found:
                found[other] = None
                waiting.append(other)
    return list(found)


def _filled(text: str, names: dict[str, str]) -> str:
    return re.sub("\0[0-9]+\0", lambda match: names[match.group()], text)


def _repeated(document: Document) -> set[int]:
    """Subschemas that get a name: referred to more than once, or part of a circle."""
    uses: dict[int, int] = {}
    for part in document.parts:
        target = document.resolve(part.get("$ref"), part) if "$ref" in part else None
        if is_object(target):
            uses[id(target)] = uses.get(id(target), 0) + 1
    circles = {id(member) for group in document.components() if len(group) > 1 for member in group}
    return {key for key, count in uses.items() if count > 1 or key in circles}
