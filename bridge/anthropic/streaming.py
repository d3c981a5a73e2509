"""A message as the events of a stream, block by block, as far as it is made."""

from __future__ import annotations

import json
from collections.abc import Iterator

from bridge.anthropic.wire import Block


class Streamed:
    """The events of one message. Its blocks are added to, and stay as they were."""

    def __init__(self) -> None:
        self._blocks = -1  # that were given

    def so_far(self, message: Block) -> Iterator[Block]:
        """What is new: each block in one piece."""
        if self._blocks < 0:
            self._blocks = 0
            begin: Block = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "container": None}
            yield {"type": "message_start", "message": begin}
        while self._blocks < len(message["content"]):
            index = self._blocks
            self._blocks += 1
            begun, deltas = _pieces(message["content"][index])
            yield {"type": "content_block_start", "index": index, "content_block": begun}
            for delta in deltas:
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}

    def end(self, message: Block) -> Iterator[Block]:
        """What is known only when the message is whole."""
        yield from self.so_far(message)
        end: Block = {name: message.get(name) for name in ("stop_reason", "stop_sequence", "container")}
        yield {"type": "message_delta", "delta": end, "usage": message["usage"]}
        yield {"type": "message_stop"}


def _pieces(block: Block) -> tuple[Block, list[Block]]:
    match block["type"]:
        case "text":
            citations = [{"type": "citations_delta", "citation": each} for each in block.get("citations") or ()]
            bare = {key: part for key, part in block.items() if key != "citations"}
            return {**bare, "text": ""}, [{"type": "text_delta", "text": block["text"]}, *citations]
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
            if block.get("signature"):
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, deltas
        case "tool_use" | "server_tool_use":
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        case _:
            return block, []
