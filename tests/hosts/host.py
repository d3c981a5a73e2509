"""A host on the official Python SDK of the 1.x line, which many hosts still are; does what host.mjs does.

Runs in an environment of its own (.servers/python-old), where neither this project nor its SDK is.
"""

import json
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.exceptions import McpError
from pydantic import AnyUrl


async def main(given: dict[str, Any]) -> None:
    asked: list[str] = []
    progress: list[dict[str, float]] = []
    got: dict[str, Any] = {"asked": asked, "progress": progress}

    async def answers(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": given["decision"]})

    async def heard(done: float, total: float | None, message: str | None) -> None:
        progress.append({"progress": done})

    async def refused(awaited: Any) -> str | None:
        try:
            await awaited
        except McpError as error:
            return str(error)
        return None

    async def seen(name: str) -> None:
        while not (Path(given["cwd"]) / name).exists():  # noqa: ASYNC110  another process makes it
            await anyio.sleep(0.02)

    async with AsyncExitStack() as stack:
        if given["url"]:
            received, sent, _ = await stack.enter_async_context(streamablehttp_client(given["url"]))
        else:
            program, *arguments = given["command"]
            environment = {**given["env"], "PATH": os.environ["PATH"]}
            place = StdioServerParameters(command=program, args=arguments, cwd=given["cwd"], env=environment)
            received, sent = await stack.enter_async_context(stdio_client(place))
        session = await stack.enter_async_context(ClientSession(received, sent, elicitation_callback=answers))
        opened = await session.initialize()
        got["revision"], got["server"] = opened.protocolVersion, opened.serverInfo.name
        got["instructions"] = opened.instructions
        got["tools"] = (await session.list_tools()).tools
        got["ran"] = await session.call_tool("run_program", {"program": given["program"]}, progress_callback=heard)
        got["found"] = await session.call_tool("search_tools", {"query": "an image of the logo"})
        got["failed"] = await session.call_tool("run_program", {"program": "throw new RangeError('too far')"})
        got["wrong"] = await session.call_tool("run_program", {"code": "1"})
        got["unknown"] = await refused(session.call_tool("approve", {}))
        got["approved"] = await session.call_tool("run_program", {"program": given["asks"]})
        picture = next(block for block in got["ran"].content if block.type == "resource_link")
        got["picture"] = (await session.read_resource(picture.uri)).contents[0]
        got["resources"] = (await session.list_resources()).resources
        got["read"] = (await session.read_resource(got["resources"][0].uri)).contents[0]
        got["templates"] = (await session.list_resource_templates()).resourceTemplates
        got["missing"] = await refused(session.read_resource(AnyUrl("sandbridge://nobody/x")))
        got["prompts"] = (await session.list_prompts()).prompts
        got["prompt"] = await session.get_prompt("everything/args-prompt", {"city": "Graz"})
        reference = types.PromptReference(type="ref/prompt", name="everything/completable-prompt")
        completed = await session.complete(reference, {"name": "department", "value": "Eng"})
        got["completed"] = completed.completion.values
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(refused, session.call_tool("run_program", {"program": "await tools.slow({})"}))
            await seen("started")
            # This line of the SDK leaves it to its hosts to say that they give a request up.
            params = types.CancelledNotificationParams(requestId=session._request_id - 1, reason="enough")
            notification = types.CancelledNotification(method="notifications/cancelled", params=params)
            await session.send_notification(types.ClientNotification(notification))
            await seen("cancelled")
            got["cancelled"] = params.reason
            tasks.cancel_scope.cancel()
        print(json.dumps(got, default=lambda each: each.model_dump(mode="json", by_alias=True, exclude_none=True)))


if __name__ == "__main__":
    anyio.run(main, json.loads(sys.argv[1]))
