"""An agent of `langchain` whose one tool runs programs. Its model is scripted: no key, no network."""

from pathlib import Path

import anyio
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from bridge import Deny
from bridge.config import load

SHOP = Path(__file__).parent / "shop"
PROGRAMS = [(SHOP / name).read_text("utf-8") for name in ("late_orders.js", "refund.js")]  # what the model writes
ANSWER = "O-12660 waits longest; a colleague must approve its refund."
DENIED = Deny("refunds need a colleague")


class Scripted(GenericFakeChatModel):
    bind_tools = lambda self, tools, **_: self  # noqa: E731  a script needs no tools


async def main() -> None:
    shop = load(SHOP / "sandbridge.toml")  # servers, functions, and the rule that refunds are asked about
    async with shop.executor(approver=lambda asked: {request.id: DENIED for request in asked}) as executor:

        async def run_program(program: str) -> str:
            """Run one JavaScript program that calls tools."""
            return (await executor.run(program)).text

        calls = [{"name": "run_program", "args": {"program": text}, "id": text[:9]} for text in PROGRAMS]
        model = Scripted(messages=iter([*(AIMessage("", tool_calls=[call]) for call in calls), AIMessage(ANSWER)]))
        agent = create_agent(model, [run_program], system_prompt=executor.instructions())
        done = await agent.ainvoke({"messages": [("user", "Who has waited longest? Refund the goodwill.")]})
    print(*(message.content[:200] for message in done["messages"][1:] if message.content), sep="\n\n")


if __name__ == "__main__":
    anyio.run(main)
