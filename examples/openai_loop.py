"""The shop as an agent: a model of the OpenAI API, or of any server that speaks it, writes the programs.

OPENAI_API_KEY=... python examples/openai_loop.py ["your question"]
OPENAI_API_KEY=... OPENAI_BASE_URL=https://... OPENAI_MODEL=... python examples/openai_loop.py --chat
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
from openai import AsyncOpenAI
from shop.tools import goodwill

from bridge import ApprovalRequest, Approve, Deny, Executor, Policy, allow, ask, mcp, openai, tool

SHOP = Path(__file__).parent / "shop"
QUESTION = "Which ten late orders of 2026-03-06 to 2026-03-12 waited longest? Refund the first one's goodwill."


def decide(request: ApprovalRequest) -> Approve | Deny:
    """Small refunds go through."""
    return Approve() if request.arguments["amount"] <= 50 else Deny("refunds over 50 EUR need a colleague")


async def main(question: str, *, chat: bool) -> None:
    """Ask the question, decide whenever a program wants a refund, print the answer and what it took."""
    shop = mcp.stdio("shop", sys.executable, [str(SHOP / "server.py")], optional=False)
    policy = Policy([allow("shop.*", unless="shop.issue_refund"), ask("shop.issue_refund")])
    model = os.environ.get("OPENAI_MODEL", "gpt-5.6")
    messages = [{"role": "user", "content": question}]
    async with Executor([shop, tool(goodwill)], policy=policy) as executor, AsyncOpenAI() as client:
        if chat:
            answer = await openai.chat.run(client, executor, model=model, messages=messages)
        else:
            answer = await openai.run(client, executor, model=model, input=messages)
        while answer.status == "paused":
            answer = await answer.resume({request.id: decide(request) for request in answer.approvals})
    print(answer.text)
    calls = sum(len(run.result.calls) for run in answer.runs if run.result is not None)
    print(f"{answer.turns} requests, {len(answer.runs)} programs, {calls} calls")


if __name__ == "__main__":
    if not os.environ.get("OPENAI_API_KEY"):
        sys.exit("OPENAI_API_KEY is not set: there is no model to ask")
    words = [word for word in sys.argv[1:] if word != "--chat"]
    anyio.run(lambda: main(" ".join(words) or QUESTION, chat="--chat" in sys.argv))
