"""Results as runs leave them, made without a run."""

from __future__ import annotations

import dataclasses
from typing import Any

from bridge.results import CallRow, Failure, Result, finish
from sandbox import Limits, Usage


def row(**changes: Any) -> CallRow:
    made = CallRow(id="r.1", tool="echo", arguments={}, decision="allow", outcome="completed", preview='"x"')
    return dataclasses.replace(made, **changes)


def finished(**changes: Any) -> Result:
    parts: dict[str, Any] = {
        "status": "completed",
        "value_json": None,
        "emitted": [],
        "images": [],
        "logs": [],
        "dropped_logs": 0,
        "failure": None,
        "notices": [],
        "rows": [],
        "usage": Usage(),
        "limits": Limits(),
        "program": "",
        "run_id": "r",
        "pending": [],
        "approvals": [],
        "handle": "h",
    }
    return finish(**(parts | changes))


PROGRAM = "const o = await tools.nothing({});\nreturn o.items.length;"


def failed(**changes: Any) -> list[str]:
    failure = Failure(code="threw", name="Error", message="boom", line=1, column=1)
    return finished(**({"status": "failed", "failure": failure, "program": PROGRAM} | changes)).text.split("\n")
