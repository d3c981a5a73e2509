"""Rules and limits as the command line gives them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from bridge.errors import ConfigurationError
from bridge.policy import Kind, Rule
from sandbox import Limits


def rules_of_options(rules: Iterable[tuple[Kind, str]], mistakes: list[str]) -> list[Rule]:
    """Rules of decisions and patterns; what is wrong with one is added to `mistakes`."""
    made: list[Rule] = []
    for decision, pattern in rules:
        try:
            made.append(Rule(pattern, decision, reason=f"--{decision} of the command line"))
        except ConfigurationError as error:
            mistakes.append(f"--{decision} {pattern}: {error}")
    return made


def limit_of(setting: str, mistakes: list[str]) -> tuple[str, Any] | None:
    """A limit and its value, of `cpu_s=2`; None, and why is added to `mistakes`, where it is none."""
    name, sign, text = setting.partition("=")
    known = {each.name: each.default for each in dataclasses.fields(Limits)}
    if not sign or name not in known:
        mistakes.append(f"--limit {setting}: write NAME=NUMBER, where NAME is one of {', '.join(known)}")
        return None
    whole = isinstance(known[name], int)
    try:
        number = int(text) if whole else float(text)
        # With room in a frame: how limits stand to each other is looked at when all are known.
        fields: dict[str, Any] = {"frame_bytes": 1 << 62, name: number}
        Limits(**fields)
    except ValueError as error:
        kind = "a whole number" if whole else "a number of seconds"
        said = str(error) if str(error).startswith("Limits.") else f"{text!r} is not {kind}"
        mistakes.append(f"--limit {setting}: {said}")
        return None
    return name, number
