"""`sandbridge serve` as hosts start it: over stdio, and over Streamable HTTP that only those reach who should.

The command is a process with a loop of its own; hosts here run on asyncio (the SDK's HTTP client leaves generators to
trio's garbage collector). What the gateway does on both loops is in `test_gateway.py`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from bridge import ConfigurationError
from bridge.gateway import Gateway, Tokens, http_app
from bridge.gateway.over_http import is_loopback
from tests.bridge.hosts import outcome as run
from tests.bridge.odd_servers import ROOT
from tests.bridge.serving import ANA, BEN, HEADERS, SMALL, command, over_http, over_stdio, served, started

pytestmark = pytest.mark.anyio
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def servers(tmp_path: Path) -> Path:
    """A host's file with one small server."""
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"small": {"command": sys.executable, "args": [str(SMALL)]}}}))
    return file


async def approves(context: Any, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"decision": "approve"})


# ---- stdio ------------------------------------------------------------------------------------------------------


async def test_a_host_over_stdio_runs_programs_on_a_server_behind(tmp_path: Path, servers: Path, revision: str) -> None:
    arguments = ("--mcp", servers, "--allow", "small.add")
    options = {"elicitation_callback": approves}
    async with over_stdio(revision, *arguments, cwd=tmp_path, errors=tmp_path / "log", **options) as client:
        (first, *_) = (await client.list_tools()).tools
        assert "add(args: { a: number; b: number }): Promise" in (first.description or "")
        assert (await run(client, "return await tools.small.add({ a: 2, b: 3 })"))["value"] == {"result": 5}
        asked = await run(client, "return await tools.small.drop({ name: 'x' })")
        assert asked["value"] == {"result": "dropped x"}
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_standard_output_has_nothing_but_messages(tmp_path: Path, servers: Path) -> None:
    asked = [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        },
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    process = started("--mcp", servers, cwd=tmp_path, stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("x" * (9 << 20) + "\n")  # no message, and too long for one
    process.stdin.write("".join(json.dumps(each) + "\n" for each in asked))
    process.stdin.flush()
    lines = [json.loads(process.stdout.readline()) for _ in range(3)]
    rest, said = process.communicate(timeout=60)  # its input closes: the host has gone
    assert [line["id"] for line in lines] == [None, 1, 2]
    assert rest == ""
    assert "a message of more than 8388608 bytes was left out" in said
    assert process.returncode == 0


def test_a_configuration_that_cannot_be_used_ends_it_with_a_reason(tmp_path: Path) -> None:
    for arguments, said in [
        (("--http", "nowhere"), "sandbridge: --http nowhere: write HOST:PORT, such as 127.0.0.1:8808\n"),
        (("--token-file", "t"), "sandbridge: --token-file and --allow-host are for --http\n"),
        (
            ("--http", "0.0.0.0:0"),
            "sandbridge: 0.0.0.0 can be reached by others: give a file of tokens, or bind to 127.0.0.1\n",
        ),
    ]:
        done = subprocess.run(
            command(*arguments),
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_a_required_server_that_does_not_start_ends_it_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "sandbridge.toml").write_text('[servers.gone]\ncommand = "no-such-command"\noptional = false\n')
    process = subprocess.Popen(
        command(),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.wait(60) == 2  # its input is still open: that is not why it ended
    told, said = process.communicate()
    assert told == ""
    assert "command 'no-such-command' was not found" in said
    assert "Traceback" not in said


def test_a_signal_ends_it_while_it_waits_for_its_host(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}) + "\n")
    process.stdin.flush()
    process.stdout.readline()  # it serves
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    process.communicate()


# ---- HTTP -------------------------------------------------------------------------------------------------------


async def test_a_host_over_http_runs_a_program_and_a_signal_ends_the_server(tmp_path: Path, servers: Path) -> None:
    with served("--mcp", servers, cwd=tmp_path) as (url, process):
        async with over_http(url, "2025-11-25", elicitation_callback=approves) as client:
            done = await run(client, "return await tools.small.drop({ name: 'y' })")
            assert done["value"] == {"result": "dropped y"}
        process.send_signal(signal.SIGTERM)
        assert await anyio.to_thread.run_sync(process.wait, 20) == 128 + signal.SIGTERM


async def test_web_pages_and_foreign_names_are_refused(tmp_path: Path) -> None:
    with served(cwd=tmp_path) as (url, _):
        async with httpx2.AsyncClient(headers=HEADERS, timeout=30) as http:
            assert (await http.post(url, json=PING, headers={"host": "evil.example"})).status_code == 421
            assert (await http.post(url, json=PING, headers={"origin": "https://evil.example"})).status_code == 403
            assert (await http.post(url, json=PING, headers={"origin": "null"})).status_code == 403
            local = url.removesuffix("/mcp")
            assert (await http.post(url, json=PING, headers={"origin": local})).status_code not in (401, 403, 421)


async def test_with_tokens_nobody_gets_in_without_one_and_none_sees_anothers_run(
    tmp_path: Path, servers: Path, revision: str
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"# who may\nana:{ANA}\n\nben:{BEN}\n")
    with served("--mcp", servers, "--token-file", tokens, cwd=tmp_path) as (url, _):
        async with httpx2.AsyncClient(headers=HEADERS, timeout=30) as http:
            assert (await http.post(url, json=PING)).status_code == 401
            wrong = {"authorization": f"Bearer {'c' * 32}"}
            assert (await http.post(url, json=PING, headers=wrong)).status_code == 401
        async with over_http(url, revision, ANA) as ana, over_http(url, revision, BEN) as ben:
            paused = await run(ana, "return await tools.small.drop({ name: 'x' })")
            large = await run(ana, "return 'x'.repeat(100_000)")
            assert paused["status"] == "paused"
            other = await ben.call_tool("resume_program", {"run_id": paused["run_id"]})
            assert other.is_error is True
            with pytest.raises(MCPError) as caught:
                await ben.read_resource(large["whole"])
            assert str(caught.value) == f"there is no result {large['run_id']!r} of yours"
            own = await ana.call_tool("resume_program", {"run_id": paused["run_id"]})
            assert own.structured_content is not None
            assert own.structured_content["status"] == "paused"
            (content,) = (await ana.read_resource(large["whole"])).contents
            assert isinstance(content, types.TextResourceContents)
            assert len(content.text) == 100_002


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["ana:short"], "token 1 must have 16 visible ASCII characters or more"),
        ([ANA, "ben:" + "b" * 15 + " "], "token 2 must have 16 visible ASCII characters or more"),
        ([f"ana:{ANA}", f"ana:{BEN}"], "two tokens are for the client 'ana': one each"),
    ],
)
def test_tokens_that_cannot_be_used_are_refused_and_not_repeated(lines: list[str], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Tokens(lines)
    assert str(caught.value) == said


async def test_each_token_is_a_client_of_its_own() -> None:
    tokens = Tokens([f"ana:{ANA}", BEN])
    ana, ben = await tokens.verify_token(ANA), await tokens.verify_token(BEN)
    assert ana is not None
    assert ben is not None
    assert ana.client_id == "ana"
    assert re.fullmatch("client-[0-9a-f]{12}", ben.client_id)
    assert await tokens.verify_token("ana") is None
    assert await tokens.verify_token("") is None


async def test_off_loopback_a_token_and_a_name_are_needed() -> None:
    gateway = Gateway()
    for options, said in [
        ({}, "0.0.0.0 can be reached by others: give a file of tokens, or bind to 127.0.0.1"),
        ({"tokens": Tokens([])}, "0.0.0.0 can be reached by others: give a file of tokens, or bind to 127.0.0.1"),
        (
            {"tokens": Tokens([ANA])},
            "0.0.0.0: say by which names it is reached (--allow-host), for the Host header",
        ),
    ]:
        with pytest.raises(ConfigurationError) as caught:
            http_app(gateway, host="0.0.0.0", **options)
        assert str(caught.value) == said
    assert http_app(gateway, host="0.0.0.0", tokens=Tokens([ANA]), allowed_hosts=["tools.example"]) is not None


@pytest.mark.parametrize(
    ("host", "local"),
    [
        *((host, True) for host in ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost")),
        *((host, False) for host in ("0.0.0.0", "::", "10.0.0.1", "localhost.evil.example", "")),
    ],
)
def test_only_loopback_is_open_without_a_token(host: str, local: bool) -> None:
    assert is_loopback(host) is local
