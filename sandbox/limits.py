"""What one run may spend (`Limits`), and what it spent (`Usage`).

Every limit is finite, each has one place that enforces it, and `Usage` has the same field names. Bytes are UTF-8
bytes; seconds are floats.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

LimitName = Literal[
    "cpu_s",
    "wall_s",
    "memory_bytes",
    "source_bytes",
    "calls",
    "in_flight",
    "timers",
    "call_s",
    "expires_s",
    "argument_bytes",
    "reply_bytes",
    "value_bytes",
    "output_bytes",
    "log_bytes",
    "frame_bytes",
]

MiB = 1 << 20
KiB = 1 << 10


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of one run. All are positive and finite; there is no way to switch one off.

    Kernel and V8 limits (`cpu_s`, `memory_bytes`) are fixed when a worker is locked, so an executor has one `Limits`,
    and a run may lower any of them: the host enforces the difference.

    Attributes:
        cpu_s: CPU seconds of the worker, all threads; waiting costs nothing. Kernel: ITIMER_PROF ends the process,
            RLIMIT_CPU (whole seconds) stands behind it for code that blocks signals, the host's deadline behind both.
        wall_s: Seconds while the program computes, a timer is pending or a call that the host runs is in flight.
            Stands still while only people or the application are waited for. Host.
        memory_bytes: What a program may add to a worker that is ready. V8's heap limit, the host's watchdog on resident
            memory (buffers, ICU and JSON text are outside V8's heap), RLIMIT_DATA above both.
        source_bytes: Program text. Host, before sending.
        calls: Tool calls of one run; the one over it ends the run. Host.
        in_flight: Calls running at once; more are queued, never refused. Host.
        timers: Timers pending at once; one over it ends the run. Host.
        call_s: Seconds one call may take from sending; a tool may set its own. Host.
        expires_s: Seconds a pending approval or client-owned call waits for its answer. Host.
        argument_bytes: JSON text of one call's arguments. Both sides.
        reply_bytes: JSON text of one reply; a larger one is a tool error that says its size. Both sides.
        value_bytes: JSON text of the program's value, and of what `text()` and `image()` were given. Worker: the value
            is cut structurally, surplus pieces are dropped, each with a warning.
        output_bytes: What the model is shown (`Result.text`). Host.
        log_bytes: Captured console output; the rest is counted, not kept. Worker.
        frame_bytes: One message between host and worker, checked before anything is allocated. Both sides.
    """

    cpu_s: float = 10.0
    wall_s: float = 300.0
    memory_bytes: int = 128 * MiB
    source_bytes: int = 256 * KiB
    calls: int = 1_000
    in_flight: int = 100
    timers: int = 1_000
    call_s: float = 60.0
    expires_s: float = 86_400.0
    argument_bytes: int = 1 * MiB
    reply_bytes: int = 16 * MiB
    value_bytes: int = 16 * MiB
    output_bytes: int = 64 * KiB
    log_bytes: int = 16 * KiB
    frame_bytes: int = 32 * MiB

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            whole = isinstance(field.default, int)
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                kind = "a whole number" if whole else "a number of seconds"
                raise TypeError(f"Limits.{field.name} must be {kind}, not {value!r}")
            if not math.isfinite(value) or value <= 0:
                raise ValueError(f"Limits.{field.name} must be positive and finite, not {value!r}: none can be unset")
        for inner in ("argument_bytes", "reply_bytes", "value_bytes", "source_bytes"):
            # A message carries one of these, escaped, with its envelope: at most half of a frame keeps that true.
            if getattr(self, inner) * 2 > self.frame_bytes:
                raise ValueError(
                    f"Limits.{inner}={getattr(self, inner)} needs frame_bytes of at least {getattr(self, inner) * 2}, "
                    f"but frame_bytes={self.frame_bytes}: raise frame_bytes or lower {inner}"
                )
        if self.memory_bytes < 8 * MiB:
            raise ValueError(f"Limits.memory_bytes must be at least {8 * MiB} (8 MiB), not {self.memory_bytes}")

    def lowered(self, other: Limits) -> Limits:
        """The smaller of the two, field by field: what holds when a run asks for `other` under an executor's limits."""
        pairs = {f.name: min(getattr(self, f.name), getattr(other, f.name)) for f in dataclasses.fields(self)}
        return Limits(**pairs)


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a run spent, field by field of `Limits`.

    `calls` and `timers` are totals; `in_flight` is the most at once; `call_s` the longest call; `argument_bytes`,
    `reply_bytes` and `frame_bytes` the largest; `expires_s` the longest wait for an answer; `memory_bytes` the peak
    above a ready worker.
    """

    cpu_s: float = 0.0
    wall_s: float = 0.0
    memory_bytes: int = 0
    source_bytes: int = 0
    calls: int = 0
    in_flight: int = 0
    timers: int = 0
    call_s: float = 0.0
    expires_s: float = 0.0
    argument_bytes: int = 0
    reply_bytes: int = 0
    value_bytes: int = 0
    output_bytes: int = 0
    log_bytes: int = 0
    frame_bytes: int = 0
