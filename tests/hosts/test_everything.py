"""The everything server behind the gateway: a program calls every one of its tools, and no tool is left out."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from bridge import Executor, Policy, allow, mcp
from bridge.gateway import Gateway, questions
from sandbox import Sandbox
from tests.bridge.odd_servers import EVERYTHING, SERVERS

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.servers,
    pytest.mark.skipif(not SERVERS.is_dir(), reason=".servers is not there: run .ci/servers first"),
]
DATA = "data:text/plain;base64," + base64.b64encode(b"hello").decode()
PROGRAMS: dict[str, tuple[str, Any]] = {
    # Each tool, how a program uses it, and what that comes to.
    "echo": ('return await tool({ message: "hello" })', "Echo: hello"),
    "get-annotated-message": (
        'const r = await tool({ messageType: "error", includeImage: true }); return [r.text, r.images.length]',
        ["Error: Operation failed", 1],
    ),
    "get-env": ("return typeof (await tool({})).PATH", "string"),
    "get-resource-links": (
        "const r = await tool({ count: 3 }); return r.resources.map((each) => [each.type, typeof each.uri])",
        [["link", "string"]] * 3,
    ),
    "get-resource-reference": (
        'const [r] = (await tool({ resourceType: "Text", resourceId: 2 })).resources; return [r.uri, typeof r.text]',
        ["demo://resource/dynamic/text/2", "string"],
    ),
    "get-structured-content": (
        'return await tool({ location: "Chicago" })',
        {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82},
    ),
    "get-sum": ("return await tool({ a: 2, b: 3 })", "The sum of 2 and 3 is 5."),
    "get-tiny-image": ("const r = await tool({}); image(r.images[0]); return r.images[0].mime_type", "image/png"),
    "gzip-file-as-resource": (
        f'return (await tool({{ name: "a.gz", data: "{DATA}", outputType: "resourceLink" }})).resources[0].type',
        "link",
    ),
    "toggle-simulated-logging": ("return typeof await tool({})", "string"),
    "toggle-subscriber-updates": ("return typeof await tool({})", "string"),
    "trigger-elicitation-request": (
        'return (await tool({})).text.split("\\n")[0]',
        "✅ User provided the requested information!",
    ),
    "trigger-long-running-operation": (
        "return await tool({ duration: 0.1, steps: 2 })",
        "Long running operation completed. Duration: 0.1 seconds, Steps: 2.",
    ),
    "trigger-url-elicitation": (
        'return (await tool({ url: "https://example.com/", message: "Look" })).text.split("\\n")[0]',
        "✅ User completed the URL elicitation flow.",
    ),
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


async def accepts(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    if isinstance(params, types.ElicitRequestURLParams):
        return types.ElicitResult(action="accept")
    return types.ElicitResult(action="accept", content={"name": "Ada", "check": True, "integer": 3})


@pytest.fixture(scope="module")
async def client() -> AsyncGenerator[Client]:
    """A host, at a gateway in front of the everything server."""
    server = mcp.stdio("everything", "node", [str(EVERYTHING), "stdio"])
    policy = Policy([allow("everything.*")])
    async with (
        Sandbox() as sandbox,
        Executor([server], policy=policy, sandbox=sandbox, elicit=questions.elicit) as executor,
        Client(Gateway(executor).server, mode="legacy", elicitation_callback=accepts) as opened,
    ):
        yield opened


async def run(client: Client, program: str) -> types.CallToolResult:
    return await client.call_tool("run_program", {"program": program})


async def test_no_tool_of_the_server_is_left_out(client: Client) -> None:
    place = StdioServerParameters(command="node", args=[str(EVERYTHING), "stdio"])
    async with Client(stdio_client(place), mode="legacy", elicitation_callback=accepts) as directly:
        offered = {tool.name for tool in (await directly.list_tools()).tools}
    # It can only be called as a task, which neither this SDK nor the gateway can; `tools` and the log say so.
    offered.remove("simulate-research-query")
    assert offered == set(PROGRAMS)
    result = await run(client, "return Object.keys(tools.everything)")
    assert result.structured_content is not None
    assert set(result.structured_content["value"]) == {name.replace("-", "_") for name in offered}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
async def test_a_program_calls_the_tool(client: Client, name: str) -> None:
    body, value = PROGRAMS[name]
    result = await run(client, f"const tool = tools[{json.dumps(f'everything/{name}')}];\n{body}")
    assert result.structured_content is not None
    assert result.structured_content.get("value") == value, result.content
