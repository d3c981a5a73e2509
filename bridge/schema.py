"""The one check of arguments and results against JSON Schema, and how an argument list becomes one argument.

Compiled once, by a checker that has no catastrophic patterns. Nothing is ever fetched: a reference that leaves the
schema is an error when the schema is compiled. Formats are not asserted; the dialect is `$schema`'s, else 2020-12.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, NoReturn, overload

import jsonschema_rs

from bridge.coercion import Coercion
from bridge.dialect import Document, is_list, is_object, mapped, plain, types_of
from bridge.errors import CatalogError, ToolError
from bridge.explain import Explainer, Mismatch
from bridge.text import cut, shown, visible
from bridge.tools import Entry, Schema
from sandbox import Notice

ERROR_LENGTH: Final = 500  # characters of one error text: a model reads dozens of these
DEPTH: Final = 128  # levels of arrays and objects in one value; MCP's own JSON reader gives up at about 200
EXPANSION: Final = 100_000  # subschemas that one value may be held against, references counted at each use
WORK: Final = 300_000_000  # values times subschemas of one check: some seconds at the very worst, never minutes
BACKTRACKS: Final = 5_000  # steps of a pattern with look-around or back-references; other patterns take linear time
BACKTRACKING_COST: Final = 1_000  # what one such pattern counts in `WORK`: most strings need far fewer steps

_DIALECTS: Final = {
    "draft-04/schema": jsonschema_rs.Draft4Validator,
    "draft-06/schema": jsonschema_rs.Draft6Validator,
    "draft-07/schema": jsonschema_rs.Draft7Validator,
    "draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
    "draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
    "schema": jsonschema_rs.Draft202012Validator,  # "the latest"
}
_LINEAR: Final = jsonschema_rs.RegexOptions()
_BACKTRACKING: Final = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACKS)


class Checked(NamedTuple):
    """Arguments that fit: one JSON value, and what is to be said about how they were read (without a line)."""

    arguments: Any
    notices: tuple[Notice, ...] = ()


class Checker:
    """Checks the arguments and results of one tool: `Checker(entry)`, or one schema by itself: `Checker(schema, name)`.

    With a schema by itself, arguments and results are both held against it. `name` is how texts call the tool: for an
    entry its expression (`carrier.track`).

    Raises:
        CatalogError: A schema that is no schema, refers to something outside of it or to nothing, or asks for more
            work than any honest one (nesting, patterns, references on references). The text names the tool.
    """

    @overload
    def __init__(self, schema: Entry, /) -> None: ...
    @overload
    def __init__(self, schema: Schema, name: str) -> None: ...
    def __init__(self, schema: Entry | Schema, name: str = "") -> None:
        if isinstance(schema, Entry):
            tool = schema.tool
            self.name = schema.expression
            self._input = _Compiled(tool.input_schema, f"tool {schema.name!r}: input schema")
            self._output = (
                _Compiled(tool.output_schema, f"tool {schema.name!r}: output schema")
                if tool.output_schema is not None
                else None
            )
            self._wrapped = tool.wraps_result
        else:
            self.name = name
            self._input = self._output = _Compiled(schema, f"tool {name!r}: schema")
            self._wrapped = False
        self._takes_object = self._input.document.takes_object()

    @property
    def signature(self) -> str:
        """The tool's call on one line, as declarations show it."""
        from bridge.declarations import signature_of

        return signature_of(self.name, self._input.document.root)

    def arguments(self, positional: list[Any]) -> Checked:
        """The one argument that an argument list stands for, checked.

        A tool whose schema is an object's takes one object; `f()` and `f(null)` are `f({})`, and a list of other values
        is read by the schema's order of properties where only one reading fits (notice `positional_arguments`). Any
        other tool takes its one argument as it is (none: null). What comes after that and says nothing (null, and what
        the realm makes null of: undefined, a function) is left out, with the same notice; anything else is refused.
        What the schema refuses is read once more by the rule of `coercion.py`, and then checked again. The input is
        never changed.

        Raises:
            ToolError: `invalid_arguments`, with a text of at most 500 characters for the model that wrote the call;
                `details` has `path` (a JSON pointer) and `keyword`.
        """
        if len(positional) == 1 and (not self._takes_object or is_object(positional[0])):
            value, notices = positional[0], ()
        else:
            value, notices = self._one(positional)
        if self._fits(value):
            return Checked(value, notices)
        explainer = self._input.explainer()
        coercion = Coercion(explainer)
        read = coercion.read(value)
        if read is value or not self._fits(read):
            self._refuse(self._input.explainer().reason(read))
        if coercion.dropped:
            names = cut(", ".join(f"{visible(path)}" for path in coercion.dropped), 200)
            text = f"{self.name}: left out {names}: null is not allowed there; leave optional arguments out instead"
            notices = (*notices, Notice("null_argument", text))
        return Checked(read, notices)

    def result(self, value: Any) -> str | None:
        """Why a result does not fit the output schema; None if it fits or there is none.

        A tool that wraps its result (`Tool.wraps_result`) is checked by the value that the program gets.
        """
        if self._output is None:
            return None
        given = {"result": value} if self._wrapped else value
        try:
            if self._output.accepts(given):
                return None
        except _Refused as refused:
            return str(refused)
        reason = self._output.explainer().reason(given)
        path = reason.path.removeprefix("/result") if self._wrapped else reason.path
        return cut(f"{path}: {reason.text}" if path else reason.text, ERROR_LENGTH)

    def _fits(self, value: Any) -> bool:
        try:
            return self._input.accepts(value)
        except _Refused as refused:
            self._refuse(Mismatch("", "", str(refused)))

    def _one(self, positional: list[Any]) -> tuple[Any, tuple[Notice, ...]]:
        """One value for a list of arguments that is not simply one of the right kind."""
        given = list(positional)
        while given and given[-1] is None:  # `f(x, undefined)`
            given.pop()
        surplus = len(positional) - max(len(given), 1)
        if not self._takes_object:
            if len(given) > 1:
                self._refuse(Mismatch("", "", f"takes one argument, got {len(given)}"))
            return (given[0] if given else None), self._notices("one argument", surplus)
        if not given or (len(given) == 1 and is_object(given[0])):
            return (given[0] if given else {}), self._notices("one object", surplus)
        names = self._reading(given)
        order = ", ".join(f'"{visible(name)}"' for name in names)
        read = f" These arguments were read as {order}, in this order."
        return dict(zip(names, given, strict=True)), self._notices("one object", surplus, read)

    def _notices(self, what: str, surplus: int, read: str = "") -> tuple[Notice, ...]:
        """What is to be said of arguments that were read by their order, and of those that were left out."""
        if surplus > 0:
            last = "The last argument was" if surplus == 1 else f"The last {surplus} arguments were"
            read += f" {last} left out: null, undefined and functions tell it nothing, and no callback is called."
        if not read:
            return ()
        room = ERROR_LENGTH - len(read) - len(f"{self.name} takes {what}: .")
        text = f"{self.name} takes {what}: {cut(self.signature, room)}.{read}"
        return (Notice("positional_arguments", cut(text, ERROR_LENGTH)),)

    def _reading(self, given: list[Any]) -> list[str]:
        """The property that each argument stands for. Refuses where none or more than one reading fits."""
        properties, required = self._input.document.shape()
        in_order = list(properties)
        needed = [name for name in in_order if name in required]
        readings = [in_order[: len(given)]] if len(given) <= len(in_order) else []
        if len(needed) == len(given) and needed not in readings:
            readings.append(needed)
        if len(readings) > 1:
            readings = [names for names in readings if self._readable(dict(zip(names, given, strict=True)))]
        if len(readings) == 1 and (
            not is_object(given[0]) or self._readable(dict(zip(readings[0], given, strict=True)))
        ):
            return readings[0]
        count = f"{len(given)} arguments" if len(given) > 1 else _kind(given[0])
        return self._refuse(Mismatch("", "", f"takes one object, got {count}"))

    def _readable(self, value: dict[str, Any]) -> bool:
        return self._fits(value) or self._fits(Coercion(self._input.explainer()).read(value))

    def _refuse(self, reason: Mismatch) -> NoReturn:
        text = cut(f"{self.name}: {reason}", 330)
        room = ERROR_LENGTH - len(text) - len(". Signature: ")
        signature = self.signature
        text += f". Signature: {signature}" if len(signature) <= room else f". Signature: {cut(signature, room)}"
        raise ToolError("invalid_arguments", text, details={"path": reason.path, "keyword": reason.keyword})


class _Refused(Exception):
    """A value that is not even held against the schema; the text says why."""


class _Compiled:
    """One schema, ready to check."""

    def __init__(self, schema: Schema, where: str) -> None:
        root = plain(schema, where)
        self.document = Document(root)
        _read_nullable(self.document)
        self.cost = self.document.expansion()
        if self.cost > EXPANSION:
            raise CatalogError(
                f"{where} stands for {_count(self.cost)} checks of one value, over {EXPANSION:,}: nest less"
            )
        said = root.pop("$schema", None) if is_object(root) else None
        self.validator = self._build(_dialects(said, where), where)
        self.validator_class = type(self.validator)

    def _build(self, dialects: list[type[jsonschema_rs.Validator]], where: str) -> jsonschema_rs.Validator:
        first: ValueError | None = None
        for dialect in dialects:
            for patterns in (_LINEAR, _BACKTRACKING):
                try:
                    validator = dialect(
                        self.document.root, validate_formats=False, retriever=_retrieve, pattern_options=patterns
                    )
                except ValueError as error:
                    kind = getattr(error, "kind", None)  # only a ValidationError has one
                    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Referencing):
                        raise CatalogError(_unresolved(where, error)) from None
                    first = error if patterns is _BACKTRACKING and first is None else first
                    continue
                if patterns is _BACKTRACKING:
                    parts = self.document.parts
                    self.cost += BACKTRACKING_COST * sum(
                        ("pattern" in p) + len(mapped(p, "patternProperties")) for p in parts
                    )
                return validator
        raise CatalogError(f"{where} cannot be used: {_first_line(first)}")

    def explainer(self) -> Explainer:
        return Explainer(self.document, self.validator_class)

    def accepts(self, value: Any) -> bool:
        """Whether a value fits. Raises `_Refused` for one that cannot be checked."""
        try:
            nodes = _measured(value)
            if nodes * self.cost > WORK:
                raise _Refused(f"too large to be checked ({nodes:,} values)")
            return self.validator.is_valid(value)
        except UnicodeEncodeError:
            raise _Refused("holds a lone surrogate, which is no text") from None
        except ValueError as error:
            raise _Refused(f"is no JSON: {_first_line(error)}") from None


def _measured(value: Any) -> int:
    """How many values are in one. Raises `_Refused` for one too deep, `UnicodeEncodeError` for text that is none."""
    count, level = 1, [value]
    for _ in range(DEPTH):
        below: list[Any] = []
        for item in level:  # the class rather than `isinstance` and guards: this runs for every value of every call
            kind: object = item.__class__
            if kind is str:
                if not item.isascii():
                    item.encode()
            elif kind is dict:
                below += item.values()
                for key in item:
                    if not key.isascii():
                        key.encode()
            elif kind is list:
                below += item
        if not below:
            return count
        count += len(below)
        level = below
    if any(isinstance(item, (dict, list)) for item in level):
        raise _Refused(f"nested more than {DEPTH} levels deep")
    return count


def _unresolved(where: str, error: Exception) -> str:
    remote = re.match(r"Resource '(.*)' is not present in a registry", str(error))
    if remote is None:
        return f"{where} cannot be used: {_first_line(error)}"
    uri = cut(visible(remote.group(1)), 100)
    return f"{where} refers to {uri!r}, outside of it, and nothing is fetched: put it under $defs"


def _retrieve(uri: str) -> NoReturn:
    raise LookupError(f"{uri} is not fetched")  # the library says so in its own error


def _dialects(said: object, where: str) -> list[type[jsonschema_rs.Validator]]:
    if said is None:  # what says nothing may be older than the default: lists in `items`, a boolean `exclusiveMinimum`
        return [jsonschema_rs.Draft202012Validator, jsonschema_rs.Draft7Validator, jsonschema_rs.Draft4Validator]
    name = re.sub(r"^https?://json-schema\.org/|#$", "", said) if isinstance(said, str) else ""
    if name not in _DIALECTS:
        raise CatalogError(f"{where} has $schema {cut(repr(said), 100)}: known are drafts 4, 6, 7, 2019-09 and 2020-12")
    return [_DIALECTS[name]]


def _read_nullable(document: Document) -> None:
    """Give OpenAPI's `nullable: true` the meaning that its writers had in mind."""
    for part in document.parts:
        if part.get("nullable") is True and (types := types_of(part)):
            part["type"] = list(dict.fromkeys([*types, "null"]))
            if is_list(part.get("enum")) and None not in part["enum"]:
                part["enum"] = [*part["enum"], None]


def _first_line(error: Exception | None) -> str:
    return cut(visible(str(error).partition("\n")[0]), 200)


def _count(number: int) -> str:
    return f"{number:,}" if number < 10**12 else "over 10^12"


def _kind(value: Any) -> str:
    return "an array" if is_list(value) else "an object" if is_object(value) else shown(value)
