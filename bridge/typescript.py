"""JSON Schema to TypeScript types: compact, always finite, the same bytes for the same schema.

What cannot be said in a type (patterns, `not`, conditions) is left out; properties that a schema allows without naming
them are shown only where it says so. What is broken, too deep or too large becomes `unknown`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from bridge.dialect import Document, is_list, is_object, listed, mapped, types_of
from bridge.notation import (
    array_of,
    braces,
    first_sentence,
    intersection,
    is_number,
    is_text,
    key_of,
    kind_of,
    literal,
    type_name,
    union,
)
from bridge.text import shown

NODES: Final = 600  # types in the declaration of one side of one tool; the largest real ones have about 200
DEPTH: Final = 16  # levels of nesting
LITERALS: Final = 60  # members of one enum; more are shown as their type
NOTE_LENGTH: Final = 120  # characters of a property's description
_FORMAT: Final = re.compile(r"[A-Za-z0-9-]{1,24}", re.ASCII)
_SCALARS: Final = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}


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


class Top(NamedTuple):
    """Where a type is written: `ids` are the named types whose body begins here.

    At the beginning itself (`start`) naming one of them defines nothing. As an array's item (`item`) it may be named.
    Within an intersection (`locked`), even an item's, TypeScript wants to know all at once, and any name that leads
    back is an error. An object's property begins anew.
    """

    ids: frozenset[int] = frozenset()
    place: Literal["start", "item", "locked"] = "start"

    def beside(self, schema: dict[str, Any]) -> Top:
        """The same place in a type that may become an intersection."""
        sides = sum(word in schema for word in ("anyOf", "oneOf", "$ref")) + len(listed(schema, "allOf"))
        own = any(word in schema for word in ("type", "properties", "items", "prefixItems", "additionalProperties"))
        return Top(self.ids, "locked") if sides + own > 1 else self

    def within(self, key: int) -> Top:
        """The same place, in the body of one more."""
        return Top(self.ids | {key}, self.place)

    @property
    def item(self) -> Top:
        """The place of an array's item."""
        return Top(self.ids, "item") if self.place == "start" else self


_ANEW: Final = Top()


class Writer:
    """Writes types of one schema document. `types` collects what it names; `Names` gives the final names.

    Args:
        document: The schema.
        name: What a root that refers to itself is called.
        notes: Whether descriptions and formats are written as comments.
        ranges: Whether defaults and ranges are: they matter to whoever makes a value.
        nodes: Types that may be written before the rest becomes `unknown`.
    """

    def __init__(
        self, document: Document, name: str, *, notes: bool = True, ranges: bool = True, nodes: int = NODES
    ) -> None:
        self.document = document
        self.name = name
        self.notes = notes
        self.ranges = ranges
        self.left = nodes
        self.marks: dict[int, str] = {}
        self.wished: dict[str, str] = {}
        self.bodies: dict[str, str] = {}
        self._waiting: list[tuple[str, dict[str, Any]]] = []
        self._repeated = _repeated(document)

    def write(self, schema: Any, indent: str = "") -> str:
        """The type of a subschema. What is referred to more than once, or by itself, is named by a placeholder."""
        text = self._type(schema, indent, 0, _ANEW)
        while self._waiting:
            mark, part = self._waiting.pop(0)
            self.bodies[mark] = intersection(list(self._parts(part, "", 0, Top(frozenset([id(part)])))))
        return text

    def _type(self, schema: Any, indent: str, depth: int, top: Top) -> str:
        """One type; `unknown` where there is none or too much of it."""
        self.left -= 1
        if schema is False:
            return "never"
        if not is_object(schema) or self.left < 0 or depth > DEPTH:
            return "unknown"
        if id(schema) in self._repeated:
            return self._named(schema, top)
        return intersection(list(self._parts(schema, indent, depth, top)))

    def _parts(self, schema: dict[str, Any], indent: str, depth: int, top: Top) -> Iterable[str]:
        top = top.beside(schema)
        if "$ref" in schema:
            target = self.document.resolve(schema["$ref"], schema)
            if is_object(target) and id(target) in self._repeated:
                yield self._named(target, top)
            elif is_object(target) and id(target) in top.ids:
                yield "unknown"
            else:
                yield self._type(target, indent, depth + 1, top.within(id(target)))
        yield self._own(schema, indent, depth, top)
        for part in listed(schema, "allOf"):
            yield self._type(part, indent, depth + 1, top)
        for word in ("anyOf", "oneOf"):
            if members := listed(schema, word):
                base = mapped(schema, "properties")  # members that only say which of them are required add nothing
                if base and not any(is_object(m) and ({"properties", "$ref", "type"} & set(m)) for m in members):
                    continue
                yield union(self._type(part, indent, depth + 1, top) for part in members)

    def _named(self, schema: dict[str, Any], top: Top) -> str:
        key = id(schema)
        if top.place != "item" and top.ids and self._leads_back(schema, top):
            return "unknown"  # `type A = A` and `type A = B; type B = A` are errors
        if key not in self.marks:
            mark = self.marks[key] = f"\0{len(self.marks)}\0"
            self.wished[mark] = self._wish(schema)
            self._waiting.append((mark, schema))  # later: definitions that lead to each other may be many
        return self.marks[key]

    def _leads_back(self, schema: dict[str, Any], top: Top) -> bool:
        """Whether a type's body begins, through references and unions alone, with one of `top`."""
        waiting, seen = [schema], set[int]()
        while waiting:
            part = waiting.pop()
            if id(part) in seen:
                continue
            seen.add(id(part))
            if id(part) in top.ids:
                return True
            more = [p for word in ("allOf", "anyOf", "oneOf") for p in listed(part, word)]
            more.append(self.document.resolve(part.get("$ref"), part))
            if top.place == "locked":
                items = (part.get("items"), part.get("additionalItems"))
                more.extend([*items, *listed(part, "items"), *listed(part, "prefixItems")])
            waiting.extend(filter(is_object, more))
        return False

    def _wish(self, schema: dict[str, Any]) -> str:
        root: Any = self.document.root
        if schema is root:
            return type_name(self.name)
        for word in ("$defs", "definitions"):
            for name, part in mapped(root, word).items():
                if part is schema:
                    return type_name(name)
        return type_name(f"{self.name}_part")

    def _own(self, schema: dict[str, Any], indent: str, depth: int, top: Top) -> str:
        """What the schema says itself, without references and combinations."""
        nullable = schema.get("nullable") is True
        if "const" in schema:
            return union([literal(schema["const"]), *(["null"] if nullable else [])])
        if is_list(schema.get("enum")):
            members: list[Any] = schema["enum"]
            if len(members) <= LITERALS:
                return union([*map(literal, members), *(["null"] if nullable else [])]) if members else "never"
            return union(dict.fromkeys(kind_of(member) for member in members))
        types = types_of(schema)
        if not types:
            if any(word in schema for word in ("properties", "patternProperties", "additionalProperties", "required")):
                types = ["object"]
            elif "prefixItems" in schema or "items" in schema:
                types = ["array"]
            else:
                return "unknown"
        written = [self._one(name, schema, indent, depth, top) for name in types]
        return union([*written, *(["null"] if nullable else [])])

    def _one(self, kind: str, schema: dict[str, Any], indent: str, depth: int, top: Top) -> str:
        if kind == "object":
            return self._object(schema, indent, depth)
        if kind == "array":
            return self._array(schema, indent, depth, top.item)
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
            written = self._type(part, inner, depth + 1, _ANEW)
            fields.append((f"{key_of(name)}{mark}: {written}", self._note(part) if self.notes else ""))
        fields.extend(
            (f"{key_of(name)}: unknown", "")
            for name in dict.fromkeys(filter(is_text, required))
            if name not in properties
        )
        values = [self._type(p, inner, depth + 1, _ANEW) for p in mapped(schema, "patternProperties").values()]
        if rest is True or is_object(rest):
            values.append(self._type(rest, inner, depth + 1, _ANEW))
        if values and not fields:
            values_type = union(values)
            # `type A = Record<string, A>` is an error where the index signature is none.
            return f"{{ [k: string]: {values_type} }}" if "\0" in values_type else f"Record<string, {values_type}>"
        if values:  # a narrower index would have to cover the properties as well
            fields.append(("[k: string]: unknown", ""))
        return braces(fields, indent)

    def _array(self, schema: dict[str, Any], indent: str, depth: int, top: Top) -> str:
        items = schema.get("items")
        first = items if is_list(items) else listed(schema, "prefixItems")
        rest = schema.get("additionalItems", True) if is_list(items) else schema.get("items", True)
        if not first:
            return array_of(self._type(rest, indent, depth + 1, top))
        # Shorter arrays may be valid too; how a full one looks is what a reader needs.
        written = [self._type(part, indent, depth + 1, top) for part in first]
        if rest is not False and not (isinstance(schema.get("maxItems"), int) and schema["maxItems"] <= len(first)):
            written.append(f"...{array_of(self._type(rest, indent, depth + 1, Top(top.ids, 'locked')))}")
        return f"[{', '.join(written)}]"

    def _note(self, schema: Any) -> str:
        """A property's comment: its description, range and default."""
        if not is_object(schema):
            return ""
        said = schema.get("description")
        notes = [first_sentence(said, NOTE_LENGTH)] if isinstance(said, str) else []
        if not self.ranges:
            return "; ".join(notes)
        low, high = schema.get("minimum"), schema.get("maximum")
        if is_number(low) or is_number(high):
            notes.append(f"{low if is_number(low) else ''}..{high if is_number(high) else ''}")
        if schema.get("default") is not None:
            notes.append(f"default {shown(schema['default'], 40)}")
        return "; ".join(note for note in notes if note)


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
