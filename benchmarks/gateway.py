"""What a call through the gateway costs, beside the plainest proxy that can be written with the SDK.

    python benchmarks/gateway.py [--calls N] [--rounds N] [--json FILE]

One server behind (SDK, stdio, `add`), one host (the SDK's client, stdio). Measured in alternation, so that a busy
machine is busy for all:

- `direct`: the host calls the server itself, N times;
- `proxy`: a server of the SDK whose one handler passes each call on to a session with the server behind, N times;
- `program`: `sandbridge serve --no-store`, and one program that makes N calls, divided by N;
- `single`: the same, and N programs that make one call each, divided by N;

- `durable` and `durable single`: the same with the store that `serve` keeps runs in by default: what is sent, and what
  came back, is on the disk before the next step.

The ratio that counts is `program` / `proxy`, of the best rounds and of the medians: what the gateway puts between a
call and its server (policy, schema, journal, the jail), against what the SDK's own message handling puts there. A
proxy keeps nothing, so it is compared with `serve --no-store`; what keeping costs on top is `durable` / `proxy`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.server import Server
from mcp.server.stdio import stdio_server

ROOT = Path(__file__).resolve().parents[1]
WARM = 20  # calls before anything is measured
LOOP = "let sum = 0; for (let n = 0; n < inputs; n++) sum = (await tools.shop.add({ a: sum, b: 1 })).sum; return sum"
ADD = types.Tool(
    name="add",
    description="Sum of two numbers.",
    input_schema={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)


# ---- the processes that a host starts -------------------------------------------------------------------------------


async def serve(server: Server[Any]) -> None:
    async with stdio_server() as (received, sent):
        await server.run(received, sent, server.create_initialization_options())


async def upstream() -> None:
    """The server behind."""

    async def listed(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[ADD])

    async def called(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        given = params.arguments or {}
        made = {"sum": given["a"] + given["b"]}
        return types.CallToolResult(content=[types.TextContent(text=json.dumps(made))], structured_content=made)

    await serve(Server("shop", on_list_tools=listed, on_call_tool=called))


async def proxy() -> None:
    """The SDK on both sides, and nothing between."""
    async with Client(stdio_client(place("upstream"))) as behind:

        async def listed(ctx: Any, params: Any) -> types.ListToolsResult:
            return await behind.list_tools()

        async def called(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
            return await behind.call_tool(params.name, params.arguments)

        await serve(Server("proxy", on_list_tools=listed, on_call_tool=called))


def place(part: str) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=[__file__, part])


# ---- the host -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def hosted(parameters: StdioServerParameters, log: Any) -> AsyncGenerator[Client]:
    async with Client(stdio_client(parameters, errlog=log)) as client:
        await client.list_tools()
        yield client


async def calls(client: Client, count: int) -> None:
    total = 0
    for _ in range(count):
        result = await client.call_tool("add", {"a": total, "b": 1})
        assert result.structured_content is not None
        total = result.structured_content["sum"]
    assert total == count


async def program(client: Client, count: int) -> None:
    result = await client.call_tool("run_program", {"program": LOOP, "inputs": count})
    assert result.structured_content is not None
    assert result.structured_content["value"] == count, result.content


async def singles(client: Client, count: int) -> None:
    for _ in range(count):
        await program(client, 1)


async def measure(count: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of a call, of each round of each way."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        log = stack.enter_context((folder / "log").open("w"))
        server = place("upstream")
        (folder / "mcp.json").write_text(
            json.dumps({"mcpServers": {"shop": {"command": server.command, "args": server.args}}}), "utf-8"
        )
        serving = ["-m", "bridge.cli", "serve", "--mcp", str(folder / "mcp.json"), "--allow", "shop.*"]
        environment = {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder / "state")}

        def gateway(*more: str) -> StdioServerParameters:
            return StdioServerParameters(command=sys.executable, args=[*serving, *more], cwd=folder, env=environment)

        direct = await stack.enter_async_context(hosted(server, log))
        proxied = await stack.enter_async_context(hosted(place("proxy"), log))
        ours = await stack.enter_async_context(hosted(gateway("--no-store"), log))
        durable = await stack.enter_async_context(hosted(gateway(), log))
        few = max(1, count // 20)
        ways: dict[str, tuple[Callable[[Client, int], Awaitable[None]], Client, int]] = {
            "direct": (calls, direct, count),
            "proxy": (calls, proxied, count),
            "program": (program, ours, count),
            "single": (singles, ours, few),
            "durable": (program, durable, count),
            "durable single": (singles, durable, few),
        }
        spent: dict[str, list[float]] = {name: [] for name in ways}
        for way, client, _ in ways.values():
            await way(client, WARM)
        for _ in range(rounds):
            for name, (way, client, times) in ways.items():
                began = time.perf_counter()
                await way(client, times)
                spent[name].append((time.perf_counter() - began) * 1e3 / times)
    return spent


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200, help="in one round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    chosen = parser.parse_args()
    spent = anyio.run(measure, chosen.calls, chosen.rounds)
    figures = {
        name: {"best_ms": min(each), "median_ms": statistics.median(each), "rounds_ms": each}
        for name, each in spent.items()
    }
    ratios = {
        f"{way} / proxy": {kind: figures[way][kind] / figures["proxy"][kind] for kind in ("best_ms", "median_ms")}
        for way in ("program", "durable")
    }
    print(f"{chosen.calls} calls a round, {chosen.rounds} rounds\n")
    print("| way | best | median |\n|---|---|---|")
    for name, each in figures.items():
        print(f"| {name} | {each['best_ms']:.2f} ms | {each['median_ms']:.2f} ms |")
    print()
    for name, each in ratios.items():
        print(f"{name}: {each['best_ms']:.2f} (best), {each['median_ms']:.2f} (median)")
    if chosen.json is not None:
        chosen.json.write_text(
            json.dumps({"calls": chosen.calls, "ways": figures, "ratios": ratios}, indent=1), "utf-8"
        )


if __name__ == "__main__":
    parts = {"upstream": upstream, "proxy": proxy}
    if sys.argv[1:2] and sys.argv[1] in parts:
        anyio.run(parts[sys.argv[1]])
    else:
        main()
