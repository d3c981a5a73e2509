"""An application that was written for the hosted form of the Responses API, with what it declares."""

from __future__ import annotations

import json
from typing import Any

TEXT = {"type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"], "additionalProperties": False}
STOCK = {
    "type": "function",
    "name": "stock",
    "description": "Stock of one SKU.",
    "strict": True,
    "parameters": TEXT,
    "output_schema": {"type": "object", "properties": {"units": {"type": "number"}}},
    "allowed_callers": ["programmatic"],
}
NOTE = {"type": "function", "name": "note", "parameters": TEXT, "strict": True}
TOOLS = [STOCK, NOTE, {"type": "programmatic_tool_calling"}]
CODE = """\
const found = await Promise.all(["a", "b"].map((sku) => tools.stock({ sku })));
const last = await tools.stock({ sku: `c${found[0].units + found[1].units}` });
return { sum: found[0].units + found[1].units + last.units }"""
SUM = '{"sum":30}'


def stock(call: Any) -> str:
    return json.dumps({"units": 10, **json.loads(call["arguments"])})


def item_of(call: Any, output: str) -> Any:
    made = {"type": "function_call_output", "call_id": call["call_id"], "output": output}
    return made | ({"caller": call["caller"]} if call.get("caller") else {})


class Application:
    """What such an application does: answer every call, wave by wave, until the final message."""

    def __init__(self, client: Any, *, store: bool = True, stream: bool = False, **request: Any) -> None:
        self.client = client
        self.request = {"model": "m", "tools": TOOLS, "store": store} | request
        if not store:
            self.request["include"] = ["reasoning.encrypted_content"]
        self.store = store
        self.stream = stream
        self.history: list[Any] = [{"role": "user", "content": "How many?"}]
        self.seen: list[Any] = []
        self.events: list[Any] = []
        self.response: Any = None

    async def create(self, new: list[Any]) -> list[Any]:
        request: dict[str, Any] = {"input": new}
        if not self.store:
            request = {"input": self.history}
        elif self.response is not None:
            request["previous_response_id"] = self.response.id
        made = self.client.responses.create(**self.request, **request, stream=self.stream)
        if hasattr(made, "__await__"):
            made = await made
        if self.stream:
            events = [event async for event in made] if hasattr(made, "__aiter__") else list(made)
            self.events += events
            made = events[-1].response
        self.response = made
        output = [item.to_dict(mode="json") for item in made.output]
        self.history += output
        self.seen += output
        return output

    async def run(self, answer: Any = stock) -> str:
        output = await self.create(list(self.history))
        while not any(item["type"] == "message" for item in output):
            waits = [item for item in output if item["type"] == "function_call"]
            new = [item_of(call, answer(call)) for call in waits]
            self.history += new
            output = await self.create(new)
        return self.response.output_text


def shape(items: list[Any]) -> list[Any]:
    """Items with what differs between two runs put out of the way: ids by their order of appearance."""
    known: dict[str, str] = {}

    def plain(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: plain(part, name) for name, part in sorted(value.items()) if part is not None}
        if isinstance(value, list):
            return [plain(part) for part in value]
        if key in ("id", "call_id", "caller_id", "fingerprint", "encrypted_content"):
            return known.setdefault(value, f"{len(known)}")
        return value

    return [plain(item) for item in items]
