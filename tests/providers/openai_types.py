"""Checks JSON against the SDK's own request types: what is unknown, missing or of another kind is named with its path.

The SDK declares them as TypedDicts and checks nothing at run time; the service does.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import typing_extensions

_REQUIREDNESS = (typing_extensions.Required, typing_extensions.NotRequired, typing.Required, typing.NotRequired)
_LISTS = (list, Iterable, Sequence, typing.List, typing.Iterable, typing.Sequence)  # noqa: UP006  what get_origin gives


class Mismatch(ValueError):
    """The first difference, as `path: what`."""


def check(value: Any, kind: Any, path: str = "") -> None:
    """Compare JSON data with a type of the SDK. Raises `Mismatch`."""
    for difference in _differences(value, kind, path):
        raise Mismatch(difference)


@cache
def _fields(kind: Any) -> dict[str, Any]:
    return typing_extensions.get_type_hints(kind, include_extras=True)


@cache
def _required(kind: Any) -> frozenset[str]:
    """Of a class whose annotations are texts, `__required_keys__` does not know."""
    named = {name for name, hint in _fields(kind).items() if typing.get_origin(hint) in _REQUIREDNESS[::2]}
    marked = {name for name, hint in _fields(kind).items() if typing.get_origin(hint) in _REQUIREDNESS}
    parents = [base for base in getattr(kind, "__orig_bases__", ()) if typing_extensions.is_typeddict(base)]
    own = set(kind.__annotations__).difference(*(base.__annotations__ for base in parents))
    bare = (own - marked if kind.__total__ else set()).union(*(_required(base) for base in parents))
    return frozenset(named | bare)


def _differences(value: Any, kind: Any, path: str) -> Iterator[str]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in _REQUIREDNESS or origin is typing.Annotated:
        yield from _differences(value, arguments[0], path)
    elif origin in (typing.Union, types.UnionType):
        yield from _none_of(value, arguments, path)
    elif origin is typing.Literal:
        if not any(value == one and type(value) is type(one) for one in arguments):
            yield f"{path}: {value!r} is none of {', '.join(map(repr, arguments))}"
    elif typing_extensions.is_typeddict(kind):
        yield from _object(value, kind, path)
    elif origin in _LISTS or getattr(kind, "__name__", "") == "SequenceNotStr" or "SequenceNotStr" in str(origin):
        if not isinstance(value, list):
            yield f"{path}: expected a list, got {type(value).__name__}"
            return
        for index, item in enumerate(value):
            yield from _differences(item, arguments[0], f"{path}[{index}]")
    elif origin in (dict, typing.Dict):  # noqa: UP006
        if not isinstance(value, dict):
            yield f"{path}: expected an object, got {type(value).__name__}"
            return
        for name, item in value.items():
            yield from _differences(item, arguments[1], f"{path}.{name}")
    elif kind in (object, Any):
        return
    elif kind is None or kind is type(None):
        if value is not None:
            yield f"{path}: expected null, got {type(value).__name__}"
    elif kind in (str, bool, int, float):
        wanted = (int, float) if kind is float else kind
        if not isinstance(value, wanted) or (isinstance(value, bool) and kind is not bool):
            yield f"{path}: expected {kind.__name__}, got {type(value).__name__}"
    else:
        raise TypeError(f"{path}: no rule for {kind!r}")


def _object(value: Any, kind: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: expected an object, got {type(value).__name__}"
        return
    fields = _fields(kind)
    for name in value:
        if name not in fields:
            yield f"{path}.{name}: unknown field of {kind.__name__}"
    for name in sorted(_required(kind)):
        if name not in value:
            yield f"{path}.{name}: missing in {kind.__name__}"
    for name, hint in fields.items():
        if name in value:
            yield from _differences(value[name], hint, f"{path}.{name}" if path else name)


def _none_of(value: Any, kinds: Sequence[Any], path: str) -> Iterator[str]:
    """Nothing where one member fits; else what the member that has this `type` or `role` says, or the nearest one."""
    found: list[tuple[bool, bool, int, str]] = []
    for kind in kinds:
        differences = list(_differences(value, kind, path))
        if not differences:
            return
        other_kind = differences[0].startswith(f"{path}: expected ")
        found.append((not _tagged(value, kind), other_kind, len(differences), differences[0]))
    yield min(found)[3]


def _tagged(value: Any, kind: Any) -> bool:
    if not (typing_extensions.is_typeddict(kind) and isinstance(value, dict)):
        return False
    fields = _fields(kind)
    for tag in ("type", "role"):
        if tag in fields and value.get(tag) is not None:
            return not list(_differences(value[tag], fields[tag], ""))
    return False
