"""Verdicts that count only with the approver's signature: who can read or write the store can approve nothing."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from bridge import Answer, Approve, ConfigurationError, Deny, Edit, Executor, Policy, StateError, ask, verdicts
from bridge.approval import Grant
from bridge.approver_key import NOBODY, ApproverKey, is_signed
from bridge.journal import CameBack, Decided, Judged, Record, decode, encode
from bridge.run import Run
from bridge.state import fold
from bridge.store import Store
from sandbox import Sandbox
from tests.bridge.scripted import Tools

pytestmark = pytest.mark.anyio
PASSPHRASE = "correct horse battery"
KEY, OTHER = ApproverKey.make(PASSPHRASE), ApproverKey.make("another one, that is")
PROGRAM = "try { return await tools.write({n: 1}) } catch (e) { return [e.code, e.message] }"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def holder(
    opened: Sandbox, tools: Tools, url: str, verifier: str | None = KEY.verifier
) -> AsyncGenerator[Executor]:
    """Whoever holds the runs: a gateway, say."""
    policy = Policy([ask("write")])
    async with Executor(tools.all(), policy=policy, sandbox=opened, store=url, approver_key=verifier) as executor:
        yield executor


@pytest.fixture
async def executor(opened: Sandbox, tools: Tools, url: str) -> AsyncGenerator[Executor]:
    async with holder(opened, tools, url) as running:
        yield running


async def waiting(executor: Executor) -> tuple[Run, str]:
    run = await executor.start(PROGRAM)
    assert run.status == "paused"
    return run, run.approvals[0].call_id


def write(store: Store, run_id: str, *records: Record) -> None:
    """What somebody with the store, and without the key, can do."""
    lease, lines = store.acquire(run_id, owner="somebody", lease_s=10, now=time.time())
    lines_more = [encode(record) for record in records]
    store.release(lease, now=time.time(), status="paused", first_seq=len(lines), records=lines_more)


def signed_records(store: Store, run_id: str) -> list[Record]:
    return [record for record in decode(store.read(run_id)) if isinstance(record, (Judged, CameBack))]


@pytest.mark.parametrize(
    ("verdict", "value"),
    [
        (Approve(), {"wrote": {"n": 1}}),
        (Approve("run"), {"wrote": {"n": 1}}),
        (Edit({"n": 5}), {"wrote": {"n": 5}}),
        (Answer("by hand"), "by hand"),
        (Deny("no"), ["denied", "write was denied: no"]),
    ],
    ids=["approve", "run", "edit", "answer", "deny"],
)
async def test_a_signed_verdict_decides(executor: Executor, store: Store, verdict: Any, value: Any) -> None:
    run, call = await waiting(executor)
    verdicts.judge(store, run.id, {call: verdict}, key=KEY)
    await run.resume({})
    assert run.result is not None
    assert run.result.value == value


@pytest.mark.parametrize("key", [None, OTHER], ids=["no key", "another key"])
async def test_a_verdict_without_the_key_is_refused_before_it_is_written(
    executor: Executor, store: Store, key: ApproverKey | None
) -> None:
    run, call = await waiting(executor)
    with pytest.raises(StateError) as caught:
        verdicts.judge(store, run.id, {call: Approve()}, key=key)
    assert str(caught.value) == (
        f"run {run.id} takes only verdicts that are signed with the approver key it was begun with"
    )
    assert signed_records(store, run.id) == []


def approved(number: int, **fields: Any) -> Judged:
    return Judged(call=number, at=time.time(), verdict="approve", stage="queued", **fields)


@pytest.mark.parametrize(
    "forged",
    [
        lambda: [approved(1)],
        lambda: [approved(1, proof="x" * 86)],
        lambda: [CameBack(call=1, at=0.0, outcome="answered", value=msgspec.Raw(b'"forged"'))],
        lambda: [CameBack(call=1, at=0.0, outcome="expired", value=msgspec.Raw(b'"forged"'))],
        lambda: [Decided(call=1, at=0.0, stage="queued", kind="allow", as_made=True)],
    ],
    ids=["approve", "wrong proof", "reply", "expiry with a value", "decision"],
)
async def test_what_is_written_to_the_store_without_the_key_counts_for_nothing(
    executor: Executor, store: Store, tools: Tools, forged: Callable[[], list[Record]]
) -> None:
    run, call = await waiting(executor)
    write(store, run.id, *forged())
    with pytest.raises(StateError) as caught:
        await run.resume({})
    assert str(caught.value) == (
        f"what was written to run {run.id} meanwhile is not signed with the approver key: none of it counts; run the "
        "program again"
    )
    assert [request.call_id for request in run.approvals] == [call]
    assert tools.reached == []


async def test_a_verdict_cannot_be_moved_to_another_run(executor: Executor, store: Store, tools: Tools) -> None:
    run, call = await waiting(executor)
    verdicts.judge(store, run.id, {call: Approve()}, key=KEY)
    other, _ = await waiting(executor)
    write(store, other.id, *signed_records(store, run.id))
    with pytest.raises(StateError):
        await other.resume({})
    assert tools.reached == []


@pytest.mark.parametrize(
    "forged",
    [
        lambda: [approved(1)],
        lambda: [approved(1, scope="run")],
        lambda: [Decided(call=1, at=0.0, stage="queued", kind="allow", as_made=True)],
        lambda: [Judged(call=1, at=0.0, verdict="edit", stage="queued", arguments={"n": 66})],
    ],
    ids=["approve", "for the run", "decision", "edit"],
)
async def test_a_new_process_asks_about_what_only_the_store_says_was_approved(
    opened: Sandbox, tools: Tools, url: str, store: Store, forged: Callable[[], list[Record]]
) -> None:
    async with holder(opened, tools, url) as executor:
        run, call = await waiting(executor)
    write(store, run.id, *forged())
    async with holder(opened, tools, url) as executor:
        loaded = await executor.load(run.id)
        assert (loaded.status, [request.call_id for request in loaded.approvals]) == ("paused", [call])
        assert [request.arguments for request in loaded.approvals] == [{"n": 1}]
    assert tools.reached == []


async def test_a_new_process_goes_on_by_a_signed_verdict(opened: Sandbox, tools: Tools, url: str, store: Store) -> None:
    async with holder(opened, tools, url) as executor:
        run, call = await waiting(executor)
    verdicts.judge(store, run.id, {call: Edit({"n": 2})}, key=KEY)
    async with holder(opened, tools, url) as executor:
        loaded = await executor.load(run.id)
        assert loaded.result is not None
        assert loaded.result.value == {"wrote": {"n": 2}}
    assert tools.reached == [{"n": 2}]


async def test_a_grant_that_somebody_put_into_the_store_covers_nothing(
    executor: Executor, store: Store, tools: Tools
) -> None:
    run, _ = await waiting(executor)
    bound = next(tool for tool in fold(decode(store.read(run.id))).began.tools if tool.name == "write")
    grant = Grant(tool="write", server_identity=bound.identity, definition_digest=bound.digest)
    store.grants.add(grant, now=time.time())
    assert (await executor.start(PROGRAM)).status == "paused"
    assert tools.reached == []


async def test_a_signed_verdict_for_the_tool_holds_for_later_runs(executor: Executor, store: Store) -> None:
    run, call = await waiting(executor)
    verdicts.judge(store, run.id, {call: Approve("tool")}, key=KEY)
    await run.resume({})
    assert (await executor.run(PROGRAM)).value == {"wrote": {"n": 1}}


async def test_a_run_that_counts_signed_verdicts_is_not_loaded_where_any_would_do(
    opened: Sandbox, tools: Tools, url: str
) -> None:
    async with holder(opened, tools, url) as executor:
        run, _ = await waiting(executor)
    async with holder(opened, tools, url, None) as executor:
        with pytest.raises(StateError) as caught:
            await executor.load(run.id)
    assert str(caught.value) == (
        f"run {run.id} counts signed verdicts only: open the executor with the same approver_key="
    )


async def test_without_a_key_no_verdict_from_elsewhere_counts(
    opened: Sandbox, tools: Tools, url: str, store: Store
) -> None:
    async with holder(opened, tools, url, NOBODY) as executor:
        run, call = await waiting(executor)
        with pytest.raises(StateError) as caught:
            verdicts.judge(store, run.id, {call: Approve()})
        assert str(caught.value) == (
            f"whoever holds run {run.id} was started without an approver key, and takes no verdict from elsewhere: "
            "make one with `sandbridge approver-key`, start it again, and have it resume the run"
        )
    async with holder(opened, tools, url) as executor:  # started again, with a key
        loaded = await executor.load(run.id)
        verdicts.judge(store, run.id, {call: Approve()}, key=KEY)
        await loaded.resume({})
        assert loaded.result is not None
        assert loaded.result.value == {"wrote": {"n": 1}}


# ---- the key itself -------------------------------------------------------------------------------------------------


def test_a_verifier_gives_back_its_key_for_its_passphrase_only() -> None:
    assert is_signed(KEY.verifier, b"yes", ApproverKey.unlock(KEY.verifier, f" {PASSPHRASE}\n").sign(b"yes"))
    with pytest.raises(StateError) as caught:
        ApproverKey.unlock(KEY.verifier, "correct horse batterY")
    assert str(caught.value) == "that is not the passphrase of the approver key: nothing was decided"


def test_a_signature_is_of_one_statement_and_one_key() -> None:
    signature = KEY.sign(b"yes")
    assert is_signed(KEY.verifier, b"yes", signature)
    assert not is_signed(KEY.verifier, b"no", signature)
    assert not is_signed(OTHER.verifier, b"yes", signature)
    for odd in ("", "é", "a", "=" * 88, signature[:-4]):
        assert not is_signed(KEY.verifier, b"yes", odd)


def test_a_key_shows_no_secret_and_a_short_passphrase_makes_none() -> None:
    assert PASSPHRASE not in repr(KEY)
    assert "rivate" not in repr(KEY)
    with pytest.raises(ConfigurationError) as caught:
        ApproverKey.make("short      ")
    assert str(caught.value) == "a passphrase has at least 12 characters: whoever guesses it approves"


def test_a_passphrase_in_place_of_the_verifier_stops_construction() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Executor([], approver_key=PASSPHRASE)
    assert str(caught.value) == (
        "an approver key is given as its verifier, the text that `sandbridge approver-key` prints (sbapprover1...)"
    )
