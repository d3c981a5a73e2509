"""How often a server is called: turns in virtual time, and the setting from code and file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from trio.testing import MockClock

from bridge import config, mcp
from bridge.errors import ConfigurationError
from bridge.mcp.rate import Rate, rate_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}  # time passes where nothing else happens


async def test_no_more_calls_begin_in_any_stretch_than_allowed_and_they_keep_their_order() -> None:
    rate, began = Rate(3, 10.0), list[tuple[int, float]]()
    start = anyio.current_time()

    async def call(number: int) -> None:
        await rate.turn(lambda: None)
        began.append((number, round(anyio.current_time() - start, 3)))

    async with anyio.create_task_group() as tasks:
        for number in range(7):
            tasks.start_soon(call, number)
            await anyio.lowlevel.checkpoint()
    assert [at for _, at in began] == [0, 0, 0, 10, 10, 10, 20]
    await anyio.sleep(5)  # at 25: of the last three calls two began at 10
    await call(7)
    await call(8)
    await call(9)
    assert began[-3:] == [(7, 25), (8, 25), (9, 30)]


async def test_a_call_that_waits_says_so_and_one_that_is_given_up_takes_no_turn() -> None:
    rate, told = Rate(1, 2.0), list[float]()
    await rate.turn(lambda: None)
    start = anyio.current_time()
    with anyio.move_on_after(1.1) as scope:
        await rate.turn(lambda: told.append(round(anyio.current_time() - start, 3)))
    assert (scope.cancelled_caught, told) == (True, [0.5, 1.0])
    await rate.turn(lambda: None)
    assert round(anyio.current_time() - start, 3) == 2.0


async def test_a_call_that_is_given_up_before_another_waits_leaves_that_one_its_turn() -> None:
    rate = Rate(1, 2.0)
    await rate.turn(lambda: None)
    start = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        with anyio.move_on_after(1):
            async with anyio.create_task_group() as given_up:
                given_up.start_soon(rate.turn, lambda: None)
                await anyio.lowlevel.checkpoint()
                tasks.start_soon(rate.turn, lambda: None)
    assert round(anyio.current_time() - start, 3) == 4.0


@pytest.mark.parametrize(("text", "turns"), [("5/s", (5, 1.0)), ("100/m", (100, 60.0)), ("1000/h", (1000, 3600.0))])
def test_a_rate_is_calls_per_second_minute_or_hour(text: str, turns: tuple[int, float]) -> None:
    assert rate_of(text) == turns
    assert mcp.stdio("shop", "shop", rate=text).settings.rate == turns
    assert mcp.http("shop", "https://shop.example/mcp", rate=text).settings.rate == turns


@pytest.mark.parametrize("wrong", ["5", "0/s", "5/d", "-1/s", "1.5/s", "5 / s", ""])
def test_another_rate_is_refused_with_what_there_is(wrong: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        mcp.stdio("shop", "shop", rate=wrong)
    forms = "must be calls per second, minute or hour, such as '5/s', '100/m' or '1000/h'"
    assert str(refused.value) == f"server 'shop': rate {forms}, not {wrong!r}"


def test_a_configuration_file_sets_it(tmp_path: Path) -> None:
    file = tmp_path / "sandbridge.toml"
    file.write_text(f'[servers.shop]\ncommand = "{sys.executable}"\nrate = "2/s"\nmax_concurrent = 1\n')
    [server] = config.load(file).servers
    assert (server.settings.rate, server.settings.max_concurrent) == ((2, 1.0), 1)
    file.write_text('[servers.shop]\ncommand = "shop"\nrate = "fast"\n')
    with pytest.raises(
        ConfigurationError, match=r"sandbridge\.toml, line 1: servers\.shop: server 'shop': rate must be"
    ):
        config.load(file)
