"""Programs that try to get out or to break the bridge: each ends as expected, and what runs after it is untouched."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest

from sandbox import Sandbox, Threw
from tests.conftest import cases
from tests.sandbox.conftest import SMALL, Outcome, play

ATTACKS = cases("attacks")
CLOCK_IS_FROZEN = "frozen_ok"
LIMIT_OF_KIND = {"limit:memory": "memory_bytes", "limit:cpu": "cpu_s", "limit:time": "wall_s"}


@pytest.fixture(scope="module")
def shared(portal: anyio.from_thread.BlockingPortal) -> Generator[Sandbox]:
    """One sandbox for all attacks: what one leaves behind would meet the next."""
    with portal.wrap_async_context_manager(Sandbox(limits=SMALL)) as sandbox:
        yield sandbox


def answer(tool: str, arguments: list[Any]) -> Any:
    given = arguments[0] if arguments else None
    match tool:
        case "add":
            return given["a"] + given["b"] if isinstance(given, dict) and {"a", "b"} <= set(given) else 0
        case "fail":
            raise ValueError("tool says no")
        case "evil_then":
            return {"then": "x"}
        case "evil_proto":
            return {"__proto__": {"constructor": "x"}, "constructor": 1}
        case _:
            return given


def kind_of(out: Outcome) -> str:
    if out.death is not None:
        if out.death.outcome == "exceeded":
            return next((kind for kind, limit in LIMIT_OF_KIND.items() if limit == out.death.limit), "limit")
        return {"crashed": "crash", "violation": "violation"}[out.death.outcome]
    if out.end is None:
        return "stalled"
    return "err" if isinstance(out.end, Threw) else "ok"


@pytest.mark.parametrize("case", ATTACKS, ids=[case["id"] for case in ATTACKS])
def test_an_attack_ends_as_expected_and_leaves_a_clean_sandbox(
    case: dict[str, Any], portal: anyio.from_thread.BlockingPortal, shared: Sandbox
) -> None:
    tools = ("add", "echo", "fail", "get", "evil_then", "evil_proto")
    out = portal.call(play, shared, case["js"], answer, tools)
    expect = case["expect"]
    wanted = expect.get("ok", expect.get(CLOCK_IS_FROZEN))
    if "ok" in expect or CLOCK_IS_FROZEN in expect:
        assert kind_of(out) == "ok", out.end or out.death
        assert out.value == wanted
    elif "err" in expect:
        assert isinstance(out.end, Threw), out.end or out.death
        assert out.end.name == expect["err"]
    else:
        assert kind_of(out) in expect["kind"]
    if "calls" in expect:
        assert [[tool, arguments[0] if arguments else {}] for tool, arguments in out.calls] == expect["calls"]
    if "logs" in expect:
        assert [log.message for log in out.logs] == expect["logs"]
    if "maxlogs" in expect:
        assert len(out.logs) <= expect["maxlogs"]
    canary = portal.call(play, shared, "return [1 + await tools.echo(1), typeof secret, ({}).zz]", answer)
    assert canary.value == [2, "undefined", None]


def test_every_attack_that_computes_for_ever_is_ended_by_the_limit_it_hits(
    portal: anyio.from_thread.BlockingPortal, shared: Sandbox
) -> None:
    out = portal.call(play, shared, "for(;;);")
    assert out.death is not None
    assert out.death.limit == "cpu_s"


def test_with_a_jit_the_same_surface_is_gone(portal: anyio.from_thread.BlockingPortal) -> None:
    with portal.wrap_async_context_manager(Sandbox(limits=SMALL, jit=True, spares=0)) as sandbox:
        names = "[typeof WebAssembly, typeof SharedArrayBuffer, typeof Atomics, typeof WeakRef]"
        assert portal.call(play, sandbox, f"return {names}").value == ["undefined"] * 4
        assert portal.call(play, sandbox, "try { new Function('1') } catch (e) { return e.name }").value == "EvalError"
        assert sandbox.walls["code_pages"] != ""


def test_no_process_is_left_when_the_sandbox_closes(portal: anyio.from_thread.BlockingPortal) -> None:
    with portal.wrap_async_context_manager(Sandbox(limits=SMALL)) as sandbox:
        portal.call(play, sandbox, "return 1")
        zygote = sandbox._origin.process.pid  # type: ignore[union-attr]  the zygote is no public name
        assert Path(f"/proc/{zygote}").exists()
    assert not Path(f"/proc/{zygote}").exists()
