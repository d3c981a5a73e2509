"""Traces and metrics by OpenTelemetry's conventions for generative AI, for applications that have set them up.

Nothing of OpenTelemetry is imported here unless the application has imported it: without its API a run is not traced
and costs nothing. The names are those of the semantic conventions (`gen_ai.*`, development status) where there is one,
`sandbridge.*` else. No argument, reply or text of a program is in a span: the journal has them.

    execute_tool run_program      the run; the application's current span is its parent
    ├── approval shop/refund      from asking to the verdict
    └── execute_tool shop/refund  from sending to the reply; current while the tool runs: what it does nests here

Counters: `sandbridge.programs` by status and limit, `sandbridge.calls` by tool and outcome, `sandbridge.denials` by
tool and who denied, `sandbridge.kills` by limit. Histograms: `sandbridge.program.duration` and `.cpu_time`. Gauges over
all sandboxes of the process: `sandbridge.spares`, `sandbridge.workers`, `sandbridge.queue`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any, Final
from weakref import WeakSet

from bridge.calls import CallState
from bridge.journal import CameBack, Decided, Ended, Judged, Record, Rested, Sent
from bridge.state import RunState
from sandbox import Sandbox

_PROGRAM: Final = "run_program"
_WELL: Final = frozenset(("completed", "answered"))


class Trace:
    """The spans of one run, fed with its records."""

    def __init__(self, state: RunState) -> None:
        self._api: Any = import_module("opentelemetry.trace")
        self._tracer = self._api.get_tracer("sandbridge")
        self._run: Any = self._tracer.start_span(
            f"execute_tool {_PROGRAM}",
            start_time=_ns(state.began.at if not state.waves else None),
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": _PROGRAM,
                "gen_ai.tool.type": "extension",
                "sandbridge.run.id": state.id,
                "sandbridge.run.loaded": bool(state.waves),
            },
        )
        self._state = state
        self._calls: dict[int, Any] = {}
        self._asked: dict[int, Any] = {}

    def take(self, record: Record) -> None:
        """Follow the next record, which the run's state has taken in already."""
        match record:
            case Decided(stage="asked"):
                self._asked[record.call] = self._span("approval", record.call, record.at)
            case Judged():
                self._end(self._asked, record.call, record.at, {"sandbridge.approval.verdict": record.verdict})
            case Sent():
                self._calls[record.call] = self._span("execute_tool", record.call, record.at)
            case CameBack():
                self._came_back(record)
            case Rested():
                self._run.add_event("paused", timestamp=_ns(record.at))
            case Ended():
                self._ended(record)
            case _:
                pass

    @contextmanager
    def within(self, call: CallState) -> Generator[None]:
        """What a tool does is part of its call."""
        span = self._calls.get(call.number)
        if span is None:
            yield
            return
        with self._api.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
            yield

    def close(self) -> None:
        """Nobody drives the run here any more."""
        for spans in (self._calls, self._asked):
            for number in tuple(spans):
                self._end(spans, number, None, {})
        self._run.end()

    def _span(self, operation: str, number: int, at: float) -> Any:
        call = self._state.calls[number]
        attributes: dict[str, Any] = {
            "gen_ai.tool.name": call.tool,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "extension" if "/" in call.tool else "function",
            "sandbridge.line": call.line,
        }
        if operation == "execute_tool":
            attributes["gen_ai.operation.name"] = operation
        return self._tracer.start_span(
            f"{operation} {call.tool}",
            context=self._api.set_span_in_context(self._run),
            start_time=_ns(at),
            attributes=attributes,
        )

    def _came_back(self, record: CameBack) -> None:
        call = self._state.calls[record.call]
        meters, named = _meters(), {"gen_ai.tool.name": call.tool}
        meters.calls.add(1, {**named, "sandbridge.outcome": record.outcome})
        if record.outcome == "denied":
            meters.denials.add(1, {**named, "sandbridge.denied_by": "person" if call.verdict else "policy"})
        self._end(self._asked, record.call, record.at, {"sandbridge.approval.verdict": record.outcome})
        failed = record.outcome not in _WELL
        attributes: dict[str, Any] = {"sandbridge.outcome": record.outcome}
        if failed:
            attributes["error.type"] = record.code
        self._end(self._calls, record.call, record.at, attributes, failed=failed)

    def _ended(self, record: Ended) -> None:
        limit = record.failure.limit if record.failure is not None and record.failure.limit else ""
        told = {"sandbridge.status": record.status, **({"sandbridge.limit": limit} if limit else {})}
        meters = _meters()
        meters.programs.add(1, told)
        if limit:
            meters.kills.add(1, {"sandbridge.limit": limit})
        meters.duration.record(record.wall_s, told)
        meters.cpu.record(record.cpu_s, told)
        self._run.set_attributes({**told, "sandbridge.calls": len(self._state.calls)})
        if record.status != "completed":
            code = record.failure.code if record.failure is not None else record.status
            self._run.set_attribute("error.type", code)
            self._run.set_status(self._api.Status(self._api.StatusCode.ERROR, code))
        self._run.end(end_time=_ns(record.at))

    def _end(
        self, spans: dict[int, Any], number: int, at: float | None, attributes: dict[str, Any], *, failed: bool = False
    ) -> None:
        span = spans.pop(number, None)
        if span is None:
            return
        span.set_attributes(attributes)
        if failed:
            span.set_status(self._api.Status(self._api.StatusCode.ERROR))
        span.end(end_time=_ns(at))


class _Meters:
    def __init__(self) -> None:
        meter: Any = import_module("opentelemetry.metrics").get_meter("sandbridge")
        self.programs = meter.create_counter("sandbridge.programs", "{program}", "Programs by status and limit")
        self.calls = meter.create_counter("sandbridge.calls", "{call}", "Calls by tool and outcome")
        self.denials = meter.create_counter("sandbridge.denials", "{call}", "Denied calls, by policy or a person")
        self.kills = meter.create_counter("sandbridge.kills", "{program}", "Programs that a limit ended, by limit")
        self.duration = meter.create_histogram("sandbridge.program.duration", "s", "Time that counts against wall_s")
        self.cpu = meter.create_histogram("sandbridge.program.cpu_time", "s", "CPU time of workers")
        self.sandboxes: WeakSet[Sandbox] = WeakSet()
        observation: Any = import_module("opentelemetry.metrics").Observation

        def watched(what: str) -> Callable[[Any], list[Any]]:
            return lambda _: [observation(sum(getattr(each.occupancy, what) for each in tuple(self.sandboxes)))]

        for name, what, unit, about in (
            ("spares", "spares", "{worker}", "Workers that are ready for a program"),
            ("workers", "workers", "{worker}", "Workers that are alive"),
            ("queue", "queued", "{program}", "Programs that wait for a worker, or for their turn to compute"),
        ):
            meter.create_observable_gauge(f"sandbridge.{name}", [watched(what)], unit, about)


@cache
def _meters() -> _Meters:
    return _Meters()


def trace(state: RunState, sandbox: Sandbox) -> Trace | None:
    """The trace of a run that is about to be driven; None where the application has no OpenTelemetry.

    Args:
        sandbox: Observed from now on, as long as it lives.
    """
    if "opentelemetry.trace" not in sys.modules:
        return None
    _meters().sandboxes.add(sandbox)
    return Trace(state)


def _ns(at: float | None) -> int | None:
    return None if at is None else int(at * 1e9)
