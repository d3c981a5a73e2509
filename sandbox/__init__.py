"""Runs JavaScript that nobody trusts, in a fresh V8 in a fresh jailed process. Knows no tools, no policy, no MCP.

A map: `Sandbox` (pool.py) hands out a `Worker` (process.py) for each program; what crosses is in messages.py, framed by
wire.py, in the order that protocol.py allows. On the other side worker.py drives V8 (engine.py) and the realm (realm/)
behind the walls of jail.py, forked by zygote.py; source.py prepares program text there. Names are loaded when used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox.errors import (
        EngineUnavailable,
        LocalProtocolError,
        ProtocolError,
        RemoteProtocolError,
        SandboxClosed,
        SandboxError,
        TooManyPaused,
        WallMissing,
    )
    from sandbox.limits import LimitName, Limits, Usage
    from sandbox.messages import (
        Call,
        FailureCode,
        Fired,
        Image,
        Log,
        Notice,
        Rejected,
        Reply,
        Resolved,
        Returned,
        Start,
        Threw,
        Timer,
        ToolName,
        Wave,
    )
    from sandbox.pool import Sandbox
    from sandbox.process import Death, Worker

_HOME = {
    "EngineUnavailable": "errors",
    "LocalProtocolError": "errors",
    "ProtocolError": "errors",
    "RemoteProtocolError": "errors",
    "SandboxClosed": "errors",
    "SandboxError": "errors",
    "TooManyPaused": "errors",
    "WallMissing": "errors",
    "LimitName": "limits",
    "Limits": "limits",
    "Usage": "limits",
    "Call": "messages",
    "FailureCode": "messages",
    "Fired": "messages",
    "Image": "messages",
    "Log": "messages",
    "Notice": "messages",
    "Rejected": "messages",
    "Reply": "messages",
    "Resolved": "messages",
    "Returned": "messages",
    "Start": "messages",
    "Threw": "messages",
    "Timer": "messages",
    "ToolName": "messages",
    "Wave": "messages",
    "Sandbox": "pool",
    "Death": "process",
    "Worker": "process",
}

__all__ = [
    "Call",
    "Death",
    "EngineUnavailable",
    "FailureCode",
    "Fired",
    "Image",
    "LimitName",
    "Limits",
    "LocalProtocolError",
    "Log",
    "Notice",
    "ProtocolError",
    "Rejected",
    "RemoteProtocolError",
    "Reply",
    "Resolved",
    "Returned",
    "Sandbox",
    "SandboxClosed",
    "SandboxError",
    "Start",
    "Threw",
    "Timer",
    "TooManyPaused",
    "ToolName",
    "Usage",
    "WallMissing",
    "Wave",
    "Worker",
]


def __getattr__(name: str) -> Any:
    # The zygote and its workers import modules of this package; what only the host needs must not load there.
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
