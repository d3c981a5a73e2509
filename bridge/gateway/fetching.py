"""Prompts and resources whose servers ask a person before they give them.

What a host has asked for goes on by itself while its person is asked: in the middle of the request (2025-11-25), or
between this request and the next, which brings the answers (2026-07-28).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError

from bridge.gateway import asking, questions
from bridge.gateway.questions import Asked
from bridge.gateway.runs import Owner, owner_of

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from mcp.server.context import ServerRequestContext

WAITING: Final = 20  # of one host, for answers

T = TypeVar("T", bound=types.Result)
Params = types.GetPromptRequestParams | types.ReadResourceRequestParams


@dataclass(eq=False)
class _Fetch:
    """What one host has asked for. `outcome` is there when it is over."""

    owner: Owner
    asked: Asked = field(default_factory=Asked)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    outcome: Any = None
    _changed: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.asked.changed = self.change

    def change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def moved(self) -> None:
        """Wait until it is over, or a server asks something."""
        while self.outcome is None and not self.asked.open:
            await self._changed.wait()


class Fetching:
    """What hosts have asked for, and what of it waits for answers.

    Attributes:
        tasks: Where it goes on between two requests of a host. Without, servers are told that nobody can be asked.
    """

    def __init__(self) -> None:
        self.tasks: TaskGroup | None = None
        self._waiting: dict[str, _Fetch] = {}

    async def fetch(
        self, ctx: ServerRequestContext[Any, Any], params: Params, work: Callable[[Asked | None], Awaitable[T]]
    ) -> T | types.InputRequiredResult:
        """Do what a request asks for, or go on with it; give its result, or what its host's person is asked.

        Args:
            work: Gets it, with whom its server asks.

        Raises:
            MCPError: What `work` raises; or there is nothing that waits for these answers.
        """
        if self.tasks is None:
            return await work(None)
        owner = owner_of()
        if params.request_state is not None:
            fetch = self._waiting.get(asking.run_of_state(params.request_state) or "")
            if fetch is None or fetch.owner != owner:
                raise MCPError(types.INVALID_PARAMS, "nothing waits for these answers any more: ask for it again")
            fetch.asked.hear(params.input_responses or {})
        else:
            if sum(each.owner == owner for each in self._waiting.values()) >= WAITING:
                raise MCPError(types.INTERNAL_ERROR, f"{WAITING} requests of yours wait for answers: answer one first")
            fetch = _Fetch(owner)
            self.tasks.start_soon(self._work, fetch, work)
        return await self._settled(ctx, fetch)

    async def _settled(self, ctx: ServerRequestContext[Any, Any], fetch: _Fetch) -> Any:
        try:
            while True:
                await fetch.moved()
                if fetch.outcome is not None:
                    break
                if (question := await questions.ask(ctx, fetch.asked, fetch.asked.id)) is not None:
                    self._waiting[fetch.asked.id] = fetch
                    return question
        except BaseException:
            fetch.scope.cancel()
            raise
        if isinstance(fetch.outcome, Exception):
            raise fetch.outcome
        return fetch.outcome

    async def _work(self, fetch: _Fetch, work: Callable[[Asked | None], Awaitable[types.Result]]) -> None:
        outcome: Any = MCPError(types.INTERNAL_ERROR, "it was given up")
        try:
            with fetch.scope:
                outcome = await work(fetch.asked)
        except MCPError as error:
            why = "; ".join(fetch.asked.unasked)
            outcome = MCPError(error.code, f"{error.message} ({why})", error.data) if why else error
        except Exception as error:  # noqa: BLE001  raised to the host that asked, and ends nothing for others
            outcome = error
        finally:
            self._waiting.pop(fetch.asked.id, None)
            fetch.outcome = outcome
            fetch.change()
