"""Tools for programs: what a program may call, under which policy, and what comes back.

A map: `Executor` (executor.py) runs programs on a sandbox; a `Run` (run.py) is one of them; every call goes through the
gate (gate.py): schema.py checks it, policy.py decides, approval.py asks. Tools come from functions.py and mcp.py, named
by tools.py and declared to the model by declarations.py; results.py says what the model reads. Names are loaded when
used, so that a run without MCP servers never imports the SDK.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bridge.errors import (
    BridgeError,
    CatalogError,
    ConfigurationError,
    Diverged,
    EngineChanged,
    ServerUnavailable,
    StateError,
    ToolError,
)

if TYPE_CHECKING:
    from bridge import anthropic, mcp, openai
    from bridge.approval import Answer, ApprovalRequest, Approve, Approver, Defer, Deny, Edit, terminal_approver
    from bridge.elicitation import Elicit, Elicitation, ElicitationAnswer, terminal_elicit
    from bridge.executor import Executor
    from bridge.logbook import Logbook
    from bridge.policy import Policy, Rule, allow, ask, deny
    from bridge.results import Result
    from bridge.run import Run
    from bridge.tools import Annotations, Catalog, Tool, ToolContext, tool

_HOME = {
    "Answer": "approval",
    "ApprovalRequest": "approval",
    "Approve": "approval",
    "Approver": "approval",
    "Defer": "approval",
    "Deny": "approval",
    "Edit": "approval",
    "terminal_approver": "approval",
    "Elicit": "elicitation",
    "Elicitation": "elicitation",
    "ElicitationAnswer": "elicitation",
    "terminal_elicit": "elicitation",
    "Executor": "executor",
    "Logbook": "logbook",
    "Policy": "policy",
    "Rule": "policy",
    "allow": "policy",
    "ask": "policy",
    "deny": "policy",
    "Result": "results",
    "Run": "run",
    "Annotations": "tools",
    "Catalog": "tools",
    "Tool": "tools",
    "ToolContext": "tools",
    "tool": "tools",
}

__all__ = [
    "Annotations",
    "Answer",
    "ApprovalRequest",
    "Approve",
    "Approver",
    "BridgeError",
    "Catalog",
    "CatalogError",
    "ConfigurationError",
    "Defer",
    "Deny",
    "Diverged",
    "Edit",
    "Elicit",
    "Elicitation",
    "ElicitationAnswer",
    "EngineChanged",
    "Executor",
    "Logbook",
    "Policy",
    "Result",
    "Rule",
    "Run",
    "ServerUnavailable",
    "StateError",
    "Tool",
    "ToolContext",
    "ToolError",
    "allow",
    "anthropic",
    "ask",
    "deny",
    "mcp",
    "openai",
    "terminal_approver",
    "terminal_elicit",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name in ("anthropic", "mcp", "openai"):  # packages; each loads its vendor's SDK when it is used
        return importlib.import_module(f"bridge.{name}")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
