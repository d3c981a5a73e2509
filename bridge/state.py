"""What is known of a run: a fold over its journal, record by record, and nothing else.

Whoever drives a run and whoever only reads it (`load`, `runs`, `show`, a report) get the same `RunState` from the same
records. Nothing here does I/O, looks at a clock, or knows a tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final

from msgspec import UNSET

from bridge.calls import CallState
from bridge.errors import StateError
from bridge.journal import (
    Again,
    Began,
    CameBack,
    Decided,
    Delivered,
    Ended,
    Judged,
    Loaded,
    Record,
    Redefined,
    Rested,
    Sent,
    Waved,
)
from bridge.ledger import Levels
from bridge.output import Output
from bridge.replies import fitting
from sandbox import Fired, Notice, Reply, Returned, Threw, Wave

_CALL_BYTES: Final = 2048  # beside arguments and reply: the call, its records, its waves
_WAVE_BYTES: Final = 512


class RunState:
    """One run.

    Attributes:
        calls: By the worker's id, in order of id.
        waiting: Calls that wait for a person or the application, by their public id, in order.
        timers: When each pending timer is due, seconds since 1970.
        ready: Ids of calls that came back and have not been delivered, in order of arrival.
        waves, deliveries: What the worker said, and what it was answered; one answer a wave.
        program_end: How the program itself ended.
        ended: The outcome, when there is one.
        rests: Whether the last thing that happened is that the run paused.
        stopped: The call that somebody denied to end the run with it, and the reason.
        changed: Tools that are not what the run was bound to.
        overrun: The worker sent more output than an honest one does.
        approver: Verifier of the key with which verdicts of other processes are signed; empty: they need not be.
    """

    def __init__(self, began: Began) -> None:
        self.began = began
        self.id = began.run_id
        self.limits = began.limits
        self.calls: dict[int, CallState] = {}
        self.waiting: dict[str, CallState] = {}
        self.output = Output()
        self.output.notices += began.notices
        self.levels = Levels()
        self.timers: dict[int, float] = {}
        self.timers_made = 0
        self.ready: list[int] = []
        self.awaits: list[int] = []
        self.heard: frozenset[int] = frozenset()
        self.waves: list[Wave] = []
        self.deliveries: list[Delivered] = []
        self.program_end: Returned | Threw | None = None
        self.ended: Ended | None = None
        self.stopped: tuple[CallState, str] | None = None
        self.rests = False
        self.wall_s = 0.0
        self.longest_wait_s = 0.0
        self.changed: frozenset[str] = frozenset()
        self.engines = [began.engine]
        self.approver = began.approver
        self.overrun = False

    def apply(self, record: Record) -> None:
        """Take in the next record.

        Raises:
            StateError: It tells of a call that was never made, or of one whose arguments cannot be read.
        """
        try:
            self._table[type(record)](self, record)
        except (KeyError, ValueError) as error:
            kind = type(record).__name__
            raise StateError(f"the journal is damaged: {kind} does not follow from what stands before it") from error

    def replies(self, delivery: Delivered) -> list[Reply]:
        """The very frame that a delivery was."""
        replies = [self.calls[number].reply() if number in self.calls else Fired(number) for number in delivery.ids]
        return fitting(replies, self.limits.frame_bytes)[0] if replies else replies

    @property
    def at_wave(self) -> bool:
        """Whether the last wave has no answer yet: it is the host's turn."""
        return len(self.waves) > len(self.deliveries)

    # ---- one method for each kind of record ---------------------------------------------------------------------

    def _began(self, record: Began) -> None:
        raise ValueError("a journal has one beginning")

    def _waved(self, record: Waved) -> None:
        wave = record.wave
        self.rests = False
        self.waves.append(wave)
        self.overrun = not self.output.take(wave, self.limits) or self.overrun
        self.awaits = wave.awaits
        for timer in wave.timers:
            self.timers_made += 1
            self.timers[timer.id] = record.at + timer.ms / 1000
        for cleared in wave.cleared:
            self.timers.pop(cleared, None)
        self.levels.made(call.id for call in wave.calls)
        for call in wave.calls:
            self.calls[call.id] = CallState(
                number=call.id,
                id=f"{self.id}.{call.id}",
                tool=call.tool,
                made=call.arguments,
                line=call.line,
                column=call.column,
            )
        if wave.end is not None:
            self.heard = frozenset(wave.heard)
            self.program_end = wave.end

    def _decided(self, record: Decided) -> None:
        call = self.calls[record.call]
        call.decision, call.reason = record.kind, record.reason
        if record.checked is not UNSET:
            call.checked = call.executed = record.checked
            call.is_checked = True
        elif record.as_made:
            call.checked = call.executed = call.first_argument()
            call.is_checked = True
        call.notices += record.notices
        call.changes = record.changes
        self._move(call, record.stage, record.at, record.expires_at)

    def _judged(self, record: Judged) -> None:
        call = self.calls[record.call]
        self.rests = False
        self.longest_wait_s = max(self.longest_wait_s, record.at - call.asked_at)
        call.verdict = record.verdict
        if record.arguments is not UNSET:
            call.executed = record.arguments
        if record.stop:
            self.stopped = (call, record.reason)
        self._move(call, record.stage, record.at, record.expires_at)

    def _redefined(self, record: Redefined) -> None:
        call = self.calls[record.call]
        call.definition_changed, call.redefined = True, (record.digest, record.identity)
        call.changes = record.changes
        self._move(call, "asked", call.asked_at, record.expires_at or call.expires_at)

    def _sent(self, record: Sent) -> None:
        call = self.calls[record.call]
        call.stage, call.started = "running", record.at

    def _again(self, record: Again) -> None:
        self.calls[record.call].stage = "queued"

    def _came_back(self, record: CameBack) -> None:
        call = self.calls[record.call]
        self.rests = False
        call.stage, call.outcome, call.duration_s = "done", record.outcome, record.duration_s
        call.reused = record.reused
        call.notices += record.notices
        if record.value is not UNSET:
            call.text = bytes(record.value)
        call.error_code, call.error_message, call.retryable = record.code, record.message, record.retryable
        if record.details is not UNSET:
            call.details = bytes(record.details)
        self.waiting.pop(call.id, None)
        if self.program_end is None:
            self.ready.append(call.number)

    def _delivered(self, record: Delivered) -> None:
        self.rests = False
        self.deliveries.append(record)
        self.levels.delivered(record.ids)
        self.wall_s = record.wall_s
        delivered = set(record.ids)
        self.ready = [number for number in self.ready if number not in delivered] if self.ready else self.ready
        for number in delivered.intersection(self.timers):
            del self.timers[number]

    def _rested(self, record: Rested) -> None:
        self.rests = True
        self.wall_s = record.wall_s

    def _loaded(self, record: Loaded) -> None:
        self.changed = frozenset(record.changed)
        self.approver = record.approver
        if record.engine not in self.engines:
            self.engines.append(record.engine)
            text = "the run went on with another build of engine, flags or realm than it began on: waves are compared"
            self.output.notices.append(Notice("engine_changed", text))

    def _ended(self, record: Ended) -> None:
        self.rests = False
        self.ended = record
        self.wall_s = record.wall_s
        self.output.notices += record.notices
        self.timers.clear()
        self.waiting.clear()
        self.ready.clear()

    def _move(self, call: CallState, stage: Any, at: float, expires_at: float) -> None:
        call.stage = stage
        if stage in ("asked", "client"):
            call.asked_at, call.expires_at = at, expires_at
            self.waiting[call.id] = call
        else:
            self.waiting.pop(call.id, None)

    _table: ClassVar[dict[type, Callable[..., None]]] = {
        Began: _began,
        Waved: _waved,
        Decided: _decided,
        Judged: _judged,
        Redefined: _redefined,
        Sent: _sent,
        Again: _again,
        CameBack: _came_back,
        Delivered: _delivered,
        Rested: _rested,
        Loaded: _loaded,
        Ended: _ended,
    }

    @property
    def size(self) -> int:
        """Bytes that it holds in memory, about."""
        began, ended = self.began, self.program_end
        value = 3 * memoryview(ended.value).nbytes if isinstance(ended, Returned) else 0  # read, and for the model, too
        calls = sum(_CALL_BYTES + 2 * memoryview(call.made).nbytes + len(call.text) for call in self.calls.values())
        waves = _WAVE_BYTES * (len(self.waves) + len(self.deliveries))
        return len(began.program) + memoryview(began.inputs).nbytes + value + calls + waves + self.output.size

    def notices(self) -> list[Notice]:
        """Every warning so far, those of the calls last."""
        return [*self.output.notices, *(notice for call in self.calls.values() for notice in call.notices)]


def fold(records: Iterable[Record]) -> RunState:
    """The state that a whole journal tells. Its first record is `Began`."""
    first, *rest = records
    assert isinstance(first, Began), "decode has seen to it"
    state = RunState(first)
    for record in rest:
        state.apply(record)
    return state
