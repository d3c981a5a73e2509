"""An agent of `pydantic-ai` whose one tool runs programs. Its model is scripted: no key, no network."""

from pathlib import Path

import anyio
from pydantic_ai import Agent, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from bridge import Deny
from bridge.config import load

SHOP = Path(__file__).parent / "shop"
PROGRAMS = [(SHOP / name).read_text("utf-8") for name in ("late_orders.js", "refund.js")]  # what the model writes
ANSWER = "O-12660 waits longest; a colleague must approve its refund."
DENIED = Deny("refunds need a colleague")


async def main() -> None:
    shop = load(SHOP / "sandbridge.toml")  # servers, functions, and the rule that refunds are asked about
    async with shop.executor(approver=lambda asked: {request.id: DENIED for request in asked}) as executor:

        async def run_program(program: str) -> str:
            """Run one JavaScript program that calls tools."""
            return (await executor.run(program)).text

        calls = [ModelResponse([ToolCallPart("run_program", {"program": text})]) for text in PROGRAMS]
        said = iter([*calls, ModelResponse([TextPart(ANSWER)])])
        model = FunctionModel(lambda messages, info: next(said))
        agent = Agent(model, instructions=executor.instructions(), tools=[run_program])
        done = await agent.run("Who has waited longest? Refund the goodwill.")
    told = [part.content for each in done.all_messages() for part in each.parts if part.part_kind == "tool-return"]
    print(*(text[:200] for text in told), done.output, sep="\n\n")


if __name__ == "__main__":
    anyio.run(main)
