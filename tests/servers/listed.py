"""An MCP server without any SDK whose tools are those of a JSON file: what `tools/list` gives, whatever it says.

    python listed.py FILE

A call returns the name of its tool and the arguments as text. It speaks 2025-11-25, and reads the file for every list.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def answer(message: dict[str, Any], file: Path) -> dict[str, Any] | None:
    """What a request is answered; None for what needs none."""
    match message["method"]:
        case "initialize":
            info = {"name": "listed", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": json.loads(file.read_text("utf-8"))}
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
