"""What a host is offered: three tools with their schemas, and what a result looks like to it.

The text and the structured form of a result say the same, because hosts show one or the other to their model. Both are
bounded by `Limits.output_bytes`; what is cut is a resource link away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types

from bridge.code_tool import SHORT
from bridge.mcp.text import depth, well_formed
from bridge.search import DESCRIPTION, NAME, SCHEMA

if TYPE_CHECKING:
    from bridge.results import Result
    from bridge.search import Found, Session

RUN, SEARCH, RESUME = "run_program", NAME, "resume_program"
RESULTS: Final = "sandbridge:///results/"  # of whole results and pictures; servers' resources have an authority
DEPTH: Final = 100  # levels of a value in structured content; hosts' parsers stop at about 200 with some around it
OUTCOME_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "status": {
            "enum": "completed failed exceeded stalled crashed violation cancelled paused".split(),
            "description": "paused: a person has to decide first; resume_program goes on afterwards",
        },
        "run_id": {"type": "string"},
        "value": {"description": "What the program returned; missing where it is too large: see `whole`"},
        "emitted": {"type": "array", "items": {"type": "string"}, "description": "What it gave to text()"},
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "line": {"type": "integer", "description": "Of the program, from 1"},
                "hint": {"type": "string"},
            },
            "required": ["code", "message"],
        },
        "warnings": {"type": "array", "items": {"type": "string"}},
        "calls": {"type": "integer", "description": "How many tool calls it made"},
        "waiting": {
            "type": "array",
            "description": "What a paused run waits for",
            "items": {
                "type": "object",
                "properties": {"tool": {"type": "string"}, "line": {"type": "integer"}},
                "required": ["tool"],
            },
        },
        "whole": {"type": "string", "description": "The resource with the whole result"},
    },
    "required": ["status", "run_id", "calls"],
}
_FOUND_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "matched": {"type": "integer"},
        "declarations": {"type": "string"},
        "tools": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "call": {"type": "string"},
                    "description": {"type": "string"},
                },
                "required": ["name", "call"],
            },
        },
    },
    "required": ["matched", "tools", "declarations"],
}
_RUN_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "program": {"type": "string", "description": "The whole program, as plain JavaScript text."},
        "inputs": {"description": "JSON; the global `inputs` of the program."},
        "reuse": {"type": "string", "description": "A run that failed: its completed calls are not made again."},
    },
    "required": ["program"],
    "additionalProperties": False,
}
_RESUME_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"run_id": {"type": "string", "description": "As the paused result gave it."}},
    "required": ["run_id"],
    "additionalProperties": False,
}
SCHEMAS: Final = {RUN: _RUN_SCHEMA, SEARCH: SCHEMA, RESUME: _RESUME_SCHEMA}
_RESUME: Final = (
    "Goes on with a run that paused, once a person has decided what it waits for; says again what that is where nobody "
    "has. It takes no decision itself."
)


def tools(session: Session) -> list[types.Tool]:
    """The three tools. The same catalog gives the same bytes."""
    return [
        types.Tool(
            name=RUN,
            title="Run a program",
            description=f"{SHORT}\n\n{session.instructions}",
            input_schema=_RUN_SCHEMA,
            output_schema=OUTCOME_SCHEMA,
            annotations=types.ToolAnnotations(destructive_hint=True, open_world_hint=True),
        ),
        types.Tool(
            name=SEARCH,
            title="Search tools",
            description=DESCRIPTION,
            input_schema=SCHEMA,
            output_schema=_FOUND_SCHEMA,
            annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
        ),
        types.Tool(
            name=RESUME,
            title="Resume a program",
            description=_RESUME,
            input_schema=_RESUME_SCHEMA,
            output_schema=OUTCOME_SCHEMA,
            annotations=types.ToolAnnotations(destructive_hint=True, open_world_hint=True),
        ),
    ]


def found(result: Found) -> types.CallToolResult:
    """What a search came to."""
    return types.CallToolResult(
        content=[types.TextContent(text=well_formed(result.text))],
        structured_content=well_formed({**result.data, "declarations": result.text}),
    )


def failed(text: str) -> types.CallToolResult:
    """A call that could not be carried out, in words for the model."""
    return types.CallToolResult(content=[types.TextContent(text=well_formed(text))], is_error=True)


def outcome(
    result: Result, pictures: list[types.ResourceLink], more: str = "", remarks: Sequence[str] = ()
) -> types.CallToolResult:
    """The result of a run, or of its pause.

    Args:
        result: Of the executor.
        pictures: Links to what the program gave to `image()`.
        more: Text after that of the result.
        remarks: Warnings besides its own; `more` says them too.
    """
    text = well_formed(result.text + (f"\n{more}" if more else ""))
    content: list[types.ContentBlock] = [types.TextContent(text=text)]
    data: dict[str, Any] = {"status": result.status, "run_id": result.run_id, "calls": len(result.calls)}
    if result.handle is not None and result.status != "paused":
        uri = RESULTS + result.handle
        data["whole"] = uri
        content.append(
            types.ResourceLink(
                name=f"result {result.run_id}",
                uri=uri,
                mime_type="application/json",
                description="The whole value that the program returned",
            )
        )
    elif result.status == "completed" and depth(result.value, DEPTH) <= DEPTH:
        data["value"] = result.value
    if result.handle is None and result.emitted:
        data["emitted"] = list(result.emitted)
    if (error := result.error) is not None:
        said = {"code": error.code, "message": error.message[:4_000], "line": error.line, "hint": error.hint[:1_000]}
        data["error"] = {key: part for key, part in said.items() if part not in (None, "")} | {
            "code": error.code,
            "message": error.message[:4_000],
        }
    if warnings := [*(each.message for each in result.warnings), *remarks]:
        data["warnings"] = [each[:1_000] for each in warnings[:20]]
    waiting = [*result.approvals, *result.pending]
    if waiting:
        data["waiting"] = [{"tool": each.tool} | ({"line": each.line} if each.line else {}) for each in waiting[:50]]
    return types.CallToolResult(
        content=[*content, *pictures],
        structured_content=well_formed(data),
        is_error=result.status not in ("completed", "paused"),
    )
