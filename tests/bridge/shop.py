"""The tools that the case files call, as tests/data/README says they behave."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec

from bridge import Tool, ToolContext, ToolError

ORDERS = {
    "A1": {"order_id": "A1", "total": 10, "carrier_id": "ups", "status": "late"},
    "A2": {"order_id": "A2", "total": 32.5, "carrier_id": "dhl", "status": "ok"},
    "A3": {"order_id": "A3", "total": 7.25, "carrier_id": "ups", "status": "late"},
}


def schema(required: str = "", optional: str = "") -> dict[str, Any]:
    kinds = {"page": "integer", "ms": "number", "bytes": "integer", "fail_times": "integer", "endless": "boolean"}
    names = [*required.split(), *optional.split()]
    return {
        "type": "object",
        "properties": {name: {} if name == "value" else {"type": kinds.get(name, "string")} for name in names},
        "required": required.split(),
        "additionalProperties": False,
    }


class Shop:
    """Fresh state for each executor; `reached` lists the calls that came to a tool."""

    def __init__(self) -> None:
        self.reached: list[str] = []
        self.failures: dict[str, int] = {}

    async def call(self, name: str, given: Any) -> Any:
        self.reached.append(name)
        match name:
            case "get_order":
                if given["order_id"] not in ORDERS:
                    raise ToolError("NOT_FOUND", f"no order {given['order_id']}")
                return ORDERS[given["order_id"]]
            case "list_orders":
                items = [o for o in ORDERS.values() if given.get("status") in (None, o["status"])]
                return {"items": items, "next_page": given.get("page", 1) + 1 if given.get("endless") else None}
            case "get-team-members":
                return [{"id": "u1", "name": "Ada"}, {"id": "u2", "name": "Bo"}]
            case "get_expenses":
                return [{"amount": 120.5, "status": "approved"}, {"amount": 80, "status": "pending"}]
            case "echo":
                return given["value"]
            case "fail":
                raise ToolError(given.get("code", "FAILED"), given["message"])
            case "flaky":
                self.failures[given["key"]] = self.failures.get(given["key"], 0) + 1
                if self.failures[given["key"]] <= given["fail_times"]:
                    raise ToolError("BUSY", "try again", retryable=True)
                return "ok"
            case "slow":
                await anyio.sleep(given["ms"] / 1000)
                return "done"
            case "big":
                return "x" * given["bytes"]
            case "json_text":
                return msgspec.Raw(b'{"rows":[{"n":1},{"n":2}]}')
            case "mcp_text":
                return msgspec.Raw(b'{"rows":[1,2,3]}')
            case "mcp_error":
                raise ToolError("failed", "quota exceeded")
            case "nothing":
                return None
            case "big_id":
                return msgspec.Raw(b'{"id": 9007199254740993}')
        raise AssertionError(name)

    def tools(self) -> list[Tool]:
        schemas = {
            "get_order": schema("order_id"),
            "list_orders": schema("", "status page endless"),
            "get-team-members": schema("team"),
            "get_expenses": schema("user_id quarter"),
            "echo": schema("value"),
            "fail": schema("message", "code"),
            "flaky": schema("key fail_times"),
            "slow": schema("ms"),
            "big": schema("bytes"),
            "json_text": schema(),
            "mcp_text": schema(),
            "mcp_error": schema(),
            "nothing": schema(),
            "big_id": schema(),
        }

        def handler(name: str) -> Any:
            async def handle(arguments: Any, context: ToolContext) -> Any:
                return await self.call(name, arguments)

            return handle

        return [Tool(name=name, input_schema=given, handler=handler(name)) for name, given in schemas.items()]
