"""Definitions that a server listed -> `Tool`s, under the settings that the developer gave for the server.

Pure: what cannot be used is left out and said, in the order in which the server listed it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bridge.errors import CatalogError
from bridge.mcp.text import invisible, printable
from bridge.tools import Annotations, Handler, Tool

if TYPE_CHECKING:
    import mcp_types as types

Approval = Literal["always", "never"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the developer says of one server; see `mcp.stdio`."""

    optional: bool = True
    trusted: bool = False
    require_approval: Approval | Mapping[str, Approval] | None = None
    allowed_tools: frozenset[str] | None = None
    call_s: float | None = None
    connect_s: float = 30.0
    max_concurrent: int | None = None
    rate: tuple[int, float] | None = None  # calls, and the seconds in which so many may begin


def tools_of(
    definitions: Iterable[types.Tool],
    *,
    server: str,
    identity: str,
    settings: Settings,
    handler: Callable[[Tool], Handler],
) -> tuple[tuple[Tool, ...], list[str]]:
    """The tools of a server, sorted by name, and what is to be said about them.

    Of one name listed twice the first definition is kept. Annotations are the server's word: `trusted` says whether
    the developer believes it.
    """
    warnings: list[str] = []
    made: dict[str, Tool] = {}
    listed: set[str] = set()
    for definition in definitions:
        name = definition.name
        if name in listed:
            warnings.append(
                f"it lists the tool {printable(name, 80)!r} more than once: only its first definition is used"
            )
            continue
        listed.add(name)
        if settings.allowed_tools is not None and name not in settings.allowed_tools:
            continue
        try:
            made[name] = _tool(definition, server, identity, settings, handler)
        except (CatalogError, RecursionError) as error:
            warnings.append(f"tool {printable(name, 80)!r} was left out: {printable(str(error), 200)}")
            continue
        unseen = invisible(f"{made[name].title or ''}{made[name].description}")
        if unseen:
            warnings.append(
                f"the description of tool {name!r} has characters that nobody sees ({', '.join(unseen[:5])})"
            )
    for setting, names in (("allowed_tools", settings.allowed_tools or ()), ("require_approval", _named(settings))):
        missing = sorted(set(names) - listed)
        if missing:
            warnings.append(f"{setting} names {', '.join(map(repr, missing))}, which it does not list")
    return tuple(made[name] for name in sorted(made)), warnings


def _named(settings: Settings) -> Iterable[str]:
    return settings.require_approval if isinstance(settings.require_approval, Mapping) else ()


def _tool(
    definition: types.Tool, server: str, identity: str, settings: Settings, handler: Callable[[Tool], Handler]
) -> Tool:
    approval = settings.require_approval
    hints = definition.annotations
    tool = Tool(
        name=definition.name,
        title=definition.title or (hints.title if hints else None),
        description=definition.description or "",
        input_schema=definition.input_schema,
        output_schema=definition.output_schema,
        annotations=Annotations(
            read_only=hints.read_only_hint if hints else None,
            destructive=hints.destructive_hint if hints else None,
            idempotent=hints.idempotent_hint if hints else None,
            open_world=hints.open_world_hint if hints else None,
            trusted=settings.trusted,
        ),
        timeout_s=settings.call_s,
        server=server,
        server_identity=identity,
        require_approval=approval.get(definition.name) if isinstance(approval, Mapping) else approval,
    )
    return dataclasses.replace(tool, handler=handler(tool))
