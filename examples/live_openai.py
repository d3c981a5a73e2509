"""The shop as an agent: a model of the OpenAI API, or of any server that speaks it, writes the programs.

OPENAI_API_KEY=... python examples/live_openai.py [--chat | --hosted] ["your question"]

`--chat` speaks Chat Completions, with OPENAI_BASE_URL=https://... and OPENAI_MODEL=... to whatever else speaks it.
`--hosted` has the vendor run the programs; their calls come here. Without a key this says so and asks nothing.
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


async def main(question: str, flags: set[str]) -> None:
    """Ask the question, decide whenever a program wants a refund, print the answer and what it took."""
    shop = mcp.stdio("shop", sys.executable, [str(SHOP / "server.py")], optional=False)
    policy = Policy([allow("shop.*", unless="shop.issue_refund"), ask("shop.issue_refund")])
    model = os.environ.get("OPENAI_MODEL", "gpt-6.1-terra")
    messages = [{"role": "user", "content": question}]
    async with Executor([shop, tool(goodwill)], policy=policy) as executor, AsyncOpenAI() as client:
        if "--chat" in flags:
            answer = await openai.chat.run(client, executor, model=model, messages=messages)
        else:
            answer = await openai.run(client, executor, model=model, input=messages, hosted="--hosted" in flags)
        while answer.status == "paused":
            answer = await answer.resume({request.id: decide(request) for request in answer.approvals})
    print(answer.text)
    calls = sum(len(run.result.calls) for run in answer.runs if run.result is not None)
    print(f"{answer.turns} requests, {len(answer.runs)} runs, {calls} calls")


if __name__ == "__main__":
    flags = {"--chat", "--hosted"} & set(sys.argv)
    if os.environ.get("OPENAI_API_KEY"):
        anyio.run(main, " ".join(word for word in sys.argv[1:] if word not in flags) or QUESTION, flags)
    else:
        print("OPENAI_API_KEY is not set, so there is no model to ask: set it to a key of the API")
