"""Sandbridge as the executor of OpenAI agent loops, and of whatever else speaks their wire (extra `openai`).

Three ways, one gate:

- `run(client, executor, ...)` over the Responses API, `chat.run(...)` over Chat Completions: any model writes
  JavaScript programs for one tool, `run_program`; they run here.
- `run(..., hosted=True)`: the vendor runs the programs (`programmatic_tool_calling`); every call that they make is
  answered through policy, approvals and limits.
- `local(client, executor)`: an application that already speaks the hosted form keeps its code; its programs run here,
  with any model.

What policy asks about and no approver decides pauses the loop, also in the middle of a program; all that one response
waits for comes at once (so does `bridge.anthropic`)::

    reply = await openai.run(client, executor, model="...", input="...")
    while reply.status == "paused":
        verdicts = {}
        for request in reply.approvals:  # arguments and program are the model's words: show them escaped
            for line in (f"{request.tool} {request.arguments}, line {request.line} of", *request.program.splitlines()):
                print(approval.escape(line))
            verdicts[request.id] = Approve() if input("run it? ") == "y" else Deny("not today")
        reply = await reply.resume(verdicts)

Deferred tools are found by `search_tools`, or by the vendor's own tool search, executed here (searching.py).
`handle` and `tools` are for loops of one's own. A map: turns.py has what ends a loop, responses.py and chat.py the two
APIs, answering.py who answers which call, approvals.py those that the vendor asks for, items.py and definitions.py the
wire, client.py sends; service.py, dialect.py and apart.py are the hosted form (over_chat.py: from models that speak
Chat Completions only).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from bridge.code_tool import LoopError, RepeatedFailure, TurnsExceeded
from bridge.openai import chat
from bridge.openai.answering import Turn
from bridge.openai.responses import Conversation, handle, load, run, tools

if TYPE_CHECKING:
    from bridge.executor import Executor
    from bridge.openai.service import local

__all__ = [
    "Conversation",
    "LoopError",
    "RepeatedFailure",
    "Turn",
    "TurnsExceeded",
    "chat",
    "handle",
    "load",
    "local",
    "run",
    "run_sync",
    "tools",
]


def run_sync(client: Any, executor: Executor, **options: Any) -> Conversation:
    """`run` for code without an event loop, inside `with Executor(...) as executor`.

    `executor.call_sync(conversation.resume, {...})` goes on after a pause.
    """
    return executor.call_sync(partial(run, client, executor, **options))


def __getattr__(name: str) -> Any:
    if name != "local":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bridge.openai.service import local  # loads the SDK, which the rest needs only where it is used

    return local
