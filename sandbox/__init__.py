"""Runs JavaScript that nobody trusts, in a fresh V8 in a fresh jailed process. Knows no tools, no policy, no MCP.

A map: `Sandbox` (pool.py) hands out a `Worker` (process.py) for each program; what crosses is in messages.py, framed by
wire.py, in the order that protocol.py allows. On the other side worker.py drives V8 (engine.py) and the realm (realm/)
behind the walls of jail.py, forked by zygote.py; source.py prepares program text there; attacks/ is what all of this
has to hold against. Names are loaded when used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox.attacks.siege import Attempt, LeftOut, Siege, attack
    from sandbox.engine import VERSION as ENGINE_VERSION
    from sandbox.errors import (
        EngineUnavailable,
        LocalProtocolError,
        Overloaded,
        ProtocolError,
        RemoteProtocolError,
        SandboxClosed,
        SandboxError,
        WallMissing,
    )
    from sandbox.jail import WALLS
    from sandbox.jail import available as available_walls
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
    from sandbox.pool import Occupancy, Sandbox
    from sandbox.process import Death, Worker
    from sandbox.standing import required as required_walls

_HOME = {  # module -> the public names that it holds
    "errors": "EngineUnavailable LocalProtocolError Overloaded ProtocolError RemoteProtocolError "
    "SandboxClosed SandboxError WallMissing",
    "limits": "LimitName Limits Usage",
    "messages": "Call FailureCode Fired Image Log Notice Rejected "
    "Reply Resolved Returned Start Threw Timer ToolName Wave",
    "pool": "Occupancy Sandbox",
    "process": "Death Worker",
}
_OTHERWISE = {  # public name -> module and the name that it has there
    "Attempt": ("attacks.siege", "Attempt"),
    "LeftOut": ("attacks.siege", "LeftOut"),
    "Siege": ("attacks.siege", "Siege"),
    "attack": ("attacks.siege", "attack"),
    "ENGINE_VERSION": ("engine", "VERSION"),
    "WALLS": ("jail", "WALLS"),
    "available_walls": ("jail", "available"),
    "required_walls": ("standing", "required"),
}
_WHERE = {name: (module, name) for module, names in _HOME.items() for name in names.split()} | _OTHERWISE

__all__ = [
    "ENGINE_VERSION",
    "WALLS",
    "Attempt",
    "Call",
    "Death",
    "EngineUnavailable",
    "FailureCode",
    "Fired",
    "Image",
    "LeftOut",
    "LimitName",
    "Limits",
    "LocalProtocolError",
    "Log",
    "Notice",
    "Occupancy",
    "Overloaded",
    "ProtocolError",
    "Rejected",
    "RemoteProtocolError",
    "Reply",
    "Resolved",
    "Returned",
    "Sandbox",
    "SandboxClosed",
    "SandboxError",
    "Siege",
    "Start",
    "Threw",
    "Timer",
    "ToolName",
    "Usage",
    "WallMissing",
    "Wave",
    "Worker",
    "attack",
    "available_walls",
    "required_walls",
]


def __getattr__(name: str) -> Any:
    # The zygote and its workers import modules of this package; what only the host needs must not load there.
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _WHERE[name]
    value = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
    globals()[name] = value
    return value
