"""What a program may name of earlier runs: calls of its own host, which are not made again; nothing of another's."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pytest

from bridge import Executor
from bridge.gateway import Gateway, runs
from sandbox import Sandbox
from tests.bridge.hosts import data, host, run, text
from tests.bridge.odd_servers import odd

pytestmark = pytest.mark.anyio
TWICE = "await tools.count({}); throw new Error('too far')"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def made() -> list[int]:
    """The calls that were made."""
    return []


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Whose the next request is."""
    whose: list[Any] = [("ana",)]
    monkeypatch.setattr(runs, "owner_of", lambda: whose[0])
    return whose


async def test_a_corrected_program_takes_over_the_calls_of_the_one_that_failed_as_its_result_says(
    opened: Sandbox, revision: str, made: list[int]
) -> None:
    def count() -> int:
        made.append(1)
        return len(made)

    async with Executor([count], sandbox=opened) as executor, host(Gateway(executor), revision) as client:
        failed = await run(client, TWICE)
        run_id = data(failed)["run_id"]
        assert f'a corrected program run with reuse "{run_id}" gets the same replies' in text(failed)
        corrected = await run(client, "return [await tools.count({}), await tools.count({})]", reuse=run_id)
    assert data(corrected)["value"] == [1, 2]
    assert len(made) == 2


async def test_no_program_takes_over_the_calls_of_another_hosts_run(
    opened: Sandbox, revision: str, made: list[int], owner: list[Any]
) -> None:
    def count() -> int:
        made.append(1)
        return len(made)

    async with Executor([count], sandbox=opened) as executor, host(Gateway(executor), revision) as client:
        run_id = data(await run(client, TWICE))["run_id"]
        owner[0] = ("ben",)
        refused = await run(client, "return await tools.count({})", reuse=run_id)
        missing = await run(client, "return 1", reuse="0" * 16)
    assert text(refused) == f"there is no run '{run_id}' of yours that has ended: leave out `reuse`"
    assert text(missing) == text(refused).replace(run_id, "0" * 16)
    assert len(made) == 1


async def test_a_program_that_claims_the_picture_of_another_host_is_given_none(
    opened: Sandbox, revision: str, owner: list[Any]
) -> None:
    async with (
        Executor([odd("picture", require_approval="never")], sandbox=opened) as executor,
        host(Gateway(executor), revision) as client,
    ):
        program = "const { images } = await tools.odd.picture({}); image(images[0]); return images[0].handle"
        given = await run(client, program)
        assert isinstance(given.content[1], types.ResourceLink)
        claim = f"image({{ type: 'image', mime_type: 'image/png', handle: '{data(given)['value']}' }})"
        owner[0] = ("ben",)
        claimed = await run(client, claim)
        owner[0] = ("ana",)
        assert (await client.read_resource(given.content[1].uri)).contents
        again = await run(client, claim)
    assert [block.type for block in claimed.content] == ["text"]
    assert [block.type for block in again.content] == ["text", "resource_link"]
