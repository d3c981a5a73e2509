"""A run that pauses for an approval, decided in code: refunds of up to 50 EUR go through, larger ones do not.

python examples/approve.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
from shop.tools import goodwill

from bridge import ApprovalRequest, Approve, Deny, Executor, Policy, allow, ask, mcp, tool

SHOP = Path(__file__).parent / "shop"
AT_MOST = 50  # EUR


def decide(request: ApprovalRequest) -> Approve | Deny:
    """The verdict on one refund: on the arguments that will be executed, not on what the program says of them."""
    if request.arguments["amount"] <= AT_MOST:
        return Approve()
    return Deny(f"refunds over {AT_MOST} EUR need a colleague")


async def main() -> None:
    """Start the program, decide whenever it pauses, and print what a model would read."""
    shop = mcp.stdio("shop", sys.executable, [str(SHOP / "server.py")], optional=False)
    policy = Policy([allow("shop.*", unless="shop.issue_refund"), ask("shop.issue_refund")])
    async with Executor([shop, tool(goodwill)], policy=policy) as executor:
        run = await executor.start((SHOP / "refund.js").read_text("utf-8"))
        while run.status == "paused":
            verdicts = {request.id: decide(request) for request in run.approvals}
            for request in run.approvals:
                print(f"{request.tool}, {request.arguments['amount']} EUR: {type(verdicts[request.id]).__name__}")
            run = await run.resume(verdicts)
    assert run.result is not None, "a finished run has a result"
    print(run.result.text)


if __name__ == "__main__":
    anyio.run(main)
