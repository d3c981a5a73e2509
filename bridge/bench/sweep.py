"""Break-even: from how many tools, calls and bytes a program needs less than direct parallel calls.

A model of both sides, request by request, with unit costs that are measured on real definitions and items (`units`):
what a tool takes as JSON and as TypeScript, a call, a reply's wrapper, a program. It counts like count.py, with the
same prefix cache and prices. How well it fits is shown by drawing measured tasks into its plot.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bridge import tokens
from bridge.bench.count import Price, Request, cost
from bridge.bench.play import SYSTEM
from bridge.bench.wire import FORMATS, WireCall, WireResult, compact
from bridge.bench.workloads.catalogue import generated
from bridge.bench.workloads.orders import SIZES as ORDER_SIZES
from bridge.bench.workloads.orders import tasks as orders
from bridge.code_tool import SCHEMA, SHORT, TOOL_NAME
from bridge.declarations import declare, instructions
from bridge.tools import Catalog, Tool

MOST: Final = 10_000  # tools, calls: no break-even below that is none
_SAMPLE: Final = 1000  # tools whose definitions are averaged
_ERROR: Final = 120  # tokens of the text that tells of a failed program
_RETURNED: Final = 200  # tokens of what a program returns


@dataclass(frozen=True)
class Units:
    """Tokens of one of each."""

    base: float
    json_tool: float
    script_tool: float
    how: float
    call: float
    wrapper: float
    code: float
    answer: float
    per_byte: float


@dataclass(frozen=True)
class Case:
    """A task by its numbers: tools, calls in so many levels, bytes of a reply, probability of a failed program."""

    tools: int
    calls: int
    levels: int = 1
    reply_bytes: float = 1000
    fault: float = 0.0


def units() -> Units:
    """Measure them on generated definitions with the sizes of real ones, and on the items of a workload."""
    count = tokens.load().count
    wire = FORMATS["responses"]
    made = generated(_SAMPLE, random.Random("sweep"))  # noqa: S311  data, not a secret
    catalog = Catalog(
        [Tool(name=each["name"], description=each["description"], input_schema=each["schema"]) for each in made]
    )
    task = orders(0, 1)[ORDER_SIZES.index(10)]
    call = task.turns[0].levels[1][0]
    program = task.turns[0].programs.oracle["projection"]
    reply = compact({"order_id": "O-12345", "customer": "Ada Holm", "placed": "2026-03-02", "total": 129.5})
    definitions = [wire.tool(tool.name, tool.description, tool.input_schema).text for tool in _tools(catalog)]  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  an object's schema
    code_tool = wire.tool(TOOL_NAME, f"{SHORT} How to write one is in the instructions.", SCHEMA)
    question = wire.user(task.turns[0].question)
    return Units(
        base=count(SYSTEM) + count(question.text) + 20,
        json_tool=sum(map(count, definitions)) / _SAMPLE,
        script_tool=count(declare(catalog.entries)) / _SAMPLE,
        how=count(instructions(Catalog([]))) + count(code_tool.text),
        call=count(wire.calls([WireCall("call_00000001", call.tool, compact(dict(call.arguments)))])[0].text),
        wrapper=count(wire.results([WireResult("call_00000001", "")])[0].text),
        code=count(wire.calls([WireCall("call_00000001", TOOL_NAME, compact({"program": program}))])[0].text),
        answer=count(wire.answer(task.turns[0].answer).text),
        per_byte=count(reply) / len(reply),
    )


def direct(case: Case, unit: Units) -> list[Request]:
    """Requests of direct parallel calls."""
    fixed = unit.base + case.tools * unit.json_tool
    history, made, before = 0.0, 0, 0.0
    requests: list[Request] = []
    for level in range(case.levels + 1):
        left = case.calls - made
        now = 0 if level == case.levels else math.ceil(left / (case.levels - level))
        written = now * unit.call if now else unit.answer
        requests.append(_request(fixed + history, before, written))
        before = fixed + history
        history += now * (unit.call + unit.wrapper + case.reply_bytes * unit.per_byte)
        made += now
    return requests


def programmatic(case: Case, unit: Units) -> list[Request]:
    """Requests of one program, with the expected number of failed ones before it.

    A failure is counted as so much of a request as it is probable.
    """
    fixed = unit.base + unit.how + case.tools * unit.script_tool
    requests = [_request(fixed, 0, unit.code)]
    history, before = 0.0, fixed
    if case.fault:
        history = case.fault * (unit.code + unit.wrapper + _ERROR)
        requests.append(_request(case.fault * (fixed + history), case.fault * before, case.fault * unit.code))
    history += unit.code + unit.wrapper + _RETURNED
    requests.append(_request(fixed + history, before, unit.answer))
    return requests


def saved(case: Case, unit: Units, price: Price | None = None) -> float:
    """Share of tokens saved, or of cost with prefix caching where there is a price."""
    if price is None:
        ours, base = (
            sum(each.input_tokens + each.output_tokens for each in side(case, unit)) for side in (programmatic, direct)
        )
    else:
        ours, base = (cost(side(case, unit), price, "prefix") for side in (programmatic, direct))
    return 1 - ours / base


def least(of: Callable[[int], Case], unit: Units, price: Price | None = None, most: int = MOST) -> int | None:
    """The least number (of tools, calls, bytes) from which on a program needs less; None where it never does."""
    if saved(of(most), unit, price) <= 0:
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if saved(of(middle), unit, price) > 0 else (middle, high)
    return high


def table(unit: Units, price: Price) -> list[tuple[str, str, str, str]]:
    """Break-even in lines: what is fixed, what is varied, by tokens, by cost."""
    rows: list[tuple[str, str, str, str]] = []

    def add(fixed: str, varied: str, of: Callable[[int], Case], most: int = MOST) -> None:
        found = [least(of, unit, each, most) for each in (None, price)]
        rows.append((fixed, varied, *("never" if each is None else f"{each:,}" for each in found)))  # pyright: ignore[reportArgumentType]

    for calls in (1, 2, 5):
        for fault in (0.0, 0.3):
            fixed = f"{calls} calls in sequence, replies of 1,000 bytes, failed programs {fault:.0%}"
            add(fixed, "tools", lambda n, c=calls, f=fault: Case(max(n, 1), c, c, 1000, f))
    for count in (3, 10, 50):
        add(
            f"{count} tools, replies of 1,000 bytes, one level", "calls", lambda n, t=count: Case(t, max(n, 1), 1, 1000)
        )
    for count, calls in ((3, 2), (10, 2), (10, 5), (50, 5)):
        fixed = f"{count} tools, {calls} calls in one level"
        add(fixed, "bytes of a reply", lambda n, t=count, c=calls: Case(t, c, 1, n), 1_000_000)
    return rows


def grid(
    unit: Units, calls: Sequence[int], sizes: Sequence[int], price: Price | None = None, tools: int = 10
) -> list[list[float]]:
    """Share saved by calls (down) and bytes of a reply (across), one level."""
    return [[saved(Case(tools, each, 1, size), unit, price) for size in sizes] for each in calls]


def _request(total: float, prefix: float, written: float) -> Request:
    return Request(
        sha256="",
        tokens={"all": round(total)},
        bytes={},
        prefix=round(prefix),
        output_tokens=round(written),
        output_bytes=0,
    )


def _tools(catalog: Catalog) -> list[Tool]:
    return [entry.tool for entry in catalog.entries]
