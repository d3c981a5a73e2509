"""The host's side of the worker protocol as a state machine that does no I/O.

    STARTING --Ready--> READY --start()--> RUNNING --Wave--> WAITING --deliver()--> RUNNING ...
        |                                     |
        +--Broken--> OVER                     +--Wave with an end--> OVER

What a worker says out of turn, or of ids and tools that do not exist, is a `RemoteProtocolError`: the worker is then
killed. What we ask out of turn is a `LocalProtocolError`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final, Literal

from sandbox.errors import LocalProtocolError, RemoteProtocolError
from sandbox.limits import Limits
from sandbox.messages import Broken, Deliver, FromWorker, Ready, Reply, Start, Threw, Wave
from sandbox.wire import WAVE_ITEMS, FrameReader, decode_from_worker, frame

State = Literal["starting", "ready", "running", "waiting", "over"]

# state -> what a worker may say in it; everything else is an attack or a bug of ours
ALLOWED: Final[dict[State, tuple[type, ...]]] = {
    "starting": (Ready, Broken),
    "ready": (),
    "running": (Wave,),
    "waiting": (),
    "over": (),
}

# Codes that a program's end may carry; the others are verdicts of the host.
PROGRAM_CODES: Final = frozenset(
    "syntax_error reference_error type_error threw module_not_available invalid_arguments tool_error unknown_tool "
    "missing_await eval_disabled empty_program denied expired".split()
)
_FIRST_BYTES: Final = 1 << 16  # of `Ready` or `Broken`, which have a few hundred; before them nothing else may come
# What the host keeps for one entry, one wave and one reply beside their text: charged, so that none of them is free.
_ENTRY_BYTES, _WAVE_BYTES, _REPLY_BYTES = 16, 1 << 10, 1 << 12


class Connection:
    """One worker as the host sees it: bytes in, checked messages out; requests in, bytes out."""

    def __init__(self, limits: Limits) -> None:
        self.state: State = "starting"
        self.largest_frame = 0
        self._limits = limits
        self._reader = FrameReader(min(_FIRST_BYTES, limits.frame_bytes))
        # What it may still say. Output and value have their limits, arguments theirs for each call; the rest (timers,
        # lines, warnings, empty pieces) is small, and grows with the replies that it gets. A frame more for that.
        self._left = limits.frame_bytes + 3 * limits.value_bytes + 8 * limits.log_bytes
        self._tools: Collection[str] = ()
        self._next_id = 1
        self._open: set[int] = set()  # calls and timers that have no reply yet
        self._timers: set[int] = set()  # ids of timers, ever

    @property
    def outstanding(self) -> int:
        """Calls and timers without a reply."""
        return len(self._open)

    def receive(self, data: bytes) -> list[FromWorker]:
        """Take bytes from the worker and return the messages they complete.

        Raises:
            RemoteProtocolError: A frame over the limit, malformed JSON, an unknown message, or one that the state
                table forbids.
        """
        messages: list[FromWorker] = []
        for text in self._reader.receive(data):
            self.largest_frame = max(self.largest_frame, len(text))
            message = decode_from_worker(text)
            if not isinstance(message, ALLOWED[self.state]):
                raise RemoteProtocolError(f"{type(message).__name__} while {self.state}")
            if isinstance(message, Ready):
                self.state = "ready"
                self._reader.limit = self._limits.frame_bytes
            elif isinstance(message, Broken):
                self.state = "over"
            else:
                self._check(message, len(text))
                self.state = "waiting" if message.end is None else "over"
            messages.append(message)
        return messages

    def start(self, start: Start) -> bytearray:
        """Bytes that hand the program over."""
        if self.state != "ready":
            raise LocalProtocolError(f"a program was started while {self.state}")
        self._tools = frozenset(tool.name for tool in start.tools)
        self.state = "running"
        return frame(start, self._limits.frame_bytes)

    def deliver(self, now_ms: float, replies: Sequence[Reply]) -> bytearray:
        """Bytes that hand replies over, in the order in which they settle; none means: go on."""
        if self.state != "waiting":
            raise LocalProtocolError(f"replies were delivered while {self.state}")
        for reply in replies:
            if reply.id not in self._open:
                raise LocalProtocolError(f"reply to {reply.id}, which is not open")
            self._open.discard(reply.id)
        self._left += _REPLY_BYTES * len(replies)
        self.state = "running"
        return frame(Deliver(now_ms, list(replies)), self._limits.frame_bytes)

    def _check(self, wave: Wave, size: int) -> None:
        lists = (wave.calls, wave.timers, wave.cleared, wave.text, wave.images, wave.logs, wave.warnings, wave.awaits)
        entries = sum(map(len, lists))
        if entries > WAVE_ITEMS or len(wave.heard) > WAVE_ITEMS:
            raise RemoteProtocolError("a wave with too many entries")
        arguments = 0
        for call in wave.calls:
            if call.tool not in self._tools:
                raise RemoteProtocolError("a call of a tool that the program was not given")
            text = bytes(call.arguments)
            if len(text) > self._limits.argument_bytes + 2:  # and the brackets of the list
                raise RemoteProtocolError(f"arguments over argument_bytes={self._limits.argument_bytes}")
            if not text.startswith(b"["):
                raise RemoteProtocolError("arguments that are no list")
            arguments += len(text)
        # A wave with calls costs nothing of its own: how many calls there may be is bounded already.
        self._left -= size - arguments + _ENTRY_BYTES * entries + (0 if wave.calls else _WAVE_BYTES)
        if self._left < 0:
            raise RemoteProtocolError("more output than all limits together let through")
        for number in sorted(item.id for items in (wave.calls, wave.timers) for item in items):
            if number < self._next_id:
                raise RemoteProtocolError(f"id {number} is not new")
            self._next_id = number + 1
            self._open.add(number)
        for timer in wave.timers:
            if not (math.isfinite(timer.ms) and timer.ms >= 0):
                raise RemoteProtocolError("a timer that is never due")
            self._timers.add(timer.id)
        for cleared in self._timers.intersection(wave.cleared):  # a call cannot be taken back
            self._open.discard(cleared)
        if isinstance(wave.end, Threw) and wave.end.code not in PROGRAM_CODES:
            raise RemoteProtocolError("an end with a code that only the host gives")
        if wave.end is not None and wave.more:
            raise RemoteProtocolError("an end with more to come")
