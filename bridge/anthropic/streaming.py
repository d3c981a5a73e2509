"""A complete message as the events of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator

from bridge.anthropic.wire import Block


def events(message: Block) -> Iterator[Block]:
    """The events that a message is streamed as: each block in one piece; what is known at the end comes last."""
    begin: Block = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "container": None}
    yield {"type": "message_start", "message": begin}
    for index, block in enumerate(message["content"]):
        begun, deltas = _pieces(block)
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
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
