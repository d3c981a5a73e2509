"""The shop from Python: an executor over an MCP server and a function, one program, one result.

python examples/embed.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
from shop.tools import goodwill

from bridge import Executor, Policy, allow, mcp, tool

SHOP = Path(__file__).parent / "shop"


async def main() -> None:
    """Run the program and print what a model would read."""
    shop = mcp.stdio("shop", sys.executable, [str(SHOP / "server.py")], optional=False)
    policy = Policy([allow("shop.*", unless="shop.issue_refund")])
    program = (SHOP / "late_orders.js").read_text("utf-8")
    async with Executor([shop, tool(goodwill)], policy=policy) as executor:
        result = await executor.run(program)
    print(result.text)
    replies, read = sum(call.reply_bytes for call in result.calls), len(result.text.encode())
    print(f"{len(result.calls)} calls, {replies:,} bytes of replies; the model reads {read:,}")


if __name__ == "__main__":
    anyio.run(main)
