"""The realm's text: its parts joined into one expression whose value is the object that the worker holds."""

from __future__ import annotations

from pathlib import Path
from typing import Final

BEFORE: Final = ("intrinsics.js", "clock.js", "values.js")
WEB: Final = ("url.js", "web.js")  # expressions of (define, uint32, strings), in this order
AFTER: Final = ("bridge.js",)


def text() -> str:
    """What a fresh context evaluates first: one strict function, for its parts share a closure."""
    web = [f"({_read(name)})(expose, uint32, strings);" for name in WEB]
    strings = f"const strings = ({_read('strings.js')})();"
    parts = [*map(_read, BEFORE), strings, *web, *map(_read, AFTER)]
    return "(() => {\n'use strict';\n" + "\n".join(parts) + "\n})()\n//# sourceURL=realm"


def _read(name: str) -> str:
    return (Path(__file__).parent / name).read_text("utf-8").rstrip().removesuffix(";")
