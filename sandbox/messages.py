"""The messages between host and worker: this file is the specification of the wire.

One frame is four bytes of length (big endian, without themselves) and that many bytes of JSON text, at most
`Limits.frame_bytes`. The host sends `Start` once, then `Deliver`; the worker sends `Ready` or `Broken` once, then one
`Wave` for each frame it was sent. `protocol.py` has the state table. Positions are lines and columns from 1, of the
text that the model sent. Every field of a `FromWorker` message is to be read as written by an attacker.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Raw, Struct

MOST: Final = 2**53 - 1  # what JavaScript counts to; a longer number could be read and never be sent back
Count = Annotated[int, Meta(ge=0, le=MOST)]


class ToolName(Struct, frozen=True):
    """How the realm names one tool.

    Attributes:
        name: The exact name, unique in the catalog; what `Call.tool` will say, and `tools[name]` always works.
        path: Where the realm puts it: `("get_order",)` or `("carrier", "track")`, each part an identifier.
    """

    name: str
    path: tuple[str, ...]


class Notice(Struct, frozen=True, omit_defaults=True):
    """A warning that travels with the result: a fixed code, a text for the model, a line of its program."""

    code: str
    message: str
    line: Count | None = None


class Image(Struct, frozen=True):
    """A picture that the program gave to `image()`: base64 `data`, or a `handle` that the host gave out.

    All three are always written, empty or not: of items without a field a frame could hold ten million.
    """

    mime_type: str
    data: str
    handle: str


class Log(Struct, frozen=True):
    """One captured console line."""

    level: Literal["log", "info", "warn", "error", "debug"]
    message: str


# ---- before there is a worker -----------------------------------------------------------------------------------


class Settings(Struct, frozen=True):
    """What is fixed when a zygote starts: V8's flags and the kernel's limits. Travels on its command line as JSON."""

    jit: bool
    cpu_s: float
    memory_bytes: int
    namespaces: bool
    channel: int  # the control socket of a zygote, the channel of a spawned worker
    parent: int  # process id of the host: gone, and so is whoever it started; 0: of whoever starts it in its place
    bubblewrap: bool = False


# ---- host to worker ---------------------------------------------------------------------------------------------


class Start(Struct, frozen=True, tag="start"):
    """The program and everything that a spare does not know yet.

    Attributes:
        program: The text as the model sent it, at most `Limits.source_bytes`.
        tools: The catalog, in its order.
        inputs: JSON text of the global `inputs`.
        seed: Start of `Math.random` and `crypto.randomUUID`; 0 to 2^32 - 1.
        now_ms: What the clock says until the next delivery; milliseconds since 1970, UTC.
        argument_bytes, value_bytes, log_bytes, frame_bytes: As in `Limits`.
    """

    program: str
    tools: list[ToolName]
    inputs: Raw
    seed: int
    now_ms: float
    argument_bytes: int
    value_bytes: int
    log_bytes: int
    frame_bytes: int


class Resolved(Struct, frozen=True, tag="value"):
    """A call came back with a value (JSON text, no integer beyond 2^53)."""

    id: int
    value: Raw


class Rejected(Struct, frozen=True, tag="error"):
    """A call came back with a tool error; the realm makes a `ToolError` of it."""

    id: int
    code: str
    tool: str
    message: str
    retryable: bool = False
    details: Raw = Raw(b"null")


class Fired(Struct, frozen=True, tag="timer"):
    """A timer is due."""

    id: int


Reply = Resolved | Rejected | Fired


class Deliver(Struct, frozen=True, tag="deliver"):
    """Replies in the order in which they settle; empty means: go on (after a wave with `more`)."""

    now_ms: float
    replies: list[Reply]


ToWorker = Start | Deliver

# ---- worker to host ---------------------------------------------------------------------------------------------


class Ready(Struct, frozen=True, tag="ready"):
    """Jailed, realm built, self-check passed: waiting for a program.

    Attributes:
        walls: Wall -> why it does not stand, or an empty text if it does. A claim: the host checks what it can.
        engine: Version of V8.
        digest: Digest of engine, flags, `realm.js` and `source.py`: two equal ones replay alike.
    """

    walls: dict[str, str]
    engine: str
    digest: str


class Broken(Struct, frozen=True, tag="broken"):
    """The worker refuses to serve; nothing follows."""

    reason: str


class Call(Struct, frozen=True, omit_defaults=True):
    """One invocation of a tool.

    Attributes:
        id: Rising, shared with timers.
        tool: An exact name of the catalog.
        arguments: JSON text of the argument *list*, as made by the program.
        line, column: Where the program made it; 0 where that is unknown.
    """

    id: Count
    tool: str
    arguments: Raw
    line: Count = 0
    column: Count = 0


class Timer(Struct, frozen=True, omit_defaults=True):
    """`setTimeout` or `sleep`: to be fired `ms` milliseconds after the wave."""

    id: Count
    ms: float
    line: Count = 0


class Returned(Struct, frozen=True, tag="returned", omit_defaults=True):
    """The program ended. `value` is JSON text, empty where it has no value."""

    value: Raw = Raw(b"")


class Threw(Struct, frozen=True, tag="threw", omit_defaults=True):
    """The program, or its preparation, ended with an error. All texts are the program's own claim, cut.

    Attributes:
        code: One of the error codes of `FailureCode`.
        tool: The tool whose error was not caught; empty otherwise. `call` is its call id, or 0.
    """

    code: str
    name: str
    message: str
    line: Count = 0
    column: Count = 0
    hint: str = ""
    tool: str = ""
    call: Count = 0


class Wave(Struct, frozen=True, tag="wave", omit_defaults=True):
    """Everything since the last frame: the program can go no further, or has ended.

    Attributes:
        calls, timers: New ones, in order of id.
        cleared: Timers that the program gave up.
        text, images, logs, warnings: As given, in order.
        dropped_logs: Console lines that `log_bytes` did not hold.
        awaits: Lines of the `await`s that may be pending when nothing is outstanding.
        heard: Calls of this run whose promise somebody listens to by now (only in the wave that ends).
        end: How the program ended, or None.
        more: The frame was full; send an empty `Deliver` for the rest.
    """

    calls: list[Call] = []
    timers: list[Timer] = []
    cleared: list[Count] = []
    text: list[str] = []
    images: list[Image] = []
    logs: list[Log] = []
    warnings: list[Notice] = []
    dropped_logs: Count = 0
    awaits: list[Count] = []
    heard: list[Count] = []
    end: Returned | Threw | None = None
    more: bool = False


FromWorker = Ready | Broken | Wave

FailureCode = Literal[
    "syntax_error",
    "reference_error",
    "type_error",
    "threw",
    "module_not_available",
    "invalid_arguments",
    "tool_error",
    "unknown_tool",
    "missing_await",
    "eval_disabled",
    "empty_program",
    "stalled",
    "limit",
    "crashed",
    "violation",
    "cancelled",
    "denied",
    "expired",
]
