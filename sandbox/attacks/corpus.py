"""The programs of the corpus: rows of JSON, and what of a program's outcome says that its attack was held.

    id, threat, class   what it is, the threat that it belongs to (a key of `HELD`), and how it goes about it
    js                  the program; a list of [text, times] where it is long
    tools, replies      names beyond the usual tools, and JSON text that a tool answers with: `{"echo": "{}"}`
    expect              `ok` (completed with exactly this value), `frozen_ok` (the same, for the clock stands still),
                        `err` (the name of the error it failed with), `code` (of that error), `kind` (any of ok, err,
                        stalled, crash, violation, limit:memory, limit:cpu, limit:time), and besides, where given:
                        `calls` (what reached the tools), `logs`, `maxlogs`, `text`, `warn` (a warning's code)

Every program meets the tools `add` (the sum of a and b), `echo` (its one argument), `fail` (an error), `get`, and two
whose replies are hostile: `evil_then` and `evil_proto`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from sandbox.attacks.player import Outcome
from sandbox.messages import Threw

TOOLS: Final = ("add", "echo", "fail", "get", "evil_then", "evil_proto")
HELD: Final[dict[str, str]] = {
    "realm.surface": "nothing of the engine is in reach that programs do not need",
    "realm.code_from_strings": "no text becomes code",
    "realm.modules": "no module can be loaded",
    "realm.introspection": "stacks and functions show nothing of what drives the program",
    "realm.tampering": "changed built-ins forge no call, argument or reply",
    "realm.async": "thenables, promise classes, generators and disposal change the program's own values only",
    "realm.tools": "the tools cannot be replaced",
    "realm.arguments": "arguments leave as plain JSON within their size, or not at all",
    "realm.replies": "replies are data, whatever their keys and values",
    "realm.values": "whatever is returned or thrown becomes JSON text",
    "realm.output": "floods are cut, and nothing printed is taken for anything else",
    "realm.end": "nothing happens after the end",
    "realm.clock": "no clock runs while a program computes",
    "source.wrapper": "no text closes the function that it is put into",
    "source.forms": "comments, escapes, line ends and types run as they read",
    "source.cost": "text that is costly to read ends within the limits",
    "limits.cpu": "endless work is ended",
    "limits.memory": "endless memory is ended",
    "limits.calls": "floods of calls and timers are ended",
    "engine.abort": "what upsets the engine costs the program only",
    "engine.persistence": "the next program finds a clean engine",
}
"""Threat -> what holds when every attack of it was held, in words for whoever runs them."""

_LIMITS: Final = {"memory_bytes": "limit:memory", "cpu_s": "limit:cpu", "wall_s": "limit:time"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One program of the corpus; see the module."""

    id: str
    threat: str
    js: str
    expect: dict[str, Any]
    tools: tuple[str, ...] = TOOLS
    replies: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def endless(self) -> bool:
        """Whether it may compute until a limit ends it, and which one does is not what it is about."""
        return "limit:cpu" in self.expect.get("kind", ()) and self.threat != "limits.memory"

    def answer(self, tool: str, arguments: list[Any]) -> Any:
        """What a tool says to a call of this program."""
        if tool in self.replies:
            return msgspec.Raw(self.replies[tool].encode())
        given = arguments[0] if arguments else None
        match tool:
            case "add":
                return _sum(given)
            case "fail":
                raise ValueError("tool says no")
            case "evil_then":
                return {"then": "x"}
            case "evil_proto":
                return {"__proto__": {"constructor": "x"}, "constructor": 1}
            case _:
                return given

    def broken(self, out: Outcome) -> str:
        """How an outcome is not what the case expects; an empty text where it is."""
        expect, seen = self.expect, kind_of(out)
        faults: list[str] = []
        if "ok" in expect or "frozen_ok" in expect:
            wanted = expect.get("ok", expect.get("frozen_ok"))
            if seen != "ok":
                faults.append(f"ended as {seen}, not with a value")
            elif not _same(out.value, wanted):
                faults.append(f"gave {_short(out.value)}, not {_short(wanted)}")
        elif "err" in expect or "code" in expect:
            if not isinstance(out.end, Threw):
                faults.append(f"ended as {seen}, not with an error")
            elif out.end.name != expect.get("err", out.end.name) or out.end.code != expect.get("code", out.end.code):
                faults.append(f"failed with {out.end.name} ({out.end.code})")
        elif seen not in expect["kind"]:
            faults.append(f"ended as {seen}, not as {' or '.join(expect['kind'])}")
        reached: list[Any] = [[tool, arguments[0] if arguments else {}] for tool, arguments in out.calls]
        if "calls" in expect and reached != expect["calls"]:
            faults.append(f"made the calls {_short(reached)}, not {_short(expect['calls'])}")
        lines = [line.message for line in out.logs]
        if "logs" in expect and lines != expect["logs"]:
            faults.append(f"logged {_short(lines)}")
        if len(lines) > expect.get("maxlogs", len(lines)):
            faults.append(f"logged {len(lines)} lines")
        if "text" in expect and out.text != expect["text"]:
            faults.append(f"said {_short(out.text)}")
        if "warn" in expect and expect["warn"] not in [notice.code for notice in out.warnings]:
            faults.append(f"lacks the warning {expect['warn']}")
        return "; ".join(faults)


def kind_of(out: Outcome) -> str:
    """How a program ended, in the words of `expect.kind`."""
    if out.death is not None:
        if out.death.outcome == "exceeded":
            return _LIMITS.get(out.death.limit or "", "limit")
        return {"crashed": "crash"}.get(out.death.outcome, out.death.outcome)
    if out.end is None:
        return "stalled"
    return "err" if isinstance(out.end, Threw) else "ok"


def load() -> list[Case]:
    """Every case, in the order of the files."""
    cases: list[Case] = []
    for name in ("public.jsonl", "own.jsonl"):
        lines = Path(__file__).with_name(name).read_text("utf-8").split("\n")  # JSON may hold the other line ends
        cases += [_case(json.loads(line)) for line in lines if line]
    return cases


def _case(row: dict[str, Any]) -> Case:
    js = row["js"] if isinstance(row["js"], str) else "".join(text * times for text, times in row["js"])
    return Case(
        id=row["id"],
        threat=row["threat"],
        js=js,
        expect=row["expect"],
        tools=(*TOOLS, *row.get("tools", ())),
        replies=row.get("replies", {}),
    )


def _sum(given: Any) -> Any:
    try:
        return given["a"] + given["b"]
    except (TypeError, KeyError):
        return 0


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON data: true is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
