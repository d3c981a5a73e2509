"""The executor of OpenAI agent loops: Responses, Chat Completions, and whatever else speaks their wire.

A map: `run` loops over the Responses API (responses.py) and `chat.run` over Chat Completions (chat.py), each to the
final message; `handle` is their single step, for a loop of your own, and `tools` what to offer there. answering.py says
who answers which call, items.py what the wire looks like, definitions.py how tools are defined for the vendor,
client.py sends. The `openai` package is the extra `openai`; it is imported when a client is used.
"""

from __future__ import annotations

from bridge.openai.answering import Handled
from bridge.openai.responses import Reply, handle, run, tools

__all__ = ["Handled", "Reply", "handle", "run", "tools"]
