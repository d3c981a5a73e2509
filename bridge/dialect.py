"""Where JSON Schema keeps its subschemas and what a reference means: for all that reads schemas (check, declarations).

Pure functions over plain JSON data. Schemas come from servers that nobody trusts, so whatever is walked is bounded:
`plain` refuses what is no JSON, too large or too deep, and no walk follows a reference in a circle.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeGuard, cast
from urllib.parse import unquote, urljoin

from bridge.errors import CatalogError

SCHEMA_DEPTH: Final = 100  # levels of nesting; the checker's own parser stops at about 120, real schemas at 14
SCHEMA_NODES: Final = 20_000  # JSON values in one schema; the largest real ones have about 1,000
# Keywords by the shape in which they hold subschemas, of all drafts from 4 to 2020-12.
_ONE: Final = frozenset(
    "additionalItems additionalProperties contains contentSchema else if items not propertyNames then unevaluatedItems "
    "unevaluatedProperties".split()
)
_LIST: Final = frozenset("allOf anyOf items oneOf prefixItems".split())
_MAP: Final = frozenset("$defs definitions dependencies dependentSchemas patternProperties properties".split())
_DEFINITIONS: Final = frozenset(["$defs", "definitions"])
_OBJECT_WORDS: Final = ("properties", "required", "additionalProperties", "patternProperties")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")

Object = dict[str, Any]


def is_object(value: object) -> TypeGuard[Object]:
    """Whether a JSON value is an object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether a JSON value is an array."""
    return isinstance(value, list)


def is_schema(value: object) -> TypeGuard[Object | bool]:
    """Whether a JSON value has the form of a schema."""
    return isinstance(value, (dict, bool))


def plain(value: Any, where: str) -> Any:
    """A deep copy of a schema as plain JSON data.

    Raises:
        CatalogError: It is no object or boolean, holds something that is no JSON, or is too large or too deep.
    """
    if not isinstance(value, (Mapping, bool)):
        raise CatalogError(f"{where} must be a JSON Schema (an object, true or false), not {type(value).__name__}")
    nodes = 0

    def copy(value: Any, depth: int) -> Any:
        nonlocal nodes
        nodes += 1
        if nodes > SCHEMA_NODES:
            raise CatalogError(f"{where} has more than {SCHEMA_NODES:,} values in it")
        if value is None or isinstance(value, (str, bool, int, float)):
            return value
        if depth == 0:
            raise CatalogError(f"{where} is nested more than {SCHEMA_DEPTH} levels deep")
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value)
            for key in items:
                if not isinstance(key, str):
                    raise CatalogError(f"{where} has the key {key!r}, which is no text")
            return {key: copy(item, depth - 1) for key, item in items.items()}
        if isinstance(value, (list, tuple)):
            return [copy(item, depth - 1) for item in cast("list[Any]", value)]
        raise CatalogError(f"{where} holds a {type(value).__name__}, which is no JSON")

    return copy(value, SCHEMA_DEPTH)


def children(schema: Any, *, definitions: bool = True) -> Iterator[Any]:
    """The direct subschemas of a schema, in the order of its text; references are not followed."""
    if not is_object(schema):
        return
    for word, value in schema.items():
        if is_schema(value) and word in _ONE:
            yield value
        elif is_list(value) and word in _LIST:
            yield from filter(is_schema, value)
        elif is_object(value) and word in _MAP and (definitions or word not in _DEFINITIONS):
            yield from filter(is_schema, value.values())


def types_of(schema: Object) -> list[str]:
    """The names in `type`, as a list; empty where there is no usable one."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return [kind]
    return [name for name in kind if isinstance(name, str)] if is_list(kind) else []


def listed(schema: Object, word: str) -> list[Any]:
    """A keyword's list, empty where it is no list."""
    value = schema.get(word)
    return value if is_list(value) else []


def mapped(schema: Object, word: str) -> Object:
    """A keyword's object, empty where it is no object."""
    value = schema.get(word)
    return value if is_object(value) else {}


class Document:
    """One schema with what its references mean: `#`, JSON pointers (RFC 6901), anchors, `$id`s inside the document.

    The schema must come from `plain` and stay as it is: subschemas are told apart by identity.
    """

    def __init__(self, root: Any) -> None:
        self.root = root
        self.parts: list[Object] = []  # every subschema that is an object, the root included
        self._home: dict[int, Object] = {}  # id of a subschema -> the resource (schema with an `$id`) that it lies in
        self._base: dict[int, str] = {}  # id of a resource -> its URI
        self._resources: dict[str, Object] = {}
        self._anchors: dict[tuple[int, str], Object] = {}
        if is_object(root):
            self._scan(root)

    def _scan(self, root: Object) -> None:
        waiting: list[tuple[Object, Object]] = [(root, root)]
        self._base[id(root)] = ""
        while waiting:
            schema, home = waiting.pop()
            self.parts.append(schema)
            identity = schema.get("$id", schema.get("id"))
            if isinstance(identity, str) and not identity.startswith("#"):
                try:
                    uri = urljoin(self._base[id(home)], identity).partition("#")[0]
                except ValueError:  # no URI: nothing can refer to it
                    uri = identity
                home = schema
                self._base[id(home)] = uri
                self._resources.setdefault(uri, schema)
            self._home[id(schema)] = home
            for name in (schema.get("$anchor"), schema.get("$dynamicAnchor")):
                if isinstance(name, str):
                    self._anchors.setdefault((id(home), name), schema)
            if isinstance(identity, str) and identity.startswith("#"):  # an anchor in drafts 4 to 7
                self._anchors.setdefault((id(home), identity[1:]), schema)
            waiting.extend((child, home) for child in children(schema) if is_object(child))

    def resolve(self, reference: object, at: Any = None) -> Any:
        """What a reference in the subschema `at` points at, or None: elsewhere, at nothing, or at no schema."""
        if not isinstance(reference, str) or not is_object(self.root):
            return None
        home = self._home.get(id(at), self.root)
        uri, _, fragment = reference.partition("#")
        if uri:
            try:
                uri = urljoin(self._base.get(id(home), ""), uri)
            except ValueError:
                return None
            if uri not in self._resources:
                return None
            home = self._resources[uri]
        if not fragment:
            return home
        if not fragment.startswith("/"):
            return self._anchors.get((id(home), fragment))
        place: Any = home
        for part in unquote(fragment[1:]).split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            if is_object(place) and key in place:
                place = place[key]
            elif is_list(place) and re.fullmatch(r"0|[1-9][0-9]{0,8}", key) and int(key) < len(place):
                place = place[int(key)]
            else:
                return None
        return place if is_schema(place) else None

    def followed(self, schema: Any) -> Any:
        """What a reference stands for, through a chain of them; the schema itself if it is none; None if broken."""
        seen: set[int] = set()
        while is_object(schema) and "$ref" in schema:
            if id(schema) in seen:
                return None
            seen.add(id(schema))
            schema = self.resolve(schema["$ref"], schema)
        return schema

    def takes_object(self, schema: Any = ..., depth: int = 8) -> bool:
        """Whether only objects can be valid, or are meant: `type` is missing but properties are spoken of."""
        schema = self.followed(self.root if schema is ... else schema)
        if not is_object(schema) or depth <= 0:
            return False
        if schema.get("type") is not None:
            return schema["type"] in ("object", ["object"])
        if any(word in schema for word in _OBJECT_WORDS):
            return True
        if any(self.takes_object(part, depth - 1) for part in listed(schema, "allOf")):
            return True
        choices = (listed(schema, "anyOf"), listed(schema, "oneOf"))
        return any(parts and all(self.takes_object(part, depth - 1) for part in parts) for parts in choices)

    def shape(self, schema: Any = ..., depth: int = 8) -> tuple[Object, list[str]]:
        """Properties (in the schema's order) and required names of an object, through references and `allOf`."""
        schema = self.followed(self.root if schema is ... else schema)
        if not is_object(schema) or depth <= 0:
            return {}, []
        properties = dict(mapped(schema, "properties"))
        required = [name for name in listed(schema, "required") if isinstance(name, str)]
        for part in listed(schema, "allOf"):
            more, needed = self.shape(part, depth - 1)
            properties |= {name: value for name, value in more.items() if name not in properties}
            required += [name for name in needed if name not in required]
        return properties, required

    def targets(self, schema: Any) -> list[Object]:
        """Subschemas that take part in checking one: its children but for definitions, and what it refers to."""
        found: list[Object] = list(filter(is_object, children(schema, definitions=False)))
        for word in _REFERENCES:
            target = self.resolve(schema[word], schema) if word in schema else None
            if is_object(target):
                found.append(target)
        return found

    def components(self) -> list[list[Object]]:
        """Strongly connected components of what the root leads to, each after all that it leads to (Tarjan, 1972)."""
        index: dict[int, int] = {}
        low: dict[int, int] = {}
        closed: set[int] = set()
        found: list[list[Object]] = []
        open_: list[Object] = []
        work: list[tuple[Object, Iterator[Object]]] = []

        def enter(schema: Object) -> None:
            index[id(schema)] = low[id(schema)] = len(index)
            open_.append(schema)
            work.append((schema, iter(self.targets(schema))))

        if is_object(self.root):
            enter(self.root)
        while work:
            schema, rest = work[-1]
            target = next(rest, None)
            if target is None:
                work.pop()
                if work:
                    low[id(work[-1][0])] = min(low[id(work[-1][0])], low[id(schema)])
                if low[id(schema)] == index[id(schema)]:
                    start = next(i for i in range(len(open_) - 1, -1, -1) if open_[i] is schema)
                    found.append(open_[start:])
                    closed.update(id(member) for member in open_[start:])
                    del open_[start:]
            elif id(target) not in index:
                enter(target)
            elif id(target) not in closed:
                low[id(schema)] = min(low[id(schema)], index[id(target)])
        return found

    def expansion(self) -> int:
        """How many subschemas one value may have to be held against: each use of a reference counts.

        A few hundred bytes of references can stand for billions of checks. References in a circle count once: the
        checker remembers them.
        """
        cost: dict[int, int] = {}  # by subschema: what its whole component costs
        total = 1
        for members in self.components():
            inside = {id(member) for member in members}
            total = len(members)
            for member in members:
                total += sum(cost[id(t)] for t in self.targets(member) if id(t) not in inside)
            cost.update((key, total) for key in inside)
        return total
