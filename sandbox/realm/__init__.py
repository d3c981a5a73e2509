"""The realm's text: its parts joined into one expression whose value tells the worker its functions by name.

The web's part (URL, structuredClone, encodings, ...) is more than half of it and costs each worker more than a
millisecond, so it is put in only for programs that can reach it: by one of its names, by `globalThis`, or by an escape
that may hide either. Strict code without those has no way to the global object.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

PARTS: Final = ("intrinsics.js", "clock.js", "values.js", "bridge.js")
WEB: Final = ("url.js", "web.js")  # expressions of (define, uint32, strings), in this order
WEB_NAMES: Final = ("URL", "URLSearchParams", "structuredClone", "TextEncoder", "TextDecoder", "atob", "btoa", "crypto")
_REACHES_WEB: Final = re.compile(r"\b(?:" + "|".join((*WEB_NAMES, "globalThis")) + r")\b|\\u")


def text() -> str:
    """What a fresh context evaluates first: one strict function, for its parts share a closure."""
    return "(() => {\n'use strict';\n" + "\n".join(map(_read, PARTS)) + "\n})()\n//# sourceURL=realm"


def web_text() -> str:
    """An expression whose value installs the web's part, given `expose` and `uint32`."""
    parts = "\n".join(f"({_read(name)})(expose, uint32, strings);" for name in WEB)
    strings = f"const strings = ({_read('strings.js')})();"
    return f"((expose, uint32) => {{\n'use strict';\n{strings}\n{parts}\n}})\n//# sourceURL=realm"


def needs_web(script: str) -> bool:
    """Whether a script can reach what `web_text` defines."""
    return _REACHES_WEB.search(script) is not None


def _read(name: str) -> str:
    return (Path(__file__).parent / name).read_text("utf-8").rstrip().removesuffix(";")
