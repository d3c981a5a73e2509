"""What is read into arguments that do not fit: never anything that loses or guesses.

The whole rule, applied only to arguments that the schema refuses as they are:

- a string where a number, integer or boolean is wanted and no string is: the value, if the string is exactly its JSON
  text and nothing is lost ("5" -> 5, "9007199254740993" -> 9007199254740993, "0.5" -> 0.5, "true" -> true; not "5.5"
  for an integer, not "", " 5", "05", "-0", "1e400" or a fraction that a double cannot hold);
- null for an optional property that may not be null: the property is left out, with the notice `null_argument`.

A number is never made a string (1e21, 0.1 and 007 have more than one text), nothing is made a list, and no default is
filled in: the tool has its own.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any, Final

from bridge.dialect import is_list, is_object, listed, mapped, types_of
from bridge.explain import Explainer

_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,299}", re.ASCII)
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,299})(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
DEPTH: Final = 40  # levels that are looked into


class Coercion:
    """Reads one argument value. `dropped` has the paths of nulls that were left out."""

    def __init__(self, explainer: Explainer) -> None:
        self.explainer = explainer
        self.document = explainer.document
        self.dropped: list[str] = []

    def read(self, value: Any) -> Any:
        """The value with all that the rule allows; the same object where nothing changed. The input is left alone."""
        return self._read(self.document.root, value, "", DEPTH)

    def _read(self, schema: Any, value: Any, path: str, depth: int) -> Any:
        if not is_object(schema) or depth == 0:
            return value
        if "$ref" in schema:
            value = self._read(self.document.resolve(schema["$ref"], schema), value, path, depth - 1)
            if self.explainer.references_alone:
                return value
        if isinstance(value, str):
            value = _scalar(schema, value)
        elif is_object(value):
            value = self._object(schema, value, path, depth)
        elif is_list(value):
            value = self._list(schema, value, path, depth)
        for part in listed(schema, "allOf"):
            value = self._read(part, value, path, depth - 1)
        for word in ("anyOf", "oneOf"):
            if parts := listed(schema, word):
                value = self._member(parts, value, path, depth)
        return value

    def _member(self, parts: list[Any], value: Any, path: str, depth: int) -> Any:
        """The value as the first member of a union that then accepts it reads it."""
        if any(self.explainer.mismatch(part, value) is None for part in parts):
            return value
        for part in parts:
            before = len(self.dropped)
            candidate = self._read(part, value, path, depth - 1)
            if candidate is not value and self.explainer.mismatch(part, candidate) is None:
                return candidate
            del self.dropped[before:]
        return value

    def _object(self, schema: dict[str, Any], value: dict[str, Any], path: str, depth: int) -> dict[str, Any]:
        properties, rest = mapped(schema, "properties"), schema.get("additionalProperties")
        required = listed(schema, "required")
        changed: dict[str, Any] = {}
        for name, item in value.items():
            part = properties.get(name, rest)
            if item is None and name in properties and name not in required and self.explainer.mismatch(part, None):
                self.dropped.append(f"{path}/{name}")
                continue
            changed[name] = self._read(part, item, f"{path}/{name}", depth - 1)
        same = len(changed) == len(value) and all(changed[name] is value[name] for name in value)
        return value if same else changed

    def _list(self, schema: dict[str, Any], value: list[Any], path: str, depth: int) -> list[Any]:
        items = schema.get("items")
        first = items if is_list(items) else listed(schema, "prefixItems")
        rest = schema.get("additionalItems", True) if is_list(items) else items
        changed = [
            self._read(first[index] if index < len(first) else rest, item, f"{path}/{index}", depth - 1)
            for index, item in enumerate(value)
        ]
        return value if all(new is old for new, old in zip(changed, value, strict=True)) else changed


def _scalar(schema: dict[str, Any], text: str) -> Any:
    types = types_of(schema)
    if not types or "string" in types:
        return text
    if "boolean" in types and text in ("true", "false"):
        return text == "true"
    if ("integer" in types or "number" in types) and _INTEGER.fullmatch(text):
        return int(text)
    if "number" in types and _NUMBER.fullmatch(text):
        number = float(text)
        if math.isfinite(number) and number != 0 and Decimal(repr(number)) == Decimal(text):
            return number
    return text
