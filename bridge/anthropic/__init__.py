"""Sandbridge as the executor of agent loops over the Anthropic Messages API (extra `anthropic`).

Three ways, one gate:

- `run(client, executor, ...)`: any model of the API (or of another service that speaks it, by `base_url`) writes
  JavaScript programs for one tool, `run_program`; they run here.
- `run(..., hosted=True)`: the vendor's code execution runs the programs (Python); every call that they make of the
  executor's tools is answered through policy, approvals and limits.
- `local(client, executor)`: an application that already speaks the hosted form (`allowed_callers`, `caller`,
  `container`) keeps its code; its programs run here, with any model.

What policy asks about pauses the loop, as `bridge.openai` shows. Deferred tools are found by `search_tools`; where the
vendor runs the programs, it loads what was found (searching.py).

`Offer` is for those with a loop of their own: `offer.tools` for the request, `await offer.handle(response)` for the
answers; calls of their own tools beside those are `left` to them. A map: wire.py has the blocks, schemas.py the
declarations, offer.py one turn, conversation.py the loop, service.py and dialect.py the hosted form.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from bridge.anthropic.conversation import Conversation, OnEvent
from bridge.anthropic.offer import Offer, Turn
from bridge.anthropic.wire import searches
from bridge.bounds import TURNS, LoopError, RepeatedFailure, TurnsExceeded
from bridge.code_tool import TOOL_NAME

if TYPE_CHECKING:
    from anthropic import Anthropic, AsyncAnthropic

    from bridge.anthropic.service import local
    from bridge.executor import Executor
    from sandbox import Limits

OFFERED: Final = frozenset(  # options of an `Offer`
    {"direct", "hosted", "budget", "name", "inputs", "limits", "context"}
)

__all__ = [
    "Conversation",
    "LoopError",
    "Offer",
    "RepeatedFailure",
    "Turn",
    "TurnsExceeded",
    "handle",
    "load",
    "local",
    "run",
    "run_sync",
]


async def run(
    client: AsyncAnthropic | Anthropic,
    executor: Executor,
    *,
    messages: Iterable[Any],
    direct: bool | Iterable[str] = False,
    hosted: bool = False,
    budget: int | None = None,
    turns: int = TURNS,
    stream: bool = False,
    on_event: OnEvent | None = None,
    name: str = TOOL_NAME,
    inputs: Any = None,
    limits: Limits | None = None,
    context: Any = None,
    **params: Any,
) -> Conversation:
    """Talk to a model until its final message, running its programs and answering its calls.

    Args:
        client: Of the `anthropic` SDK; a synchronous one works in threads.
        executor: Open.
        messages: The conversation so far; it is not changed.
        direct: Tools that the model may also call by itself: True for all whose `callers` include `direct`, or names
            and patterns.
        hosted: The vendor's code execution runs the programs, not this machine.
        budget: Tokens of declarations that the model reads at once; what does not fit, and deferred tools, it finds
            with `search_tools`. None: all that is not deferred. With `hosted` the vendor keeps deferred tools, and
            loads those that are found (here, or by a tool search of its own among `tools`).
        turns: Bound on requests.
        stream: Read responses as they are written; `on_event` (which implies it) gets the SDK's events.
        name: Of the code tool.
        inputs, limits, context: Of every program, as for `Executor.start`.
        **params: Of `client.messages.create`: `model` and `max_tokens` at least; `tools` may hold server tools.

    Returns:
        The conversation, `finished` (`message`, `text`, `messages`, `runs`) or `paused` (`pending`, `approvals`; then
        `resume`).

    Raises:
        LoopError: The bound on requests was reached (`TurnsExceeded`), or the same failure came back three times
            (`RepeatedFailure`); `reply` is the conversation.
        ConfigurationError: Parameters that cannot be meant.
        anthropic.APIError: A request failed. To go on after one, make a `Conversation` and call its `go` again.
    """
    params["tools"] = list(params.get("tools") or ())
    own: dict[str, Any] = {"direct": direct, "hosted": hosted, "budget": budget, "name": name}
    own |= {"inputs": inputs, "limits": limits, "context": context, "vendor_searches": searches(params["tools"])}
    offer = Offer(executor, **own)
    conversation = Conversation(client, offer, messages, turns=turns, stream=stream, on_event=on_event, **params)
    return await conversation.go()


async def load(client: AsyncAnthropic | Anthropic, executor: Executor, state: str, **options: Any) -> Conversation:
    """Take up a paused conversation that `Conversation.dump` put away, in this or another process.

    Args:
        state: What `dump` returned. Each works once where the executor has a store.
        **options: Those of `run`, but for `messages`: the model, the bounds and the tools offered are not in the state.

    Returns:
        The conversation, `paused`: `resume` goes on (with `{}` where nothing is waited for any more).

    Raises:
        StateError: The state cannot be used (again); the text says why.
    """
    own = {name: options.pop(name) for name in OFFERED & set(options)}
    options["tools"] = list(options.get("tools") or ())
    own["vendor_searches"] = searches(options["tools"])
    conversation = Conversation(client, Offer(executor, **own), (), **options)
    return await conversation.restore(state, own.get("context"))


def run_sync(client: AsyncAnthropic | Anthropic, executor: Executor, **options: Any) -> Conversation:
    """`run` for code without an event loop, inside `with Executor(...) as executor`.

    `executor.call_sync(conversation.resume, {...})` goes on after a pause.
    """
    return executor.call_sync(partial(run, client, executor, **options))


async def handle(response: Any, executor: Executor, **options: Any) -> Turn:
    """Answer one response whose tools were `Offer(executor, **options).tools`: the single step, for a loop of your own.

    For a loop that keeps an `Offer`, `offer.handle(response)` does the same and knows the conversation.

    Returns:
        The turn: `messages` to continue with, `final` when there is nothing to continue; `paused` while calls wait.
        Calls of tools that are not the executor's are the application's, and are `left`.

    Raises:
        SandboxError: V8 or the walls are not there.
    """
    return await Offer(executor, **options).handle(response)


def __getattr__(name: str) -> Any:
    if name != "local":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bridge.anthropic.service import local  # loads the SDK, which the rest needs only where it is used

    return local
