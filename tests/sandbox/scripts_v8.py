"""Prepared programs in a real V8, with tools played by JavaScript, in a process of its own.

V8 takes its flags once per process, and other tests need other ones: so pytest's own process never loads it here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, Final, Self

from sandbox import source
from sandbox.messages import Threw, ToolName

TOOLS: Final = [
    *(ToolName(name, (name,)) for name in ("get_order", "list_orders", "echo", "nothing")),
    ToolName("get-team-members", ("get_team_members",)),
    ToolName("carrier/track-parcel", ("carrier", "track_parcel")),
]

# The globals that a program finds, as far as the form of a program can tell; no promise of it waits for anything.
REALM: Final = """
'use strict';
delete globalThis.WebAssembly;
(() => {
  const lines = [], orders = { A1: { total: 10, status: 'late' }, A2: { total: 32.5, status: 'ok' } };
  const tools = { __proto__: null,
    get_order: async ({ order_id }) => ({ ...orders[order_id] }),
    list_orders: async () => ({ items: Object.values(orders), next_page: null }),
    get_team_members: async () => ['Ada', 'Bo'],
    echo: async ({ value }) => value,
    nothing: async () => null,
    carrier: { track_parcel: async () => 'moving' },
  };
  const globals = { tools, inputs: { n: 5 }, get_order: tools.get_order, sleep: async () => {},
    text: (x) => { lines.push(String(x)); }, print: (x) => { lines.push(String(x)); },
    output: (x) => { lines.push(String(x)); }, console: { log: (...x) => { lines.push(x.join(' ')); }, error() {} } };
  for (const name in globals) {
    Object.defineProperty(globalThis, name, { value: globals[name], writable: true, configurable: true });
  }
  let outcome = { stalled: true };
  const settle = (v) => typeof v === 'function' && v.length === 0 ? Promise.resolve(v()).then(settle)
    : { value: v === undefined ? null : v };
  globalThis.start = (f) => { f().then(settle).then((o) => { outcome = o; }, (e) => {
    outcome = { name: e.name, message: e.message, stack: e.stack }; }); };
  globalThis.outcome = () => JSON.stringify({ ...outcome, lines });
})();
"""

# One line of JSON in, one out; a fresh context each. First V8 says whether it parses, without running any of it.
DRIVER: Final = """
import json, sys
from py_mini_racer import MiniRacer, init_mini_racer
init_mini_racer(flags=sys.argv[2:])
for line in sys.stdin:
    js, body = json.loads(line)
    context = MiniRacer()
    context.eval(sys.argv[1])
    answer = None
    try:
        context.eval("throw 0;[" + body + "]\\n//# sourceURL=program")
    except Exception as error:
        if "SyntaxError: " in str(error):
            answer = {"refused": str(error)}
    if answer is None:
        context.eval("start(" + js.replace("\\n//# sourceURL", ")\\n//# sourceURL"))
        answer = json.loads(context.eval("outcome()"))
    context.close()
    print(json.dumps(answer), flush=True)
"""
FLAGS: Final = ("--single-threaded", "--jitless", "--disallow-code-generation-from-strings", "--stack-size=700")
_REFUSED: Final = re.compile(r"[^\n]*?:(\d+): (SyntaxError: [^\n]*)\n?([^\n]*)\n?( *\t*)\^?")
_FRAME: Final = re.compile(r"program:(\d+):(\d+)")


@dataclass(frozen=True)
class Ended:
    """How a program ended: its value, or what was told of its error."""

    value: Any = None
    threw: Threw | None = None
    lines: list[str] = field(default_factory=list[str])
    script: source.Script | None = None

    @property
    def notices(self) -> list[str]:
        return [notice.code for notice in self.script.notices] if self.script else []


class ScriptsV8:
    """Prepares programs and runs them, for as long as its `with` lasts."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, REALM, *FLAGS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="ascii",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._process:  # closes its input, which ends it, and waits
            pass

    def __call__(self, program: str) -> Ended:
        script = source.prepare(program, TOOLS)
        if isinstance(script, Threw):
            return Ended(threw=script)
        answer = self._answer(script.js)
        if "refused" in answer:
            refused = _REFUSED.match(answer["refused"])
            assert refused is not None, answer
            line, message, _, caret = refused.groups()
            return Ended(threw=source.syntax_error(program, script, message, int(line), len(caret) + 1), script=script)
        if "name" in answer:
            frame = _FRAME.search(answer["stack"])
            line, column = script.position(int(frame[1]), int(frame[2])) if frame else (0, 0)
            threw = Threw(code="", name=answer["name"], message=answer["message"], line=line, column=column)
            return Ended(threw=source.explain(program, script, threw, TOOLS), lines=answer["lines"], script=script)
        return Ended(answer.get("value"), lines=answer["lines"], script=script)

    def _answer(self, js: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([js, js[1 : js.rindex(")")]]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"V8 ended with status {self._process.wait()}"
        return json.loads(line)
