"""The search tool of an agent loop: offered where a model does not read the declaration of every tool it may call.

One search for all (`bridge.search`); how what it found reaches the model is each vendor's: as text with declarations,
or as definitions that the vendor loads. Nothing is kept for that: the same question to the same catalog gives the same
bytes, so the answer to a search of long ago, also in another process, is found again by asking.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from bridge.declarations import counted
from bridge.dialect import is_object
from bridge.errors import ToolError
from bridge.loop import Answered, ModelCall, Part, Refused, read_arguments
from bridge.search import DESCRIPTION, NAME, OVERVIEW_BYTES, SCHEMA, Session
from bridge.text import shown

if TYPE_CHECKING:
    from bridge.search import Found
    from bridge.tools import Catalog, Entry

__all__ = ["NAME", "Search", "Searched"]

_LOADS: Final = (
    "Find tools that are not loaded yet, before you call them; those that match best can be called from then on."
)


class Search:
    """What one conversation may search, and how its model is told of it.

    Args:
        catalog: As it was when the conversation began.
        entries: Of it, those that are searched; None: all that programs may call.

    Attributes:
        schema: JSON Schema of the arguments.
        description: What the tool is for. Where the vendor loads what is found, also of which servers there is
            something: the model reads no other list then.
    """

    def __init__(self, catalog: Catalog, entries: Iterable[Entry] | None = None) -> None:
        self._catalog = catalog
        self._entries = None if entries is None else tuple(entries)
        self.schema: dict[str, Any] = SCHEMA
        self.description = DESCRIPTION
        if self._entries is not None:
            kept = {name: part for name, part in SCHEMA["properties"].items() if name != "detail"}
            self.schema = {**SCHEMA, "properties": kept}
            self.description = f"{_LOADS} By server: {counted(self._entries, OVERVIEW_BYTES)}."

    @cached_property
    def _session(self) -> Session:
        """Made at the first search: most conversations have none."""
        return Session(self._catalog, budget=0, entries=self._entries)

    def find(self, call: ModelCall) -> Found:
        """What a call of the search tool comes to.

        Raises:
            ToolError: `invalid_arguments`; the text is for the model.
        """
        given = read_arguments(call)
        arguments: dict[str, Any] = {"query": None, **given} if is_object(given) else {"query": given}
        odd = arguments.keys() - self.schema["properties"].keys()
        if odd:
            there = ", ".join(self.schema["properties"])
            text = f"{NAME} takes {there}, and no {shown(', '.join(sorted(odd)))}"
            raise ToolError("invalid_arguments", text)
        return self._session.search(**arguments)

    def part(self, call: ModelCall) -> Part:
        """The answer to a call, a refusal where it cannot be meant."""
        try:
            return Searched(call, self.find(call).text)
        except ToolError as error:
            return Refused(call, error)

    def said(self, call: ModelCall) -> str:
        """What the model was told, or is: the same for the same call."""
        return self.part(call).answers()[0].text


class Searched(Part):
    """A search: answered at once, and by nobody but the host."""

    def __init__(self, call: ModelCall, text: str) -> None:
        self._answered = Answered(id=call.id, name=call.name, text=text, failed=False)

    def answers(self) -> list[Answered]:
        return [self._answered]
