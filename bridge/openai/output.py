"""One response to the application, of one or more of the model's: its items in order, its events, its usage.

Pure. The model's calls of the code tool are shown as `program`; all else of the model is shown as it comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

from bridge.code_tool import CodeTool
from bridge.errors import ToolError
from bridge.openai import dialect
from bridge.openai.items import called
from bridge.openai.turns import Item

BEGIN: Final = frozenset(["response.created", "response.in_progress", "response.queued"])
END: Final = frozenset(["response.completed", "response.incomplete", "response.failed"])


class Output:
    """What is put together for one response to the application.

    Args:
        code: The code tool, and its definition as the model was given it.
        echoed: What a response repeats of its request.
    """

    def __init__(self, code: CodeTool, code_tool: Item, echoed: Item) -> None:
        self.id = ""
        self.items: list[Item] = []
        self._code = code
        self._code_tool = code_tool
        self._echoed = echoed
        self._usage: Item | None = None
        self._number = -1
        self._hidden: set[int] = set()  # the model's items that are not shown as such
        self._at: dict[int, int] = {}  # its index of an item -> ours

    def _event(self, kind: str, **fields: Any) -> Item:
        self._number += 1
        return {"type": kind, "sequence_number": self._number, **fields}

    def begin(self, response: Item) -> Iterator[Item]:
        """The first events, once. From here on a stream has its id, which holds that of the vendor's response."""
        if self._number < 0:
            self.id = dialect.id_that_waits(response["id"])
            begun: Item = {
                "id": self.id,
                "status": "in_progress",
                "output": [],
                "usage": None,
                "incomplete_details": None,
            }
            yield self._event("response.created", response=response | self._echoed | begun)
            yield self._event("response.in_progress", response=response | self._echoed | begun)

    def add(self, item: Item) -> Iterator[Item]:
        """An item that is complete, its text or arguments in one piece."""
        index = len(self.items)
        self.items.append(item)
        yield self._event("response.output_item.added", output_index=index, item=item)
        place = {"output_index": index, "item_id": item.get("id") or ""}
        if item["type"] == "message":
            for number, part in enumerate(item["content"]):
                yield from self._part(part, place | {"content_index": number})
        elif item["type"] == "function_call":
            text, kind = item["arguments"], "response.function_call_arguments"
            yield self._event(f"{kind}.delta", **place, delta=text)
            yield self._event(f"{kind}.done", **place, arguments=text, name=item["name"])
        yield self._event("response.output_item.done", output_index=index, item=item)

    def _part(self, part: Item, place: Item) -> Iterator[Item]:
        kind = part["type"]
        word = "text" if kind == "output_text" else "refusal"
        logprobs: Item = {"logprobs": []} if kind == "output_text" else {}
        yield self._event("response.content_part.added", **place, part=part | {word: ""})
        yield self._event(f"response.{kind}.delta", **place, delta=part[word], **logprobs)
        yield self._event(f"response.{kind}.done", **place, **{word: part[word]}, **logprobs)
        yield self._event("response.content_part.done", **place, part=part)

    def passed_on(self, event: Item) -> Iterator[Item]:
        """An event of the model's response, as the application gets it. The end of one is shown only for its items."""
        kind = event["type"]
        if kind in BEGIN or kind in END:
            yield from self.begin(event["response"])
        if kind in END:
            yield from self._ended(event["response"])
        elif kind not in BEGIN:
            yield from self._within(kind, event)

    def _ended(self, response: Item) -> Iterator[Item]:
        if response.get("usage"):
            self._usage = added(self._usage, response["usage"])
        if not self._at and not self._hidden:  # it was not streamed
            for item in response["output"]:
                yield from self.add(self._shown(item))
        self._at, self._hidden = {}, set()

    def _within(self, kind: str, event: Item) -> Iterator[Item]:
        index = event.get("output_index")
        if kind == "response.output_item.added" and index is not None:
            if self._is_ours(event["item"]):
                self._hidden.add(index)
            else:
                self._at[index] = len(self.items)
                self.items.append(event["item"])
        done = kind == "response.output_item.done"
        if index in self._hidden:
            if done:
                yield from self.add(self._shown(event["item"]))
            return
        fields = {name: part for name, part in event.items() if name not in ("type", "sequence_number")}
        if index in self._at:
            fields["output_index"] = self._at[index]
            if done:
                self.items[self._at[index]] = event["item"]
        yield self._event(kind, **fields)

    def _is_ours(self, item: Item) -> bool:
        """Whether it is a call that is answered here, and shown as what the service has for it."""
        return dialect.is_code(item, self._code_tool) or (self._code.search is not None and dialect.is_search(item))

    def _shown(self, item: Item) -> Item:
        if self._is_ours(item) and not dialect.is_code(item, self._code_tool):
            return dialect.search_item(item)
        if not dialect.is_code(item, self._code_tool):
            return item
        [call] = called([item], status="completed")
        try:
            text = self._code.program_of(call.model_call)
        except ToolError:
            text = ""  # its output says what is wrong with the call
        return dialect.program_item(item, text, self._code_tool)

    def end(self, response: Item, own_id: str) -> Item:
        """The last event."""
        status = response.get("status") or "completed"
        made = {"id": own_id, "status": status, "output": self.items, "usage": self._usage}
        return self._event(f"response.{status}", response=response | self._echoed | made)


def added(one: Item | None, other: Item) -> Item:
    """Usage of two responses together."""
    made = dict(one or {})
    for name, part in other.items():
        known = made.get(name)
        if isinstance(part, dict):
            made[name] = added(cast("Item | None", known), cast("Item", part))
        elif isinstance(part, int) and not isinstance(part, bool):
            made[name] = (known or 0) + part
        else:
            made[name] = part
    return made
