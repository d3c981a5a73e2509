"""V8 with nothing in it but the web's part of the realm, in a process of its own.

V8 takes its flags once per process, and other tests need other ones: so pytest's own process never loads it here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, Self

import sandbox

FOLDER: Final = Path(sandbox.__file__).parent / "realm"
FLAGS: Final = ("--single-threaded", "--jitless", "--disallow-code-generation-from-strings", "--stack-size=700")

# What realm.js does before, as far as these parts can tell; `names` lets a test see what they added.
REALM: Final = """
(() => {
  'use strict';
  for (const name of ['WebAssembly', 'SharedArrayBuffer', 'Atomics', 'WeakRef', 'FinalizationRegistry']) {
    delete globalThis[name];
  }
  const names = Object.getOwnPropertyNames(globalThis);
  const { imul } = Math;
  let state = 1;
  const uint32 = () => (state = (imul(state, 1664525) + 1013904223) >>> 0);
  const define = (name, value) => Object.defineProperty(globalThis, name, {
    value, writable: true, enumerable: false, configurable: true });
  const strings = (%s)();
  (%s)(define, uint32, strings);
  (%s)(define, uint32, strings);
  const caught = (f) => { try { f(); } catch (e) { return `${e.name}: ${e.message}`; } return null; };
  return JSON.stringify((%s)(%s, caught, names)) ?? 'null';
})()
"""

# One line of JSON in, one out; a fresh context each.
DRIVER: Final = """
import json, sys
from py_mini_racer import MiniRacer, init_mini_racer
init_mini_racer(flags=sys.argv[1:])
for line in sys.stdin:
    context = MiniRacer()
    try:
        answer = {"value": json.loads(context.eval(json.loads(line)))}
    except Exception as error:
        answer = {"error": str(error)}
    context.close()
    print(json.dumps(answer), flush=True)
"""


class PlainV8:
    """Evaluates functions in fresh realms, for as long as its `with` lasts."""

    def __init__(self) -> None:
        parts = [(FOLDER / name).read_text("utf-8") for name in ("strings.js", "url.js", "web.js")]
        self._realm = REALM % (*(part.replace("%", "%%") for part in parts), "%s", "%s")
        self._process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, *FLAGS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="ascii",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._process:  # closes its input, which ends it, and waits
            pass

    def __call__(self, function: str, argument: Any = None) -> Any:
        """What `function(argument, caught, names)` returns, as JSON data.

        `caught(f)` is "Name: message" of what `f` throws, or null; `names` are the globals before ours.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        text = self._realm % (function, json.dumps(argument))
        self._process.stdin.write(json.dumps(text) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"V8 ended with status {self._process.wait()}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["value"]
