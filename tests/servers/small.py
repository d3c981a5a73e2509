"""A small MCP server over stdio, written with the official SDK, for tests of what stands around a server."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("small")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Sum of two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
def drop(name: str) -> str:
    """Drops what has this name."""
    return f"dropped {name}"


if __name__ == "__main__":
    server.run("stdio")
