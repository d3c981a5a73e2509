"""An application that was written for the hosted service, with what it declares. It checks its own transcript."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.providers.anthropic_rules import Block, check_messages

QUERY: Block = {
    "name": "query",
    "description": "Rows of a table.",
    "input_schema": {"type": "object", "properties": {"sql": {"type": "string"}}, "required": ["sql"]},
    "allowed_callers": ["code_execution_20260120"],
}
CODE: Block = {"type": "code_execution_20260120", "name": "code_execution"}


def rows(call: Any) -> str:
    return json.dumps([call.input])


class Application:
    """What somebody wrote for the hosted service: it knows nothing of what runs the programs."""

    def __init__(
        self, client: Any, tools: list[Block], answer: Callable[[Any], Any] = rows, *, stream: bool = False
    ) -> None:
        self.client = client
        self.tools = tools
        self.answer = answer
        self.stream = stream
        self.messages: list[Any] = []
        self.container: str | None = None
        self.kinds: list[list[str]] = []  # of the blocks of each response
        self.stops: list[str] = []

    async def ask(self, question: str, **params: Any) -> Any:
        self.messages.append({"role": "user", "content": question})
        while True:
            given = {"model": "m", "max_tokens": 100, "messages": self.messages, "tools": self.tools, **params}
            if self.container is not None:
                given["container"] = self.container
            response = await self._request(given)
            self.messages.append({"role": "assistant", "content": [block.to_dict() for block in response.content]})
            self.kinds.append([block.type for block in response.content])
            self.stops.append(response.stop_reason)
            self.container = response.container.id if response.container else None
            if response.stop_reason == "pause_turn":
                continue
            if response.stop_reason != "tool_use":
                check_messages(self.messages, {})
                return response
            results = [self._result(block) for block in response.content if block.type == "tool_use"]
            self.messages.append({"role": "user", "content": results})
            check_messages(self.messages, {})

    async def _request(self, given: dict[str, Any]) -> Any:
        if not self.stream:
            return await self.client.messages.create(**given)
        async with self.client.messages.stream(**given) as events:
            return await events.get_final_message()

    def _result(self, block: Any) -> Block:
        answer = self.answer(block)
        made = {"type": "tool_result", "tool_use_id": block.id}
        return {**made, **answer} if isinstance(answer, dict) else {**made, "content": answer}


def said(response: Any) -> str:
    return "".join(block.text for block in response.content if block.type == "text")
