"""The example does what it says, as a reader starts it; and the shop's answer is the same through every form."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge import Executor, Policy, allow, mcp, openai, tool
from tests.providers.openai_shop import client_of
from tests.providers.openai_wire import called_by, calls, chat_calls, chat_says, program_output, says, served
from tests.providers.openai_wire import program as hosted_program
from tests.test_examples import SHOP, WORST, load

ROOT = Path(__file__).parents[2]
LATE, REFUND = ((SHOP / f"{name}.js").read_text("utf-8") for name in ("late_orders", "refund"))


def started(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    return subprocess.run(
        [sys.executable, "examples/live_openai.py", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), **environment},
    )


@pytest.mark.parametrize("arguments", [(), ("--chat",)])
def test_the_example_answers_decides_and_says_what_it_took(arguments: tuple[str, ...]) -> None:
    found: list[str] = []

    def end(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found.extend(
            each.get("output") or each["content"] for each in history if "output" in each or "tool_call_id" in each
        )
        return [chat_says("Refunded.")] if arguments else [says("Refunded.")]

    with served() as wire:
        for number, text in enumerate((LATE, REFUND)):
            call = (chat_calls if arguments else calls)("run_program", {"program": text}, number)
            wire.play([chat_says(None, call)] if arguments else [call])
        wire.play(end)
        done = started(*arguments, OPENAI_API_KEY="none", OPENAI_BASE_URL=wire.base_url)
        assert wire.refusals == []
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.splitlines() == ["Refunded.", "3 requests, 2 runs, 317 calls"]
    late, refund = found
    assert WORST[0][0] in late
    assert '"amount":28.56' in refund


def test_the_example_answers_the_program_that_the_vendor_runs() -> None:
    refund = {"order_id": "O-12660", "amount": 238, "reason": "late"}
    wave = [
        calls("goodwill", {"total": 238, "days_late": 7}, 1, **called_by()),
        calls("shop__issue_refund", refund, 2, **called_by()),
    ]
    with served() as wire:
        wire.play([hosted_program("..."), *wave], [program_output("denied"), says("It needs a colleague.")])
        done = started("--hosted", OPENAI_API_KEY="none", OPENAI_BASE_URL=wire.base_url)
        assert wire.refusals == []
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.splitlines() == ["It needs a colleague.", "2 requests, 1 runs, 2 calls"]
    owed, denied = (item["output"] for item in wire.requests[-1]["input"])
    assert owed == "28.56"
    assert json.loads(denied)["error"]["message"].endswith("refunds over 50 EUR need a colleague")


def test_the_example_says_when_there_is_no_key() -> None:
    done = started()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "OPENAI_API_KEY is not set, so there is no model to ask: set it to a key of the API\n"


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_shops_late_orders_are_the_same_through_every_form() -> None:
    """Programs of ours over both APIs, the application of the hosted form served here, and the vendor's own program."""
    shop = mcp.stdio("shop", sys.executable, [str(SHOP / "server.py")], optional=False)
    goodwill = tool(load("tools").goodwill)
    answers: list[Any] = []

    def last(text: Any) -> None:
        whole = text.partition("\n")[2] if text.startswith("[sandbridge]") else text
        answers.append(json.JSONDecoder().raw_decode(whole)[0])  # warnings follow

    async with Executor([shop, goodwill], policy=Policy([allow("shop.*")])) as executor:
        with served() as wire:
            async with client_of(wire) as client:
                wire.play([calls("run_program", {"program": LATE})], [says("done")])
                await openai.run(client, executor, model="m", input="late?")
                last(wire.requests[-1]["input"][0]["output"])
                wire.play([chat_says(None, chat_calls("run_program", {"program": LATE}))], [chat_says("done")])
                await openai.chat.run(client, executor, model="m", messages=[{"role": "user", "content": "late?"}])
                last(wire.requests[-1]["messages"][-1]["content"])
                wire.play([calls("run_program", {"program": LATE})], [says("done")])
                note = {"type": "function", "name": "note", "parameters": {"type": "object", "properties": {}}}
                tools: Any = [note | {"strict": False, "allowed_callers": ["programmatic"]}]
                tools.append({"type": "programmatic_tool_calling"})
                made = await openai.local(client, executor).responses.create(model="m", input="late?", tools=tools)
                last(made.output[1].to_dict()["result"])
                # The vendor's program is written by nobody here: its first calls get what ours got.
                week = {"promised_from": "2026-03-06", "promised_to": "2026-03-12"}
                wave = [
                    calls("shop__list_orders", week, 1, **called_by()),
                    calls("goodwill", {"total": 238, "days_late": 7}, 2, **called_by()),
                ]
                wire.play([hosted_program("..."), *wave], [program_output("done"), says("done")])
                await openai.run(client, executor, model="m", input="late?", hosted=True)
                orders, owed = (json.loads(item["output"]) for item in wire.requests[-1]["input"])
            assert wire.refusals == []
    assert answers[0] == answers[1] == answers[2]
    assert [row["order"] for row in answers[0]["worst"]] == [row[0] for row in WORST]
    assert owed == WORST[0][-1]
    assert orders["pages"] > 1
