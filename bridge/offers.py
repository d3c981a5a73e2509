"""Tools that a model may call by itself, beside the code tool: which, under which names, with which schemas.

Pure. A schema stays what the gate checks; only one that is not an object's is wrapped, as every vendor wants objects.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from bridge.dialect import Document, is_list, is_object
from bridge.errors import ConfigurationError
from bridge.predicates import wildcard

if TYPE_CHECKING:
    from bridge.tools import Caller, Catalog, Entry

NAME_LENGTH: Final = 64  # characters of a tool's name that every vendor takes
_WRAPPED: Final = "value"  # the property that holds the argument of a tool whose schema is not an object's


@dataclass(frozen=True, kw_only=True)
class DirectTool:
    """A tool that the model may call by itself, as it is offered: `schema` is an object's, `name` fits every vendor."""

    entry: Entry
    name: str
    description: str
    schema: Mapping[str, Any]
    wrapped: bool

    def arguments(self, given: Any) -> Any:
        """What the tool takes, of the arguments that the model gave."""
        if self.wrapped and is_object(given) and set(given) == {_WRAPPED}:
            return given[_WRAPPED]
        return given


def chosen(
    catalog: Catalog, which: bool | Iterable[str], caller: Caller = "direct", *, deferred: bool = False
) -> list[Entry]:
    """The entries that one kind of caller may call, in catalog order: all that are not deferred, or those named.

    Args:
        deferred: All includes the deferred ones, for vendors that load them when they are found.

    Raises:
        ConfigurationError: A name or pattern that fits no such tool.
    """
    if which is False:
        return []
    may = [entry for entry in catalog.entries if caller in entry.tool.callers]
    if which is True:
        return [entry for entry in may if deferred or not entry.tool.defer]
    patterns = [which] if isinstance(which, str) else list(which)
    for pattern in patterns:
        if not any(_named(entry, pattern) for entry in may):
            there = ", ".join(entry.name for entry in may[:20]) or "none"
            raise ConfigurationError(f"{caller}={pattern!r} fits no tool that has this caller; those: {there}")
    return [entry for entry in may if any(_named(entry, pattern) for pattern in patterns)]


def offered(entries: Iterable[Entry], taken: Iterable[str] = (), *, hyphens: bool = True) -> tuple[DirectTool, ...]:
    """Tools as they are offered, under names that every vendor takes.

    Args:
        taken: Names that are in use already.
        hyphens: Whether names may have them: those of functions in a program may not.
    """
    entries = list(entries)
    names = vendor_names([entry.name for entry in entries], taken, hyphens=hyphens)
    return tuple(offer(entry, names[entry.name]) for entry in entries)


def vendor_names(names: Iterable[str], taken: Iterable[str] = (), *, hyphens: bool = True) -> dict[str, str]:
    """Names that every vendor takes (letters, digits, `_`, `-`, at most 64) for exact names, one-to-one.

    A name that has to be shortened, or that another would have too, ends in a digest of the exact name.
    """
    names = list(names)
    other = r"[^A-Za-z0-9_-]" if hyphens else r"[^A-Za-z0-9_]"
    plain = {name: re.sub(other, "_", name.replace("/", "__")) for name in names}
    used = [*taken, *plain.values()]
    found: dict[str, str] = {}
    for name in names:
        alias = plain[name]
        if len(alias) > NAME_LENGTH or used.count(alias) > 1:
            alias = f"{alias[: NAME_LENGTH - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        found[name] = alias
    return found


def _named(entry: Entry, pattern: str) -> bool:
    return any(wildcard(pattern, form) for form in (entry.name, entry.expression))


def offer(entry: Entry, name: str) -> DirectTool:
    """One tool as it is offered under a name."""
    schema, wrapped = entry.tool.input_schema, False
    if not Document(schema).takes_object():
        inner = _moved(schema, f"/properties/{_WRAPPED}")
        schema, wrapped = {"type": "object", "properties": {_WRAPPED: inner}, "required": [_WRAPPED]}, True
    description = entry.tool.description or entry.tool.title or ""
    return DirectTool(
        entry=entry, name=name, description=description, schema=cast("Mapping[str, Any]", schema), wrapped=wrapped
    )


def _moved(schema: Any, pointer: str) -> Any:
    """A schema for another place in a document: what its references meant by `#` is at `pointer` then."""
    if is_list(schema):
        return [_moved(part, pointer) for part in schema]
    if not is_object(schema):
        return schema
    if pointer and isinstance(schema.get("$id"), str):
        pointer = ""  # a resource of its own: `#` is its own root
    moved = {key: _moved(part, pointer) for key, part in schema.items()}
    reference = schema.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        moved["$ref"] = f"#{pointer}{reference[1:]}"
    return moved
