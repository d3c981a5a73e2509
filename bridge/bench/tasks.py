"""What a workload is: tasks with their tools, the calls that solve them, and the programs that make those calls.

A task knows its ground truth. `Turn.levels` are the calls that solve it, in levels: calls of one level need nothing of
each other, and everything of the levels before. `Turn.programs` are programs that make exactly these calls; which of
them a scripted model writes is models.py's. Whether a run of them made the right calls is decided here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from bridge.tools import Tool

Returns = Literal["full", "projection"]
"""What a program returns: every reply that it got, or what the task asks for."""


@dataclass(frozen=True)
class Call:
    """A call of the ground truth. `tool` is a full name."""

    tool: str
    arguments: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Equal for equal calls: numbers and their texts are the same, as gates take them for each other."""
        return json.dumps([self.tool, _loose(self.arguments)], sort_keys=True)


@dataclass(frozen=True, kw_only=True)
class Programs:
    """Programs that solve one turn.

    Attributes:
        oracle: One program, by what it returns.
        staged: Several, where a value must be seen before it can be written into the next; None: the oracle's will do.
        explore: Looks at one sample of each level before the oracle's program; None: there is nothing to look at.
    """

    oracle: Mapping[Returns, str]
    staged: Mapping[Returns, Sequence[str]] | None = None
    explore: str | None = None


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One message of the user and what answers it.

    Attributes:
        facts: Texts that a model must have seen to answer; looked for in what it could read.
    """

    question: str
    levels: Sequence[Sequence[Call]]
    programs: Programs
    answer: str
    facts: Sequence[str] = ()

    @property
    def calls(self) -> list[Call]:
        """All calls, in order."""
        return [call for level in self.levels for call in level]


@dataclass(frozen=True, kw_only=True)
class Open:
    """A task that is being played: tools with a state of their own, and what that state is at the end."""

    tools: Sequence[Tool]
    state: Callable[[], Any] = lambda: None


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task of a workload.

    Attributes:
        open: Makes tools with a fresh state.
        group: Tasks of one source or template: the bootstrap draws groups.
        explore_calls: What the exploring program calls beyond the ground truth.
        size: What it varies in, for plots: number of calls, of tools.
        state: What `Open.state` must be at the end; None where there is no state.
    """

    id: str
    workload: str
    turns: Sequence[Turn]
    open: Callable[[], Open]
    group: str = ""
    explore_calls: int = 0
    size: Mapping[str, float] = field(default_factory=dict[str, float])
    state: Any = None


def same_calls(made: Sequence[Call], wanted: Sequence[Call]) -> bool:
    """Whether the same calls were made, each as often, in whatever order."""
    return Counter(call.key for call in made) == Counter(call.key for call in wanted)


def _loose(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _loose(part) for key, part in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, (list, tuple)):
        return [_loose(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if value is None or isinstance(value, (str, bool)) else str(value)
