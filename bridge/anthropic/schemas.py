"""Tools as the Anthropic API declares them. A declaration may say less than the schema: the gate checks the whole.

What the API refuses in an `input_schema`: `anyOf`, `oneOf` and `allOf` at the top, property names with other characters
than letters, digits, `_`, `.` and `-`, and, for tools that programs call, references in a circle. What has to be left
out for that is put into the description, so that the model still reads it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from bridge.dialect import Document, is_list, is_object, listed
from bridge.offers import DirectTool
from bridge.searching import NAME, Search

_KEY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TOP: Final = ("anyOf", "oneOf", "allOf")
_SAID_BYTES: Final = 4_000  # of what is put into a description; longer parts are named only
_NODES: Final = 2_000  # subschemas of one declaration whose references were written out


def declared(tool: DirectTool, *, callers: list[str] | None = None, returns: bool = False) -> dict[str, Any]:
    """The entry for `tools`.

    Args:
        callers: `allowed_callers`, where they are not the vendor's default.
        returns: Say in the description what comes back: there is no other place for it.
    """
    schema, left_out = input_schema(tool.schema, acyclic=callers is not None)
    said = [tool.description, *(f"Arguments must also fit: {_short(part)}" for part in left_out)]
    output = tool.entry.tool.output_schema
    if returns and output is not None:
        said.append(f"Returns JSON text that fits this schema: {_short(output)}")
    elif returns:
        said.append("Returns text, or JSON text.")
    made: dict[str, Any] = {"name": tool.name, "input_schema": schema}
    if description := "\n".join(filter(None, said)):
        made["description"] = description
    if callers is not None:
        made["allowed_callers"] = callers
    return made


def search_tool(search: Search) -> dict[str, Any]:
    """The search among tools that are not declared, or not loaded, yet."""
    return {"name": NAME, "description": search.description, "input_schema": input_schema(search.schema)[0]}


def input_schema(schema: Mapping[str, Any], *, acyclic: bool = False) -> tuple[dict[str, Any], list[Any]]:
    """A schema that the API takes, and the parts of the given one that it does not say.

    Args:
        acyclic: Write references out, and cut those that lead in a circle.
    """
    document = Document(dict(schema))
    made = dict(document.root)
    left_out: list[Any] = []
    if "$ref" in made or any(word in made for word in _TOP):
        properties, required = document.shape()
        target = document.followed(made)
        source = target if is_object(target) else made
        left_out += [{word: source[word]} for word in _TOP if word in source]
        for name, part in _of_branches(document, source).items():
            properties.setdefault(name, part)
        definitions = {word: made[word] for word in ("$defs", "definitions") if word in made}
        extra = {k: v for k, v in source.items() if k not in (*_TOP, "$ref", "properties", "required")}
        made = {**extra, **definitions, "properties": properties, **({"required": required} if required else {})}
        if left_out:
            made.pop("unevaluatedProperties", None)  # what the branches evaluate is not seen any more
    made = {key: part for key, part in made.items() if key not in ("$schema", "$id", "title")}
    made["type"] = "object"
    properties = made.get("properties")
    if is_object(properties) and not all(_KEY.fullmatch(name) for name in properties):
        odd = {name: part for name, part in properties.items() if not _KEY.fullmatch(name)}
        left_out.append({"properties": odd})
        made["properties"] = {name: part for name, part in properties.items() if name not in odd}
        required = made.get("required")
        if is_list(required):
            made["required"] = [name for name in required if name not in odd]
        made.pop("additionalProperties", None)
    return (_Written(document).out(made) if acyclic else made), left_out


def _of_branches(document: Document, schema: dict[str, Any]) -> dict[str, Any]:
    """Properties that only alternatives name: never required, and typed only where every alternative has a type."""
    found: dict[str, Any] = {}
    for word in ("anyOf", "oneOf"):
        branches = [document.shape(branch)[0] for branch in listed(schema, word)]
        for name in dict.fromkeys(name for branch in branches for name in branch):
            kinds = [branch[name] for branch in branches if name in branch]
            if len(kinds) == len(branches):
                found.setdefault(name, kinds[0] if all(kind == kinds[0] for kind in kinds) else {"anyOf": kinds})
            else:
                found.setdefault(name, {"description": f"In one of the alternatives: {_short(kinds[0])}"})
    return found


class _Written:
    """References replaced by what they stand for; one that leads back to itself becomes `{}` (anything)."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._nodes = 0

    def out(self, schema: dict[str, Any]) -> dict[str, Any]:
        made = self._walk(schema, ())
        return {key: part for key, part in made.items() if key not in ("$defs", "definitions")}

    def _walk(self, value: Any, above: tuple[str, ...]) -> Any:
        self._nodes += 1
        if is_list(value):
            return [self._walk(part, above) for part in value]
        if not is_object(value):
            return value
        reference = value.get("$ref")
        if isinstance(reference, str):
            target = self._document.resolve(reference)
            if reference in above or self._nodes > _NODES or not is_object(target):
                return {}
            beside = {key: part for key, part in value.items() if key != "$ref"}
            return self._walk({**target, **beside}, (*above, reference))
        return {
            key: part if key in ("$defs", "definitions") else self._walk(part, above) for key, part in value.items()
        }


def _short(schema: Any) -> str:
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return text if len(text.encode()) <= _SAID_BYTES else text[:200] + " ... (longer)"
