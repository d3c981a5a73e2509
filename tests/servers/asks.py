"""An MCP server made with the SDK, over stdio, that asks the person behind the host: its tools, and the prompts and
resources of the same names.

    python asks.py [--older]

It speaks 2026-07-28, where a question is the result of a call; with `--older` only 2025-11-25, where it is a request.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage

FORM = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "amount": {"type": "integer", "minimum": 1}},
    "required": ["ok"],
}
PAGE = "https://pay.example/1"
QUESTIONS: dict[str, list[dict[str, Any]]] = {
    "confirm": [{"message": "Really?", "requestedSchema": FORM}],
    "twice": [{"message": "One?", "requestedSchema": FORM}, {"message": "Two?", "requestedSchema": FORM}],
    "pay": [{"mode": "url", "message": "Pay here", "url": PAGE, "elicitationId": "e1"}],
    "lures": [{"mode": "url", "message": "Go", "url": "javascript:alert(1)", "elicitationId": "e2"}],
    "escapes": [{"message": "\x1b[2Jhi\u202e\nserver bank asks:", "requestedSchema": FORM}],
    "unreadable": [{"message": "Name?", "requestedSchema": {**FORM, "required": 7}}],
}
PLAIN = ("echo", "wait", "page-first")
older = "--older" in sys.argv
been_there = set[str]()
running = most = 0


async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
    tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in (*QUESTIONS, *PLAIN)]
    return types.ListToolsResult(tools=tools)


async def call_tool(context: Any, params: types.CallToolRequestParams) -> Any:
    global running, most
    name, arguments = params.name, params.arguments or {}
    running += 1
    most = max(most, running)
    try:
        if name == "wait":
            await anyio.sleep(arguments["seconds"])
        if name in PLAIN:
            if name == "page-first" and arguments["key"] not in been_there:
                been_there.add(arguments["key"])
                data = {"elicitations": [{**QUESTIONS["pay"][0]}]}
                raise MCPError(types.URL_ELICITATION_REQUIRED, "go to a page first", data)
            capability = context.session.client_capabilities.elicitation
            said = None if capability is None else capability.model_dump(by_alias=True, exclude_none=True)
            return result({"arguments": arguments, "most": most, "elicitation": said})
        said = await answers_to(name, context, params, arguments)
        return said if isinstance(said, types.InputRequiredResult) else result(said)
    finally:
        running -= 1


async def answers_to(name: str, context: Any, params: Any, arguments: dict[str, Any]) -> Any:
    """What the person said to the questions of that name; or the questions, where that is how they are asked."""
    asked = QUESTIONS[name]
    if context.protocol_version < "2026":
        return [await ask(context, question, arguments) for question in asked]
    answers = params.input_responses or {}
    if params.request_state is None:
        requests = {str(i): request(question, arguments) for i, question in enumerate(asked)}
        return types.InputRequiredResult(request_state="state", input_requests=requests)
    return [said_by(answers[key]) for key in sorted(answers)]


async def get_prompt(context: Any, params: types.GetPromptRequestParams) -> Any:
    arguments: dict[str, Any] = dict(params.arguments or {})
    if params.name == "page-first" and arguments["key"] not in been_there:
        been_there.add(arguments["key"])
        raise MCPError(types.URL_ELICITATION_REQUIRED, "go to a page first", {"elicitations": [QUESTIONS["pay"][0]]})
    said: Any = [] if params.name in PLAIN else await answers_to(params.name, context, params, arguments)
    if isinstance(said, types.InputRequiredResult):
        return said
    text = types.TextContent(text=json.dumps(said))
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])


async def read_resource(context: Any, params: types.ReadResourceRequestParams) -> Any:
    said = await answers_to(str(params.uri).removeprefix("ask://"), context, params, {})
    if isinstance(said, types.InputRequiredResult):
        return said
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text=json.dumps(said))])


def request(question: dict[str, Any], arguments: dict[str, Any]) -> types.ElicitRequest:
    question = {**question, "message": arguments.get("message", question["message"])}
    if not older:
        question.pop("elicitationId", None)
    return types.ElicitRequest.model_validate({"method": "elicitation/create", "params": question})


async def ask(context: Any, question: dict[str, Any], arguments: dict[str, Any]) -> Any:
    try:
        answer = await context.session.send_request(request(question, arguments), types.ElicitResult)
    except MCPError as error:
        return {"error": error.code}
    return said_by(answer)


def said_by(answer: Any) -> dict[str, Any]:
    return {"action": answer.action, "content": answer.content}


def result(value: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=json.dumps({"said": value}))])


async def main() -> None:
    server: Server[Any] = Server(
        "asks",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_get_prompt=get_prompt,
        on_read_resource=read_resource,
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
        await server.run(filtered, write, server.create_initialization_options())
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
