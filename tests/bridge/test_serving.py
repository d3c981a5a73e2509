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
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from bridge import ConfigurationError, Executor
from bridge.gateway import Gateway, Tokens, http_app
from bridge.gateway.over_http import is_loopback
from tests.bridge.odd_servers import ROOT
from tests.bridge.test_mcp_servers import EVERYTHING, SERVERS

pytestmark = pytest.mark.anyio
SMALL = ROOT / "tests" / "servers" / "small.py"
REVISIONS = ["2025-11-25", "2026-07-28"]
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ANA, BEN = "a" * 32, "b" * 32


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=REVISIONS)
def revision(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def servers(tmp_path: Path) -> Path:
    """A host's file with one small server."""
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"small": {"command": sys.executable, "args": [str(SMALL)]}}}))
    return file


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "bridge.cli", "serve", *map(str, arguments)]


def mode(revision: str) -> str:
    return "legacy" if revision == "2025-11-25" else "auto"


@asynccontextmanager
async def over_stdio(
    revision: str, *arguments: str | Path, cwd: Path, errors: Path, **options: Any
) -> AsyncGenerator[Client]:
    program, *rest = command(*arguments)
    place = StdioServerParameters(
        command=program, args=rest, cwd=cwd, env={"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(cwd / "state")}
    )
    with anyio.fail_after(60), errors.open("w") as log:
        async with Client(stdio_client(place, errlog=log), mode=mode(revision), **options) as client:
            assert client.protocol_version == revision
            yield client


@contextmanager
def served(*arguments: str | Path, cwd: Path) -> Generator[tuple[str, subprocess.Popen[str]]]:
    """The command with `--http`, once it says where it is; its address and its process."""
    process = subprocess.Popen(
        command("--http", "127.0.0.1:0", *arguments),
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"serving (http://\S+)", line):
                yield found[1], process
                break
        else:
            raise AssertionError("it ended without serving")
    finally:
        process.kill()
        process.communicate(timeout=20)


@asynccontextmanager
async def over_http(url: str, revision: str, token: str | None = None, **options: Any) -> AsyncGenerator[Client]:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    with anyio.fail_after(60):
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode(revision), **options) as client,
        ):
            assert client.protocol_version == revision
            yield client


async def run(client: Client, program: str) -> Mapping[str, Any]:
    result = await client.call_tool("run_program", {"program": program})
    assert isinstance(result.structured_content, dict)
    return result.structured_content


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
    process = subprocess.Popen(
        command("--mcp", servers),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
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


# ---- real servers behind ----------------------------------------------------------------------------------------

real = [
    pytest.mark.servers,
    pytest.mark.skipif(not SERVERS.is_dir(), reason=".servers is not there: run .ci/servers first"),
]


@pytest.fixture
def real_servers(tmp_path: Path) -> Path:
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.txt").write_text("hello")
    node = SERVERS / "npm" / "node_modules" / "@modelcontextprotocol"
    spec = {
        "everything": {"command": "node", "args": [str(EVERYTHING), "stdio"]},
        "files": {"command": "node", "args": [str(node / "server-filesystem" / "dist" / "index.js"), str(files)]},
        "time": {"command": str(SERVERS / "python" / "bin" / "mcp-server-time")},
        "gone": {"command": "no-such-command"},
    }
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": spec}))
    return file


@pytest.mark.parametrize(("transport", "revision"), [("stdio", "2026-07-28"), ("http", "2025-11-25")])
class TestRealServers:
    pytestmark = real

    @asynccontextmanager
    async def host(self, transport: str, revision: str, file: Path, tmp_path: Path) -> AsyncGenerator[Client]:
        arguments = ("--mcp", file, "--allow", "everything.*", "--allow", "files.*", "--allow", "time.*")
        if transport == "stdio":
            async with over_stdio(revision, *arguments, cwd=tmp_path, errors=tmp_path / "log") as client:
                yield client
        else:
            with served(*arguments, cwd=tmp_path) as (url, _):
                async with over_http(url, revision) as client:
                    yield client

    async def test_programs_call_them_find_them_and_read_their_resources_and_prompts(
        self, transport: str, revision: str, real_servers: Path, tmp_path: Path
    ) -> None:
        async with self.host(transport, revision, real_servers, tmp_path) as client:
            found = await client.call_tool("search_tools", {"query": "what time is it in Tokyo", "limit": 2})
            assert found.structured_content is not None
            assert {each["name"] for each in found.structured_content["tools"]} == {
                "time/get_current_time",
                "time/convert_time",
            }
            program = """
              const [sum, file, time] = await Promise.all([
                tools.everything.get_sum({ a: 2, b: 3 }),
                tools.files.read_text_file({ path: inputs.path }),
                tools.time.get_current_time({ timezone: "Asia/Tokyo" }),
              ]);
              const { images } = await tools.everything.get_tiny_image({});
              image(images[0]);
              return [sum, file.content, time.timezone];
            """
            inputs = {"path": str(tmp_path / "files" / "a.txt")}
            result = await client.call_tool("run_program", {"program": program, "inputs": inputs})
            assert result.structured_content is not None
            assert result.structured_content["value"] == ["The sum of 2 and 3 is 5.", "hello", "Asia/Tokyo"]
            picture = result.content[1]
            assert isinstance(picture, types.ResourceLink)
            (content,) = (await client.read_resource(picture.uri)).contents
            assert isinstance(content, types.BlobResourceContents)
            assert content.mime_type == "image/png"

            resources = (await client.list_resources()).resources
            assert resources[0].name == "everything/architecture.md"
            assert resources[0].uri == "sandbridge://everything/demo://resource/static/document/architecture.md"
            (read,) = (await client.read_resource(resources[0].uri)).contents
            assert read.uri == resources[0].uri
            templates = (await client.list_resource_templates()).resource_templates
            uri = templates[0].uri_template.replace("{resourceId}", "7")
            (made,) = (await client.read_resource(uri)).contents
            assert isinstance(made, types.TextResourceContents)
            assert made.text.startswith("Resource 7")
            with pytest.raises(MCPError) as caught:
                await client.read_resource("sandbridge://nobody/x")
            assert str(caught.value) == "there is no resource sandbridge://nobody/x"
            with pytest.raises(MCPError) as caught:
                await client.read_resource("sandbridge://everything/demo://resource/none")
            # Of a resource that is not there each revision has a code of its own, whatever the server behind speaks.
            assert caught.value.code == (-32002 if revision == "2025-11-25" else -32602)
            assert caught.value.data == {"uri": "sandbridge://everything/demo://resource/none"}

            prompts = (await client.list_prompts()).prompts
            assert "everything/args-prompt" in [prompt.name for prompt in prompts]
            prompt = await client.get_prompt("everything/args-prompt", {"city": "Graz", "state": "Styria"})
            assert isinstance(prompt.messages[0].content, types.TextContent)
            assert prompt.messages[0].content.text == "What's weather in Graz, Styria?"
            reference = types.PromptReference(name="everything/completable-prompt")
            completed = await client.complete(reference, {"name": "department", "value": "Eng"})
            assert completed.completion.values == ["Engineering"]
            template = types.ResourceTemplateReference(uri=templates[0].uri_template)
            completed = await client.complete(template, {"name": "resourceId", "value": "7"})
            assert completed.completion.values == ["7"]
            with pytest.raises(MCPError):
                await client.get_prompt("everything/no-such-prompt")
            with pytest.raises(MCPError) as caught:
                await client.get_prompt("nobody/x")
            assert str(caught.value) == "there is no prompt nobody/x"


async def test_a_server_that_is_down_takes_nothing_from_the_others(tmp_path: Path) -> None:
    from bridge import mcp
    from bridge.gateway.upstream import Upstreams

    async with Executor([mcp.stdio("gone", "no-such-command")]) as executor:
        behind = Upstreams(executor.servers)
        assert await behind.resources() == []
        assert await behind.prompts() == []
        with pytest.raises(MCPError) as caught:
            await behind.read("sandbridge://gone/x")
    assert str(caught.value) == "server 'gone' could not be started; its operator can see why."
