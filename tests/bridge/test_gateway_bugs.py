"""What hurt users of other MCP servers, here: messages that are none, hosts that die, results against their schema."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import jsonschema
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from bridge import Executor, Policy, ask, tool
from bridge.gateway import Gateway, clients, offer
from bridge.journal import Sent, decode
from bridge.store import Store
from sandbox import Limits, Sandbox
from tests.bridge.odd_servers import ROOT
from tests.bridge.serving import SMALL

pytestmark = pytest.mark.anyio
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@contextmanager
def serving(home: Path, *arguments: str) -> Generator[subprocess.Popen[str]]:
    """The command as a host starts it, in a session of its own, so that what it leaves behind can be found."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bridge.cli", "serve", *arguments],
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(home)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(20)
        for stream in (process.stdin, process.stdout, process.stderr):
            with suppress(BrokenPipeError):
                stream.close()


def send(process: subprocess.Popen[str], message: Any) -> None:
    assert process.stdin is not None
    process.stdin.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
    process.stdin.flush()


def receive(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def request(asked: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": asked, "method": method, **({"params": params} if params else {})}


def test_every_message_gets_the_answer_that_the_protocol_wants_and_ids_keep_their_kind(tmp_path: Path) -> None:
    with serving(tmp_path) as process:
        send(process, INITIALIZE)
        assert receive(process)["id"] == 0
        send(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        for message, answer in [
            (request(1, "ping"), (1, None)),
            (request("1", "ping"), ("1", None)),
            (request(0, "ping"), (0, None)),
            (request(2, "no/such"), (2, -32601)),
            ("{broken", (None, -32700)),
            ([request(3, "ping")], (None, -32600)),
            ("[]", (None, -32600)),
            ("7", (None, -32600)),
            ({"jsonrpc": "2.0", "id": "x"}, ("x", -32600)),
            ({"jsonrpc": "2.0", "id": True, "method": 7}, (None, -32600)),
            ('{"jsonrpc":"2.0","id":4,"method":"ping","params":{"_meta":{"x":"\\ud800"}}}', (4, -32600)),
        ]:
            send(process, {"jsonrpc": "2.0", "method": "notifications/nonsense"})  # is answered by nothing
            send(process, {"jsonrpc": "2.0", "id": 77, "result": 7})  # neither is an answer to no question
            send(process, message)
            answered = receive(process)
            assert (answered["id"], answered.get("error", {}).get("code")) == answer
            assert type(answered["id"]) is type(answer[0])


def test_a_message_that_is_too_long_is_answered_too_as_far_as_it_shows_who_asked(tmp_path: Path) -> None:
    long = {"x": "y" * (9 << 20)}
    newer = {"method": "ping", "params": {"id": 5, **long}, "jsonrpc": "2.0", "id": "seven"}  # as TypeScript writes it
    with serving(tmp_path) as process:
        for message, asked in [
            (request(6, "ping", **long), 6),
            (newer, "seven"),
            ({"method": "ping", "params": {**long, "id": 5}}, None),
            ({**long, "id": 5}, None),
        ]:
            for answer in ({"jsonrpc": "2.0", "id": 77, "result": long}, {"result": long, "jsonrpc": "2.0", "id": 77}):
                send(process, answer)  # is answered by nothing
            send(process, message)
            answered = receive(process)
            assert (answered["id"], answered["error"]["message"]) == (
                asked,
                "the message has more than 8,388,608 bytes and was left out: send less",
            )
        send(process, INITIALIZE)
        assert receive(process)["id"] == 0


def descendants(pid: int) -> list[int]:
    """Children of a process and theirs, in whatever session; as descriptors that become readable when they end."""
    children = [
        int(child) for tasks in Path(f"/proc/{pid}/task").glob("*/children") for child in tasks.read_text().split()
    ]
    return [each for child in children for each in (os.pidfd_open(child), *descendants(child))]


def are_gone(descriptors: list[int]) -> bool:
    """Whether all of them end, within half a minute each."""
    try:
        return all(select.select([descriptor], [], [], 30)[0] for descriptor in descriptors)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for descendants")
@pytest.mark.parametrize("way", ["stdin", "both", "kill"])
def test_a_host_that_dies_in_the_middle_of_a_program_leaves_nothing_running(tmp_path: Path, way: str) -> None:
    (tmp_path / "sandbridge.toml").write_text(
        f'[servers.small]\ncommand = "{sys.executable}"\nargs = ["{SMALL}"]\nrequire_approval = "never"\n'
    )
    store = tmp_path / "kept.db"
    with serving(tmp_path, "--store", str(store)) as process:
        send(process, INITIALIZE)
        receive(process)
        send(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        program = "await tools.small.add({ a: 1, b: 2 }); await sleep(60_000)"
        arguments = {"program": program}
        send(process, request(1, "tools/call", name="run_program", arguments=arguments, _meta={"progressToken": 1}))
        while receive(process)["params"]["progress"] != 1:  # the call has been made, and came back
            pass
        behind = descendants(process.pid)
        assert len(behind) >= 3  # the server, the zygote, a worker
        if way == "kill":
            process.send_signal(signal.SIGKILL)
        else:
            assert process.stdin is not None
            assert process.stdout is not None
            if way == "both":
                process.stdout.close()
            process.stdin.close()
        assert process.wait(30) == (-signal.SIGKILL if way == "kill" else 0)
        assert process.stderr is not None
        assert are_gone(behind)
        assert "Traceback" not in process.stderr.read()
    with Store(f"sqlite:///{store}") as kept:
        (row,) = kept.runs()
        records = decode(kept.read(row.id))
    assert row.status == ("running" if way == "kill" else "cancelled")
    assert [type(record) for record in records].count(Sent) == 1


PROGRAMS = {
    "completed": "return 1",
    "nothing": "",
    "text": "text('a'); return 'b'.repeat(100_000)",
    "threw": "\nthrow new Error('no')",
    "syntax": "return (",
    "exceeded": "while (true) {}",
    "stalled": "await new Promise(() => {})",
    "paused": "await tools.pay({ amount: 1 })",
    "tool error": "await tools.fails({})",
    "unawaited": "tools.fails({}); return 1",
    "odd": "return { a: 1n, b: NaN, c: '\\ud800', d: [undefined] }",
}


@tool
def pay(amount: float) -> float:
    """Pay."""
    return amount


@tool
def fails() -> float:
    """Fail."""
    raise ValueError("secret")


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
async def test_every_outcome_is_what_the_output_schema_says(opened: Sandbox, program: str) -> None:
    policy, limits = Policy([ask("pay")]), Limits(cpu_s=1)
    async with (
        Executor([pay, fails], policy=policy, limits=limits, sandbox=opened) as executor,
        Client(Gateway(executor).server) as client,
    ):
        result = await client.call_tool("run_program", {"program": program})
    jsonschema.validate(result.structured_content, offer.OUTCOME_SCHEMA)
    assert result.is_error is (result.structured_content["status"] not in ("completed", "paused"))


@pytest.mark.filterwarnings("ignore:ping is removed as of 2026-07-28")
async def test_a_synchronous_function_holds_up_no_other_request(opened: Sandbox) -> None:
    entered, release = threading.Event(), threading.Event()

    @tool
    def block() -> bool:
        """Wait in a thread."""
        entered.set()
        return release.wait(30)

    async with (
        Executor([block], sandbox=opened) as executor,
        Client(Gateway(executor).server, mode="legacy") as client,
        anyio.create_task_group() as tasks,
    ):
        done: list[types.CallToolResult] = []

        async def works() -> None:
            done.append(await client.call_tool("run_program", {"program": "return await tools.block({})"}))

        tasks.start_soon(works)
        await anyio.to_thread.run_sync(entered.wait)
        await client.send_ping()
        assert (await client.call_tool("search_tools", {"query": "wait"})).is_error is False
        assert done == []
        release.set()
        while not done:
            await anyio.lowlevel.checkpoint()
    assert done[0].structured_content is not None
    assert done[0].structured_content["value"] is True


async def test_one_client_cannot_have_all_subscriptions(opened: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "LISTENING", 1)
    async with Executor([], sandbox=opened) as executor, Client(Gateway(executor).server) as client:
        async with client.listen(tools_list_changed=True):
            with pytest.raises(MCPError) as caught:
                async with client.listen(tools_list_changed=True):
                    pass
        assert str(caught.value) == "1 subscriptions of yours are open: end one of them"
