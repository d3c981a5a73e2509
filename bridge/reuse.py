"""Edit and continue: a corrected program takes over the completed calls of an earlier run.

A call takes over the reply of an earlier one of the same tool with the same arguments, in order of occurrence: the
arguments as the program made them, in canonical form. Not of a tool that is `volatile`, or whose definition is another
one now. Nothing is executed or asked for it, and a rule that denies it still does.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final

import msgspec

from bridge.approval import canonical
from bridge.calls import CallState
from bridge.journal import CameBack
from bridge.render import REUSABLE
from bridge.replies import read
from bridge.state import RunState
from sandbox import Notice

_NAMED: Final = 10  # tools that the warning names


class Reuse:
    """The completed calls of one earlier run, each to be taken over once.

    Args:
        since: The run that takes them over, where it goes on: what it has taken over already is gone.
    """

    def __init__(self, earlier: RunState, since: RunState | None = None) -> None:
        self.run_id = earlier.id
        self.taken = 0
        self._digests = {tool.name: tool.digest for tool in earlier.began.tools}
        self._left: dict[tuple[str, str], deque[CallState]] = {}
        for call in earlier.calls.values():
            if call.outcome in REUSABLE:
                self._left.setdefault((call.tool, _key(call)), deque()).append(call)
        for call in since.calls.values() if since is not None else ():
            if call.reused and (left := self._left.get((call.tool, _key(call)))):
                left.popleft()
                self.taken += 1

    def take(self, call: CallState) -> CameBack | None:
        """The outcome that a call takes over; None: it is to be executed."""
        tool = call.owner.tool
        if tool.volatile or self._digests.get(call.tool) != tool.digest:
            return None
        left = self._left.get((call.tool, _key(call)))
        if not left:
            return None
        earlier = left.popleft()
        self.taken += 1
        return CameBack(
            call=call.number, at=time.time(), outcome="completed", value=msgspec.Raw(earlier.text), reused=True
        )

    def remark(self, state: RunState) -> Notice:
        """What was taken over, what was executed anew, and what nobody asked for again."""
        text = f"{self.taken} call(s) took over their replies from run {self.run_id}"
        anew = [call for call in state.calls.values() if call.started is not None]
        if anew:
            text += f"; {len(anew)} executed now ({', '.join(sorted({call.tool for call in anew})[:_NAMED])})"
        idle = sum(len(left) for left in self._left.values())
        if idle:
            names = sorted({tool for (tool, _), left in self._left.items() if left})
            text += f"; {idle} completed call(s) of that run were not made again ({', '.join(names[:_NAMED])})"
        return Notice("reused_calls", text)


def _key(call: CallState) -> str:
    return canonical(read(call.made))
