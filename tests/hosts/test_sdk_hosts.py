"""`sandbridge serve` towards hosts on the official SDKs: TypeScript's older and newer line, and Python's older one.

Hosts on the newer line of the Python SDK, in both revisions of the protocol, are in `tests/bridge/test_serving.py`.
"""

from __future__ import annotations

import base64
import json
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.bridge.odd_servers import EVERYTHING, ROOT, SERVERS
from tests.bridge.serving import command, served

HOSTS = SERVERS / "hosts"
PYTHON = SERVERS / "python-old" / "bin" / "python"
pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(not (HOSTS.is_dir() and PYTHON.exists()), reason=".servers is not there: run .ci/servers first"),
]
FUNCTIONS = """
import anyio
from pathlib import Path

async def slow() -> str:
    \"""Takes until it is cancelled.\"""
    Path("started").touch()
    try:
        await anyio.sleep_forever()
    finally:
        Path("cancelled").touch()
"""
PROGRAM = """
const sums = [];
for (const b of [1, 2, 3]) sums.push(await tools.everything.get_sum({ a: 1, b }));
image((await tools.everything.get_tiny_image({})).images[0]);
return { sums };
"""
ASKS = 'return await tools.everything.echo({ message: "hello" })'
KINDS = [(package, transport) for package in ("sdk", "client", "python") for transport in ("stdio", "http")]


@pytest.fixture(scope="module", params=KINDS, ids=" over ".join)
def kind(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Which SDK, over which transport."""
    return request.param


@pytest.fixture(scope="module")
def got(kind: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a host got of the gateway in front of the everything server."""
    folder = tmp_path_factory.mktemp("host")
    (folder / "tools.py").write_text(FUNCTIONS)
    (folder / "sandbridge.toml").write_text('functions = ["tools.py:slow"]\n')
    spec = {"everything": {"command": "node", "args": [str(EVERYTHING), "stdio"]}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": spec}))
    arguments = ("--mcp", folder / "mcp.json", "--allow", "everything.get-*", "--ask", "everything.echo")
    package, transport = kind
    given: dict[str, Any] = {
        "modules": str(HOSTS / "node_modules"),
        "package": package,
        "url": None,
        "command": command(*arguments),
        "cwd": str(folder),
        "env": {"PYTHONPATH": str(ROOT), "HOME": str(folder)},
        "decision": "approve",
        "program": PROGRAM,
        "asks": ASKS,
    }
    with ExitStack() as stack:
        if transport == "http":
            given["url"], _ = stack.enter_context(served(*arguments, cwd=folder))
        here = Path(__file__)
        script = (
            [str(PYTHON), str(here.with_name("host.py"))]
            if package == "python"
            else ["node", str(here.with_name("host.mjs"))]
        )
        done = subprocess.run([*script, json.dumps(given)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_connects_in_the_newest_revision_that_it_knows(got: dict[str, Any], kind: tuple[str, str]) -> None:
    newest = {"sdk": "2025-11-25", "client": "2026-07-28", "python": "2025-11-25"}[kind[0]]
    assert got["revision"] in (newest, None)  # TypeScript's older line keeps it to itself over stdio
    assert got["server"] == "sandbridge"
    assert got["instructions"].startswith("Sandbridge runs JavaScript programs that call tools.")


def test_it_lists_three_tools_with_the_schemas_that_it_checks_results_by(got: dict[str, Any]) -> None:
    assert [tool["name"] for tool in got["tools"]] == ["run_program", "search_tools", "resume_program"]
    assert all(tool["outputSchema"]["type"] == "object" for tool in got["tools"])


def test_it_runs_a_program_and_hears_how_far_it_is(got: dict[str, Any]) -> None:
    assert got["ran"]["structuredContent"]["value"] == {
        "sums": [f"The sum of 1 and {b} is {1 + b}." for b in (1, 2, 3)]
    }
    assert got["ran"]["isError"] is False
    told = [each["progress"] for each in got["progress"]]
    assert told
    assert told == sorted(set(told))


def test_it_reads_the_picture_that_a_program_showed(got: dict[str, Any]) -> None:
    assert got["picture"]["mimeType"] == "image/png"
    assert base64.b64decode(got["picture"]["blob"]).startswith(b"\x89PNG")


def test_it_finds_tools_by_what_is_wanted(got: dict[str, Any]) -> None:
    assert got["found"]["structuredContent"]["tools"][0]["name"] == "everything/get-tiny-image"


def test_its_model_reads_why_a_program_failed(got: dict[str, Any]) -> None:
    assert got["failed"]["isError"] is True
    assert got["failed"]["structuredContent"]["error"] == {"code": "threw", "message": "too far", "line": 1}
    assert got["wrong"]["isError"] is True
    assert got["wrong"]["content"][0]["text"].startswith("run_program: ")
    assert "there is no tool 'approve'" in got["unknown"]


def test_its_person_is_asked_and_the_program_goes_on(got: dict[str, Any]) -> None:
    (question,) = got["asked"]
    assert question.startswith(
        "Sandbridge: a program that the model wrote wants to make a call that needs your approval."
    )
    assert '"message": "hello"' in question
    assert got["approved"]["structuredContent"]["value"] == "Echo: hello"


def test_it_reads_resources_and_prompts_of_the_servers_behind(got: dict[str, Any]) -> None:
    assert got["resources"][0]["uri"].startswith("sandbridge://everything/demo://")
    assert got["read"]["uri"] == got["resources"][0]["uri"]
    assert got["read"]["text"]
    assert got["templates"][0]["uriTemplate"].startswith("sandbridge://everything/")
    assert "there is no resource sandbridge://nobody/x" in got["missing"]
    assert "everything/args-prompt" in [prompt["name"] for prompt in got["prompts"]]
    assert got["prompt"]["messages"][0]["content"]["text"] == "What's weather in Graz?"
    assert got["completed"] == ["Engineering"]


def test_a_request_that_it_gives_up_ends_the_call_behind(got: dict[str, Any]) -> None:
    assert "enough" in got["cancelled"]  # the host ends only once the function was cancelled
