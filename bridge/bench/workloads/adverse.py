"""adverse: where programs should lose. It stands on the first page of a report, beside what they win.

- one: one call whose whole reply is the answer.
- judge: four calls, each chosen by reading the one before: no program can go on by itself.
- approve: a look and one write that a person approves.
- small: three tools, two calls, short replies.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from bridge.bench.tasks import Call, Open, Programs, Task, Turn
from bridge.bench.workloads.making import PLACES, sentence, tool
from bridge.tools import Tool


def tasks(seed: int, count: int | None = None) -> Sequence[Task]:
    """`count` tasks of each kind; 5 by default."""
    made: list[Task] = []
    for number in range(5 if count is None else count):
        for kind, of in (("one", _one), ("judge", _judge), ("approve", _approve), ("small", _small)):
            made.append(of(f"adverse-{kind}-{number}", random.Random(f"adverse/{seed}/{kind}/{number}")))  # noqa: S311
    return made


def _made(
    name: str,
    question: str,
    levels: Sequence[Sequence[Call]],
    programs: Sequence[str],
    tools: Sequence[Tool],
    answer: str,
    facts: Sequence[str],
) -> Task:
    """A task; its programs are the only ones there can be, whoever writes them, so that `oracle` is `staged` here."""
    turns: list[Turn] = []
    if len(programs) == 1:
        oracle = Programs(oracle={"projection": programs[0], "full": programs[0]})
        turns.append(Turn(question=question, levels=levels, programs=oracle, answer=answer, facts=facts))
    else:
        # Judgement in between: the person reads with the model, so that each step is a turn of its own.
        for step, (level, program) in enumerate(zip(levels, programs, strict=True)):
            last = step == len(programs) - 1
            turns.append(
                Turn(
                    question=question if step == 0 else "Go on.",
                    levels=[level],
                    programs=Programs(oracle={"projection": program, "full": program}),
                    answer=answer if last else "I have read it and will look at the next one.",
                    facts=facts if last else (),
                )
            )
    calls = sum(map(len, levels))
    return Task(
        id=name,
        workload="adverse",
        turns=turns,
        open=lambda: Open(tools=tools),
        group=name.rpartition("-")[0],
        size={"calls": calls},
    )


def _page(chance: random.Random, links: Sequence[str]) -> dict[str, Any]:
    paragraphs = [sentence(chance, 60) for _ in range(6)]
    return {"title": sentence(chance, 4), "text": "\n\n".join(paragraphs), "links": list(links)}


def _reading(pages: dict[str, Any]) -> list[Tool]:
    page = {"page_id": ("string", "As a search or a link gives it.")}
    return [
        tool("read_page", "The whole text of a page of the handbook.", page, lambda given: pages[given["page_id"]]),
        tool("search_pages", "Pages of the handbook by words.", {"query": ("string", "Words.")}, lambda given: []),
        tool(
            "suggest_edit",
            "Propose a new text for a page.",
            page | {"text": ("string", "All of it.")},
            lambda given: "noted",
            changes=True,
        ),
    ]


def _one(name: str, chance: random.Random) -> Task:
    page_id = f"P-{chance.randrange(1000)}"
    pages = {page_id: _page(chance, [])}
    call = Call("read_page", {"page_id": page_id})
    return _made(
        name,
        f"Summarise page {page_id} of the handbook for a new colleague.",
        [[call]],
        [f"return await tools.read_page({json.dumps(dict(call.arguments))});"],
        _reading(pages),
        "It says, in short: " + sentence(chance, 40),
        [pages[page_id]["title"]],
    )


def _judge(name: str, chance: random.Random) -> Task:
    ids = [f"P-{number}-{chance.randrange(1000)}" for number in range(4)]
    pages = {
        page_id: _page(chance, [*ids[number + 1 : number + 2], f"P-{chance.randrange(1000)}"])
        for number, page_id in enumerate(ids)
    }
    calls = [Call("read_page", {"page_id": page_id}) for page_id in ids]
    return _made(
        name,
        f"Start at page {ids[0]} of the handbook, follow what matters for travel abroad, and tell me what it is.",
        [[call] for call in calls],
        [f"return await tools.read_page({json.dumps(dict(call.arguments))});" for call in calls],
        _reading(pages),
        "What matters is: " + sentence(chance, 40),
        [pages[ids[-1]]["title"]],
    )


def _approve(name: str, chance: random.Random) -> Task:
    order = f"O-{chance.randrange(10_000, 99_999)}"
    record = {"order_id": order, "total": round(chance.uniform(20, 90), 2), "status": "delivered", "damaged": True}
    look = Call("get_order", {"order_id": order})
    refund = Call("refund_order", {"order_id": order, "amount": record["total"], "reason": "arrived damaged"})
    order_id = {"order_id": ("string", "")}
    tools = [
        tool("get_order", "One order.", order_id, lambda given: record),
        tool(
            "refund_order",
            "Pay back all of an order or a part of it.",
            order_id | {"amount": ("number", "EUR."), "reason": ("string", "")},
            lambda given: {"refunded": given["amount"], "reference": "R-1"},
            changes=True,
            ask=True,
        ),
        tool("send_message", "Write to the customer.", order_id | {"text": ("string", "")}, lambda given: "sent"),
    ]
    program = (
        f"const order = await tools.get_order({json.dumps(dict(look.arguments))});\n"
        "return await tools.refund_order({ order_id: order.order_id, amount: order.total, "
        'reason: "arrived damaged" });'
    )
    return _made(
        name,
        f"Order {order} arrived damaged: pay all of it back.",
        [[look], [refund]],
        [program],
        tools,
        f"I have paid back {record['total']:.2f} EUR for {order}.",
        ["R-1"],
    )


def _small(name: str, chance: random.Random) -> Task:
    first, second = chance.sample(PLACES, 2)
    degrees = {place: chance.randrange(-5, 35) for place in (first, second)}
    weather = {place: {"place": place, "celsius": celsius} for place, celsius in degrees.items()}
    calls = [Call("get_weather", {"place": place}) for place in (first, second)]
    place = {"place": ("string", "A city.")}
    tools = [
        tool("get_weather", "The weather in a city now.", place, lambda given: weather[given["place"]]),
        tool("get_time", "The local time in a city.", place, lambda given: "12:00"),
        tool("get_population", "How many people live in a city.", place, lambda given: 10**5),
    ]
    lines = ", ".join(f"tools.get_weather({json.dumps(dict(call.arguments), ensure_ascii=False)})" for call in calls)
    warm = max(degrees, key=lambda each: degrees[each])
    return _made(
        name,
        f"Is it warmer in {first} or in {second}?",
        [calls],
        [f"return await Promise.all([{lines}]);"],
        tools,
        f"It is warmer in {warm}.",
        [str(degrees[warm])],
    )
