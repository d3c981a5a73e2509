"""Scripted models: what they would write, message by message. Their words are fixed; what comes back is real.

`oracle` knows the ground truth: one program, or all independent calls together: no faultless model needs less.
`staged` must see a value before it can write it into its next program: no faultless model needs more.
`explore` looks at one sample of each level first, as live models often do.
`faulty@P` sends a broken program with probability P, is told what is wrong, and sends the right one.
They combine: `explore+faulty@1`. Direct arms have no programs to break or to explore with, so that all of these are
the oracle there, which flatters the direct arms. None of them says how often a live model would do so.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.bench.arms import Arm
from bridge.bench.tasks import Call, Returns, Task, Turn
from bridge.errors import ConfigurationError


@dataclass(frozen=True)
class Calls:
    """Direct calls in one message."""

    calls: Sequence[Call]


@dataclass(frozen=True)
class Write:
    """A program."""

    program: str


@dataclass(frozen=True)
class Search:
    """A search for tools."""

    query: str


@dataclass(frozen=True)
class Say:
    """The final message of a turn."""

    text: str


Step = Calls | Write | Search | Say

# What models get wrong before anything of the program has run, so that no call is made twice. Each is a real mistake.
BREAKS: Final[dict[str, Callable[[str], str]]] = {
    "import": lambda program: f'import {{ groupBy }} from "lodash";\n{program}',
    "fetch": lambda program: f'const answer = await fetch("https://api.example.com/items");\n{program}',
    "unclosed": lambda program: f"{program}\nif (true) {{ console.log((1 + 2);",
    "undefined": lambda program: f"const wanted = inputs.filters.region;\n{program}",
    "unknown tool": lambda program: f"const all = await tools.list_everything_at_once({{}});\n{program}",
    "python": lambda program: f"import json\nresult = json.loads('{{}}')\n{program}",
}


@dataclass(frozen=True)
class Scripted:
    """A scripted model, by what it does."""

    staged: bool = False
    explore: bool = False
    fault: float = 0.0

    @property
    def name(self) -> str:
        """As in rows, files and titles."""
        words = ["explore"] if self.explore else []
        words += ["staged"] if self.staged else []
        words += [f"faulty@{self.fault:g}"] if self.fault else []
        return "scripted/" + ("+".join(words) or "oracle")

    def seen_in(self, arm: Arm) -> Scripted:
        """What of it an arm shows: direct arms nothing, so that their rows are the oracle's."""
        return self if arm.programs else Scripted()

    def steps(self, task: Task, turn: Turn, arm: Arm, returns: Returns, chance: random.Random) -> list[Step]:
        """What it writes in one turn.

        Args:
            chance: Decides whether a program is broken, and how.
        """
        steps: list[Step] = []
        if not turn.calls:
            return [Say(turn.answer)]
        if arm.programs:
            programs = turn.programs
            chosen = [programs.oracle[returns]]
            if self.staged and programs.staged is not None:
                chosen = list(programs.staged[returns])
            if self.explore and programs.explore is not None:
                chosen = [programs.explore, *chosen]
            for program in chosen:
                if chance.random() < self.fault:
                    steps.append(Write(BREAKS[chance.choice(list(BREAKS))](program)))
                steps.append(Write(program))
        elif arm.together:
            steps += [Calls(level) for level in turn.levels if level]
        else:
            steps += [Calls([call]) for call in turn.calls]
        return [*steps, Say(turn.answer)]


def scripted(text: str) -> Scripted:
    """A model from its name: `oracle`, `staged`, `explore`, `faulty@0.2`, or some of them joined by `+`.

    Raises:
        ConfigurationError: It is none of these.
    """
    model = Scripted()
    for word in text.removeprefix("scripted:").removeprefix("scripted/").split("+"):
        fault = re.fullmatch(r"faulty@(0(?:\.\d+)?|1(?:\.0+)?)", word)
        if fault is not None:
            model = Scripted(model.staged, model.explore, float(fault[1]))
        elif word == "staged":
            model = Scripted(True, model.explore, model.fault)
        elif word == "explore":
            model = Scripted(model.staged, True, model.fault)
        elif word != "oracle":
            known = "oracle, staged, explore, faulty@P (P from 0 to 1)"
            raise ConfigurationError(f"model {text!r}: {word!r} is none of {known}; join them with +")
    return model
