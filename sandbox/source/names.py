"""Tool names as models spell them: twins that are put right, unknown ones that are refused before anything runs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final

from tree_sitter import Node

from sandbox.messages import Notice, Threw, ToolName
from sandbox.source.edits import Edit, Text
from sandbox.source.syntax import Survey, Use

# Names that every ordinary object has: `tools.toString()` is a program's mistake, not an unknown tool.
_INHERITED: Final = frozenset(
    (
        "constructor hasOwnProperty isPrototypeOf propertyIsEnumerable toLocaleString toString valueOf then toJSON "
        "__proto__ __defineGetter__ __defineSetter__ __lookupGetter__ __lookupSetter__"
    ).split()
)
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_COMMON: Final = frozenset(
    "get list fetch find search read create add update set delete remove by for of all the to from".split()
)
_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][\w$]*")
_SHOWN: Final = 3


def key(name: str) -> str:
    """What getOrder, get_order, get-order and GetOrder have in common."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _words(name: str) -> set[str]:
    return {word.lower().removesuffix("s") for word in _WORD.findall(name)}


class Names:
    """The catalog as a program may spell it."""

    def __init__(self, tools: Sequence[ToolName]) -> None:
        self._tools = tools

    @cached_property
    def exact(self) -> frozenset[str]:
        """What works on `tools` itself: exact names, and paths of one part."""
        return frozenset(
            name
            for tool in self._tools
            for name in ((tool.name, tool.path[0]) if len(tool.path) == 1 else (tool.name,))
        )

    @cached_property
    def spaces(self) -> dict[str, list[str]]:
        """Namespace -> the names in it."""
        found: dict[str, list[str]] = {}
        for tool in self._tools:
            if len(tool.path) > 1:
                found.setdefault(tool.path[0], []).append(tool.path[1])
        return found

    @cached_property
    def _twins(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for tool in self._tools:
            dotted = ".".join(tool.path)
            for spelled in (dotted, tool.name):
                found.setdefault(key(spelled), set()).add(dotted)
        return found

    def twin(self, name: str) -> str | None:
        """The only path (dotted) that differs from the name in case and separators alone."""
        found = self._twins.get(key(name), set())
        return next(iter(found)) if len(found) == 1 and key(name) else None

    def spelled(self) -> list[str]:
        """Every tool as a program writes it."""
        return ["tools." + ".".join(tool.path) for tool in self._tools]

    def nearest(self, name: str) -> list[str]:
        """The tools most like a name, best first, as a program writes them; empty if none is like it."""
        words, plain = _words(name), key(name)
        weights = {word: 0.25 if word in _COMMON else 1.0 for word in words}
        total = sum(weights.values()) or 1.0
        scored: list[tuple[float, int]] = []
        for index, tool in enumerate(self._tools):
            shared = sum(weights[word] for word in words & _words(" ".join((*tool.path, tool.name)))) / total
            ratio = max(
                difflib.SequenceMatcher(None, plain, key(part)).ratio() for part in (tool.path[-1], "".join(tool.path))
            )
            score = ratio + shared
            if ratio >= 0.6 or shared >= 0.3:
                scored.append((-score, index))
        return ["tools." + ".".join(self._tools[index].path) for _, index in sorted(scored)[:_SHOWN]]

    def advice(self, name: str) -> str:
        """A sentence that says what to call instead of a name."""
        found = self.nearest(name)
        if found:
            return f"the nearest tool is {found[0]}" if len(found) == 1 else f"the nearest tools are {', '.join(found)}"
        if not self._tools:
            return "no tool was given to this program"
        listed = self.spelled()
        more = f" and {len(listed) - 8} more (see Object.keys(tools))" if len(listed) > 8 else ""
        return f"the tools are {', '.join(listed[:8])}{more}"


class Unknown(Exception):
    """A call of a tool that the catalog does not have; carries what the model is told."""

    def __init__(self, threw: Threw) -> None:
        super().__init__(threw.message)
        self.threw = threw


def unknown(names: Names, spelled: str, place: tuple[int, int]) -> Unknown:
    """The refusal for a tool that does not exist."""
    last = spelled.removeprefix("tools.")
    return Unknown(
        Threw(
            code="unknown_tool",
            name="UnknownTool",
            message=f"there is no tool {spelled}: {names.advice(last)}",
            line=place[0],
            column=place[1],
            hint="nothing has run; call a tool that exists",
        )
    )


def check(names: Names, found: Survey, text: Text, ours: tuple[int, int]) -> tuple[list[Edit], list[Notice]]:
    """Put twins right in place and refuse calls of tools that do not exist.

    A name that the program also mentions without calling it (a guard, `typeof`, `in`) is left to the program; nothing
    is checked where the program has a `tools` of its own. `ours` is the range of the parameters of the function that we
    call: a `tools` in there is the real one.

    Raises:
        Unknown: With the nearest names.
    """
    uses = found.uses.get(b"tools", [])
    calls = [use for use in uses if use.call is not None and use.chain]
    if not calls:
        return [], []
    if any(use.role != "read" and not ours[0] <= use.node.start_byte < ours[1] for use in uses):
        return [], []
    mentioned = {_path(use) for use in uses if use.call is None}
    edits: list[Edit] = []
    notices: dict[str, Notice] = {}
    quoted: dict[str, bool] = {}
    for use in calls:
        wrong = _wrong(names, use)
        if not wrong or mentioned & {wrong, use.chain[0][0], _path(use)}:
            continue
        if wrong not in quoted:
            quoted[wrong] = _quoted(text.data, use, wrong)
        if quoted[wrong]:
            continue
        place = text.place(use.node.start_byte)
        edit, right = _mended(names, use)
        if edit is None:
            raise unknown(names, f"tools.{wrong}", place)
        edits.append(edit)
        message = f"tools.{wrong} was taken for tools.{right}: write it so"
        notices.setdefault(wrong, Notice("tool_alias", message, place[0]))
    return edits, list(notices.values())


def _path(use: Use) -> str:
    return ".".join(name for name, _ in use.chain)


def _quoted(data: bytes, use: Use, name: str) -> bool:
    """Whether the name stands in quotes anywhere else: `"x" in tools`, `Object.keys(tools).includes("x")`."""
    own = sum(1 for _, node in use.chain if node.type == "string_fragment")
    parts = [part.encode() for part in name.split(".")]
    return any(data.count(b'"' + part + b'"') + data.count(b"'" + part + b"'") > own for part in parts)


def _wrong(names: Names, use: Use) -> str:
    """The part of a call that names no tool, dotted; empty if it names one, or what we cannot judge."""
    first = use.chain[0][0]
    if not first or first in names.exact or first in _INHERITED or "\\" in first:
        return ""
    inside = names.spaces.get(first)
    if inside is None:
        second = use.chain[1][0] if len(use.chain) > 1 else ""
        alone = names.twin(first) is not None or second in ("", "call", "apply", "bind")
        return first if alone else f"{first}.{second}"
    if len(use.chain) == 1:
        return first  # a namespace is no function
    second = use.chain[1][0]
    return "" if not second or second in inside or second in _INHERITED or "\\" in second else f"{first}.{second}"


def _mended(names: Names, use: Use) -> tuple[Edit | None, str]:
    """The edit that puts a wrong name right, and the right name; no edit if there is no unique twin."""
    wrong = _wrong(names, use)
    parts = wrong.split(".")
    twin = names.twin(wrong)
    if twin is None or len(parts) > len(use.chain):
        return None, ""
    (_, start), (_, end) = use.chain[0], use.chain[len(parts) - 1]
    if start.type == end.type == "property_identifier" and all(_IDENTIFIER.fullmatch(part) for part in twin.split(".")):
        return Edit(start.start_byte, end.end_byte, twin.encode()), twin
    if start is end and start.type == "string_fragment" and "." not in twin:
        return Edit(start.start_byte, start.end_byte, twin.encode()), twin
    if start.type == "property_identifier" and end.type == "string_fragment" and len(parts) == 2:
        space, _, last = twin.partition(".")
        if key(space) == key(parts[0]) and last:
            return Edit(end.start_byte, end.end_byte, last.encode()), twin if space == parts[0] else ""
    return None, ""


_GIVEN: Final = re.compile(rb"\b(?:const|let|var)\s+([A-Za-z_$][\w$]*)\s*=\s*tools\s*[.\[]")
_OF_PROMISES: Final = frozenset(("then", "catch", "finally", "constructor", "toString", ""))


def given(data: bytes) -> frozenset[bytes]:
    """Names that may be bound to the promise of a tool call: the survey has to look at them."""
    return frozenset(_GIVEN.findall(data))


def unawaited(found: Survey, text: Text) -> list[Notice]:
    """Warnings for members that are read from the promise of a tool call: they are undefined, and nothing throws."""
    notices: dict[tuple[int, str], Notice] = {}

    def warn(call: Node, member: Node | None, place: int) -> None:
        read = "" if member is None else text.data[member.start_byte : member.end_byte].decode()
        if read not in _OF_PROMISES:
            callee = text.data[call.children[0].start_byte : call.children[0].end_byte].decode()
            line = text.place(place)[0]
            message = f"`{read}` is read from a promise and is undefined: write `await {callee}(...)`"
            notices.setdefault((line, read), Notice("missing_await", message, line))

    for use in found.uses.get(b"tools", ()):
        if use.call is not None and use.outer is not None and use.outer.type == "member_expression":
            warn(use.call, use.outer.child_by_field_name("property"), use.node.start_byte)
    made = {use.call.id for use in found.uses.get(b"tools", ()) if use.call is not None}
    for name, uses in found.uses.items():
        bound = [use for use in uses if use.role != "read"]
        maker = bound[0].outer if len(bound) == 1 and name != b"tools" else None
        value = (
            maker.child_by_field_name("value") if maker is not None and maker.type == "variable_declarator" else None
        )
        if value is not None and value.id in made:
            for use in uses:
                if use.chain and use.chain[0][1].type == "property_identifier":
                    warn(value, use.chain[0][1], use.node.start_byte)
    return list(notices.values())


def suggestion(names: Names, spelled: Iterable[str]) -> str:
    """The tool that one of these spellings means, as a program writes it; empty if none does."""
    for each in spelled:
        if each in names.exact and _IDENTIFIER.fullmatch(each):
            return f"tools.{each}"
        twin = names.twin(each)
        if twin is not None:
            return f"tools.{twin}"
    return ""
