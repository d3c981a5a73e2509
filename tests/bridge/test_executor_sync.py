"""An executor for code that has no event loop."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from bridge import Approve, Executor, Policy, StateError, ask, tool
from sandbox import Limits

LIMITS = Limits(memory_bytes=64 << 20)


@tool
def double(n: int) -> int:
    """Twice a number."""
    return 2 * n


def test_a_program_runs_without_an_event_loop() -> None:
    assert Executor([double], limits=LIMITS).run_sync("return await tools.double({n: 21})").value == 42


def test_a_with_block_serves_many_programs_and_many_threads_and_leaves_none() -> None:
    before = threading.active_count()
    values: list[Any] = []
    with Executor([double], policy=Policy([ask("double")]), limits=LIMITS) as executor:

        def one(n: int) -> None:
            values.append(executor.run_sync(f"return {n}").value)

        threads = [threading.Thread(target=one, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(values) == [0, 1, 2, 3]
        run = executor.call_sync(executor.start, "return await tools.double({n: 4})")
        run = executor.call_sync(run.resume, {run.approvals[0].id: Approve()})
        assert run.result.value == 8
        with pytest.raises(StateError, match=r"^this executor is open already$"), executor:
            pass
        assert executor.run_sync("return 5").value == 5
    assert threading.active_count() == before
    with pytest.raises(StateError, match=r"^open the executor first: `with Executor\(...\) as executor`$"):
        executor.call_sync(executor.start, "return 1")


def test_what_a_with_block_raises_comes_out_as_it_is() -> None:
    with pytest.raises(KeyError) as raised, Executor([double], limits=LIMITS):
        raise KeyError("mine")
    assert raised.value.args == ("mine",)
