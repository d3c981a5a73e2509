"""Spans and metrics of a run, read back from OpenTelemetry's own SDK."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from bridge import Approve, Deny, Executor, Policy, ToolError, ask, deny, tool, tracing
from sandbox import Sandbox

pytestmark = pytest.mark.anyio

EXPORTER, READER = InMemorySpanExporter(), InMemoryMetricReader()


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module", autouse=True)
def provider() -> None:
    """Providers can be set once in a process."""
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(made)
    metrics.set_meter_provider(MeterProvider([READER]))


@pytest.fixture(autouse=True)
def fresh() -> None:
    EXPORTER.clear()


@tool
async def pay(amount: int) -> str:
    """Pay."""
    with trace.get_tracer("application").start_as_current_span("bank"):
        if amount < 0:
            raise ToolError("REFUSED", "no")
        return "ok"


def spans() -> dict[str, ReadableSpan]:
    return {span.name: span for span in EXPORTER.get_finished_spans()}


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


async def test_a_run_nests_in_the_applications_span_and_a_tools_own_spans_in_its_call(opened: Sandbox) -> None:
    async with Executor([pay], sandbox=opened, policy=Policy([ask("pay")]), approver=yes) as executor:
        with trace.get_tracer("application").start_as_current_span("agent") as agent:
            result = await executor.run("return await tools.pay({ amount: 1 })")
    found = spans()
    run, call, approval = (found[name] for name in ("execute_tool run_program", "execute_tool pay", "approval pay"))
    assert parent(run) == agent.get_span_context().span_id
    assert parent(call) == parent(approval) == run.get_span_context().span_id
    assert parent(found["bank"]) == call.get_span_context().span_id
    assert run.attributes is not None
    assert call.attributes is not None
    assert run.attributes["sandbridge.run.id"] == result.run_id
    assert (run.attributes["sandbridge.status"], run.attributes["sandbridge.calls"]) == ("completed", 1)
    assert call.attributes["gen_ai.operation.name"] == "execute_tool"
    assert call.attributes["gen_ai.tool.call.id"] == f"{result.run_id}.1"
    assert approval.attributes is not None
    assert approval.attributes["sandbridge.approval.verdict"] == "approve"


async def test_no_argument_reply_or_text_is_in_a_span(opened: Sandbox) -> None:
    async with Executor([pay], sandbox=opened) as executor:
        await executor.run("text('s3cret'); await tools.pay({ amount: 424242 }); throw new Error('s3cret')")
    told = "".join(span.to_json() for span in EXPORTER.get_finished_spans())
    assert "s3cret" not in told
    assert "424242" not in told


async def test_what_fails_is_marked_with_its_kind(opened: Sandbox) -> None:
    async with Executor([pay], sandbox=opened, policy=Policy([ask("pay")]), approver=no) as executor:
        await executor.run("await tools.pay({ amount: 1 })")
    found = spans()
    run, approval = found["execute_tool run_program"], found["approval pay"]
    assert run.attributes is not None
    assert approval.attributes is not None
    assert (run.status.status_code, run.attributes["error.type"]) == (trace.StatusCode.ERROR, "denied")
    assert approval.attributes["sandbridge.approval.verdict"] == "deny"
    assert "execute_tool pay" not in found


def measured() -> dict[str, Any]:
    """Every point of every metric, by name: its attributes with its value."""
    points: dict[str, Any] = {}
    data = READER.get_metrics_data()
    assert data is not None
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                points[metric.name] = [
                    {**(point.attributes or {}), "value": getattr(point, "value", None)}
                    for point in metric.data.data_points
                ]
    return points


def counted(points: dict[str, Any], name: str, **attributes: str) -> int:
    wanted = {key.replace("__", "."): value for key, value in attributes.items()}
    return sum(point["value"] for point in points.get(name, ()) if wanted.items() <= point.items())


async def test_programs_and_calls_are_counted_by_what_came_of_them(opened: Sandbox) -> None:
    before = measured() if READER.get_metrics_data() is not None else {}
    async with Executor([pay], sandbox=opened) as executor:
        await executor.run(
            "await tools.pay({ amount: -1 }).catch(() => 0); for (;;) {}", limits=executor.limits.__class__(cpu_s=0.2)
        )
    points = measured()

    def more(name: str, **attributes: str) -> int:
        return counted(points, name, **attributes) - counted(before, name, **attributes)

    assert more("sandbridge.calls", gen_ai__tool__name="pay", sandbridge__outcome="failed") == 1
    assert more("sandbridge.programs", sandbridge__status="exceeded", sandbridge__limit="cpu_s") == 1
    assert more("sandbridge.kills", sandbridge__limit="cpu_s") == 1
    assert "sandbridge.program.duration" in points


async def test_a_denial_is_counted_by_who_denied(opened: Sandbox) -> None:
    for policy, who in ((Policy([ask("pay")]), "person"), (Policy([deny("pay")]), "policy")):
        async with Executor([pay], sandbox=opened, policy=policy, approver=no) as executor:
            before = measured()
            await executor.run("await tools.pay({ amount: 1 }).catch(() => 0)")
            wanted = {"gen_ai__tool__name": "pay", "sandbridge__denied_by": who}
            after = measured()
        assert counted(after, "sandbridge.denials", **wanted) - counted(before, "sandbridge.denials", **wanted) == 1


async def test_spares_workers_and_the_queue_are_seen_as_they_are_now(anyio_backend: str) -> None:
    """One program may compute at a time: of three that compute, two wait."""
    async with Sandbox(max_workers=1, spares=1) as sandbox, Executor([pay], sandbox=sandbox) as executor:
        await executor.run("return 1")
        others = {name: sum(getattr(each.occupancy, name) for each in everyone() - {sandbox}) for name in NAMES}
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(executor.run, "for (;;) {}")
            with anyio.fail_after(20):
                while sandbox.occupancy.queued < 2:
                    await anyio.lowlevel.checkpoint()
            points = measured()
            seen = {name: points[f"sandbridge.{name.replace('queued', 'queue')}"][0]["value"] for name in NAMES}
            now = sandbox.occupancy
            tasks.cancel_scope.cancel()
    assert (now.computing, now.queued) == (1, 2)
    assert seen == {name: getattr(now, name) + others[name] for name in NAMES}
    assert sandbox.occupancy.workers == 0


def everyone() -> set[Sandbox]:
    """All sandboxes that are observed."""
    return set(tracing._meters().sandboxes)


NAMES = ("spares", "workers", "queued")


def test_without_an_application_that_traces_nothing_of_opentelemetry_is_imported() -> None:
    program = """
import sys
from bridge import Executor
print(Executor([]).run_sync("return 1").value, sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1 []"


async def yes(requests: list[Any]) -> dict[str, Approve]:
    return {request.id: Approve() for request in requests}


async def no(requests: list[Any]) -> dict[str, Deny]:
    return {request.id: Deny("not today") for request in requests}
