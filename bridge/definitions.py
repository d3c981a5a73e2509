"""What a tool's definition says, how two of them differ, and which ones people were asked about.

An approval holds for one definition. Where a server has changed it since, whoever approves is shown the difference, not
two texts to compare. The lines are the server's words: whoever shows them escapes them.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from bridge.tools import Tool

Definition = Mapping[str, Any]
"""JSON data: `title`, `description`, `input_schema`, `output_schema`, `annotations`; without what it does not say."""

HINTS: Final = ("read_only", "destructive", "idempotent", "open_world")
MOST_SEEN: Final = 2_000  # definitions kept in memory, the newest; a catalogue that is asked about has fewer
MOST_LINES: Final = 400  # of one difference
UNKNOWN: Final = "what it said before is not known here"
IDENTITY: Final = "server: its command, address or credentials are other ones now"


def definition(tool: Tool) -> dict[str, Any]:
    """What a tool's owner says of it. Whether that is believed is no part of it."""
    hints = {name: getattr(tool.annotations, name) for name in HINTS}
    said = {
        "title": tool.title,
        "description": tool.description or None,
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
        "annotations": {name: value for name, value in hints.items() if value is not None} or None,
    }
    return {key: value for key, value in said.items() if value is not None}


def digest(said: Definition) -> str:
    """SHA-256 (hex) of a definition: the order of keys does not count, and everything else does."""
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def differences(old: Definition, new: Definition) -> list[str]:
    """What changed, a line each: `description:`, then lost (`- `) and new (`+ `) lines; of schemas by path.

    Every lost and new word is in it, in order of the definition's parts and of paths. Empty: they say the same.
    """
    lines: list[str] = []
    for part in ("title", "description", "input_schema", "output_schema", "annotations"):
        before, after = old.get(part), new.get(part)
        if isinstance(before, str) or isinstance(after, str):
            changes = _texts(before or "", after or "")
        else:
            changes = _leaves(before, after)
        if changes:
            lines += [f"{part}:", *(f"  {each}" for each in changes)]
    if len(lines) > MOST_LINES:
        left_out = len(lines) - MOST_LINES
        lines = [*lines[:MOST_LINES], f"... and {left_out:,} more lines: the definition is another one altogether"]
    return lines


def _texts(old: str, new: str) -> list[str]:
    compared = difflib.ndiff(old.splitlines(), new.splitlines())
    changes = [line for line in compared if line[:1] in "-+"]
    return changes or ([f"- {json.dumps(old)}", f"+ {json.dumps(new)}"] if old != new else [])


def _leaves(old: Any, new: Any) -> list[str]:
    before, after = dict(_paths(old)), dict(_paths(new))
    lines: list[str] = []
    for path in sorted({*before, *after}):
        was, now = before.get(path), after.get(path)
        if was != now:
            lines += [f"{sign} {path}: {value}" for sign, value in (("-", was), ("+", now)) if value is not None]
    return lines


def _paths(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each value that holds no other, as JSON text, by its path; a list of plain values is one."""
    if isinstance(value, Mapping) and value:
        for key, part in cast("Mapping[str, Any]", value).items():
            name = key if key.isidentifier() or key.startswith("$") else json.dumps(key, ensure_ascii=False)
            yield from _paths(part, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and any(isinstance(part, (dict, list)) for part in cast("list[Any]", value)):
        for number, part in enumerate(cast("list[Any]", value)):
            yield from _paths(part, f"{path}[{number}]")
    elif value is not None or path:
        yield path or "(all of it)", json.dumps(value, ensure_ascii=False)


class Seen:
    """Definitions that somebody was asked about, by the digest of their tool; the oldest go when there are too many."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Definition] = OrderedDict()
        self._unsaved: dict[str, Definition] = {}

    def add(self, tool: Tool) -> None:
        """Keep what a tool says now."""
        if tool.digest not in self._known:
            self.know(tool.digest, definition(tool))
            self._unsaved[tool.digest] = self._known[tool.digest]

    def know(self, tool_digest: str, said: Definition) -> None:
        """Keep what was seen in another process."""
        self._known[tool_digest] = said
        if len(self._known) > MOST_SEEN:
            self._known.popitem(last=False)

    def missing(self, digests: set[str]) -> set[str]:
        """Those that are not known here."""
        return {each for each in digests if each not in self._known}

    def unsaved(self) -> dict[str, Definition]:
        """What was added since somebody asked last: to be kept for others."""
        found, self._unsaved = self._unsaved, {}
        return found

    def changes(self, before: tuple[str, str | None], tool: Tool) -> tuple[str, ...]:
        """How a tool differs from what it was: a digest, and the identity of its server."""
        lines = [IDENTITY] if before[1] != tool.server_identity else []
        if before[0] != tool.digest:
            said = self._known.get(before[0])
            lines += [UNKNOWN] if said is None else differences(said, definition(tool)) or [_TRUST]
        return tuple(lines)


_TRUST: Final = "annotations: whether they are trusted was changed in the configuration"
