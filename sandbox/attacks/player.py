"""Runs one program in a worker, with tools played by a function: no policy, no catalog, nothing but the sandbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sandbox.limits import Limits
from sandbox.messages import Fired, Log, Notice, Rejected, Reply, Resolved, Returned, Start, Threw, ToolName, Wave
from sandbox.pool import Sandbox
from sandbox.process import Death

NOON_MS = 1_800_000_000_000.0  # what a program's clock says when it starts; a millisecond more with each delivery


@dataclass
class Outcome:
    """What one program did.

    Attributes:
        end, death: How the program ended, or its worker; neither where the program waits for what cannot happen.
        calls: Tool and list of arguments of each call, in order.
    """

    end: Returned | Threw | None = None
    death: Death | None = None
    calls: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    text: list[str] = field(default_factory=list[str])
    logs: list[Log] = field(default_factory=list[Log])
    warnings: list[Notice] = field(default_factory=list[Notice])
    waves: list[Wave] = field(default_factory=list[Wave])

    @property
    def value(self) -> Any:
        """What the program returned, as JSON data; None where it returned nothing."""
        assert isinstance(self.end, Returned), self.end or self.death
        return msgspec.json.decode(self.end.value) if bytes(self.end.value) else None


def start_of(program: str, tools: Sequence[str], limits: Limits, inputs: Any = None) -> Start:
    """The first frame for a program; a tool `a/b` is `tools.a.b`."""
    return Start(
        program=program,
        tools=[ToolName(name, tuple(name.split("/"))) for name in tools],
        inputs=msgspec.Raw(msgspec.json.encode(inputs)),
        seed=1,
        now_ms=NOON_MS,
        argument_bytes=limits.argument_bytes,
        value_bytes=limits.value_bytes,
        log_bytes=limits.log_bytes,
        frame_bytes=limits.frame_bytes,
    )


async def play(
    sandbox: Sandbox,
    program: str,
    answer: Callable[[str, list[Any]], Any],
    tools: Sequence[str],
    limits: Limits,
    inputs: Any = None,
) -> Outcome:
    """Run a program to its end.

    Args:
        answer: Gives each call's value (JSON text where it is a `msgspec.Raw`), or raises ValueError for a tool error.
        tools: The names of the tools.
        limits: As for `Sandbox`, or lower. Timers fire at once.
    """
    out = Outcome()
    now = NOON_MS
    async with sandbox.worker() as worker:
        wave = await sandbox.start(worker, start_of(program, tools, limits, inputs), limits, limits.wall_s)
        while True:
            if wave is None:
                out.death = await sandbox.bury(worker)
                return out
            out.waves.append(wave)
            out.text += wave.text
            out.logs += wave.logs
            out.warnings += wave.warnings
            replies: list[Reply] = []
            for call in wave.calls:
                arguments = _read(call.arguments)
                out.calls.append((call.tool, arguments))
                try:
                    value = answer(call.tool, arguments)
                    text = value if isinstance(value, msgspec.Raw) else msgspec.Raw(msgspec.json.encode(value))
                    replies.append(Resolved(call.id, text))
                except ValueError as error:
                    replies.append(Rejected(call.id, "failed", call.tool, str(error)))
            due = [timer.id for timer in wave.timers if timer.id not in wave.cleared]
            replies += [Fired(number) for number in due]
            if wave.end is not None:
                out.end = wave.end
                return out
            if not replies and not wave.more:
                return out
            now += 1
            wave = await sandbox.deliver(worker, now, replies, limits.wall_s)


def _read(arguments: msgspec.Raw) -> list[Any]:
    try:
        return msgspec.json.decode(arguments)
    except msgspec.MsgspecError:  # numbers that no JSON reader of ours takes: the gate refuses them
        return [bytes(arguments).decode("utf-8", "replace")]
