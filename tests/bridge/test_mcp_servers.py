"""Real servers, as `.ci/servers` installs them: each is listed and called, over stdio and Streamable HTTP."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from bridge import Elicitation, ElicitationAnswer, Executor, mcp
from tests.bridge.odd_servers import EVERYTHING, NODE, ROOT, SERVERS, all_gone, call, opened, refused, tool

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.servers,
    pytest.mark.skipif(not SERVERS.is_dir(), reason=".servers is not there: run .ci/servers first"),
]
EVERYTHING_TOOLS = [
    "echo",
    "get-annotated-message",
    "get-env",
    "get-resource-links",
    "get-resource-reference",
    "get-structured-content",
    "get-sum",
    "get-tiny-image",
    "gzip-file-as-resource",
    "toggle-simulated-logging",
    "toggle-subscriber-updates",
    "trigger-long-running-operation",
]


def everything() -> mcp.Server:
    return mcp.stdio("everything", "node", [str(EVERYTHING), "stdio"])


async def _everything_works(server: mcp.Server) -> None:
    assert [each.name for each in server.tools] == EVERYTHING_TOOLS
    assert server.warnings == [
        "tool 'simulate-research-query' was left out: it can only be called as a task, which is not supported"
    ]
    assert await call(server, "get-sum", {"a": 2, "b": 3}) == "The sum of 2 and 3 is 5."
    weather = await call(server, "get-structured-content", {"location": "New York"})
    assert weather == {"temperature": 33, "conditions": "Cloudy", "humidity": 82}
    picture = await call(server, "get-tiny-image")
    assert picture["text"] == "Here's the image you requested:\nThe image above is the MCP logo."
    (image,) = picture["images"]
    assert (image["type"], image["mime_type"], image["bytes"]) == ("image", "image/png", 4033)
    assert server.blobs[image["handle"]].data.startswith(b"\x89PNG")
    links = await call(server, "get-resource-links", {"count": 2})
    assert [link["type"] for link in links["resources"]] == ["link", "link"]
    seen: list[tuple[float, float | None, str | None]] = []
    done = await call(
        server,
        "trigger-long-running-operation",
        {"duration": 0.2, "steps": 2},
        progress=lambda *told: seen.append(told),
    )
    assert done == "Long running operation completed. Duration: 0.2 seconds, Steps: 2."
    assert seen == [(1.0, 2.0, None), (2.0, 2.0, None)]


async def test_everything_over_stdio() -> None:
    server = everything()
    async with opened(server):
        await _everything_works(server)


@pytest.fixture
def everything_url() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PORT": str(port)}
    command = ["node", str(EVERYTHING), "streamableHttp"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if b"listening on port" in line:
                break
        yield f"http://127.0.0.1:{port}/mcp"
        process.kill()


async def test_everything_asks_a_person_in_the_middle_of_its_call() -> None:
    heard: list[Elicitation] = []

    async def elicit(question: Elicitation) -> ElicitationAnswer:
        heard.append(question)
        return ElicitationAnswer.accept({"name": "Ada", "check": True, "untitledMultipleSelectEnum": ["Drums"]})

    server = mcp.stdio("everything", "node", [str(EVERYTHING), "stdio"], require_approval="never")
    async with Executor([server], elicit=elicit) as executor:
        result = await executor.run('return await tools.everything["trigger-elicitation-request"]({})')
    assert result.error is None
    assert result.value["text"].startswith(
        "✅ User provided the requested information!\nUser inputs:\n- Name: Ada\n- Agreed to terms: true\n"
    )
    assert server.revision == "2025-11-25"
    assert [(each.server, each.tool, each.call_id) for each in heard] == [
        ("everything", "everything/trigger-elicitation-request", f"{result.run_id}.1")
    ]


# The SDK leaves a stream of events at the answer, and trio warns of generators that are left open.
@pytest.mark.filterwarnings("ignore:Async generator .* was garbage collected:ResourceWarning")
async def test_everything_over_streamable_http(everything_url: str) -> None:
    server = mcp.http("everything", everything_url)
    async with opened(server):
        await _everything_works(server)


async def test_filesystem(tmp_path: Path) -> None:
    server = mcp.stdio(
        "fs", "node", [str(NODE / "server-filesystem" / "dist" / "index.js"), str(tmp_path)], trusted=True
    )
    async with opened(server):
        assert len(server.tools) == 14
        assert all(each.output_schema is not None for each in server.tools)
        assert tool(server, "read_text_file").annotations.read_only
        file = str(tmp_path / "a.txt")
        written = await call(server, "write_file", {"path": file, "content": "Grüße 😀"})
        assert written == {"content": f"Successfully wrote to {file}"}
        assert await call(server, "read_text_file", {"path": file}) == {"content": "Grüße 😀"}
        error = await refused(server, "read_text_file", {"path": "/etc/passwd"})
        assert error.code == "failed"
        assert error.message == f"Access denied - path outside allowed directories: /etc/passwd not in {tmp_path}"


async def test_memory_whose_content_differs_from_its_structured_content(tmp_path: Path) -> None:
    script = str(NODE / "server-memory" / "dist" / "index.js")
    server = mcp.stdio("memory", "node", [script], env={"MEMORY_FILE_PATH": str(tmp_path / "memory.json")})
    entity = {"name": "a", "entityType": "thing", "observations": ["seen"]}
    async with opened(server):
        assert len(server.tools) == 9
        assert await call(server, "create_entities", {"entities": [entity]}) == {"entities": [entity]}
    async with opened(server):  # another process, the same state
        assert await call(server, "read_graph") == {"entities": [entity], "relations": []}


async def test_time_which_speaks_the_newest_revision() -> None:
    server = mcp.stdio("time", str(SERVERS / "python" / "bin" / "mcp-server-time"))
    async with opened(server):
        assert server.revision == "2026-07-28"
        assert [each.name for each in server.tools] == ["convert_time", "get_current_time"]
        there = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        assert (await call(server, "convert_time", there))["time_difference"] == "+9.0h"
        error = await refused(server, "get_current_time", {"timezone": "Nowhere"})
        assert error.code == "failed"
        assert error.message == (
            "Error executing tool get_current_time: Invalid timezone: 'No time zone found with key Nowhere'"
        )


async def test_git_whose_answers_are_plain_text(tmp_path: Path) -> None:
    await anyio.run_process(["git", "init", "-q", "-b", "main", str(tmp_path)])
    server = mcp.stdio("git", str(SERVERS / "python" / "bin" / "mcp-server-git"), ["--repository", str(tmp_path)])
    async with opened(server):
        assert len(server.tools) == 12
        assert all(each.output_schema is None for each in server.tools)
        status = await call(server, "git_status", {"repo_path": str(tmp_path)})
        expected = "Repository status:\nOn branch main\n\nNo commits yet\n\nnothing to commit "
        assert status == expected + '(create/copy files and use "git add" to track)'
        error = await refused(server, "git_status", {"repo_path": "/"})
        assert error.code == "failed"


HOST = """
import anyio, os, sys
from tests.bridge.odd_servers import opened
from tests.bridge.test_mcp_servers import everything
async def main():
    server = everything()
    async with opened(server):
        guard = [pid for pid in os.listdir("/proc") if pid.isdecimal() and parent(pid) == os.getpid()]
        print(*(pid for pid in os.listdir("/proc") if pid.isdecimal() and str(parent(pid)) in guard), flush=True)
        await anyio.sleep_forever()
def parent(pid):
    try:
        return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    except OSError:
        return 0
anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open to watch processes that are not ours")
def test_everything_ends_when_its_host_is_killed(anyio_backend_name: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOST, anyio_backend_name], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as host:
        assert host.stdout is not None
        pids = [int(pid) for pid in host.stdout.readline().split()]
        watched = [os.pidfd_open(pid) for pid in pids]
        host.send_signal(signal.SIGKILL)
    assert len(pids) == 1  # node itself
    assert all_gone(watched)
