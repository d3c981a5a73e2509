"""Python functions as tools: schemas by pydantic from annotations, texts from the docstring.

The rules:

- Parameters become the properties of one closed object, in their order; those with defaults are optional, and
  positional-only ones work too. `*args` and `**kwargs` have no schema and are refused. A parameter annotated
  `ToolContext` is given the context and is no argument. What a `functools.partial` has bound no program can set.
- `Annotated[..., Field(description=, alias=, ge=...)]` counts; a docstring (Google, NumPy, reST) describes the rest.
- Arguments are validated by pydantic once more, as JSON: the function gets models, dates, enums, sets. Where that
  fails, the program gets `invalid_arguments` and pydantic's sentences.
- An async function is awaited; any other runs in a thread (`threads.py`): it cannot be killed at its deadline, only
  abandoned.
- The return annotation becomes the output schema, whatever JSON type it is. A result of another type is written as what
  it is, as pydantic does it: it reaches the program, for what the function did is done, with the warning
  `output_schema`, and the operator's log has it too. What has no JSON form at all fails.
- Without a return annotation (or with Any) results are not described, and encoded by what they are: dates as ISO text,
  Decimal and UUID as text, sets as arrays, dataclasses and models as objects, bytes as the UTF-8 text that they hold,
  NaN and infinity as null.

This is the only module that needs pydantic to make a tool; `tools.py` loads it when a function is converted.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import types
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Annotated, Any, Final, Literal

import docstring_parser
import msgspec
import pydantic
import pydantic_core
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from bridge.errors import CatalogError, ToolError
from bridge.hints import described, hints_of, label
from bridge.replies import Misfit
from bridge.text import cut, visible
from bridge.threads import in_thread
from bridge.tidy import tidy
from bridge.tools import CALLERS, DERIVED, Annotations, Caller, Derived, Handler, Schema, Tool, ToolContext

log: Final = logging.getLogger("sandbridge")
ERROR_LENGTH: Final = 500  # characters, as for the schema's own errors
_UNKNOWN: Final = (inspect.Signature.empty, Any, msgspec.Raw)


def from_function(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    input_schema: Schema | None = None,
    output_schema: Schema | Derived | None = DERIVED,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    callers: Iterable[Caller] = CALLERS,
    defer: bool = False,
    timeout_s: float | None = None,
    volatile: bool = False,
    require_approval: Literal["always", "never"] | None = None,
    namespace: Mapping[str, Any] | None = None,
) -> Tool:
    """Make a tool of a function, bound method, `functools.partial` or object with `__call__`.

    Args:
        function: Sync or async.
        name: In place of the function's own.
        input_schema: In place of the derived one; pydantic still validates by the annotations.
        output_schema: In place of the derived one; None: results are not described.
        namespace: Names for annotations that the function's module does not have.

    Raises:
        CatalogError: It cannot become a tool; the text names function, parameter and the way out.
    """
    who = label(function) if callable(function) else repr(function)
    signature = _signature(function, who)
    hints = hints_of(function, namespace or {})
    documented = docstring_parser.parse(_docstring(function))
    parameters, contexts = _parameters(function, signature, hints, who)
    texts = {p.arg_name: p.description for p in documented.params if p.description}
    model = _model(parameters, hints, texts, who)
    adapter = _adapter(hints.get("return", inspect.Signature.empty), who)
    own_name = name or getattr(_innermost(function), "__name__", type(function).__name__)
    if own_name == "<lambda>":
        raise CatalogError(f"{who} has no name: give one with tool(function, name=...)")
    if output_schema is DERIVED:
        output_schema = None if adapter is None else _json_schema(adapter, "serialization", f"{who}, return annotation")
    said = "\n\n".join(part for part in (documented.short_description, documented.long_description) if part)
    return Tool(
        name=own_name,
        title=title,
        description=said if description is None else description,
        input_schema=_json_schema(model, "validation", who) if input_schema is None else input_schema,
        output_schema=output_schema,
        annotations=Annotations(
            read_only=read_only, destructive=destructive, idempotent=idempotent, open_world=open_world, trusted=True
        ),
        callers=frozenset(callers),
        defer=defer,
        handler=_handler(_Call(function, own_name, signature, parameters, contexts, model), adapter),
        timeout_s=timeout_s,
        volatile=volatile,
        require_approval=require_approval,
        function=function,
    )


@dataclass(frozen=True)
class _Argument:
    """One parameter: `name` is Python's, `field` the model's (so that no name of ours meets one of pydantic's)."""

    name: str
    field: str
    parameter: Parameter

    @property
    def left_to_python(self) -> bool:
        """Whether the default is a plain one, which the function then fills in by itself."""
        default = self.parameter.default
        return default is not Parameter.empty and not isinstance(default, FieldInfo)


def _innermost(function: Any) -> Any:
    """The callable below partials."""
    while isinstance(function, functools.partial):
        function = function.func  # pyright: ignore[reportUnknownMemberType] - a partial of anything
    return function  # pyright: ignore[reportUnknownVariableType] - any callable


def _docstring(function: Any) -> str:
    target, inner = described(function), _innermost(function)
    if target.__doc__ is None and not inspect.isroutine(inner):
        target = inner.__class__  # an object with __call__: its class may say it instead
    return inspect.getdoc(target) or ""


def _signature(function: Any, who: str) -> inspect.Signature:
    if isinstance(function, Tool):
        raise CatalogError(f"{who} is a tool already: give the options where it is made")
    if not callable(function) or inspect.isclass(function):
        raise CatalogError(f"{who} is no function: give a function, a bound method or an object with __call__")
    inner = described(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise CatalogError(f"{who} yields: a tool has one result, so return a list")
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        raise CatalogError(
            f"{who} does not say what it takes: wrap it in a function with annotated parameters"
        ) from None


def _parameters(
    function: Any, signature: inspect.Signature, hints: Mapping[str, Any], who: str
) -> tuple[list[_Argument], list[Parameter]]:
    """What a program gives, and what gets the context."""
    bound: set[str] = set(function.keywords) if isinstance(function, functools.partial) else set()
    arguments: list[_Argument] = []
    contexts: list[Parameter] = []
    for index, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            stars = "*" if parameter.kind is Parameter.VAR_POSITIONAL else "**"
            raise CatalogError(f"{who} takes {stars}{name}, which has no schema: name each parameter")
        if index == 0 and name in ("self", "cls") and name not in hints:
            raise CatalogError(f"{who} is a method without its object: decorate the bound one, tool(obj.method)")
        hint = hints.get(name)
        if hint is ToolContext or ToolContext in typing.get_args(hint):
            contexts.append(parameter)
        elif name not in bound:
            arguments.append(_Argument(name, f"p{index}", parameter))
    return arguments, contexts


def _model(
    arguments: list[_Argument], hints: Mapping[str, Any], texts: Mapping[str, str], who: str
) -> type[pydantic.BaseModel]:
    """A closed model with a field for each argument, under aliases."""
    fields: dict[str, Any] = {}
    for argument in arguments:
        hint = hints.get(argument.name, Any)
        default = ... if argument.parameter.default is Parameter.empty else argument.parameter.default
        where = f"{who}, parameter {argument.name!r}"
        try:
            given = (
                FieldInfo.from_annotation(hint) if default is ... else FieldInfo.from_annotated_attribute(hint, default)
            )
            extra: dict[str, Any] = {"alias": given.alias or argument.name}
            if given.description is None and argument.name in texts:
                extra["description"] = visible(texts[argument.name])
            fields[argument.field] = (Annotated[hint, pydantic.Field(**extra)], default)
            # Alone first: pydantic's error then belongs to this parameter.
            pydantic.create_model("arguments", **{argument.field: fields[argument.field]})
        except (pydantic.PydanticUserError, TypeError, ValueError, NameError) as error:
            raise CatalogError(f"{where}: {_why(error)}") from error
    config = pydantic.ConfigDict(extra="forbid", title="arguments")
    return pydantic.create_model("arguments", __config__=config, **fields)


def _adapter(hint: Any, who: str) -> pydantic.TypeAdapter[Any] | None:
    """What encodes results of this type; None where the type says nothing."""
    if typing.get_origin(hint) in (Awaitable, typing.get_origin(typing.Coroutine)):
        hint = typing.get_args(hint)[-1]
    if any(hint is unknown for unknown in _UNKNOWN):
        return None
    try:
        return pydantic.TypeAdapter(types.NoneType if hint is None else hint)
    except (pydantic.PydanticUserError, TypeError, ValueError, NameError) as error:
        raise CatalogError(f"{who}, return annotation: {_why(error)}") from error


def _why(error: Exception) -> str:
    """Pydantic's reason without its advice on configuration and its links."""
    return (
        cut(visible(str(error).partition("\n")[0]).removesuffix("."), 300)
        + ": annotate it with a type that has a JSON form"
    )


class _Generator(GenerateJsonSchema):
    """Says no titles that repeat names, warns of nothing, and knows that a result has all its fields."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - pydantic's own declaration

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def field_is_required(self, field: Any, total: bool) -> bool:
        written = self.mode == "serialization" and field["type"] in ("model-field", "dataclass-field")
        return (written and not field.get("serialization_exclude_if")) or super().field_is_required(field, total)


def _json_schema(source: Any, mode: Literal["validation", "serialization"], where: str) -> dict[str, Any]:
    try:
        if isinstance(source, pydantic.TypeAdapter):
            schema = source.json_schema(mode=mode, schema_generator=_Generator)  # pyright: ignore[reportUnknownMemberType] - of any type
        else:
            schema = source.model_json_schema(mode=mode, schema_generator=_Generator)
    except (pydantic.PydanticUserError, pydantic_core.PydanticOmit) as error:
        raise CatalogError(f"{where}: {_why(error)}") from error
    return tidy(schema)


@dataclass(frozen=True)
class _Call:
    """How JSON arguments become a call of the function."""

    function: Callable[..., Any]
    name: str
    signature: inspect.Signature
    arguments: list[_Argument]
    contexts: list[Parameter]
    model: type[pydantic.BaseModel]

    @functools.cached_property
    def positional(self) -> list[str]:
        """The parameters that take no name, in order."""
        return [p.name for p in self.signature.parameters.values() if p.kind is Parameter.POSITIONAL_ONLY]

    def bind(self, given: Any, context: ToolContext) -> Callable[[], Any]:
        """The function with its arguments, as its own types. Raises `ToolError` where pydantic refuses them."""
        try:
            made = self.model.model_validate_json(msgspec.json.encode(given))
        except pydantic.ValidationError as error:
            raise _refused(self.name, error) from None
        named: dict[str, Any] = {parameter.name: context for parameter in self.contexts}
        for argument in self.arguments:
            if not argument.left_to_python or argument.field in made.model_fields_set:
                named[argument.name] = getattr(made, argument.field)
            elif argument.parameter.kind is Parameter.POSITIONAL_ONLY:
                named[argument.name] = argument.parameter.default
        ordered = [named.pop(name) for name in self.positional]
        return functools.partial(self.function, *ordered, **named)


def _handler(call: _Call, adapter: pydantic.TypeAdapter[Any] | None) -> Handler:
    inner: Any = _innermost(call.function)
    # Of the object, not of its annotations: a wrapper may be synchronous where what it wraps is not.
    awaited = inspect.iscoroutinefunction(inner) or (
        not inspect.isroutine(inner) and inspect.iscoroutinefunction(type(inner).__call__)
    )

    async def handler(given: Any, context: ToolContext) -> msgspec.Raw | Misfit:
        bound = call.bind(given, context)
        if awaited:
            return _encoded(await bound(), call.name, adapter)

        def work() -> Any:
            value = bound()
            return value if inspect.isawaitable(value) else _encoded(value, call.name, adapter)

        value = await in_thread(work)
        return _encoded(await value, call.name, adapter) if inspect.isawaitable(value) else value

    return handler


def _refused(name: str, error: pydantic.ValidationError) -> ToolError:
    (first, *_) = error.errors(include_url=False, include_context=False, include_input=False)
    where = "".join(f"/{part}" for part in first["loc"])
    text = _sentences(error, f"{name}: ")
    return ToolError("invalid_arguments", text, details={"path": where, "keyword": first["type"]})


def _encoded(value: Any, name: str, adapter: pydantic.TypeAdapter[Any] | None) -> msgspec.Raw | Misfit:
    """JSON text of a result. Raises `TypeError`, for the operator's log, where there is none."""
    if isinstance(value, msgspec.Raw):
        return value
    try:
        if adapter is not None:
            with contextlib.suppress(pydantic_core.PydanticSerializationError):  # of another type than it was to be
                return msgspec.Raw(adapter.dump_json(value, warnings="error", by_alias=True))
            text = adapter.dump_json(value, warnings=False, by_alias=True, fallback=msgspec.to_builtins)
            why = _misfit(text, adapter)
            if why is None:  # such as a dict in place of a model: its JSON is what was declared
                return msgspec.Raw(text)
            log.warning("tool %s returned a %s that is not what it declares: %s", name, type(value).__name__, why)
            return Misfit(msgspec.Raw(text), why)
        return msgspec.Raw(pydantic_core.to_json(value, inf_nan_mode="null", fallback=msgspec.to_builtins))
    except (pydantic_core.PydanticSerializationError, TypeError, ValueError) as error:
        raise TypeError(f"tool {name!r} returned a {type(value).__name__} that has no JSON form: {error}") from error


def _misfit(text: bytes, adapter: pydantic.TypeAdapter[Any]) -> str | None:
    """Why JSON text is not of a type, in pydantic's sentences and without the value."""
    try:
        adapter.validate_json(text, by_alias=True, by_name=True)
    except pydantic.ValidationError as error:
        return _sentences(error)
    return None


def _sentences(error: pydantic.ValidationError, start: str = "") -> str:
    details = error.errors(include_url=False, include_context=False, include_input=False)
    reasons: list[str] = []
    for detail in details[:3]:
        path = "".join(f"/{part}" for part in detail["loc"])
        message = detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
        reasons.append(visible(f"{path}: {message}" if path else message))
    more = f" (and {len(details) - 3} more)" if len(details) > 3 else ""
    return cut(start + "; ".join(reasons), ERROR_LENGTH - len(more)) + more
