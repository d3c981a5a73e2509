"""The realm's text: its parts joined into one expression whose value is the object that the worker holds."""

from __future__ import annotations

from pathlib import Path
from typing import Final

# One strict function: its parts share a closure, and a sloppy one would show itself to any getter through `caller`.
PARTS: Final = ("intrinsics.js", "clock.js", "values.js", "web.js", "bridge.js")


def text() -> str:
    """What a fresh context evaluates first."""
    folder = Path(__file__).parent
    parts = [(folder / name).read_text("utf-8") for name in PARTS if (folder / name).exists()]
    return "(() => {\n'use strict';\n" + "\n".join(parts) + "\n})()\n//# sourceURL=realm"
