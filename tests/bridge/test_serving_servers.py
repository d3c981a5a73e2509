"""Servers behind `sandbridge serve`: real ones, whatever a host asks of them, and one that is down."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from bridge import Executor
from tests.bridge.odd_servers import EVERYTHING, SERVERS
from tests.bridge.serving import over_http, over_stdio, served

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


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
