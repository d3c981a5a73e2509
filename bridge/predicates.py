"""Conditions on arguments: wildcard patterns, and comparisons written as data (for configuration files).

Wildcards have two signs, `*` (any run of characters, `/` and `.` included, none too) and `?` (exactly one); everything
else stands for itself, and case counts. There are no regular expressions here: the text that is matched may have been
written by an attacker.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast, get_args

from bridge.errors import ConfigurationError

Predicate = Callable[[Any], bool]
"""A condition on the checked arguments of a call (a JSON value)."""

Op = Literal[
    "==", "!=", "<", "<=", ">", ">=", "in", "not in", "contains", "starts_with", "ends_with", "matches", "exists"
]
OPS: Final[tuple[Op, ...]] = get_args(Op)
_ORDER: Final = frozenset({"<", "<=", ">", ">="})
_TEXT: Final = frozenset({"starts_with", "ends_with", "matches"})
_MISSING: Final = object()


class Undecidable(Exception):
    """A comparison has no answer for these arguments; the text says why and holds no argument."""


@functools.lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    # Atomic groups: once a piece between two stars has been found, no other place for it is tried (linear, not O(n^k)).
    pieces = [re.escape(piece).replace(r"\?", ".") for piece in re.split(r"\*+", pattern)]
    if len(pieces) == 1:
        return re.compile(pieces[0], re.DOTALL)
    middle = "".join(f"(?>.*?{piece})" for piece in pieces[1:-1] if piece)
    return re.compile(f"{pieces[0]}{middle}.*{pieces[-1]}", re.DOTALL)


def wildcard(pattern: str, text: str) -> bool:
    """Whether the whole of `text` matches `pattern`."""
    return _compiled(pattern).fullmatch(text) is not None


@dataclass(frozen=True)
class Comparison:
    """`path op value`, as a predicate. Made by `predicate_from_data`, which checks the three.

    Raises:
        Undecidable: When called: nothing stands at `path` (unless `op` is `exists`), or it is of a kind that `op`
            cannot compare. A policy then takes the strict side.
    """

    path: str
    op: Op
    value: Any

    def __call__(self, arguments: Any) -> bool:
        found = _at(arguments, self.path)
        if found is _MISSING and self.op != "exists":
            raise Undecidable(f"there is nothing at {self.path!r}")
        if self.op in _ORDER and not _ordered(found, self.value):
            raise Undecidable(f"what is at {self.path!r} cannot be ordered against {self.value!r}")
        if self.op in _TEXT and not isinstance(found, str):
            raise Undecidable(f"what is at {self.path!r} is no text")
        if self.op == "contains" and not isinstance(found, (str, list)):
            raise Undecidable(f"what is at {self.path!r} is neither text nor a list")
        if self.op == "contains" and isinstance(found, str) and not isinstance(self.value, str):
            raise Undecidable(f"what is at {self.path!r} is text, which contains text only")
        return _compare(found, self.op, self.value)

    def __str__(self) -> str:
        return f"{self.path or 'the arguments'} {self.op} {self.value!r}"


@dataclass(frozen=True)
class Combination:
    """Several predicates: `all` hold, or `any` does. One that cannot be decided leaves the whole undecided unless
    another one settles it."""

    kind: Literal["all", "any"]
    parts: tuple[Predicate, ...]

    def __call__(self, arguments: Any) -> bool:
        settles, doubt = self.kind == "any", None
        for part in self.parts:
            try:
                if part(arguments) is settles:
                    return settles
            except Undecidable as error:
                doubt = error
        if doubt is not None:
            raise doubt
        return not settles

    def __str__(self) -> str:
        return f"{self.kind} of ({'; '.join(str(part) for part in self.parts)})"


def predicate_from_data(data: Any, *, where: str = "condition") -> Predicate:
    """A predicate from its form in a configuration file.

    `{"path": "/amount", "op": ">", "value": 100}`: `path` is a JSON Pointer (RFC 6901; empty: the arguments whole),
    `op` one of `OPS`. `exists` takes true or false, true when left out. `==` compares as JSON does: 1 is 1.0, but
    neither true nor "1". A list means that all its conditions hold; `{"all": [...]}` and `{"any": [...]}` say so.

    Args:
        where: What errors call the place (file, key and line, as far as they are known).

    Raises:
        ConfigurationError: Anything that this does not know, with the key at fault.
    """
    if not isinstance(data, (list, Mapping)):
        raise ConfigurationError(f"{where}: a condition is a table or a list of tables, not {data!r}")
    table = cast("Mapping[Any, Any]", {"all": data} if isinstance(data, list) else data)
    for kind in ("all", "any"):
        if kind in table:
            parts = table[kind]
            if len(table) > 1 or not isinstance(parts, list) or not parts:
                raise ConfigurationError(f"{where}: {kind!r} stands alone and holds a list of one condition or more")
            items = cast("list[Any]", parts)
            made = [predicate_from_data(part, where=f"{where}.{kind}[{n}]") for n, part in enumerate(items)]
            return Combination(kind, tuple(made))
    unknown = [str(key) for key in table if key not in ("path", "op", "value")]
    if unknown:
        raise ConfigurationError(f"{where}: unknown key {unknown[0]!r}; a condition has path, op and value")
    path, op, value = table.get("path"), table.get("op"), table.get("value", _MISSING)
    if not isinstance(path, str) or (path and not path.startswith("/")) or re.search("~(?![01])", path):
        raise ConfigurationError(f'{where}: path must be a JSON Pointer such as "/amount", not {path!r}')
    if op not in OPS:
        raise ConfigurationError(f"{where}: unknown op {op!r}; there are {', '.join(OPS)}")
    if op == "exists":
        value = True if value is _MISSING else value
    return Comparison(path, op, _checked_value(op, value, where))


def _checked_value(op: Op, value: Any, where: str) -> Any:
    wanted = ""
    if value is _MISSING:
        raise ConfigurationError(f"{where}: value is missing")
    if op == "exists" and not isinstance(value, bool):
        wanted = "true or false"
    elif op in ("in", "not in") and not isinstance(value, list):
        wanted = "a list"
    elif op in _TEXT and not isinstance(value, str):
        wanted = "text"
    elif op in _ORDER and not _ordered(value, value):
        wanted = "a number or text"
    if wanted:
        raise ConfigurationError(f"{where}: value of {op!r} must be {wanted}, not {value!r}")
    return cast("Any", value)


def _compare(found: Any, op: Op, value: Any) -> bool:
    match op:
        case "==":
            return equal(found, value)
        case "!=":
            return not equal(found, value)
        case "<":
            return found < value
        case "<=":
            return found <= value
        case ">":
            return found > value
        case ">=":
            return found >= value
        case "in":
            return any(equal(found, item) for item in value)
        case "not in":
            return not any(equal(found, item) for item in value)
        case "contains":
            return value in found if isinstance(found, str) else any(equal(item, value) for item in found)
        case "starts_with":
            return found.startswith(value)
        case "ends_with":
            return found.endswith(value)
        case "matches":
            return wildcard(value, found)
        case "exists":
            return (found is not _MISSING) is value


def equal(one: Any, other: Any) -> bool:
    """Equality of JSON values: as Python's, but true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        ones, others = cast("list[Any]", one), cast("list[Any]", other)
        return len(ones) == len(others) and all(map(equal, ones, others))
    if isinstance(one, dict) and isinstance(other, dict):
        left, right = cast("dict[Any, Any]", one), cast("dict[Any, Any]", other)
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    return one == other


def _ordered(one: Any, other: Any) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return True
    return all(isinstance(side, (int, float)) and not isinstance(side, bool) for side in (one, other))


def _at(value: Any, pointer: str) -> Any:
    """What a JSON Pointer leads to, or `_MISSING`."""
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = cast("dict[str, Any]", value).get(key, _MISSING)
        elif isinstance(value, list) and re.fullmatch("0|[1-9][0-9]{0,8}", key):
            items = cast("list[Any]", value)
            value = items[int(key)] if int(key) < len(items) else _MISSING
        else:
            return _MISSING
    return value
