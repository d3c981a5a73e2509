"""What a call that brought no result means for the program that made it.

The question is always whether the server may have acted: then the code is `unknown_outcome`, and nobody sends it again.
`failed` is for what surely did not run, or what the server itself says went wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

import mcp_types as types
from mcp.shared.exceptions import MCPError

from bridge.errors import ToolError
from bridge.mcp import wire
from bridge.mcp.text import printable

if TYPE_CHECKING:
    from bridge.mcp.owner import Link, Outcome

TEXT: Final = 2_000  # characters of a server's own words
UNKNOWN: Final = "Whether the call took effect is not known: look before calling it again."
# What the SDK's HTTP transport says when an answer was cut off or cannot be parsed; a server could say it too, and then
# the worst is that a failure counts as unknown.
_NOBODY: Final = (types.INVALID_REQUEST, "Elicitation not supported")  # the SDK's own answer where no callback is set
_CUT: Final = ("SSE stream ", "Failed to parse ")


def was_not_seen(outcome: Outcome) -> bool:
    """Whether the server surely did not see the call, because it did not know its session."""
    return isinstance(outcome, MCPError) and wire.fate_of(outcome.data) == "session_gone"


def aside_for_operator(outcome: Outcome) -> str:
    """What a failed call says to the operator alone, or nothing."""
    return wire.aside_of(outcome.data) if isinstance(outcome, MCPError) else ""


def failure(outcome: Outcome, link: Link, *, server: str, tool: str, ended: str) -> ToolError:
    """The error for a program.

    Args:
        outcome: Not a result.
        link: The session that the call was made in.
        server: Its server's name.
        tool: The tool's full name.
        ended: How the session ended, if it did.
    """
    if outcome is None or (link.ended and isinstance(outcome, MCPError) and outcome.code == types.CONNECTION_CLOSED):
        return ToolError("unknown_outcome", f"server {server!r} went away during the call ({ended}). {UNKNOWN}")
    if not isinstance(outcome, MCPError):
        said = printable(str(outcome).split("\n")[0], 200)
        return ToolError("unknown_outcome", f"{tool} answered in a way that MCP does not allow ({said}). {UNKNOWN}")
    said = printable(outcome.message, TEXT, keep="\n\t")
    fate = wire.fate_of(outcome.data)
    match fate:
        case None:
            if (outcome.code, said) == _NOBODY:
                text = f"{tool} asks a person before it goes on, and there is nobody to ask (elicit is not set)"
                return ToolError("failed", text)
            if said.startswith(_CUT):
                return ToolError("unknown_outcome", f"the answer of {tool} was cut off ({said}). {UNKNOWN}")
            return ToolError(
                "failed", f"server {server!r}: {said} (code {outcome.code})", details=_details(outcome.data)
            )
        case "not_sent" | "session_gone":
            return ToolError("failed", f"server {server!r}: {said}. Nothing was sent.", retryable=True)
        case "refused":
            return ToolError("failed", f"server {server!r}: {said}", retryable="429" in said)
        case "lost" | "unreadable":
            return ToolError("unknown_outcome", f"server {server!r}: {said}. {UNKNOWN}")
        case "too_large":
            return ToolError("too_large", f"server {server!r}: {said}")
        case _:
            assert_never(fate)


def _details(data: object) -> object:
    """Data that a server attached to its error, if it is small and plain."""
    small = isinstance(data, (str, int, float, bool)) and len(str(data)) <= TEXT
    return data if small else None
