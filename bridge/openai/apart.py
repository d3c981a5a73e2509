"""The events of one response of the model with calls that have an id each, for `local()`. Pure.

As in a loop of ours (answering.py): where the application sends the whole history, a call whose id was there before
gets another; where the vendor keeps it, the later of two calls with one id is neither shown nor carried out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bridge.loop import told_apart
from bridge.openai.items import identity_of, is_call, is_own, renamed
from bridge.openai.output import END
from bridge.openai.turns import Item


class Apart:
    """What is known of one response's calls.

    Args:
        history: That goes along with the request, where it is whole; None where the vendor keeps it.

    Attributes:
        again: Id of a call -> how many others had it, and were left out.
    """

    def __init__(self, history: Iterable[Item] | None) -> None:
        self.again: dict[str, int] = {}
        self._whole: Final = history is not None
        self._taken = {identity_of(item) for item in history or () if is_call(item)}
        self._ids: dict[int, str | None] = {}  # index of an item -> the id that it has here; None: left out

    def event(self, event: Item) -> Item | None:
        """An event as it is passed on; None for one of a call that is left out."""
        if event["type"] in END:
            given: list[Item] = event["response"].get("output") or []
            output = [made for index, item in enumerate(given) if (made := self._item(index, item)) is not None]
            return event | {"response": event["response"] | {"output": output}}
        index: int = event.get("output_index", -1)
        if "item" in event:
            made = self._item(index, event["item"])
            return None if made is None else event | {"item": made}
        return None if self._ids.get(index, "") is None else event

    def _item(self, index: int, item: Item) -> Item | None:
        if not is_own(item):
            return item
        if index not in self._ids:
            self._ids[index] = self._id_for(identity_of(item))
        identity = self._ids[index]
        return None if identity is None else renamed(item, identity)

    def _id_for(self, given: str) -> str | None:
        if self._whole:
            [identity] = told_apart([given], self._taken)
        elif given in self._taken:
            self.again[given] = self.again.get(given, 0) + 1
            return None
        else:
            identity = given
        self._taken.add(identity)
        return identity
