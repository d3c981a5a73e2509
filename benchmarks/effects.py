"""Effects that are counted: tools that append a line to a file, and what the runs' journals say that they did.

`python benchmarks/effects.py FILE` is an MCP server over stdio with such a tool, in a process of its own.
"""

from __future__ import annotations

import collections
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from bridge import Tool, ToolContext

NEVER_SENT: Final = ("not_started", "denied", "invalid")
SCHEMA: Final = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}


class Effects:
    """One file, a line for each effect: whole or not at all, whoever writes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._open = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def add(self, key: str) -> None:
        """One effect. `OSError`: it has not happened."""
        os.write(self._open, f"{key}\n".encode())

    def close(self) -> None:
        """No more of them from here."""
        os.close(self._open)

    def tool(self) -> Tool:
        """The tool of this process."""

        async def append(given: Any, _: ToolContext) -> Any:
            self.add(given["key"])
            return given["key"]

        return Tool(name="append", input_schema=SCHEMA, handler=append)

    def counted(self) -> collections.Counter[str]:
        """How often each has happened."""
        return collections.Counter(self.file.read_text("ascii").split())


def unlike(effects: collections.Counter[str], calls: Iterable[tuple[str, str]], untold: Iterable[str]) -> list[str]:
    """Where effects are not what the journals say.

    Args:
        effects: What happened.
        calls: What journals say of calls: the key that names the effect, and the outcome.
        untold: Beginnings of keys of runs that gave no result to look at: each effect of theirs happened once or never.
    """
    wrong = [f"doubled: {key} happened {times} times" for key, times in effects.items() if times > 1]
    known: set[str] = set()
    for key, outcome in calls:
        known.add(key)
        if outcome == "completed" and not effects[key]:
            wrong.append(f"lost: {key} is said to have happened")
        elif outcome in NEVER_SENT and effects[key]:
            wrong.append(f"untold: {key} happened and is said to be {outcome}")
    begun = set(untold)
    strangers = [key for key in effects if key not in known and key.partition("/")[0] not in begun]
    return [*wrong, *(f"untold: {key} happened in no run" for key in strangers)]


def main() -> None:
    """Serve until the client goes."""
    from mcp.server.mcpserver import MCPServer

    effects, server = Effects(Path(sys.argv[1])), MCPServer("counted")

    @server.tool()
    def append(key: str) -> str:
        """Adds one line."""
        effects.add(key)
        return key

    server.run("stdio")


if __name__ == "__main__":
    main()
