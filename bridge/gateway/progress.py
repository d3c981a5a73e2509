"""Progress of a run towards its host: how many calls are done, and what servers say of those that they are doing.

What a server says is quoted, so that none of it can pass for anything but its words.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
from mcp.shared.exceptions import MCPError

from bridge.events import CallFinished, CallStarted, Event
from bridge.mcp.text import well_formed
from bridge.text import cut, shown, visible

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from bridge.mcp.server import CallProgress

WORDS: Final = 200  # characters of what a server says
NAME: Final = 100  # characters of a tool's name
PAUSE_S: Final = 0.02  # after a report of a server's words: a talkative one must not flood the host


class Told:
    """Progress of one run: the newest state goes to the host as fast as it takes it, older ones are not queued.

    Attributes:
        finished: How many calls are done.
    """

    def __init__(self) -> None:
        self.finished = 0
        self._words = 0  # reports of servers since then
        self._said = ""
        self._changed = anyio.Event()

    def hear(self, event: Event) -> None:
        """Take an event of the run; called in the loop's thread."""
        if isinstance(event, CallFinished):
            self.finished += 1
            self._words = 0
        elif not isinstance(event, CallStarted):
            return
        self._say(event.tool)

    def hear_server(self, said: CallProgress) -> None:
        """Take what a server says of a call of the run."""
        self._words += 1
        self._say(words(said))

    def _say(self, what: str) -> None:
        self._said = well_formed(f"{self.finished} calls done; {what}"[:500])
        self._changed.set()

    @property
    def progress(self) -> float:
        """The calls that are done, and a part of the next that grows with each report and never makes it whole."""
        return self.finished + 1 - 1 / (1 + self._words)

    async def tell(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """Report to one request until cancelled. A host that did not ask for progress gets none."""
        reported = -1.0
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            if self.progress > reported:  # progress must increase with each report
                reported = self.progress
                with suppress(MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError):
                    await ctx.session.report_progress(reported, None, self._said)
                if reported > self.finished:
                    await anyio.sleep(PAUSE_S)


def words(said: CallProgress) -> str:
    """What a server says of a call, on one line: whose word it is, its words in quotes, its numbers."""
    server, _, tool = said.tool.partition("/")
    parts = [f"server {visible(server)}, {cut(visible(tool), NAME)}:"]
    if said.message:
        parts.append(shown(visible(said.message[: 10 * WORDS]), WORDS))
    if math.isfinite(said.progress):
        of = "" if said.total is None or not math.isfinite(said.total) else f" of {said.total:g}"
        parts.append(f"{said.progress:g}{of}")
    return " ".join(parts)
