"""Tool search: what one conversation has found in a catalog, and what its model reads of that.

A small catalog is declared at once; of a large one, and of deferred tools, a model finds what it needs by a question
(`ranking.py` decides the order). What it found stays declared for the session: the same bytes, in the order of finding,
so that what a provider has cached of the conversation stays usable. Programs do not search: the catalog that a run
starts with has all tools, declared or not.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, get_args
from weakref import WeakKeyDictionary

from bridge.declarations import BUDGET, DESCRIPTION_LENGTH, counted, declare, instructions, signature, unavailable
from bridge.errors import ToolError
from bridge.names import identifier
from bridge.notation import first_sentence
from bridge.ranking import QUERY_CHARACTERS, Embed, Index
from bridge.text import shown, visible
from bridge.words import words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.tools import Caller, Catalog, Entry
    from sandbox import Limits

__all__ = ["Detail", "Embed", "Found", "Index", "Session"]

Detail = Literal["names", "signatures", "full"]
DETAILS: Final[tuple[Detail, ...]] = get_args(Detail)
NAME: Final = "search_tools"  # of the tool that a model searches with, wherever it is offered
LIMIT: Final = 5  # tools that a search gives unless it asks for more; vendors' own searches give three to five
MOST: Final = 50  # that it may ask for
TEXT_BYTES: Final = 16 << 10  # of declarations in one answer; the largest single tools have about 12 KB of schema
OVERVIEW_BYTES: Final = 1_000  # of servers with their counts

_INDEXES: Final[WeakKeyDictionary[Catalog, dict[Any, Index]]] = WeakKeyDictionary()

SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "description": "What you want to do, or part of a name. Words are alternatives. Empty: what there is.",
        },
        "detail": {
            "enum": list(DETAILS),
            "default": "full",
            "description": "names and purposes, signatures, or full declarations, which stay in use from then on",
        },
        "server": {"type": "string", "description": "Search the tools of this server only."},
        "limit": {"type": "integer", "minimum": 1, "maximum": MOST, "default": LIMIT},
    },
    "required": ["query"],
    "additionalProperties": False,
}
"""Arguments of a search tool: keyword arguments of `Session.search`."""
DESCRIPTION: Final = (
    "Find tools that are not declared yet, before you write the program that calls them. Returns TypeScript "
    "declarations of the best matches."
)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search came to.

    Attributes:
        entries: Best first, or in the catalog's order where nothing was asked for; what `text` shows.
        matched: How many tools had anything of the question, these included.
        text: For the model.
    """

    entries: tuple[Entry, ...]
    matched: int
    detail: Detail
    text: str

    @property
    def data(self) -> dict[str, Any]:
        """The same for a machine, as JSON data."""
        rows = [
            {"name": entry.name, "call": f"tools.{entry.expression}", "description": _purpose(entry)}
            for entry in self.entries
        ]
        return {"matched": self.matched, "tools": rows}


class Session:
    """One conversation's view of a catalog.

    Args:
        catalog: The tools.
        budget: Tokens of declarations that are given at once.
        limits: Named in the instructions where given.
        caller: Whose tools are searched: those that programs may call, or those that the model may call directly.
        entries: The only ones that are searched, whoever may call them; None for all that `caller` may.
        tool: The name of the search tool, as the instructions give it to the model.
        embed: For ranking by meaning as well (`bridge.embedding.multilingual`).
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        budget: int = BUDGET,
        limits: Limits | None = None,
        caller: Caller = "programmatic",
        entries: Iterable[Entry] | None = None,
        tool: str = NAME,
        embed: Embed | None = None,
    ) -> None:
        self._budget = budget
        self._limits = limits
        self._caller: Caller = caller
        self._only = None if entries is None else frozenset(entry.name for entry in entries)
        self._tool = tool
        self._embed = embed
        self._found: dict[str, Entry] = {}
        self._blocks: list[tuple[tuple[str, ...], str]] = []
        self._take(catalog)

    def __repr__(self) -> str:
        return f"<Session with {len(self._found)} of {len(self.catalog.entries)} tools found>"

    def _take(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._instructions: str | None = None

    def _searched(self, entry: Entry) -> bool:
        return self._caller in entry.tool.callers if self._only is None else entry.name in self._only

    @property
    def instructions(self) -> str:
        """How to write a program, and what is declared at once. The same until `update`, whatever was found."""
        if self._instructions is None:
            self._instructions = instructions(self.catalog, self._limits, budget=self._budget, search=self._tool)
        return self._instructions

    @property
    def index(self) -> Index:
        """The tools that are searched. Made at the first search of a catalog, and shared by all its conversations."""
        made = _INDEXES.setdefault(self.catalog, {})
        key = (self._caller, self._only, self._embed)
        if key not in made:
            made[key] = Index(filter(self._searched, self.catalog.entries), embed=self._embed)
        return made[key]

    @property
    def found(self) -> tuple[Entry, ...]:
        """The tools that searches have declared, in the order of finding."""
        return tuple(self._found.values())

    @property
    def declarations(self) -> str:
        """Declarations of what was found; a later search adds to the end and changes nothing before it."""
        return "".join(f"```ts\n{text}```\n" for _, text in self._blocks)

    def search(self, query: str, *, detail: Detail = "full", server: str | None = None, limit: int = LIMIT) -> Found:
        """Find tools; with `full` they are declared from now on.

        The question is data: operators, quotes and anything else in it are no query language. The same question to the
        same catalog gives the same bytes.

        Args:
            query: Words, of which any may fit. Empty: the tools of `server` in their order, or an overview.
            detail: How much is shown of each.
            server: The only server to look at, by its own name or as programs write it.
            limit: How many are shown at most, up to 50.

        Raises:
            ToolError: `invalid_arguments`; the text is for the model.
        """
        _check(query, detail, server, limit)
        found = self._search(query, detail, server, limit)
        aside = "".join(f"{each}.\n" for each in unavailable(self.catalog.down()))
        return replace(found, text=found.text + aside) if aside else found

    def _search(self, query: str, detail: Detail, server: str | None, limit: int) -> Found:
        place = None if server is None else self._server(server)
        asked = bool(words(query[:QUERY_CHARACTERS]))
        ranked = list(self.index.entries) if not asked and not query.strip() else self.index.search(query)
        if place is not None:
            ranked = [entry for entry in ranked if len(entry.path) > 1 and entry.path[0] == place]
        where = "" if place is None else f" of {place}"
        if not query.strip() and place is None:
            text = (
                f"{len(ranked):,} tools. By server: {counted(ranked, OVERVIEW_BYTES)}.\n" if ranked else "No tools.\n"
            )
            return Found(entries=(), matched=len(ranked), detail=detail, text=text)
        if not ranked:
            why = "" if asked else " (there is no word in the question)"
            there = counted(self.index.entries, OVERVIEW_BYTES)
            text = f"No tool{where} matches{why}. By server: {there}.\n" if there else "There are no tools.\n"
            return Found(entries=(), matched=0, detail=detail, text=text)
        given, body = self._shown(ranked[:limit], detail)
        if detail == "full":
            self._keep(given)
        order = "" if not asked else ", those that match best" if detail == "full" else ", best first"
        notes = [f"{len(given):,} of {len(ranked):,} tools{where}{order}:"]
        if len(query) > QUERY_CHARACTERS:
            notes.append(f"Only the first {QUERY_CHARACTERS:,} characters of the question were read.")
        if len(given) < min(limit, len(ranked)):
            more = ", ".join(f"tools.{entry.expression}" for entry in ranked[len(given) : limit])
            notes.append(f"Too long to declare here as well (search for each by its name): {more}")
        return Found(entries=given, matched=len(ranked), detail=detail, text="\n".join(notes) + "\n" + body)

    def update(self, catalog: Catalog) -> list[str]:
        """Take a changed catalog. What was found stays found as long as it exists.

        Returns:
            A line for each found tool that is gone or has another definition, in the order of finding: a model that
            read the old declaration has to be told.
        """
        before = self._found
        self._take(catalog)
        now = {entry.name: entry for entry in self.index.entries}
        said: list[str] = []
        for name, entry in before.items():
            if name not in now:
                said.append(f"tools.{entry.expression} is no longer there")
            elif now[name].tool.digest != entry.tool.digest or now[name].path != entry.path:
                said.append(f"tools.{entry.expression} has changed: search for it again")
        self._found = {name: now[name] for name in before if name in now}
        blocks: list[tuple[tuple[str, ...], str]] = []
        for names, _ in self._blocks:
            if kept := tuple(name for name in names if name in now):
                blocks.append((kept, self._declared([now[name] for name in kept])))
        self._blocks = blocks
        return said

    def _keep(self, entries: tuple[Entry, ...]) -> None:
        fresh = [entry for entry in entries if entry.name not in self._found]
        if fresh:
            self._found.update({entry.name: entry for entry in fresh})
            self._blocks.append((tuple(entry.name for entry in fresh), self._declared(fresh)))

    def _shown(self, entries: list[Entry], detail: Detail) -> tuple[tuple[Entry, ...], str]:
        """As many as fit, the first in any case, and their text."""
        if detail == "names":
            lines = [f"tools.{entry.expression}{_said(': ', entry)}\n" for entry in entries]
        elif detail == "signatures":
            lines = [f"tools.{signature(entry)}{_said(' // ', entry)}\n" for entry in entries]
        else:
            given = entries
            while len(given) > 1 and len(self._declared(given).encode("utf-8", "replace")) > TEXT_BYTES:
                given = given[:-1]
            return tuple(given), f"```ts\n{self._declared(given)}```\n"
        return tuple(entries), "".join(lines)

    def _declared(self, entries: list[Entry]) -> str:
        return declare(entries, deferred=True)

    def _server(self, name: str) -> str:
        """A server as programs write it."""
        names = {e.tool.server: e.path[0] for e in self.index.entries if e.tool.server is not None}
        if name in names:
            return names[name]
        if name in names.values():
            return name
        if name in self.catalog.down():
            return identifier(name)
        near = difflib.get_close_matches(name[:100], [*names.values()], 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        there = counted((e for e in self.index.entries if e.tool.server is not None), OVERVIEW_BYTES) or "none"
        raise ToolError("invalid_arguments", f"search: there is no server {shown(name)}{hint}. There are: {there}")


def _check(query: Any, detail: Any, server: Any, limit: Any) -> None:
    """Raises `ToolError` where an argument cannot be meant; models make them."""
    wrong = ""
    if not isinstance(query, str):
        wrong = f"query must be a text, not {shown(query)}"
    elif detail not in DETAILS:
        wrong = f"detail must be one of {', '.join(DETAILS)}, not {shown(detail)}"
    elif server is not None and not isinstance(server, str):
        wrong = f"server must be a name, not {shown(server)}"
    elif isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST:
        wrong = f"limit must be a whole number from 1 to {MOST}, not {shown(limit)}"
    if wrong:
        raise ToolError("invalid_arguments", f"search: {wrong}")


def _purpose(entry: Entry) -> str:
    return first_sentence(entry.tool.description, DESCRIPTION_LENGTH) or visible(entry.tool.title or "")


def _said(before: str, entry: Entry) -> str:
    purpose = _purpose(entry)
    return f"{before}{purpose}" if purpose else ""
