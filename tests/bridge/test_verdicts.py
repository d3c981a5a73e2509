"""A person decides with nothing but the store; the run goes on in the process that holds it, or in a new one."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import anyio
import pytest

from bridge import Answer, Approve, Defer, Deny, Edit, Executor, Policy, StateError, ToolError, ask, verdicts
from bridge.approval import Grant
from bridge.journal import Judged, decode
from bridge.policy import deny
from bridge.state import fold
from bridge.store import Store
from sandbox import Limits, Sandbox
from tests.bridge.scripted import Tools

pytestmark = pytest.mark.anyio


def is_thirteen(given: Any) -> bool:
    return given == {"n": 13}


ASK = Policy([ask("write"), ask("person", when=lambda given: given == {"n": 99}), deny("write", when=is_thirteen)])
ONE = "try { return await tools.write({n: 1}) } catch (e) { return [e.code, e.message] }"
TWO = """\
const all = await Promise.allSettled([tools.write({n: 1}), tools.write({n: 2})]);
return all.map(one => one.value ?? one.reason.code)"""
PERSON = "try { return await tools.person({n: 1}) } catch (e) { return [e.code, e.message] }"
Kept = tuple[Executor, Store]


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


def executor_of(tools: Tools, opened: Sandbox, url: str, **options: Any) -> Executor:
    return Executor(options.pop("offered", tools.all()), sandbox=opened, policy=ASK, store=url, **options)


async def paused(tools: Tools, opened: Sandbox, url: str, program: str, **options: Any) -> str:
    """The id of a run that was left paused by an executor that is closed by now."""
    async with executor_of(tools, opened, url) as executor:
        run = await executor.start(program, **options)
        assert run.status == "paused"
        return run.id


async def gone_on(tools: Tools, opened: Sandbox, url: str, run_id: str, **options: Any) -> Any:
    """The run as it comes back from a new executor."""
    async with executor_of(tools, opened, url, **options) as executor:
        return await executor.load(run_id)


# ---- what waits ----------------------------------------------------------------------------------------------------


async def test_what_waits_is_listed_as_the_live_run_would_ask_it(
    tools: Tools, opened: Sandbox, url: str, store: Store
) -> None:
    program = "await tools.big({n: 2});\nawait Promise.all([tools.write({n: 1}), tools.person({n: 2})])"
    async with executor_of(tools, opened, url) as executor:
        run = await executor.start(program)
        live = run.approvals[0]
    [found] = verdicts.waiting(store)
    assert (found.run_id, found.pending, verdicts.waiting(store, run.id)) == (run.id, tuple(run.pending), [found])
    [request] = found.approvals
    assert request == dataclasses.replace(live, description="")
    assert request.before == ('big({"n":2}) completed',)


# ---- each verdict --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "verdict", "value", "reached", "kind"),
    [
        (ONE, Approve(), {"wrote": {"n": 1}}, [{"n": 1}], "approve"),
        (ONE, Deny("not today"), ["denied", "write was denied: not today"], [], "deny"),
        (ONE, Deny(), ["denied", "write was denied: a person denied it"], [], "deny"),
        (ONE, Edit({"n": 7}), {"wrote": {"n": 7}}, [{"n": 7}], "edit"),
        (ONE, Edit({"n": "7"}), {"wrote": {"n": 7}}, [{"n": 7}], "edit"),
        (ONE, Edit({"n": 13}), ["denied", 'write was denied: rule deny "write"'], [], "edit"),
        (
            ONE,
            Edit({"m": 1}),
            [
                "invalid_arguments",
                'edited arguments do not fit: write: unknown argument "m" (have: n). Signature: write({ n?: number })',
            ],
            [],
            "edit",
        ),
        (ONE, Answer({"wrote": "nothing"}), {"wrote": "nothing"}, [], "answer"),
        (ONE, ToolError("later", "come back"), ["later", "come back"], [], "toolerror"),
        (PERSON, "yes", "yes", [], "answer"),
        (PERSON, Answer([1]), [1], [], "answer"),
        (PERSON, ToolError("later", "come back"), ["later", "come back"], [], "toolerror"),
        (PERSON, Deny("no"), ["denied", "person was denied: no"], [], "deny"),
    ],
)
async def test_a_verdict_from_outside_is_what_a_new_process_goes_on_with(
    tools: Tools,
    opened: Sandbox,
    url: str,
    store: Store,
    program: str,
    verdict: Any,
    value: Any,
    reached: Any,
    kind: str,
) -> None:
    run_id = await paused(tools, opened, url, program)
    verdicts.judge(store, run_id, {f"{run_id}.1": verdict}, by="ada")
    row = store.row(run_id)
    assert (row.status, row.waiting, row.expires_at, row.lease_owner) == ("paused", (), None, None)
    assert tools.reached == []
    judged = [record for record in decode(store.read(run_id)) if isinstance(record, Judged)]
    assert [(record.verdict, record.by) for record in judged] == [(kind, "ada")]
    run = await gone_on(tools, opened, url, run_id)
    assert run.result.value == value
    assert (tools.reached, run.result.calls[0].decision) == (reached, kind)


@pytest.mark.parametrize("asleep", [False, True], ids=["awake", "asleep"])
@pytest.mark.parametrize(
    ("verdict", "value"),
    [
        (Approve(), {"wrote": {"n": 1}}),
        (Deny("no"), ["denied", "write was denied: no"]),
        (Edit({"n": "7"}), {"wrote": {"n": 7}}),
        (Edit({"n": 13}), ["denied", 'write was denied: rule deny "write"']),
        (Answer(1), 1),
    ],
    ids=["approve", "deny", "edit", "edit to what is denied", "answer"],
)
async def test_a_verdict_from_outside_is_found_by_the_process_that_holds_the_run(
    tools: Tools, opened: Sandbox, url: str, store: Store, verdict: Any, value: Any, asleep: bool
) -> None:
    async with executor_of(tools, opened, url, hibernate_after_s=0 if asleep else 60) as executor:
        run = await executor.start(ONE)
        while asleep and run.seat.worker is not None:
            await anyio.lowlevel.checkpoint()
        await anyio.to_thread.run_sync(lambda: verdicts.judge(store, run.id, {f"{run.id}.1": verdict}))
        await run.resume({})
        assert run.result is not None
        assert run.result.value == value
        written = [record for record in decode(store.read(run.id)) if isinstance(record, Judged)]
        assert written == [record for record in run.journal.records if isinstance(record, Judged)]
    assert not opened.resting


@pytest.mark.parametrize("live", [False, True], ids=["loaded", "held"])
async def test_a_denial_that_stops_ends_the_run_and_nothing_of_it_is_sent(
    tools: Tools, opened: Sandbox, url: str, store: Store, live: bool
) -> None:
    async with executor_of(tools, opened, url) as executor:
        run = await executor.start(TWO)
        verdicts.judge(store, run.id, {f"{run.id}.1": Approve(), f"{run.id}.2": Deny("enough", stop=True)})
        if live:
            await run.resume({})
    if not live:
        run = await gone_on(tools, opened, url, run.id)
    assert run.result is not None
    assert run.result.error is not None
    assert run.result.error.message == "write was denied and the run was ended: enough"
    assert (tools.reached, [row.outcome for row in run.result.calls]) == ([], ["not_started", "denied"])
    assert store.row(run.id).status == "failed"


async def test_partial_verdicts_leave_the_rest_waiting_and_may_come_from_several(
    tools: Tools, opened: Sandbox, url: str, store: Store
) -> None:
    run_id = await paused(tools, opened, url, TWO)
    first = verdicts.judge(store, run_id, {f"{run_id}.2": Approve(), f"{run_id}.1": Defer()})
    assert [waits.call for waits in store.row(run_id).waiting] == list(first.waiting) == [f"{run_id}.1"]
    run = await gone_on(tools, opened, url, run_id)
    assert (run.status, tools.reached, [request.id for request in run.approvals]) == (
        "paused",
        [{"n": 2}],
        [f"{run_id}.1"],
    )
    verdicts.judge(store, run_id, {f"{run_id}.1": Deny()})
    run = await gone_on(tools, opened, url, run_id)
    assert (run.result.value, tools.reached) == (["denied", {"wrote": {"n": 2}}], [{"n": 2}])


async def test_an_approved_call_of_the_application_waits_for_its_value(
    tools: Tools, opened: Sandbox, url: str, store: Store
) -> None:
    run_id = await paused(tools, opened, url, "return await tools.person({n: 99})")
    verdicts.judge(store, run_id, {f"{run_id}.1": Approve()})
    [found] = verdicts.waiting(store)
    assert (found.approvals, [call.arguments for call in found.pending]) == ((), [{"n": 99}])
    with pytest.raises(StateError, match="is client-owned and was let through already: give its value"):
        verdicts.judge(store, run_id, {f"{run_id}.1": Approve()})
    verdicts.judge(store, run_id, {f"{run_id}.1": "done"})
    assert (await gone_on(tools, opened, url, run_id)).result.value == "done"


# ---- grants --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("live", [False, True], ids=["loaded", "held"])
@pytest.mark.parametrize("scope", ["run", "tool"])
async def test_a_wider_approval_covers_what_else_waits_and_what_the_run_does_later(
    tools: Tools, opened: Sandbox, url: str, store: Store, scope: Any, live: bool
) -> None:
    program = TWO.replace("return", "await tools.write({n: 3}); return")
    async with executor_of(tools, opened, url) as executor:
        run = await executor.start(program)
        state = verdicts.judge(store, run.id, {f"{run.id}.1": Approve(scope)})
        assert (list(state.waiting), len(store.grants.valid(now=time.time()))) == ([], 1 if scope == "tool" else 0)
        if live:
            await run.resume({})
    if not live:
        run = await gone_on(tools, opened, url, run.id)
    assert run.result is not None
    assert (run.result.status, sorted(given["n"] for given in tools.reached)) == ("completed", [1, 2, 3])
    async with executor_of(tools, opened, url) as executor:
        another = await executor.run(ONE)
    assert another.status == ("completed" if scope == "tool" else "paused")


async def test_a_call_with_a_verdict_of_its_own_gets_that_one(
    tools: Tools, opened: Sandbox, url: str, store: Store
) -> None:
    run_id = await paused(tools, opened, url, TWO)
    verdicts.judge(store, run_id, {f"{run_id}.1": Approve("run"), f"{run_id}.2": Deny()})
    assert (await gone_on(tools, opened, url, run_id)).result.value == [{"wrote": {"n": 1}}, "denied"]


async def test_a_changed_tool_is_asked_about_once_more_and_then_goes_on(
    tools: Tools, opened: Sandbox, url: str, store: Store
) -> None:
    run_id = await paused(tools, opened, url, ONE)
    verdicts.judge(store, run_id, {f"{run_id}.1": Approve("tool")})
    other = [dataclasses.replace(tool, description="another one") for tool in tools.all()]
    run = await gone_on(tools, opened, url, run_id, offered=other)
    assert (run.status, run.approvals[0].definition_changed, tools.reached) == ("paused", True, [])
    [found] = verdicts.waiting(store)
    assert (found.approvals[0].definition_changed, found.approvals[0].definition_digest) == (True, other[0].digest)
    verdicts.judge(store, run_id, {f"{run_id}.1": Approve("tool")})
    run = await gone_on(tools, opened, url, run_id, offered=other)
    assert (run.result.value, tools.reached) == ({"wrote": {"n": 1}}, [{"n": 1}])
    granted = [grant.definition_digest for grant in store.grants.valid(now=time.time()).values()]
    assert granted == [tools.all()[0].digest, other[0].digest]  # each for processes with that definition


# ---- refusals ------------------------------------------------------------------------------------------------------


async def test_what_cannot_be_decided_is_said_and_leaves_the_run_as_it_was(
    tools: Tools, opened: Sandbox, url: str, store: Store
) -> None:
    program = TWO.replace("tools.write({n: 2})", "tools.person({n: 2})")
    run_id = await paused(tools, opened, url, program, limits=Limits(reply_bytes=1000))
    before = (store.row(run_id), store.read(run_id))
    asked, owned = f"{run_id}.1", f"{run_id}.2"
    serializable = "Object of type set is not JSON serializable"
    ways = "Approve(), Deny(reason), Edit(arguments) or Answer(value)"
    refused_with: list[tuple[Any, str]] = [
        ({f"{run_id}.9": Approve()}, f"call {run_id}.9 does not wait in run {run_id}; waiting: {asked}, {owned}"),
        ({asked: 1}, f"call {asked} waits for a verdict, not for a value: {ways}"),
        ({owned: Edit({})}, f"call {owned} is client-owned and was let through already: give its value"),
        ({asked: Answer(print)}, f"the answer to call {asked} is a builtin_function_or_method, which has no JSON form"),
        ({asked: Edit({1})}, f"edited arguments of call {asked} are no JSON: {serializable}"),
        (
            {asked: Answer("x" * 1000)},
            (
                f"the answer to call {asked} cannot be given: write returned 1,002 bytes, more than 1,000 "
                "(reply_bytes): ask it for less"
            ),
        ),
        ([asked], "answers are a mapping from call id to verdict, not a list"),
        ({owned: "", "other": 1}, f"call other does not wait in run {run_id}; waiting: {asked}, {owned}"),
    ]
    for answers, said in refused_with:
        with pytest.raises(StateError) as refused:
            verdicts.judge(store, run_id, answers)
        assert str(refused.value) == said
        row = store.row(run_id)
        assert (dataclasses.replace(row, updated=0, fence=0), store.read(run_id)) == (
            dataclasses.replace(before[0], updated=0, fence=0),
            before[1],
        )


async def test_a_second_verdict_is_refused_and_the_first_one_named(
    tools: Tools, opened: Sandbox, url: str, store: Store
) -> None:
    run_id = await paused(tools, opened, url, ONE)
    verdicts.judge(store, run_id, {f"{run_id}.1": Deny("no")})
    with pytest.raises(StateError) as refused:
        verdicts.judge(store, run_id, {f"{run_id}.1": Approve()})
    assert str(refused.value) == f"call {run_id}.1 does not wait any more (its verdict was deny); waiting: none"
    await gone_on(tools, opened, url, run_id)
    with pytest.raises(StateError) as refused:
        verdicts.judge(store, run_id, {f"{run_id}.1": Approve()})
    assert str(refused.value) == f"run {run_id} is finished (completed): nothing of it waits for a verdict"


async def test_a_verdict_after_the_expiry_is_refused_and_the_program_learns_of_it(
    tools: Tools, opened: Sandbox, url: str, store: Store
) -> None:
    run_id = await paused(tools, opened, url, ONE, limits=Limits(expires_s=60))
    later = time.time() + 61
    with pytest.raises(StateError) as refused:
        verdicts.judge(store, run_id, {f"{run_id}.1": Approve()}, now=later)
    assert str(refused.value) == f"call {run_id}.1 has expired: the verdict came too late and was not applied"
    assert (verdicts.expire(store), verdicts.expire(store, now=later), verdicts.expire(store, now=later)) == (
        [],
        [f"{run_id}.1"],
        [],
    )
    assert (store.row(run_id).status, store.row(run_id).waiting) == ("paused", ())
    run = await gone_on(tools, opened, url, run_id)
    assert run.result.value == ["expired", "nobody answered write within 60 s (expires_s)"]
    assert tools.reached == []


async def test_a_run_that_somebody_drives_takes_no_verdict(
    tools: Tools, opened: Sandbox, url: str, store: Store
) -> None:
    async with executor_of(tools, opened, url) as executor, anyio.create_task_group() as tasks:
        tasks.start_soon(executor.start, "return await tools.gate({n: 1})")
        await tools.began.wait()
        [row] = store.runs()
        with pytest.raises(StateError) as refused:
            verdicts.judge(store, row.id, {f"{row.id}.1": Approve()})
        assert str(refused.value) == (
            f"run {row.id} is running, driven by {row.lease_owner}: nothing of it waits for a verdict"
        )
        with pytest.raises(StateError) as refused:
            verdicts.judge(store, row.id, {}, now=time.time() + 3600)
        assert str(refused.value) == (
            f"run {row.id} was running when its process ended: resume it first, to where it pauses"
        )
        tools.go.set()


async def test_while_one_decides_no_other_does(tools: Tools, opened: Sandbox, url: str, store: Store) -> None:
    run_id = await paused(tools, opened, url, ONE)
    now = time.time()
    lease, _ = store.acquire(run_id, owner="somebody", lease_s=10, now=now)
    store.release(lease, now=now, status="paused")
    lease, lines = store.acquire(run_id, owner="somebody", lease_s=10, now=now)
    with pytest.raises(StateError, match=f"^run {run_id} is running, driven by somebody: "):
        verdicts.judge(store, run_id, {f"{run_id}.1": Approve()})
    store.release(lease, now=now, status="paused")
    assert store.read(run_id) == lines


# ---- beside states -------------------------------------------------------------------------------------------------


async def test_a_state_that_was_dumped_before_the_verdict_is_still_good_once(
    tools: Tools, opened: Sandbox, url: str, store: Store
) -> None:
    async with executor_of(tools, opened, url) as executor:
        run = await executor.start(ONE)
        state = run.dump()
    with pytest.raises(StateError):
        verdicts.judge(store, run.id, {"none": Approve()})
    verdicts.judge(store, run.id, {f"{run.id}.1": Approve()})
    run = await gone_on(tools, opened, url, state)
    assert run.result.value == {"wrote": {"n": 1}}
    with pytest.raises(StateError, match=f"^run {run.id} is finished"):
        await gone_on(tools, opened, url, state)


async def test_a_call_that_another_process_sent_before_it_died_is_unknown_to_the_one_that_goes_on(
    tools: Tools, opened: Sandbox, url: str, store: Store
) -> None:
    async with executor_of(tools, opened, url) as executor:
        run = await executor.start(ONE)
        verdicts.judge(store, run.id, {f"{run.id}.1": Approve()})
        now = time.time()
        lease, lines = store.acquire(run.id, owner="another", lease_s=1, now=now - 60)
        store.append(lease, len(lines), [b'{"type":"sent","call":1,"at":1.0}'], now=now - 60, lease_s=1)
        await run.resume({})
        assert run.result is not None
        assert (run.result.value[0], tools.reached) == ("unknown_outcome", [])


async def test_a_paused_run_that_no_store_had_can_be_put_into_one(
    tools: Tools, opened: Sandbox, url: str, store: Store
) -> None:
    async with Executor(tools.all(), sandbox=opened, policy=ASK) as executor:
        run = await executor.start(TWO)
        verdicts.keep(store, list(run.journal.records), audience="sandbridge")
        with pytest.raises(StateError, match=f"^there is a run {run.id} already$"):
            verdicts.keep(store, run.journal.records, audience="sandbridge")
    verdicts.judge(store, run.id, {f"{run.id}.{n}": Approve() for n in (1, 2)})
    resumed = await gone_on(tools, opened, url, run.id)
    assert resumed.result.value == [{"wrote": {"n": 1}}, {"wrote": {"n": 2}}]
    assert fold(decode(store.read(run.id))).ended is not None


async def test_a_grant_is_kept_only_when_its_verdict_is(tools: Tools, opened: Sandbox, url: str, store: Store) -> None:
    run_id = await paused(tools, opened, url, TWO)
    with pytest.raises(StateError):
        verdicts.judge(store, run_id, {f"{run_id}.1": Approve("tool"), f"{run_id}.9": Approve()})
    assert store.grants.valid(now=time.time()) == {}
    until = time.time() + 60
    verdicts.judge(store, run_id, {f"{run_id}.1": Approve("tool", until=until)})
    [grant] = store.grants.valid(now=time.time()).values()
    digest = next(tool.digest for tool in tools.all() if tool.name == "write")
    assert grant == Grant(tool="write", server_identity=None, definition_digest=digest, until=until)
