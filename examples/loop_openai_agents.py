"""An agent of `openai-agents` whose one tool runs programs. Its model is scripted: no key, no network."""

from pathlib import Path

import anyio
from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

from bridge import Deny
from bridge.config import load

SHOP = Path(__file__).parent / "shop"
PROGRAMS = [(SHOP / name).read_text("utf-8") for name in ("late_orders.js", "refund.js")]  # what the model writes
ANSWER = "O-12660 waits longest; a colleague must approve its refund."
DENIED = Deny("refunds need a colleague")


async def main() -> None:
    shop = load(SHOP / "sandbridge.toml")  # servers, functions, and the rule that refunds are asked about
    async with shop.executor(approver=lambda asked: {request.id: DENIED for request in asked}) as executor:

        @function_tool
        async def run_program(program: str) -> str:
            """Run one JavaScript program that calls tools."""
            return (await executor.run(program)).text

        set_tracing_disabled(True)
        calls = [[function_call("run_program", {"program": text}, call_id=text[:9])] for text in PROGRAMS]
        model = ScriptedModel([*calls, [assistant_message(ANSWER)]])
        agent = Agent("shop", instructions=executor.instructions(), tools=[run_program], model=model)
        done = await Runner.run(agent, "Who has waited longest? Refund the goodwill.")
    told = [item.output for item in done.new_items if item.type == "tool_call_output_item"]
    print(*(text[:200] for text in told), done.final_output, sep="\n\n")


if __name__ == "__main__":
    anyio.run(main)
