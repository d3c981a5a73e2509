"""Approvals of MCP calls that the vendor makes: the same gate answers them, and only yes, no and a reason fit the wire.

An `mcp_approval_request` becomes a call of a tool that has the name, server and schema of the vendor's, and that does
nothing: that it was let through is the approval. So rules on `server.tool`, the approver, pauses and events are as for
any other call. What the vendor says of a tool comes from a server that nobody declared trusted: it relaxes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bridge.approval import canonical
from bridge.code_tool import Answered, ModelCall
from bridge.dialect import is_object
from bridge.direct import ToolCall
from bridge.errors import CatalogError, StateError
from bridge.loop import Direct
from bridge.openai.items import Item
from bridge.tools import Annotations, Caller, Tool, ToolContext

if TYPE_CHECKING:
    from bridge.executor import Executor

LET_THROUGH: Final = {"let_through": True}
_HINTS: Final = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
}


class Approvals(Direct):
    """Approval requests of one response and one caller, asked together."""

    def __init__(
        self,
        calls: Sequence[ModelCall],
        arguments: Sequence[Any],
        servers: Sequence[str],
        *,
        known: Mapping[tuple[str, str], Item],
        caller: Caller,
        program: str,
        context: Any,
    ) -> None:
        tools: dict[str, Tool] = {}
        made: list[ToolCall] = []
        for call, server, given in zip(calls, servers, arguments, strict=True):
            tool = pretended(server, call.name, known.get((server, call.name), {}))
            tools[tool.full_name] = tool
            made.append(ToolCall(tool.full_name, given))
        super().__init__(calls, made, caller=caller, program=program, context=context)
        self._tools = tuple(tools.values())
        self._given = dict(zip([call.id for call in calls], arguments, strict=True))

    async def start(self, executor: Executor) -> None:
        await super().start(executor.with_tools(self._tools, alone=True))

    def dump(self) -> dict[str, Any]:
        raise StateError("approvals of calls that the vendor makes cannot be put away: decide them first")

    def has(self, call_id: str) -> bool:
        """Whether a request is one of these."""
        return call_id in self._given

    def verdict(self, answered: Answered) -> tuple[bool, str]:
        """Whether the vendor may make the call, and why not."""
        result = answered.result
        if result is None or result.error is not None:
            return False, result.error.message if result is not None and result.error is not None else answered.text
        [row] = result.calls
        executed = row.arguments if row.arguments_executed is msgspec.UNSET else row.arguments_executed
        if row.decision == "edit" and canonical(executed) != canonical(self._given[answered.id]):
            return False, "its arguments were changed by the one who approves, and the vendor takes only yes or no"
        if result.value != LET_THROUGH:
            return False, f"it was answered in place of the tool: {result.body}"
        return True, ""


async def _let_through(arguments: Any, context: ToolContext) -> Any:
    return LET_THROUGH


def pretended(server: str, name: str, known: Item) -> Tool:
    """The vendor's tool as one of ours."""
    hints = known.get("annotations")
    found: Item = hints if is_object(hints) else {}
    annotations = Annotations(**{ours: bool(found[theirs]) for theirs, ours in _HINTS.items() if theirs in found})
    schema = known.get("input_schema")
    options: dict[str, Any] = {
        "name": name,
        "server": server,
        "description": known.get("description") or "",
        "annotations": annotations,
        "handler": _let_through,
    }
    try:
        return Tool(**options, input_schema=schema if is_object(schema) else {"type": "object"})
    except CatalogError:  # a schema that cannot be used is the vendor's to check
        return Tool(**options)
