"""The journal of a run: typed, versioned, append-only records of everything that enters a run and leaves it.

    Began                      program, inputs, seed, clock, limits, the catalog as the realm saw it
    Waved                      what the worker sent: calls, timers, text, logs, the program's end
    Decided, Judged, Redefined what policy said of a call, what a person said, that its tool is another one now
    Sent, Again, CameBack      a call leaves (written before it is sent), is to be sent once more, has its outcome
    Delivered                  the replies that one frame held, by id, with the time that the program was told
    Rested, Loaded             the run paused; another driver took it over
    Ended                      the outcome and what was spent

`state.py` folds these into what is known of a run, and there is no other state. One record is one line of JSON text.
A reply stands in `CameBack` only: a frame is rebuilt from the ids in `Delivered`, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, Protocol

import anyio
import msgspec
from msgspec import UNSET, Raw, Struct

from bridge.approval import Scope, canonical
from bridge.errors import StateError
from bridge.policy import Kind
from bridge.results import Failure, Status
from bridge.tools import Caller
from sandbox import Call, Limits, Notice, ToolName, Wave

VERSION: Final = 1

Stage = Literal["made", "queued", "asked", "running", "client", "done"]
Outcome = Literal[
    "completed",
    "failed",
    "denied",
    "invalid",
    "unknown_tool",
    "cancelled",
    "timeout",
    "unknown",
    "not_started",
    "expired",
    "answered",
    "waiting",
]


class Bound(Struct, frozen=True, omit_defaults=True):
    """One tool as the run began with it: its names in the realm, and the definition and server it is bound to.

    Attributes:
        client: The application answers it: a call that was let through waits for its value.
    """

    name: str
    path: tuple[str, ...]
    digest: str
    identity: str | None = None
    client: bool = False


class Began(Struct, frozen=True, tag="began", omit_defaults=True):
    """Everything that the first line of the program depends on.

    Attributes:
        at: Seconds since 1970, UTC; as in every record.
        inputs: JSON text of the global `inputs`.
        now_ms: What the program's clock says until the first delivery.
        engine: Digest of engine, flags, realm and source of the sandbox that it began on.
        notices: Warnings that came before the first line.
        reuse: The run whose completed calls it may take over, or an empty text.
        approver: Verifier of the key with which verdicts of other processes are signed, or an empty text.
        calls: Where there is no program of ours: the calls that were made elsewhere, all at once.
        caller: Who makes the calls.
    """

    version: int
    run_id: str
    at: float
    program: str
    inputs: Raw
    seed: int
    now_ms: float
    limits: Limits
    tools: Sequence[Bound]
    engine: str
    notices: list[Notice] = []
    reuse: str = ""
    calls: list[Call] = []
    caller: Caller = "programmatic"
    approver: str = ""

    def names(self) -> list[ToolName]:
        """The catalog as the realm gets it."""
        return [ToolName(tool.name, tool.path) for tool in self.tools]


class Waved(Struct, frozen=True, tag="wave"):
    """A wave as the worker sent it."""

    at: float
    wave: Wave


class Decided(Struct, frozen=True, tag="decided", omit_defaults=True):
    """What policy made of a call. `checked` is left out where it is the one argument that the program made.

    Attributes:
        changes: How the tool differs from what an earlier approval was given for (`bridge.definitions`).
    """

    call: int
    at: float
    stage: Stage
    kind: Kind | Literal[""] = ""
    reason: str = ""
    checked: Any = UNSET
    as_made: bool = False
    expires_at: float = 0.0
    notices: tuple[Notice, ...] = ()
    changes: tuple[str, ...] = ()


class Judged(Struct, frozen=True, tag="verdict", omit_defaults=True):
    """What a person or the application said of a call that waited. `stage` is where it went.

    Attributes:
        by: Who said it, where that is known.
        stop: The run is to end with it.
        proof: Signature of the approver's key, where the run wants one.
    """

    call: int
    at: float
    verdict: Literal["approve", "deny", "edit", "answer", "toolerror"]
    stage: Stage
    scope: Scope = "call"
    until: float | None = None
    arguments: Any = UNSET
    reason: str = ""
    expires_at: float = 0.0
    by: str = ""
    stop: bool = False
    proof: str = ""


class Redefined(Struct, frozen=True, tag="redefined", omit_defaults=True):
    """The tool of a call that waits is not what it was: it is asked about again, and the change is shown."""

    call: int
    digest: str
    identity: str | None = None
    expires_at: float = 0.0
    changes: tuple[str, ...] = ()


class Sent(Struct, frozen=True, tag="sent"):
    """A call is about to be sent: with a store this is durable before the first byte leaves."""

    call: int
    at: float


class Again(Struct, frozen=True, tag="again"):
    """A call was sent and not heard of, and its tool is idempotent: it goes back into the queue."""

    call: int


class CameBack(Struct, frozen=True, tag="reply", omit_defaults=True):
    """The outcome of a call, and the reply that the program gets: `value` (JSON text), or an error."""

    call: int
    at: float
    outcome: Outcome
    value: Raw | msgspec.UnsetType = UNSET
    code: str = ""
    message: str = ""
    retryable: bool = False
    details: Raw | msgspec.UnsetType = UNSET
    duration_s: float = 0.0
    notices: tuple[Notice, ...] = ()
    reused: bool = False


class Delivered(Struct, frozen=True, tag="delivered", omit_defaults=True):
    """One frame to the worker: ids of calls and timers in the order in which they settle."""

    now_ms: float
    ids: list[int]
    wall_s: float = 0.0


class Rested(Struct, frozen=True, tag="rested"):
    """All that is outstanding waits for people or the application."""

    at: float
    wall_s: float


class Loaded(Struct, frozen=True, tag="loaded", omit_defaults=True):
    """Somebody else drives the run from here on.

    Attributes:
        changed: Names of tools that are not what the run was bound to; they are asked about.
        approver: As in `Began`, from here on.
    """

    at: float
    engine: str
    changed: list[str] = []
    approver: str = ""


class Ended(Struct, frozen=True, tag="ended", omit_defaults=True):
    """The outcome. The value stands in the last wave.

    Attributes:
        left_behind: Calls that nobody awaited when the program ended.
        notices: Warnings about the end itself.
    """

    at: float
    status: Status
    by_program: bool = False
    failure: Failure | None = None
    left_behind: list[int] = []
    notices: list[Notice] = []
    cpu_s: float = 0.0
    wall_s: float = 0.0
    memory_bytes: int = 0
    frame_bytes: int = 0
    in_flight: int = 0


Record = Began | Waved | Decided | Judged | Redefined | Sent | Again | CameBack | Delivered | Rested | Loaded | Ended

_decoder: Final = msgspec.json.Decoder(Record)
_encoder: Final = msgspec.json.Encoder()
_ONE_LINE: Final = bytes(ord(" ") if chr(code) in "\r\n" else code for code in range(256))


class _Version(Struct):
    version: int = 0


def encode(record: Record) -> bytes:
    """One record as JSON text, without a line break. Half characters become U+FFFD: nobody could read them again."""
    if isinstance(record, Decided) and record.as_made and record.checked is not UNSET:
        record = msgspec.structs.replace(record, checked=UNSET)
    try:
        line = _encoder.encode(record)
    except (UnicodeEncodeError, OverflowError, RecursionError):
        line = _encode_slowly(record)
    # JSON text of a tool or the application stands in it as it was; there a line break can only be white space.
    return line.translate(_ONE_LINE) if b"\n" in line or b"\r" in line else line


def _encode_slowly(record: Record) -> bytes:
    """For half characters, integers over 64 bits and deep nesting."""
    plain = _plain(record)
    try:
        text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        text = canonical(plain)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _plain(record: Struct) -> dict[str, Any]:
    data: dict[str, Any] = {"type": record.__struct_config__.tag}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if value is UNSET:
            continue
        if isinstance(value, Raw):
            value = msgspec.json.decode(value)
        elif not isinstance(value, (str, int, float, bool, type(None))) and name not in ("checked", "arguments"):
            value = msgspec.to_builtins(value)
        data[name] = value
    return data


def decode(lines: Iterable[bytes]) -> list[Record]:
    """The records of a whole journal.

    Raises:
        StateError: No journal, one of another version, or one that was cut in its middle.
    """
    records: list[Record] = []
    for number, line in enumerate(lines, 1):
        if number == 1:
            _check_version(line)
        try:
            record = _decoder.decode(line)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise StateError(f"record {number} of the journal cannot be read: {error}") from None
        if isinstance(record, Began) is not (number == 1):
            raise StateError(f"record {number} of the journal stands at the wrong place: {type(record).__name__}")
        records.append(record)
    if not records:
        raise StateError("the journal is empty")
    return records


def _check_version(line: bytes) -> None:
    try:
        version = msgspec.json.decode(line, type=_Version).version
    except (msgspec.MsgspecError, RecursionError):
        text = (
            "this is no journal of a run, as `sandbridge export RUN FILE` writes one: its first record cannot be read"
        )
        raise StateError(text) from None
    if version != VERSION:
        who = "a newer Sandbridge" if version > VERSION else "no Sandbridge that this one understands"
        raise StateError(f"the journal has version {version} and was written by {who}; this one reads {VERSION}")


class Sink(Protocol):
    """Where a journal is kept beyond this process."""

    async def write(self, records: Sequence[Record]) -> None:
        """Make them durable, in their order. `StateError`: another driver has the run by now."""
        ...


class Journal:
    """The records of one run, in memory, for those who wait for new ones, and for a sink if there is one."""

    def __init__(self, records: list[Record], sink: Sink | None, listener: Callable[[Record], None] | None) -> None:
        self.records = records
        self.sink = sink
        self._listener = listener
        self._durable = len(records)  # what it is made of comes from there
        self._writing = anyio.Lock() if sink is not None else None
        self._changed: anyio.Event | None = None  # made when somebody waits for a change

    def add(self, record: Record) -> None:
        """Append a record and tell those who wait."""
        self.records.append(record)
        if self._listener is not None:
            self._listener(record)
        if self._changed is not None:
            self.changed()

    def changed(self) -> None:
        """Wake those who wait, also where no record says what has changed."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def change(self) -> None:
        """Wait for the next record."""
        if self._changed is None:
            self._changed = anyio.Event()
        await self._changed.wait()

    def came_from_sink(self) -> None:
        """What is there so far is durable already."""
        self._durable = len(self.records)

    async def flush(self) -> None:
        """Return when everything added so far is durable; at once where there is no sink.

        Raises:
            StateError: Another driver has the run by now, or the store cannot be written.
        """
        if self.sink is None or self._writing is None:
            return
        wanted = len(self.records)
        while self._durable < wanted:
            async with self._writing:  # whoever waits here finds that the one before has written its records too
                batch = self.records[self._durable :]
                if batch and self._durable < wanted:
                    await self.sink.write(batch)
                    self._durable += len(batch)
