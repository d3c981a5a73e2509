"""A server that is down is listed as down, with its reason, wherever its tools would be listed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from bridge import ToolError, config, mcp
from bridge.declarations import DOWN_LENGTH, DOWN_NAMED, instructions, unavailable
from bridge.doctor import state
from bridge.offer import down
from bridge.search import Session
from bridge.tools import Catalog, Tool

GONE = {"carrier": "was not ready within 30 s (connect_s)"}
LINE = "The server carrier is down (its tools are missing or fail): was not ready within 30 s (connect_s)"


def catalog(why: Mapping[str, str] = GONE) -> Catalog:
    tools = [Tool(name="track", server="post", description="Tracks a parcel.")]
    return Catalog(tools, ["post", "carrier"], down=lambda: why)


def test_declarations_say_which_servers_are_down_and_why() -> None:
    assert f"- {LINE}\n" in instructions(catalog())
    assert "is down" not in instructions(catalog({}))


def test_a_search_says_so_whatever_it_finds() -> None:
    session = Session(catalog())
    for query, server in (("track", None), ("nonsense", None), ("", None), ("", "post"), ("track", "carrier")):
        assert session.search(query, server=server).text.endswith(f"{LINE}.\n")
    assert session.search("track", server="carrier").text.startswith("No tool of carrier matches. By server: post 1.\n")
    with pytest.raises(ToolError, match="there is no server"):
        session.search("track", server="nobody")


def test_what_is_said_of_servers_that_are_down_is_visible_and_bounded() -> None:
    hostile = unavailable({"a\u202eb": "x\x1b[2J\u200b\n" + "y" * 1_000})
    assert hostile == [f"The server ab is down (its tools are missing or fail): x[2J {'y' * (DOWN_LENGTH - 6)}…"]
    many = unavailable({f"s{n}": "gone" for n in range(DOWN_NAMED + 3)})
    assert (len(many), many[-1]) == (DOWN_NAMED + 1, "3 more servers are down")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_a_server_that_ends_before_it_is_ready_is_down_everywhere_with_its_last_words(tmp_path: Path) -> None:
    program = "import sys; sys.exit('no key in /etc/shop/secret.conf')"
    file = tmp_path / "sandbridge.toml"
    file.write_text(f'[servers.shop]\ncommand = "{sys.executable}"\nargs = ["-c", {json.dumps(program)}]\n')
    settings = config.load(file)
    async with settings.catalog() as found:
        why = "ended before it was ready (exit code 1): no key in …/secret.conf"
        assert dict(found.down()) == {"shop": why}
        assert f"- The server shop is down (its tools are missing or fail): {why}\n" in instructions(found)
        [server] = settings.servers
        report = state(server, {})
        assert (report["up"], "/etc/shop/secret.conf" in report["reason"]) == (False, True)  # an operator sees all
        assert any("/etc/shop/secret.conf" in line for line in config.remarks(found, settings))


def test_a_server_that_nobody_opened_is_not_called_down() -> None:
    assert down([mcp.stdio("shop", "shop")]) == {}
