"""Random programs over the tools of world.py, and a model in Python of what each must come to.

The model knows nothing of journals: from what each call came back with, and the order in which the program was told, it
says what the program's value is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

SAY = "const say = call => call.then(value => value, error => error.code); const out = [];"
TOOLS = st.sampled_from(["write", "write", "again", "fail", "gated", "person", "both"])
NOTHING_HELD = st.sampled_from(["write", "again", "fail"])


@dataclass(frozen=True)
class Statement:
    """One statement: its text, and its value where it has one.

    Attributes:
        value: Of (what a call came to, when it was told, by n); the values that it may push, or None for no push.
    """

    text: str
    value: Callable[[Mapping[int, Any], Mapping[int, float]], list[Any]] | None = None


@dataclass(frozen=True)
class Program:
    """A program and its model."""

    text: str
    statements: tuple[Statement, ...]

    def accepts(self, value: Any, came_to: Mapping[int, Any], told: Mapping[int, float]) -> None:
        """Assert that a value of the whole program is what it must be."""
        pushes = [statement.value(came_to, told) for statement in self.statements if statement.value is not None]
        assert len(value) == len(pushes), f"{value} of {self.text}"
        for pushed, possible in zip(value, pushes, strict=True):
            assert possible == [ANYTHING] or pushed in possible, f"{pushed!r} is none of {possible!r} in\n{self.text}"


ANYTHING = object()


class Failed(str):
    """The code of an error, where it must be told from a value."""

    __slots__ = ()


def _call(tool: str, n: int) -> str:
    return f"tools.{tool}({{n: {n}}})"


def _one(tool: str, n: int) -> Statement:
    return Statement(f"out.push(await say({_call(tool, n)}));", lambda came_to, told: [came_to[n]])


def _all(tools: list[str], n: int) -> Statement:
    calls = ", ".join(f"say({_call(tool, n + i)})" for i, tool in enumerate(tools))
    return Statement(
        f"out.push(await Promise.all([{calls}]));", lambda came_to, told: [[came_to[n + i] for i in range(len(tools))]]
    )


def _settled(tools: list[str], n: int) -> Statement:
    calls = ", ".join(_call(tool, n + i) for i, tool in enumerate(tools))
    return Statement(
        f"out.push((await Promise.allSettled([{calls}])).map(one => one.value ?? one.reason.code));",
        lambda came_to, told: [[came_to[n + i] for i in range(len(tools))]],
    )


def _first(candidates: list[int], told: Mapping[int, float]) -> int:
    return min(candidates, key=lambda n: told.get(n, math.inf))


def _race(tools: list[str], n: int) -> Statement:
    calls = ", ".join(f"say({_call(tool, n + i)})" for i, tool in enumerate(tools))
    ns = [n + i for i in range(len(tools))]
    return Statement(f"out.push(await Promise.race([{calls}]));", lambda came_to, told: [came_to[_first(ns, told)]])


def _any(tools: list[str], n: int) -> Statement:
    calls = ", ".join(_call(tool, n + i) for i, tool in enumerate(tools))

    def value(came_to: Mapping[int, Any], told: Mapping[int, float]) -> list[Any]:
        good = [n + i for i in range(len(tools)) if n + i in told and not isinstance(came_to[n + i], Failed)]
        return [came_to[_first(good, told)] if good else "none"]

    return Statement(f"out.push(await Promise.any([{calls}]).catch(() => 'none'));", value)


def _loop(tool: str, times: int, n: int) -> list[Statement]:
    first = Statement(
        f"for (let n = {n}; n < {n + times}; n++) out.push(await say(tools.{tool}({{n}})));",
        lambda came_to, told: [came_to[n]],
    )
    later = [Statement("", lambda came_to, told, n=n + i: [came_to[n]]) for i in range(1, times)]
    return [first, *later]


def _timed(tool: str, n: int) -> Statement:
    return Statement(
        f"out.push(await Promise.race([say({_call(tool, n)}), sleep(1).then(() => 'time')]));",
        lambda came_to, told: ["time", came_to.get(n)],
    )


def _caught(tool: str, n: int) -> Statement:
    return Statement(
        f"try {{ out.push(await {_call(tool, n)}) }} catch (error) {{ out.push(error.code) }}",
        lambda came_to, told: [came_to[n]],
    )


CHANCE = Statement(
    "{ const given = {r: Math.random(), t: Date.now(), u: crypto.randomUUID(), d: new Date().toISOString()};"
    " const got = await say(tools.echo(given));"
    " out.push(JSON.stringify(got) === JSON.stringify(given)); }",
    lambda came_to, told: [True],
)
SLEEP = Statement("await sleep(1);")
TEXT = Statement("text(`${out.length} so far`);")


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A program of one to six statements."""
    statements: list[Statement] = []
    n = 1
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from("one all settled race any loop timed caught chance sleep text loose".split()))
        if kind in ("all", "settled", "race", "any"):
            tools = draw(st.lists(TOOLS, min_size=1, max_size=4))
            statements.append({"all": _all, "settled": _settled, "race": _race, "any": _any}[kind](tools, n))
            n += len(tools)
        elif kind == "loop":
            times = draw(st.integers(1, 4))
            statements += _loop(draw(TOOLS), times, n)
            n += times
        elif kind in ("one", "timed", "caught"):
            statements.append({"one": _one, "timed": _timed, "caught": _caught}[kind](draw(TOOLS), n))
            n += 1
        elif kind == "loose":
            statements.append(Statement(f"say({_call(draw(NOTHING_HELD), n)});"))
            n += 1
        else:
            statements.append({"chance": CHANCE, "sleep": SLEEP, "text": TEXT}[kind])
    lines = [SAY, *(statement.text for statement in statements if statement.text), "return out"]
    return Program("\n".join(lines), tuple(statements))
