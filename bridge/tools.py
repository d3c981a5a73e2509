"""What a program may call: `Tool`, the `tool` decorator, and the `Catalog` that names them all.

Everything here is data and pure decisions. Neither pydantic nor the MCP SDK is imported: `functions.py` is loaded when
a Python function is converted, and not before.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Final, Literal, cast, get_args, overload

import msgspec

from bridge.dialect import plain
from bridge.errors import CatalogError
from bridge.names import identifier, keep_apart, names_of_server
from bridge.text import unseen
from sandbox import ToolName

Caller = Literal["direct", "programmatic"]
Schema = Mapping[str, Any] | bool
CALLERS: Final[frozenset[Caller]] = frozenset(get_args(Caller))
NAME_LENGTH: Final = 128  # characters; what MCP 2026-07-28 allows a tool's name


class Derived(Enum):
    """Says that a value is derived from the function; None would mean that there is none."""

    DERIVED = "derived"


DERIVED: Final = Derived.DERIVED


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
        on_hold: `with context.on_hold():` round what waits for a person: the call's deadline and the run's `wall_s`
            stand meanwhile. After `Limits.expires_s` what is in the block is cancelled, and the code after it goes on.
    """

    run_id: str
    call_id: str
    idempotency_key: str
    caller_context: Any = None
    progress: Callable[[float, float | None, str | None], None] = lambda done, total, message: None
    on_hold: Callable[[], AbstractContextManager[None]] = nullcontext


Handler = Callable[[Any, ToolContext], Awaitable[Any]]
"""Async function of the checked arguments (a JSON value) and the context. Returns a JSON value, or JSON text as
`msgspec.Raw`; raises `ToolError` for a failure that the program may know."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Tool:
    """One tool. `name` is exact and as its owner gave it; for an MCP tool `server` names where it lives.

    Without a handler it is client-owned: the embedding application answers its calls. Schemas are copied, so that a
    later change to the caller's dict changes nothing here. Two tools are equal only if they are the same object;
    compare `digest` to compare definitions.

    Attributes:
        callers: Who may call it: programs (`programmatic`), the model itself (`direct`), or both.
        defer: Callable, but left out of the declarations until somebody searches for it.
        timeout_s: Seconds one call may take, in place of `Limits.call_s`.
        volatile: Its answers change by themselves: a recorded one is never used again.
        server_identity: Digest of what the server is (transport, command or URL, credential subject).
        function: The Python function it was made from: calling the `Tool` calls it, unchecked, as the application's
            own code would.

    Raises:
        CatalogError: A name, schema or option that cannot be used; the text names the tool.
    """

    name: str
    description: str = ""
    title: str | None = None
    input_schema: Schema = field(default_factory=lambda: {"type": "object"})
    output_schema: Schema | None = None
    annotations: Annotations = Annotations()
    callers: frozenset[Caller] = CALLERS
    defer: bool = False
    handler: Handler | None = None
    timeout_s: float | None = None
    volatile: bool = False
    server: str | None = None
    server_identity: str | None = None
    require_approval: Literal["always", "never"] | None = None
    function: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        _check_name("tool", self.name)
        if self.server is not None:
            _check_name("server", self.server)
            if "/" in self.server:
                raise CatalogError(f"server name {self.server!r} has a '/', which divides server and tool: rename it")
        who = f"tool {self.full_name!r}"
        for kind in ("input_schema", "output_schema"):
            schema = getattr(self, kind)
            if schema is not None or kind == "input_schema":
                object.__setattr__(self, kind, plain(schema, f"{who}: {kind}"))
        callers = frozenset([self.callers]) if isinstance(self.callers, str) else frozenset(self.callers)
        if not callers or not callers <= CALLERS:
            raise CatalogError(f"{who}: callers must be some of {sorted(CALLERS)}, not {sorted(map(str, callers))}")
        object.__setattr__(self, "callers", callers)
        if self.handler is not None:
            object.__setattr__(self, "handler", _handler(self.handler, who))
        seconds: Any = self.timeout_s
        if seconds is not None and (
            isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf
        ):
            raise CatalogError(f"{who}: timeout_s must be positive and finite, not {seconds!r}")
        if self.require_approval not in (None, "always", "never"):
            raise CatalogError(
                f"{who}: require_approval must be 'always', 'never' or None, not {self.require_approval!r}"
            )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the Python function that this tool was made from, as if it had never been decorated."""
        if self.function is None:
            raise TypeError(f"tool {self.full_name!r} was not made from a Python function, so it cannot be called here")
        return self.function(*args, **kwargs)

    @property
    def full_name(self) -> str:
        """`server/name` for an MCP tool, else the plain name: unique in a catalog, and `tools[full_name]` works."""
        return self.name if self.server is None else f"{self.server}/{self.name}"

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the definition (name, title, description, schemas, annotations) in canonical JSON."""
        definition = [self.name, self.title, self.description, self.input_schema, self.output_schema, self.annotations]
        try:
            text = msgspec.json.encode(definition, order="deterministic")
        except UnicodeEncodeError:  # a lone surrogate: JSON in ASCII has one too
            plain_data = [*definition[:-1], msgspec.to_builtins(self.annotations)]
            text = json.dumps(plain_data, sort_keys=True, separators=(",", ":")).encode("ascii")
        return hashlib.sha256(text).hexdigest()

    @property
    def wraps_result(self) -> bool:
        """Whether a structured result is `{"result": X}` around the value X, which a program then gets as X.

        Only where the output schema says so (`x-fastmcp-wrap-result`): types and values follow this one rule.
        """
        schema = self.output_schema
        if not isinstance(schema, Mapping) or schema.get("x-fastmcp-wrap-result") is not True:
            return False
        properties = schema.get("properties")
        return isinstance(properties, Mapping) and "result" in properties


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    input_schema: Schema | None = None,
    output_schema: Schema | Derived | None = DERIVED,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    callers: Iterable[Caller] = CALLERS,
    defer: bool = False,
    timeout_s: float | None = None,
    volatile: bool = False,
    require_approval: Literal["always", "never"] | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
@overload
def tool(function: Callable[..., Any], /, **options: Any) -> Tool: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a Python function: `@tool`, `@tool(read_only=True)`, or `tool(obj.method, name="lookup")`.

    Schemas come from annotations, descriptions from the docstring; `functions.from_function` has the rules. The
    decorated name is a `Tool` that can still be called as the function was. A method is decorated when it is bound
    (`tool(obj.method)`): in the class body there is no `self` yet to call it with.

    Args:
        function: The function, method, partial or callable object.
        options: Fields of `Tool` and `Annotations` to set by hand; `output_schema=None` means that results are not
            described and not checked.

    Raises:
        CatalogError: The function cannot become a tool; the text names it, the parameter, and what to do.
    """
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    namespace = dict(caller.f_locals) if caller is not None and "__name__" not in caller.f_locals else {}
    del frame, caller

    def convert(function: Callable[..., Any]) -> Tool:
        from bridge.functions import from_function  # loads pydantic

        return from_function(function, namespace=namespace, **options)

    return convert if function is None else convert(function)


@dataclass(frozen=True)
class Entry:
    """One tool with its names: `name` is exact and unique, `path` is where the realm puts it below `tools`."""

    tool: Tool
    name: str
    path: tuple[str, ...]

    @property
    def expression(self) -> str:
        """How a program writes it, without the leading `tools.`: `get_order`, `carrier.track`."""
        return ".".join(self.path)


class Catalog:
    """The tools of one executor in a fixed order (as given), with the JavaScript names that a program calls them by.

    The names are one-to-one. Two client functions that would share one, or a client function and a server, or two
    servers, stop construction, both named: the developer wrote them and can rename one; so does a name that begins with
    a server's and a dot, for rules could not tell it from a tool of that server. MCP tools that collide all get
    a digest of their exact name as suffix, with a warning; of one exact name that a server lists twice, the first is
    kept, with a warning.

    Args:
        tools: `Tool`s and plain functions (converted as by `tool`).
        servers: Names of configured servers, also those that have no tools (yet): their names are taken.
        warnings: What is to be said of it beside what it finds itself: what was left out before.
        down: Tells which servers are down just now, and why: name -> words that a model may read.

    Raises:
        CatalogError: See above, and whatever `Tool` and `tool` raise.
    """

    def __init__(
        self,
        tools: Iterable[Tool | Callable[..., Any]],
        servers: Iterable[str] = (),
        *,
        warnings: Iterable[str] = (),
        down: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        warnings = list(warnings)
        kept: dict[str, Tool] = {}
        for item in tools:
            made = _as_tool(item)
            if made.full_name not in kept:
                kept[made.full_name] = made
            elif made.server is None or kept[made.full_name].server is None:
                other = kept[made.full_name]
                raise CatalogError(f"{_who(other)} and {_who(made)} have the same name {made.full_name!r}: rename one")
            else:
                warnings.append(
                    f"server {made.server!r} lists the tool {made.name!r} more than once: only the first is used"
                )
        paths = _paths(kept, servers, warnings)
        self.entries: tuple[Entry, ...] = tuple(Entry(kept[name], name, paths[name]) for name in kept)
        self.warnings: tuple[str, ...] = tuple(warnings)
        self.down = down
        self._by_name = {entry.name: entry for entry in self.entries}

    def __repr__(self) -> str:
        return f"<Catalog of {len(self.entries)} tools: {', '.join(entry.expression for entry in self.entries[:5])}>"

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Catalog:
        """The catalog that a run began with: its names are given, and no longer to be found."""
        made = cls(())
        made.entries = tuple(entries)
        made._by_name = {entry.name: entry for entry in made.entries}
        return made

    def lookup(self, full_name: str) -> Entry | None:
        """The entry with this exact name, or None."""
        return self._by_name.get(full_name)

    def realm_names(self) -> list[ToolName]:
        """What a program's realm has, in catalog order: the tools that programs may call, deferred ones included."""
        return [ToolName(e.name, e.path) for e in self.entries if "programmatic" in e.tool.callers]

    @cached_property
    def digest(self) -> str:
        """SHA-256 over names, paths, callers and definitions, in order: equal where nobody could tell them apart."""
        rows = [[e.name, e.path, sorted(e.tool.callers), e.tool.defer, e.tool.digest] for e in self.entries]
        return hashlib.sha256(msgspec.json.encode(rows)).hexdigest()


def _without_context(given: Callable[[Any], Awaitable[Any]]) -> Handler:
    def handler(arguments: Any, context: ToolContext) -> Awaitable[Any]:
        return given(arguments)

    return handler


def _handler(given: Any, who: str) -> Handler:
    """A handler of (arguments, context); one of the arguments alone is as good."""
    if not callable(given):
        raise CatalogError(f"{who}: handler must be an async function of (arguments, context), or None")
    try:
        signature = inspect.signature(given)
    except (TypeError, ValueError):
        return cast("Any", given)  # a builtin: nothing is known of it
    for count in (2, 1):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        handler = cast("Any", given)  # callable() narrows it to what returns an object
        return handler if count == 2 else _without_context(handler)
    raise CatalogError(f"{who}: handler takes {signature}, but it is called with (arguments, context)")


def _as_tool(item: object) -> Tool:
    if isinstance(item, Tool):
        return item
    if callable(item):
        return tool(item)
    raise CatalogError(f"{item!r} is no tool: give a Tool or a Python function")


def _paths(tools: Mapping[str, Tool], servers: Iterable[str], warnings: list[str]) -> dict[str, tuple[str, ...]]:
    """The path of each exact name. Raises `CatalogError` where two names of the developer meet."""
    top: dict[str, str] = {}  # identifier below `tools` -> who has it
    spaces: dict[str, str] = {}  # server -> its identifier
    members: dict[str, list[str]] = {}  # server -> its tools' own names
    named = dict.fromkeys(servers)
    named.update(dict.fromkeys(t.server for t in tools.values() if t.server is not None))
    functions = [(item.name, _who(item)) for item in tools.values() if item.server is None]
    for server in named:
        _check_name("server", server)
        keep_apart(server, [*((other, f"server {other!r}") for other in named), *functions])
        spaces[server] = _claim(top, identifier(server), f"server {server!r}")
    paths: dict[str, tuple[str, ...]] = {}
    for name, item in tools.items():
        if item.server is None:
            paths[name] = (_claim(top, identifier(item.name), _who(item)),)
        else:
            members.setdefault(item.server, []).append(item.name)
    for server, own in members.items():
        aliases, said = names_of_server(server, spaces[server], own)
        warnings.extend(said)
        paths.update({f"{server}/{name}": (spaces[server], alias) for name, alias in aliases.items()})
    return paths


def _claim(top: dict[str, str], alias: str, who: str) -> str:
    if alias in top:
        raise CatalogError(f"{top[alias]} and {who} would both be tools.{alias} in a program: rename one")
    top[alias] = who
    return alias


def _who(item: Tool) -> str:
    """How an error names a tool: with the function behind it, since two of them may share a name."""
    function: Any = item.function
    place = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if item.server is not None:
        return f"tool {item.name!r} of server {item.server!r}"
    return f"tool {item.name!r}" + (f" ({'.'.join(map(str, place))})" if all(place) else "")


def _check_name(kind: str, name: object) -> None:
    if not isinstance(name, str) or not name:
        raise CatalogError(f"{kind} name {name!r} must be a text of 1 to {NAME_LENGTH} characters")
    if len(name) > NAME_LENGTH:
        raise CatalogError(f"{kind} name {name[:40] + '…'!r} has {len(name)} characters, over {NAME_LENGTH}")
    for character in name:
        if unseen(character):
            raise CatalogError(f"{kind} name {name!r} has an invisible character (U+{ord(character):04X}): remove it")
