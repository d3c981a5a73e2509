"""People beside `sandbridge serve`: who decides with a key, who ends it by a signal, who has a share of sessions."""

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
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from bridge.deciding import PASSPHRASE
from bridge.gateway import Gateway, Tokens, http_app
from tests.bridge.hosts import mode
from tests.bridge.hosts import outcome as run
from tests.bridge.odd_servers import ROOT
from tests.bridge.serving import ANA, BEN, HEADERS, SMALL, over_http, over_stdio, served

pytestmark = pytest.mark.anyio
KEY = "correct horse battery"
REVISIONS = ["2025-11-25", "2026-07-28"]
DROP = "return await tools.small.drop({ name: inputs ?? 'x' })"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's own directory for state, and a configuration with one small server."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("SANDBRIDGE_STORE", raising=False)
    (tmp_path / "sandbridge.toml").write_text(
        f'[servers.small]\ncommand = "{sys.executable}"\nargs = ["{SMALL}"]\n', "utf-8"
    )
    return tmp_path


def command(home: Path, *words: str, passphrase: str | None = None) -> subprocess.CompletedProcess[str]:
    """A command as a person, or a model with a shell, types it; nobody sits at a terminal."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **({} if passphrase is None else {PASSPHRASE: passphrase})}
    words = (sys.executable, "-m", "bridge.cli", *words)
    return subprocess.run(words, cwd=home, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def text(result: types.CallToolResult) -> str:
    assert isinstance(result.content[0], types.TextContent)
    return result.content[0].text


async def test_a_person_with_the_key_decides_beside_the_host_and_the_run_outlives_the_gateway(home: Path) -> None:
    made = command(home, "approver-key", passphrase=KEY)
    assert (made.returncode, made.stdout[:12]) == (0, "sbapprover1.")
    kept = home / "state" / "sandbridge" / "approver"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert KEY not in kept.read_text()
    async with over_stdio("2026-07-28", cwd=home, errors=home / "log") as client:
        result = await client.call_tool("run_program", {"program": DROP})
        assert result.structured_content is not None
        name = result.structured_content["run_id"]
        last = text(result).splitlines()[-1]
        assert last == f"They see it by `sandbridge show {name}` and decide by `sandbridge approve {name} CALL`."
    assert "Sandbox" not in (home / "log").read_text()

    shown = command(home, "show", name)
    assert "small/drop" in shown.stdout
    refused = command(home, "approve", name, "1")
    assert (refused.returncode, refused.stderr) == (
        2,
        (
            "sandbridge: the approver's passphrase is asked for at a terminal, and there is none: use one that no "
            "model reaches, or set SANDBRIDGE_APPROVER_KEY there\n"
        ),
    )
    wrong = command(home, "approve", name, "1", passphrase="correct horse batterX")
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "sandbridge: that is not the passphrase of the approver key: nothing was decided\n",
    )
    taken = command(home, "resume", name)  # in a process of its own, where a model could allow everything
    assert (taken.returncode, taken.stdout) == (2, "")
    done = command(home, "approve", name, "1", passphrase=KEY)
    assert (done.returncode, done.stderr) == (
        0,
        f"{name}.1 (small/drop): approve\nto go on: tell the host's model to resume run {name} (resume_program)\n",
    )
    async with over_stdio("2025-11-25", cwd=home, errors=home / "log") as client:
        result = await client.call_tool("resume_program", {"run_id": name})
    assert result.structured_content is not None
    assert result.structured_content["value"] == {"result": "dropped x"}


async def test_without_a_key_a_pause_says_what_to_make_and_no_verdict_from_outside_counts(home: Path) -> None:
    store = str(home / "elsewhere.db")
    async with over_stdio("2026-07-28", "--store", store, cwd=home, errors=home / "log") as client:
        result = await client.call_tool("run_program", {"program": DROP})
        assert result.structured_content is not None
        name = result.structured_content["run_id"]
        assert text(result).splitlines()[-1] == (
            "They can decide in the host only: nobody has made an approver key (sandbridge approver-key)."
        )
        refused = await anyio.to_thread.run_sync(lambda: command(home, "approve", name, "1", "--store", store))
        assert refused.returncode == 2
        assert "was started without an approver key, and takes no verdict from elsewhere" in refused.stderr
        again = await client.call_tool("resume_program", {"run_id": name})
        assert again.structured_content is not None
        assert again.structured_content["status"] == "paused"
    assert "no approver key" in (home / "log").read_text()


def test_words_that_are_no_verifier_end_it_with_a_reason(home: Path) -> None:
    done = command(home, "serve", "--approver", KEY)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        (
            "sandbridge: an approver key is given as its verifier, the text that `sandbridge approver-key` prints "
            "(sbapprover1...)\n"
        ),
    )


# ---- HTTP -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("revision", "number"), [("2025-11-25", signal.SIGINT), ("2026-07-28", signal.SIGTERM)], ids=["int", "term"]
)
async def test_a_signal_ends_it_within_a_program_without_a_traceback(
    home: Path, revision: str, number: signal.Signals
) -> None:
    with served("--allow", "small.*", cwd=home) as (url, process):
        with anyio.fail_after(60):
            async with Client(streamable_http_client(url), mode=mode(revision)) as client:
                started = anyio.Event()

                async def progress(*told: Any) -> None:
                    started.set()

                async def works() -> None:
                    program = "await tools.small.add({ a: 1, b: 2 }); await sleep(60_000)"
                    with pytest.raises(Exception):  # noqa: B017, PT011  how a client says so is its own
                        await client.call_tool("run_program", {"program": program}, progress_callback=progress)

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(works)
                    await started.wait()
                    process.send_signal(number)
                    status = await anyio.to_thread.run_sync(process.wait, 20)
        assert status == 128 + number
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


async def open_session(http: httpx2.AsyncClient, url: str, token: str, scheme: str = "Bearer") -> httpx2.Response:
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
    return await http.post(url, json=asked, headers={**HEADERS, "authorization": f"{scheme} {token}"})


async def test_a_client_that_has_its_share_of_sessions_takes_none_of_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.gateway.clients.SESSIONS", 2)
    gateway = Gateway()
    app = http_app(gateway, tokens=Tokens([f"ana:{ANA}", f"ben:{BEN}"]))
    url = "http://127.0.0.1:1/mcp"
    async with app.router.lifespan_context(app), httpx2.AsyncClient(transport=httpx2.ASGITransport(app)) as http:
        first, second, third = [await open_session(http, url, ANA) for _ in range(3)]
        assert (first.status_code, second.status_code, third.status_code) == (200, 200, 429)
        assert third.json()["error"]["message"] == "2 sessions of yours are open: end one (DELETE), or let one be idle"
        assert (await open_session(http, url, ANA, "bEARER")).status_code == 429
        assert (await open_session(http, url, BEN)).status_code == 200
        assert (await open_session(http, url, "c" * 32)).status_code == 401
        own = {**HEADERS, "authorization": f"Bearer {ANA}", "mcp-session-id": first.headers["mcp-session-id"]}
        theirs = {**own, "authorization": f"Bearer {BEN}"}
        assert (await http.delete(url, headers=theirs)).status_code == 404
        assert (await open_session(http, url, ANA)).status_code == 429
        assert (await http.delete(url, headers=own)).status_code == 200
        assert (await open_session(http, url, ANA)).status_code == 200


async def test_what_one_host_was_told_of_tools_and_runs_reaches_no_other(home: Path) -> None:
    (home / "tokens").write_text(f"ana:{ANA}\nben:{BEN}\n")
    with served("--token-file", "tokens", "--budget", "0", cwd=home) as (url, _):
        async with over_http(url, "2025-11-25", ANA) as ana, over_http(url, "2025-11-25", BEN) as ben:
            before = (await ben.list_tools()).tools
            found = await ana.call_tool("search_tools", {"query": "drop"})
            paused = await run(ana, "return await tools.small.drop({ name: 'x' })")
            other = await ben.call_tool("search_tools", {"query": "drop"})
            assert other.structured_content == found.structured_content
            assert (await ben.list_tools()).tools == before
            assert [each.uri for each in (await ben.list_resources()).resources] == []
            refused = await ben.call_tool("resume_program", {"run_id": paused["run_id"]})
            missing = await ben.call_tool("resume_program", {"run_id": "0" * 16})
    assert text(refused) == text(missing).replace("0" * 16, paused["run_id"])


async def test_the_entry_of_the_readme_makes_a_host_ask_before_a_call_of_a_server(home: Path) -> None:
    block = re.search(r'^\{"mcpServers".*\}$', (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert block is not None
    ((name, entry),) = json.loads(block[0])["mcpServers"].items()
    assert (name, entry["command"]) == ("sandbridge", "sandbridge")
    servers = home / "servers.json"
    servers.write_text(json.dumps({"mcpServers": {"small": {"command": sys.executable, "args": [str(SMALL)]}}}))
    arguments = [str(servers) if argument == "/path/to/servers.json" else argument for argument in entry["args"]]
    assert str(servers) in arguments
    (home / "host").mkdir()
    place = StdioServerParameters(
        command=str(Path(sys.executable).with_name("sandbridge")),
        args=arguments,
        cwd=home / "host",
        env={"XDG_STATE_HOME": str(home / "state")},
    )
    read: list[str] = []

    async def person(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        read.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "approve"})

    with anyio.fail_after(60), (home / "log").open("w") as log:
        async with Client(stdio_client(place, errlog=log), elicitation_callback=person) as client:
            listed = [tool.name for tool in (await client.list_tools()).tools]
            done = await run(client, "return await tools.small.drop({ name: 'logs' })")
    assert listed == ["run_program", "search_tools", "resume_program"]
    assert done["value"] == {"result": "dropped logs"}
    assert "\n---\n".join(read) == (
        "Sandbridge: a program that the model wrote wants to make a call that needs your approval.\n"
        "\n"
        "call of small/drop\n"
        "server: small\n"
        "asked because: no rule matches; the default for tools of servers is ask\n"
        "arguments, in full (16 bytes):\n"
        "  {\n"
        '    "name": "logs"\n'
        "  }\n"
        "by the program's claim: line 1: return await tools.small.drop({ name: 'logs' })"
    )
