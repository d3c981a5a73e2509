"""Why a value does not fit a schema, in words for the model that made it.

The checker (`schema.py`) has the verdict; this finds the first reason. It never asks the library for its own errors:
those repeat every alternative of every union, which grows without bound where a schema is recursive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import jsonschema_rs

from bridge.dialect import Document, is_list, is_object, listed, mapped, types_of
from bridge.text import cut, shown, visible

STEPS: Final = 12_000  # subschemas looked at for one question (0.1 to 0.2 s); past it the reason is general
ALTERNATIVES: Final = 12  # literals named in one text
_LOCAL: Final = (  # keywords that need nothing but the value itself, in the order of how much they explain
    "type const enum required dependentRequired minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength "
    "maxLength pattern minItems maxItems uniqueItems minProperties maxProperties"
).split()
_BOUNDS: Final = {
    "minimum": "must be at least {0}, got {1}",
    "maximum": "must be at most {0}, got {1}",
    "exclusiveMinimum": "must be more than {0}, got {1}",
    "exclusiveMaximum": "must be less than {0}, got {1}",
    "multipleOf": "must be a multiple of {0}, got {1}",
    "minLength": "must have at least {0} characters, has {2}",
    "maxLength": "must have at most {0} characters, has {2}",
    "minItems": "must have at least {0} items, has {2}",
    "maxItems": "must have at most {0} items, has {2}",
    "minProperties": "must have at least {0} properties, has {2}",
    "maxProperties": "must have at most {0} properties, has {2}",
}


@dataclass(frozen=True)
class Mismatch:
    """One reason: where (a JSON pointer, empty at the top), which keyword, and what is wrong."""

    path: str
    keyword: str
    text: str
    expected: tuple[str, ...] = ()

    @property
    def depth(self) -> int:
        """How far below the top."""
        return self.path.count("/")

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


_PATTERNS: Final = jsonschema_rs.FancyRegexOptions(backtrack_limit=5_000)


class _Spent(Exception):
    """The search has taken all its steps."""


class Explainer:
    """Finds reasons in one schema. One per question: it counts its steps over all that it is asked."""

    def __init__(self, document: Document, validator: type[jsonschema_rs.Validator]) -> None:
        self.document = document
        self.validator = validator
        self.references_alone = validator in (
            jsonschema_rs.Draft4Validator,
            jsonschema_rs.Draft6Validator,
            jsonschema_rs.Draft7Validator,
        )  # before 2019-09 the neighbours of a `$ref` are ignored
        self._keywords: dict[tuple[int, str], jsonschema_rs.Validator | None] = {}
        self._steps = 0
        self._open: set[tuple[int, int]] = set()

    def reason(self, value: Any) -> Mismatch:
        """Why a value that the checker has refused does not fit; general where no reason was found."""
        return self.mismatch(self.document.root, value) or Mismatch("", "schema", "does not fit the schema")

    def mismatch(self, schema: Any, value: Any) -> Mismatch | None:
        """The first reason against one subschema; None where there is none to be found."""
        self._open.clear()
        try:
            return self._first(schema, value, "")
        except _Spent:
            return None

    def _first(self, schema: Any, value: Any, path: str) -> Mismatch | None:
        self._steps += 1
        if self._steps > STEPS:
            raise _Spent
        if schema is False:
            return Mismatch(path, "false", "nothing may stand here")
        if not is_object(schema) or (mark := (id(schema), id(value))) in self._open:
            return None
        self._open.add(mark)
        try:
            return self._referred(schema, value, path)
        finally:
            self._open.discard(mark)

    def _referred(self, schema: dict[str, Any], value: Any, path: str) -> Mismatch | None:
        if "$ref" in schema:
            found = self._first(self.document.resolve(schema["$ref"], schema), value, path)
            if found or self.references_alone:
                return found
        return self._own(schema, value, path) or self._combined(schema, value, path)

    def _own(self, schema: dict[str, Any], value: Any, path: str) -> Mismatch | None:
        if "type" in schema and (found := self._local(schema, "type", value, path)):
            return found
        if is_object(value):
            # What tells the members of a union apart comes first: the others' reasons are beside the point.
            for name, part in mapped(schema, "properties").items():
                tag = name in value and is_object(part) and ("const" in part or "enum" in part)
                if tag and (found := self._first(part, value[name], f"{path}/{_escaped(name)}")):
                    return found
            if found := self._unknown(schema, value, path):
                return found
        for word in _LOCAL:
            if word in schema and (found := self._local(schema, word, value, path)):
                return found
        for part, item, place in self._parts(schema, value, path):
            if found := self._first(part, item, place):
                return found
        return None

    def _parts(self, schema: dict[str, Any], value: Any, path: str) -> list[tuple[Any, Any, str]]:
        """What lies one level below: (its schema, the value there, its path)."""
        found: list[tuple[Any, Any, str]] = []
        if is_object(value):
            properties, patterns = mapped(schema, "properties"), mapped(schema, "patternProperties")
            for name, item in value.items():
                place = f"{path}/{_escaped(name)}"
                matching = [part for pattern, part in patterns.items() if _matches(pattern, name)]
                if name in properties:
                    found.append((properties[name], item, place))
                elif not matching and is_object(schema.get("additionalProperties")):
                    found.append((schema["additionalProperties"], item, place))
                found.extend((part, item, place) for part in matching)
        elif is_list(value):
            items = schema.get("items")
            first = items if is_list(items) else listed(schema, "prefixItems")
            rest = schema.get("additionalItems", True) if is_list(items) else items
            for index, item in enumerate(value):
                found.append((first[index] if index < len(first) else rest, item, f"{path}/{index}"))
        return found

    def _unknown(self, schema: dict[str, Any], value: dict[str, Any], path: str) -> Mismatch | None:
        if schema.get("additionalProperties") is False:
            allowed = mapped(schema, "properties")
        elif schema.get("unevaluatedProperties") is False and not (
            {"anyOf", "oneOf", "if", "$dynamicRef"} & set(schema)
        ):
            allowed = self.document.shape({k: v for k, v in schema.items() if k != "$ref"})[0]
            allowed |= self.document.shape(self.document.resolve(schema.get("$ref"), schema))[0]
        else:
            return None
        patterns = mapped(schema, "patternProperties")
        extra = [n for n in value if n not in allowed and not any(_matches(p, n) for p in patterns)]
        if not extra:
            return None
        kind = "property" if path else "argument"
        plural = f"{kind[:-1]}ies" if len(extra) > 1 and path else f"{kind}s" if len(extra) > 1 else kind
        have = cut(", ".join(visible(name) for name in allowed), 160) or "none"
        return Mismatch(path, "additionalProperties", f"unknown {plural} {_names(extra)} (have: {have})")

    def _combined(self, schema: dict[str, Any], value: Any, path: str) -> Mismatch | None:
        for part in listed(schema, "allOf"):
            if found := self._first(part, value, path):
                return found
        for word in ("anyOf", "oneOf"):
            reasons = [self._first(part, value, path) for part in listed(schema, word)]
            wrong = [reason for reason in reasons if reason is not None]
            if reasons and len(wrong) == len(reasons):
                return _likeliest(wrong, value, path)
            if word == "oneOf" and len(reasons) - len(wrong) > 1:
                return Mismatch(
                    path, "oneOf", "fits more than one of the alternatives, of which exactly one is allowed"
                )
        if "not" in schema and self._first(schema["not"], value, path) is None:
            return Mismatch(path, "not", f"{shown(value)} is excluded here")
        if "if" in schema:
            branch = "else" if self._first(schema["if"], value, path) else "then"
            return self._first(schema.get(branch, True), value, path)
        if is_object(value):
            for name, part in mapped(schema, "dependentSchemas").items():
                if name in value and (found := self._first(part, value, path)):
                    return found
        return None

    def _local(self, schema: dict[str, Any], word: str, value: Any, path: str) -> Mismatch | None:
        """Hold the value against one keyword, as the library understands it."""
        key = (id(schema), word)
        if key not in self._keywords:
            self._keywords[key] = self._keyword(schema, word)
        validator = self._keywords[key]
        try:
            fits = validator is None or validator.is_valid(value)
        except ValueError:  # the value as a whole was looked at before: this is no fault of it
            return None
        return None if fits else _told(schema, word, value, path)

    def _keyword(self, schema: dict[str, Any], word: str) -> jsonschema_rs.Validator | None:
        wanted = schema[word]
        alone: dict[str, Any] = {word: wanted}
        if word in ("minimum", "maximum"):  # in draft 4 a boolean beside it changes it
            beside = f"exclusive{word.capitalize()}"
            alone |= {beside: schema[beside]} if isinstance(schema.get(beside), bool) else {}
        elif isinstance(wanted, bool) and word.startswith("exclusive"):
            return None
        try:
            return self.validator(alone, validate_formats=False, offline=True, pattern_options=_PATTERNS)
        except ValueError:  # an older dialect does not have the keyword in this form
            return None


def _told(schema: dict[str, Any], word: str, value: Any, path: str) -> Mismatch:
    wanted = schema[word]
    if word == "type":
        return _expected(path, word, tuple(_articles(types_of(schema))), value)
    if word == "const":
        return _expected(path, word, (shown(wanted),), value)
    if word == "enum":
        return _expected(path, word, tuple(shown(item) for item in wanted), value)
    if word == "required":
        return Mismatch(path, word, f"missing {_names([name for name in wanted if name not in value])}")
    if word == "pattern":
        return Mismatch(path, word, f"must match the pattern {cut(visible(wanted), 80)}, got {shown(value)}")
    if word == "uniqueItems":
        return Mismatch(path, word, "has the same item more than once")
    if word in _BOUNDS:
        size = len(value) if isinstance(value, (str, list, dict)) else 0  # pyright: ignore[reportUnknownArgumentType] - any JSON
        return Mismatch(path, word, _BOUNDS[word].format(shown(wanted), shown(value), size))
    return Mismatch(path, word, f"does not fit the schema's {word!r}")


def _likeliest(reasons: list[Mismatch], value: Any, path: str) -> Mismatch:
    """Of the reasons of a union's members, the one that the writer most likely needs."""
    if all(reason.path == path and reason.expected for reason in reasons):
        choices = tuple(dict.fromkeys(choice for reason in reasons for choice in reason.expected))
        return _expected(path, reasons[0].keyword, choices, value)
    # A member that fails on its kind or tag is not the one that was meant; else the deepest reason got furthest.
    return max(reasons, key=lambda reason: (not reason.expected, reason.depth))


def _expected(path: str, keyword: str, choices: tuple[str, ...], value: Any) -> Mismatch:
    shortened = [*choices[:ALTERNATIVES], *(["…"] if len(choices) > ALTERNATIVES else [])]
    of = "one of " if keyword == "enum" and len(choices) > 1 else ""
    said = ", ".join(shortened) if of else " or ".join(shortened) or "nothing"
    got = shown(value) if keyword in ("enum", "const") and not isinstance(value, (dict, list)) else _kind(value)
    return Mismatch(path, keyword, f"expected {of}{cut(said, 220)}, got {got}", choices)


def _kind(value: Any) -> str:
    """The JSON type of a value and the value, in a few characters."""
    for types, name in ((bool, "boolean"), (int, "number"), (float, "number"), (str, "string")):
        if isinstance(value, types):
            return f"{name} {shown(value)}"
    return "null" if value is None else "array" if isinstance(value, list) else "object"


def _articles(types: list[str]) -> list[str]:
    return types or ["another type"]


def _names(names: list[str]) -> str:
    few = ", ".join(f'"{cut(visible(name), 40)}"' for name in names[:5])
    return few + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _escaped(name: str) -> str:
    return cut(visible(name), 40).replace("~", "~0").replace("/", "~1")


def _matches(pattern: str, name: str) -> bool:
    """Whether a name is meant by a pattern of `patternProperties`, judged by the library (no catastrophic patterns)."""
    try:
        dialect = jsonschema_rs.Draft202012Validator
        return dialect({"pattern": pattern}, pattern_options=_PATTERNS, offline=True).is_valid(name)
    except ValueError:
        return False
