"""Schemas that pydantic made, without what only repeats itself."""

from __future__ import annotations

from typing import Any, Final

from bridge.dialect import Document, is_list, is_object

_PREFIX: Final = "#/$defs/"
_NAMED: Final = frozenset({"$defs", "dependentSchemas", "patternProperties", "properties"})
_DATA: Final = frozenset({"const", "default", "enum", "examples"})  # values, in which a `$ref` is a word like any other


def tidy(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema with class names as titles gone, and definitions that are used once put where they are used."""
    definitions: dict[str, Any] = schema.pop("$defs", {})
    for part in (schema, *definitions.values()):
        part.pop("title", None)
    whole = Document({**schema, "$defs": definitions})
    circles = {id(part) for group in whole.components() if len(group) > 1 for part in group}
    uses: dict[str, int] = {}
    for part in whole.parts:
        reference = part.get("$ref")
        if isinstance(reference, str):
            uses[reference] = uses.get(reference, 0) + 1
    inline = {
        f"{_PREFIX}{name}": part
        for name, part in definitions.items()
        if uses.get(f"{_PREFIX}{name}") == 1 and id(part) not in circles
    }
    kept = {name: part for name, part in definitions.items() if f"{_PREFIX}{name}" not in inline}
    result = _inlined(schema, inline)
    if kept:
        result["$defs"] = {name: _inlined(part, inline) for name, part in kept.items()}
    return result


def _inlined(value: Any, inline: dict[str, Any], *, names: bool = False) -> Any:
    """A copy with references replaced. `names`: the keys are names of subschemas, not keywords."""
    if is_list(value):
        return [_inlined(item, inline) for item in value]
    if not is_object(value):
        return value
    reference = None if names else value.get("$ref")
    if isinstance(reference, str) and reference in inline:
        beside = {word: item for word, item in value.items() if word != "$ref"}  # a field's own description wins
        return {**_inlined(inline[reference], inline), **beside}
    copy: dict[str, Any] = {}
    for word, item in value.items():
        kept = word in _DATA and not names
        copy[word] = item if kept else _inlined(item, inline, names=word in _NAMED and not names)
    return copy
