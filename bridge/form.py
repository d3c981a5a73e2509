"""Asks the person at a terminal what a server wants to know.

Each line says that it is the server who asks, and everything that it wrote is escaped. A value is checked when it is
typed. Nothing is sent before the person has seen all of it once more, and a page is never opened from here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from bridge.approval import escape
from bridge.dialect import is_list, is_object
from bridge.elicitation import Elicitation, ElicitationAnswer
from bridge.terminal import Terminal
from bridge.text import cut

FIELDS: Final = 50  # of one form; nobody fills in more at a terminal
SAID: Final = 300  # characters of what a server says of one field
_YES: Final = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


class Form(Terminal):
    """What `terminal_elicit` returns."""

    async def __call__(self, question: Elicitation) -> ElicitationAnswer:
        """What the person says; `decline` where there is none, `cancel` at the end of input."""
        if not self.attended:
            return ElicitationAnswer.decline()
        async with self.turn():
            for line in question.lines():
                self.write(line)
            if question.mode == "url":
                return await self._decide("the page was not opened; go there yourself, then", "y I was there", None)
            return await self._fill_in(question)

    async def _fill_in(self, question: Elicitation) -> ElicitationAnswer:
        properties = cast("dict[str, Any]", (question.requested_schema or {}).get("properties") or {})
        required = cast("list[str]", (question.requested_schema or {}).get("required") or [])
        if len(properties) > FIELDS:
            self.write(f"it wants {len(properties):,} fields, more than can be filled in here ({FIELDS}): cancelled")
            return ElicitationAnswer.cancel()
        while True:
            content: dict[str, Any] = {}
            for name, schema in properties.items():
                if not await self._field(question, name, schema, name in required, content):
                    return ElicitationAnswer.cancel()
            self.write("to be sent:")
            for line in json.dumps(content, ensure_ascii=False, indent=2).split("\n"):
                self.write(f"  {escape(line)}")
            why = question.mismatch(content)
            if why is None:
                return await self._decide(f"server {escape(question.server)} gets this:", "y send", content)
            self.write(f"that does not fit: {escape(why)}")

    async def _field(
        self, question: Elicitation, name: str, schema: Any, required: bool, content: dict[str, Any]
    ) -> bool:
        """Ask for one value until it fits; False at the end of input."""
        schema = schema if is_object(schema) else {}
        choices = _choices(schema)
        said = f"  {escape(name)}{'' if required else ' (optional)'}"
        about = [schema.get("title"), schema.get("description")]
        said += "".join(f"; {escape(cut(each, SAID))}" for each in about if isinstance(each, str) and each != name)
        self.write(said)
        for number, (value, title) in enumerate(choices, 1):
            self.write(f"    {number}. {escape(cut(title, SAID))}" + (f" ({escape(value)})" if title != value else ""))
        default = schema.get("default")
        hint = _hint(schema, choices)
        if default is not None:
            hint += f"; empty: {escape(cut(json.dumps(default, ensure_ascii=False), SAID))}"
        elif not required:
            hint += "; empty: left out"
        while True:
            typed = await self.line(f"  {hint}> ")
            if typed is None:
                return False
            text = typed.rstrip("\r\n")
            if not text and default is None and not required:
                return True
            value = default if not text and default is not None else _value(text, schema, choices)
            alone = Elicitation(
                server=question.server, message="", requested_schema={"type": "object", "properties": {name: schema}}
            )
            why = alone.mismatch({name: value})
            if why is None:
                content[name] = value
                return True
            self.write(f"  that does not fit: {escape(why)}")

    async def _decide(self, what: str, yes: str, content: Mapping[str, Any] | None) -> ElicitationAnswer:
        while True:
            key = await self.line(f"{what} [{yes} | n decline | q not now] ")
            match key.strip().lower() if key is not None else "q":
                case "y":
                    return ElicitationAnswer.accept(content)
                case "n":
                    return ElicitationAnswer.decline()
                case "q":
                    return ElicitationAnswer.cancel()
                case other:
                    self.write(f"no such key: {escape(other)}" if other else "nothing is decided by an empty line")


def _choices(schema: dict[str, Any]) -> list[tuple[str, str]]:
    """The values that a field may have, with their titles; empty where any may be."""
    items = schema.get("items")
    of: dict[str, Any] = items if schema.get("type") == "array" and is_object(items) else schema
    titled = of.get("oneOf") or of.get("anyOf")
    if is_list(titled):
        return [
            (each["const"], title if isinstance(title := each.get("title"), str) else each["const"])
            for each in titled
            if is_object(each) and isinstance(each.get("const"), str)
        ]
    values, names = of.get("enum"), of.get("enumNames")
    if not is_list(values):
        return []
    titles = names if is_list(names) and len(names) == len(values) else values
    return [
        (value, title if isinstance(title, str) else value)
        for value, title in zip(values, titles, strict=True)
        if isinstance(value, str)
    ]


def _hint(schema: dict[str, Any], choices: list[tuple[str, str]]) -> str:
    if choices:
        return "numbers, with commas" if schema.get("type") == "array" else "a number"
    kinds = {"boolean": "y or n", "integer": "an integer", "number": "a number", "array": "texts, with commas"}
    kind = kinds.get(str(schema.get("type")), "text")
    form = schema.get("format")
    return f"{kind} ({escape(cut(form, SAID))})" if isinstance(form, str) else kind


def _value(text: str, schema: dict[str, Any], choices: list[tuple[str, str]]) -> Any:
    """What was typed, as the field wants it; as text where it cannot be that."""
    kind = schema.get("type")
    if kind == "array":
        return [_choice(part.strip(), choices) for part in text.split(",") if part.strip()]
    if choices:
        return _choice(text.strip(), choices)
    if kind == "boolean":
        return _YES.get(text.strip().lower(), text)
    if kind in ("integer", "number"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _choice(text: str, choices: list[tuple[str, str]]) -> str:
    if text.isdecimal() and 1 <= int(text) <= len(choices):
        return choices[int(text) - 1][0]
    return text
