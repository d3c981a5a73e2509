"""The shop as an agent: a model of the Anthropic API writes the programs, a rule here decides on refunds.

ANTHROPIC_API_KEY=... python examples/live_anthropic.py [--hosted] ["your question"]

`--hosted` has the vendor run the programs; their calls come here. Without a key this says so and asks nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
from anthropic import AsyncAnthropic
from shop.tools import goodwill

from bridge import ApprovalRequest, Approve, Deny, Executor, Policy, allow, anthropic, ask, mcp, tool

SHOP = Path(__file__).parent / "shop"
QUESTION = "Which ten late orders of 2026-03-06 to 2026-03-12 waited longest? Refund the first one's goodwill."


def decide(request: ApprovalRequest) -> Approve | Deny:
    """Small refunds go through."""
    return Approve() if request.arguments["amount"] <= 50 else Deny("refunds over 50 EUR need a colleague")


async def main(question: str, hosted: bool) -> None:
    """Ask the question, decide whenever a program wants a refund, print the answer and what it took."""
    shop = mcp.stdio("shop", sys.executable, [str(SHOP / "server.py")], optional=False)
    policy = Policy([allow("shop.*", unless="shop.issue_refund"), ask("shop.issue_refund")])
    request = {"model": os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-5-5"), "max_tokens": 8000}
    messages = [{"role": "user", "content": question}]
    async with Executor([shop, tool(goodwill)], policy=policy) as executor, AsyncAnthropic() as client:
        answer = await anthropic.run(client, executor, messages=messages, hosted=hosted, **request)
        while answer.status == "paused":
            answer = await answer.resume({request.id: decide(request) for request in answer.approvals})
    print(answer.text)
    print(f"{answer.turns} requests, {len(answer.runs)} runs, {sum(len(r.calls) for r in answer.results)} calls")


if __name__ == "__main__":
    if os.environ.get("ANTHROPIC_API_KEY"):
        words = [word for word in sys.argv[1:] if word != "--hosted"]
        anyio.run(main, " ".join(words) or QUESTION, "--hosted" in sys.argv)
    else:
        print("ANTHROPIC_API_KEY is not set, so there is no model to ask: set it to a key of the API")
