"""An MCP server made with the SDK, over stdio, that can be followed: a resource, lists, and a call that goes on.

    python watched.py [--older]

It speaks 2026-07-28, where a subscription is a stream; with `--older` only 2025-11-25, where it is two requests.
`change` changes the resource, `more` adds a resource or prompt, `work` is done when `finish` is called, and reports
what `say` is given; `end` ends the process.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
)
from mcp.shared.message import SessionMessage

URI = "memo://note"
older = "--older" in sys.argv
bus = InMemorySubscriptionBus()
subscribed: dict[str, Any] = {}
text = "first"
names = {"resource": ["note"], "prompt": ["greet"]}
working: list[Any] = []
finished = anyio.Event()


async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
    tools = ("change", "more", "work", "say", "finish", "end")
    return types.ListToolsResult(tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in tools])


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    global text, finished
    given = params.arguments or {}
    match params.name:
        case "more":
            names[given["kind"]].append(given["name"])
            if older and given["kind"] == "prompt":
                await context.session.send_prompt_list_changed()
            elif older:
                await context.session.send_resource_list_changed()
            else:
                await bus.publish(PromptsListChanged() if given["kind"] == "prompt" else ResourcesListChanged())
        case "work":
            working.append(context.session)
            await finished.wait()
            finished = anyio.Event()
            working.clear()
        case "say":
            for session in working:
                await session.report_progress(given["progress"], given.get("total"), given.get("message"))
            return types.CallToolResult(content=[types.TextContent(text=f"{len(working)}")])
        case "end":
            os._exit(0)
        case "finish":
            finished.set()
        case _:
            text = "second"
            await bus.publish(ResourceUpdated(uri=URI))
            for uri, session in subscribed.items():
                await session.send_resource_updated(uri)
    return types.CallToolResult(content=[types.TextContent(text=f"{len(subscribed)} subscribed")])


async def list_resources(context: Any, params: Any) -> types.ListResourcesResult:
    resources = [types.Resource(name=name, uri=f"memo://{name}") for name in names["resource"]]
    return types.ListResourcesResult(resources=resources)


async def list_prompts(context: Any, params: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=[types.Prompt(name=name) for name in names["prompt"]])


async def read_resource(context: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=URI, text=text)])


async def subscribe(context: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
    subscribed[str(params.uri)] = context.session
    return types.EmptyResult()


async def unsubscribe(context: Any, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    subscribed.pop(str(params.uri), None)
    return types.EmptyResult()


async def main() -> None:
    server: Server[Any] = Server(
        "watched",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_prompts=list_prompts,
        on_read_resource=read_resource,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=unsubscribe,
        on_subscriptions_listen=ListenHandler(bus),
    )
    async with stdio_server() as (read, write), anyio.create_task_group() as tasks:
        into, filtered = anyio.create_memory_object_stream[SessionMessage | Exception](0)

        async def forget_the_newer() -> None:
            async with into:
                async for item in read:
                    message = item.message if isinstance(item, SessionMessage) else None
                    if older and isinstance(message, types.JSONRPCRequest) and message.method == "server/discover":
                        unknown = types.ErrorData(code=types.METHOD_NOT_FOUND, message="Method not found")
                        error = types.JSONRPCError(jsonrpc="2.0", id=message.id, error=unknown)
                        await write.send(SessionMessage(error))
                    else:
                        await into.send(item)

        tasks.start_soon(forget_the_newer)
        told = NotificationOptions(prompts_changed=True, resources_changed=True)
        await server.run(filtered, write, server.create_initialization_options(told))
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
