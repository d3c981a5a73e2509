"""Annotations of a Python callable as types: strings evaluated, and what pydantic cannot take made into what it can."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, cast

import typing_extensions

from bridge.errors import CatalogError


def described(function: Callable[..., Any]) -> Any:
    """The object that has the annotations, docstring and globals of a callable: below partials, methods, wrappers."""
    target: Any = function
    while isinstance(target, functools.partial):
        target = cast("Any", target).func
    if not (inspect.isroutine(target) or inspect.isclass(target)):
        target = type(target).__call__
    return inspect.unwrap(getattr(target, "__func__", target))


def label(function: Callable[..., Any]) -> str:
    """How an error names a callable."""
    target = described(function)
    return f"function {getattr(target, '__module__', '?')}.{getattr(target, '__qualname__', repr(function))}"


def hints_of(function: Callable[..., Any], namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Parameter name (and `return`) to type, extras of `Annotated` included.

    Args:
        function: The callable.
        namespace: Names of the place where the function is made a tool; looked at only where its own do not do.

    Raises:
        CatalogError: An annotation that cannot be evaluated; the text names function and parameter.
    """
    target = described(function)
    own: dict[str, Any] = {}
    for name, cell in zip(
        getattr(getattr(target, "__code__", None), "co_freevars", ()), target.__closure__ or (), strict=False
    ):
        try:
            own[name] = cell.cell_contents
        except ValueError:  # assigned later
            continue
    names = getattr(target, "__globals__", {})
    found: dict[str, Any] = {}
    for name, annotation in inspect.get_annotations(target).items():
        holder = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            try:
                hint = typing.get_type_hints(holder, names, own, include_extras=True)[name]
            except NameError:
                hint = typing.get_type_hints(holder, names, {**namespace, **own}, include_extras=True)[name]
        except Exception as error:
            place = "return annotation" if name == "return" else f"parameter {name!r}: annotation"
            raise CatalogError(
                f"{label(function)}, {place} {annotation!r} cannot be resolved ({error}): "
                "define or import the name before the function is made a tool"
            ) from error
        found[name] = modern(hint)
    return found


def modern(hint: Any) -> Any:
    """The hint with `typing.TypedDict` classes rebuilt by typing_extensions: before Python 3.12 pydantic needs that."""
    if sys.version_info >= (3, 12):
        return hint
    return _modern(hint, {})


def _modern(hint: Any, known: dict[Any, Any]) -> Any:
    if isinstance(hint, type) and type(hint).__name__ == "_TypedDictMeta" and type(hint).__module__ == "typing":
        if hint not in known:
            known[hint] = hint  # a dict that holds itself stays as it is there, and pydantic says so
            fields = {
                key: _modern(value, known) for key, value in typing.get_type_hints(hint, include_extras=True).items()
            }
            required: frozenset[str] = getattr(hint, "__required_keys__", frozenset())
            marked = {
                key: value
                if typing.get_origin(value) in (typing.Required, typing.NotRequired)
                else (typing.Required[value] if key in required else typing.NotRequired[value])
                for key, value in fields.items()
            }
            made: Any = typing_extensions.TypedDict(hint.__name__, marked)  # pyright: ignore[reportArgumentType, reportUnknownVariableType, reportGeneralTypeIssues] - made at run time
            made.__doc__, made.__module__ = hint.__doc__, hint.__module__
            known[hint] = made
        return known[hint]
    arguments = typing.get_args(hint)
    origin: Any = typing.get_origin(hint)
    if not arguments or origin is typing.Literal:
        return hint
    if origin is Annotated:
        inner = _modern(arguments[0], known)
        return hint if inner is arguments[0] else Annotated[(inner, *arguments[1:])]
    changed = tuple(_modern(argument, known) for argument in arguments)
    if all(new is old for new, old in zip(changed, arguments, strict=True)):
        return hint
    if isinstance(hint, types.UnionType):
        return typing.Union[changed]  # noqa: UP007 - of members that are known at run time only
    copy: Callable[[Any], Any] | None = getattr(hint, "copy_with", None)  # what `typing` makes; others take a subscript
    return copy(changed) if copy is not None else origin[changed]
