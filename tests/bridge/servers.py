"""Tool lists in the manner of real servers: files, version control, issues, chat, search, database, calendar."""

from __future__ import annotations

from typing import Any

from bridge.tools import Tool

SCHEMA = "http://json-schema.org/draft-07/schema#"
TEXT, WHOLE, TRUTH = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}


def schema(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
        "$schema": SCHEMA,
    }


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": text, **more}


ISSUE = schema(
    ["number", "title", "state", "labels", "user", "created_at"],
    number=WHOLE,
    title=TEXT,
    body={"type": ["string", "null"]},
    state={"type": "string", "enum": ["open", "closed"]},
    labels={
        "type": "array",
        "items": {"type": "object", "properties": {"name": TEXT, "color": TEXT}, "required": ["name"]},
    },
    user={"type": "object", "properties": {"login": TEXT, "id": WHOLE}, "required": ["login", "id"]},
    created_at={"type": "string", "format": "date-time"},
)
REPOSITORY = {"owner": said("Repository owner"), "repo": said("Repository name")}
PAGE = {
    "page": {"type": "number", "description": "Page number for pagination (min 1)", "minimum": 1},
    "perPage": {"type": "number", "description": "Results per page (min 1, max 100)", "minimum": 1, "maximum": 100},
}
TREE = {
    "$schema": SCHEMA,
    "type": "object",
    "properties": {"root": {"$ref": "#/definitions/entry"}},
    "required": ["root"],
    "definitions": {
        "entry": {
            "type": "object",
            "properties": {
                "name": TEXT,
                "type": {"type": "string", "enum": ["file", "directory"]},
                "children": {"type": "array", "items": {"$ref": "#/definitions/entry"}},
            },
            "required": ["name", "type"],
        }
    },
}
TOOLS = [
    Tool(
        name="read_text_file",
        server="filesystem",
        description=(
            "Read the complete contents of a file from the file system as text. Handles various text encodings and "
            "provides detailed error messages if the file cannot be read. Use this tool when you need to examine the "
            "contents of a single file. Only works within allowed directories."
        ),
        input_schema=schema(
            ["path"],
            path=TEXT,
            tail={"type": "number", "description": "If provided, returns only the last N lines of the file"},
            head={"type": "number", "description": "If provided, returns only the first N lines of the file"},
        ),
        output_schema=schema(["content"], content=TEXT),
    ),
    Tool(
        name="edit_file",
        server="filesystem",
        description=(
            "Make line-based edits to a text file. Each edit replaces exact line sequences with new content. Returns a "
            "git-style diff showing the changes made. Only works within allowed directories."
        ),
        input_schema=schema(
            ["path", "edits"],
            path=TEXT,
            edits={
                "type": "array",
                "items": schema(
                    ["oldText", "newText"],
                    oldText=said("Text to search for - must match exactly"),
                    newText=said("Text to replace with"),
                ),
            },
            dryRun={"type": "boolean", "default": False, "description": "Preview changes using git-style diff format"},
        ),
        output_schema=schema(["content"], content=TEXT),
    ),
    Tool(
        name="directory_tree",
        server="filesystem",
        description="Get a recursive tree view of files and directories. Each entry has a name, a type and children.",
        input_schema=schema(["path"], path=TEXT, excludePatterns={"type": "array", "items": TEXT, "default": []}),
        output_schema=TREE,
    ),
    Tool(
        name="git_log",
        server="git",
        description="Shows the commit logs",
        input_schema={
            "type": "object",
            "title": "GitLog",
            "properties": {
                "repo_path": {"title": "Repo Path", "type": "string"},
                "max_count": {"default": 10, "title": "Max Count", "type": "integer"},
                "start_timestamp": {
                    "anyOf": [TEXT, {"type": "null"}],
                    "default": None,
                    "title": "Start Timestamp",
                    "description": "Start timestamp for filtering commits. Accepts ISO 8601 or relative dates.",
                },
            },
            "required": ["repo_path"],
        },
    ),
    Tool(
        name="git_reset",
        server="git",
        description="Unstages all staged changes",
        input_schema={
            "type": "object",
            "title": "GitReset",
            "properties": {"repo_path": {"title": "Repo Path", "type": "string"}},
            "required": ["repo_path"],
        },
    ),
    Tool(
        name="list_issues",
        server="github",
        description=(
            "List issues in a GitHub repository. For pagination, use the 'endCursor' from the previous response's "
            "'pageInfo' in the 'after' parameter."
        ),
        input_schema=schema(
            ["owner", "repo"],
            **REPOSITORY,
            **PAGE,
            state={"type": "string", "enum": ["OPEN", "CLOSED"], "description": "Filter by state"},
            labels={"type": "array", "items": TEXT, "description": "Filter by labels"},
            orderBy={
                "type": "string",
                "enum": ["CREATED_AT", "UPDATED_AT", "COMMENTS"],
                "description": "Order by field",
            },
            since=said("Filter by date (ISO 8601 timestamp)"),
        ),
        output_schema={"type": "array", "items": ISSUE, "$schema": SCHEMA},
    ),
    Tool(
        name="create_issue",
        server="github",
        description="Create a new issue in a GitHub repository.",
        input_schema=schema(
            ["owner", "repo", "title"],
            **REPOSITORY,
            title=said("Issue title"),
            body=said("Issue body content"),
            assignees={"type": "array", "items": TEXT, "description": "Usernames to assign to this issue"},
            milestone={"type": "number", "description": "Milestone number"},
        ),
        output_schema=ISSUE,
    ),
    Tool(
        name="search_code",
        server="github",
        description=(
            "Fast and precise code search across ALL GitHub repositories using GitHub's native search engine. Best for "
            "finding exact symbols, functions, classes, or specific code patterns."
        ),
        input_schema=schema(
            ["query"],
            query=said(
                "Search query using GitHub's code search syntax. Examples: 'content:Skill language:Java org:github'"
            ),
            order={"type": "string", "enum": ["asc", "desc"], "description": "Sort order for results"},
            **PAGE,
        ),
    ),
    Tool(
        name="slack_post_message",
        server="slack",
        description="Post a new message to a Slack channel or direct message to user",
        input_schema=schema(
            ["channel_id", "text"],
            channel_id=said("The ID of the channel or user to post to"),
            text=said("The message text to post"),
        ),
        output_schema=schema(["ok", "ts"], ok=TRUTH, ts=TEXT),
    ),
    Tool(
        name="query",
        server="postgres",
        description="Run a read-only SQL query",
        input_schema={"type": "object", "properties": {"sql": TEXT}},
        output_schema={
            "type": "object",
            "properties": {"result": {"type": "array", "items": {"type": "object", "additionalProperties": True}}},
            "required": ["result"],
            "x-fastmcp-wrap-result": True,
        },
    ),
    Tool(
        name="create-event",
        server="google-calendar",
        description="Create a new calendar event.",
        input_schema=schema(
            ["calendarId", "summary", "start", "end"],
            calendarId=said("ID of the calendar (use 'primary' for the main calendar)"),
            summary=said("Title of the event"),
            start=said("Event start time: '2025-01-01T10:00:00'"),
            end=said("Event end time: '2025-01-01T11:00:00'"),
            attendees={
                "type": "array",
                "items": schema(["email"], email={"type": "string", "format": "email"}, optional=TRUTH),
                "description": "List of attendees",
            },
            sendUpdates={
                "type": "string",
                "enum": ["all", "externalOnly", "none"],
                "default": "all",
                "description": "Whether to send notifications about the creation of the new event",
            },
        ),
    ),
    Tool(
        name="API-query-data-source",
        server="notion",
        description="Query a data source",
        input_schema={
            "$defs": {
                "sort": {
                    "type": "object",
                    "properties": {"property": TEXT, "direction": {"enum": ["ascending", "descending"]}},
                    "required": ["property", "direction"],
                },
                "filter": {
                    "anyOf": [
                        {
                            "type": "object",
                            "properties": {"and": {"type": "array", "items": {"$ref": "#/$defs/filter"}}},
                            "required": ["and"],
                        },
                        {
                            "type": "object",
                            "properties": {"or": {"type": "array", "items": {"$ref": "#/$defs/filter"}}},
                            "required": ["or"],
                        },
                        {"type": "object", "properties": {"property": TEXT, "equals": {}}, "required": ["property"]},
                    ]
                },
            },
            "type": "object",
            "properties": {
                "data_source_id": said("Identifier for a Notion data source."),
                "filter": {"$ref": "#/$defs/filter"},
                "sorts": {"type": "array", "items": {"$ref": "#/$defs/sort"}},
                "page_size": {**WHOLE, "default": 100, "maximum": 100},
                "start_cursor": {"type": "string", "nullable": True},
            },
            "required": ["data_source_id"],
        },
    ),
]
