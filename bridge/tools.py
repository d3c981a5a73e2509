"""What a program may call: `Tool`, and the `Catalog` that names them."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import msgspec

Caller = Literal["direct", "programmatic"]
Schema = Mapping[str, Any] | bool


@dataclass(frozen=True, kw_only=True)
class Annotations:
    """What a tool says of itself; None where it says nothing. Only `trusted` ones may relax anything."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    trusted: bool = False


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """What a handler may know of the call it serves.

    Attributes:
        idempotency_key: The same for every attempt at one call of one run.
        caller_context: The object that was given to `Executor.run(..., context=)`, untouched.
        progress: Report progress (done, total or None, message or None): extends the call's deadline up to a ceiling.
    """

    run_id: str
    call_id: str
    idempotency_key: str
    caller_context: Any = None
    progress: Callable[[float, float | None, str | None], None] = lambda done, total, message: None


Handler = Callable[[Any, ToolContext], Awaitable[Any]]
"""Async function of the checked arguments (a JSON value) and the context. Returns a JSON value, or JSON text as
`msgspec.Raw`; raises `ToolError` for a failure that the program may know."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool. `name` is exact and as its owner gave it; for an MCP tool `server` names where it lives.

    Without a handler it is client-owned: the embedding application answers its calls.
    """

    name: str
    description: str = ""
    title: str | None = None
    input_schema: Schema = field(default_factory=lambda: {"type": "object"})
    output_schema: Schema | None = None
    annotations: Annotations = Annotations()
    callers: frozenset[Caller] = frozenset({"direct", "programmatic"})
    defer: bool = False
    handler: Handler | None = None
    timeout_s: float | None = None
    volatile: bool = False
    server: str | None = None
    server_identity: str | None = None
    require_approval: Literal["always", "never"] | None = None

    @property
    def full_name(self) -> str:
        """`server/name` for an MCP tool, the plain name otherwise: unique in a catalog, and `tools[full_name]` works."""
        return self.name if self.server is None else f"{self.server}/{self.name}"

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the definition (name, title, description, schemas, annotations) in canonical JSON."""
        definition = [self.name, self.title, self.description, self.input_schema, self.output_schema, self.annotations]
        return hashlib.sha256(msgspec.json.encode(definition, order="deterministic")).hexdigest()
