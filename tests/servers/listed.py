"""An MCP server without any SDK whose tools are those of a JSON file: what `tools/list` gives, whatever it says.

    python listed.py FILE

A call returns the name of its tool and the arguments as text. It speaks 2025-11-25, and reads the file for every list.
Its list of resources has no end. A tool with `"_meta": {"asks": true}` is there only for clients whose person can be
asked.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

can_be_asked = False


def answer(message: dict[str, Any], file: Path) -> dict[str, Any] | None:
    """What a request is answered; None for what needs none."""
    global can_be_asked
    match message["method"]:
        case "initialize":
            can_be_asked = "elicitation" in message["params"]["capabilities"]
            info = {"name": "listed", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            tools = json.loads(file.read_text("utf-8"))
            return {"tools": [each for each in tools if can_be_asked or not each.get("_meta", {}).get("asks")]}
        case "resources/list":
            number = int(message.get("params", {}).get("cursor") or 0)
            return {"resources": [{"uri": f"memo://{number}", "name": str(number)}], "nextCursor": str(number + 1)}
        case "tools/call":
            given = message["params"]
            return {"content": [{"type": "text", "text": f"{given['name']} {json.dumps(given.get('arguments'))}"}]}
        case "ping":
            return {}
        case _:
            return None


def main() -> None:
    """Answer line by line until the input ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = answer(message, Path(sys.argv[1]))
        reply = {"error": {"code": -32601, "message": "unknown"}} if result is None else {"result": result}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
