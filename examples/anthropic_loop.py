"""The shop as an agent: a model of the Anthropic API writes the programs, a rule here decides on refunds.

ANTHROPIC_API_KEY=... python examples/anthropic_loop.py ["your question"]
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


async def main(question: str) -> None:
    """Ask the question, decide whenever a program wants a refund, print the answer and what it took."""
    shop = mcp.stdio("shop", sys.executable, [str(SHOP / "server.py")], optional=False)
    policy = Policy([allow("shop.*", unless="shop.issue_refund"), ask("shop.issue_refund")])
    model = os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-4-5")
    messages = [{"role": "user", "content": question}]
    async with Executor([shop, tool(goodwill)], policy=policy) as executor, AsyncAnthropic() as client:
        answer = await anthropic.run(client, executor, model=model, max_tokens=8000, messages=messages)
        while answer.status == "paused":
            answer = await answer.resume({request.id: decide(request) for request in answer.approvals})
    print(answer.text)
    print(f"{answer.turns} requests, {len(answer.runs)} programs, {sum(len(r.calls) for r in answer.results)} calls")


if __name__ == "__main__":
    if not os.environ.get("ANTHROPIC_API_KEY"):
        sys.exit("ANTHROPIC_API_KEY is not set: there is no model to ask")
    anyio.run(main, " ".join(sys.argv[1:]) or QUESTION)
