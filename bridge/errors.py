"""The exceptions of this package, as a tree, and the codes of tool errors.

    BridgeError                  everything below that an operator or developer caused
    ├── CatalogError             tools that cannot stand together: collisions, bad names, bad schemas
    ├── ConfigurationError       a file or option that cannot be used; names file, key and line
    ├── ServerUnavailable        an MCP server that was declared required did not start
    ├── StateError               a state, run or verdict that cannot be used (unknown, finished, used twice)
    └── Diverged                 a replay did something else than its journal says
        └── EngineChanged        ... and it began on another build of engine, flags or realm
    ToolError                    what a tool raises and a program catches

How a program fails is never an exception: it is a `Result`.
"""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

HostCode = Literal[
    "invalid_arguments",
    "unknown_tool",
    "denied",
    "expired",
    "timeout",
    "failed",
    "unknown_outcome",
    "too_large",
    "limit",
    "cancelled",
]
HOST_CODES: Final[frozenset[str]] = frozenset(get_args(HostCode))


class BridgeError(Exception):
    """Base of everything that an operator or developer has to mend."""


class CatalogError(BridgeError):
    """Tools that cannot stand together; the text names every culprit."""


class ConfigurationError(BridgeError):
    """A configuration that cannot be used; the text names file, key and line where there are such."""


class ServerUnavailable(BridgeError):
    """An MCP server with `optional=False` could not be started; the text has the reason and its last output."""


class StateError(BridgeError):
    """A run, state or verdict that cannot be used."""


class Diverged(BridgeError):
    """A replayed program did something else than it did before; nothing was executed after that.

    Attributes:
        recorded, now: Both sides, a line each.
        line: Of the model's text; 0 where that is unknown.
        wave: Which wave, from 0.
    """

    def __init__(self, text: str, *, recorded: str, now: str, line: int, wave: int) -> None:
        super().__init__(text)
        self.recorded = recorded
        self.now = now
        self.line = line
        self.wave = wave


class EngineChanged(Diverged):
    """The run began on another build, and this one does not agree with it to the end."""


class ToolError(Exception):
    """A tool's failure, as a program sees it.

    A tool raises it to say what went wrong in words meant for the model; anything else that a tool raises reaches the
    program as `failed` without the exception's text, traceback or paths.

    Args:
        code: Short and stable, for the program to branch on. The host's own codes (`HOST_CODES`) become `failed` when
            a tool uses one.
        message: For the model: what happened and what to do.
        retryable: Whether the same call may succeed later.
        details: JSON data for the program, or None.
    """

    def __init__(self, code: str, message: str, *, retryable: bool = False, details: Any = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.details = details

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"
