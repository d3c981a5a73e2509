"""What an executor offers: its functions and servers as one catalog behind one gate, and how a loaded run finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import anyio

from bridge.approval import Grants
from bridge.errors import CatalogError
from bridge.lock import Lock
from bridge.policy import Policy
from bridge.tools import Catalog, Entry, Tool
from sandbox import Limits

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from typing_extensions import TypeIs

    from bridge.elicitation import Elicit
    from bridge.gate import Gate
    from bridge.mcp import Server
    from bridge.state import RunState


class Offer:
    """The tools of one executor. Its gate is made anew when a server changes its list; a run keeps the one it has.

    Raises:
        CatalogError: At construction, when tools cannot stand together.
    """

    def __init__(
        self,
        given: Sequence[Tool | Server | Callable[..., Any]],
        policy: Policy,
        grants: Grants,
        lock: Lock | None = None,
    ) -> None:
        self.servers: list[Server] = [tool for tool in given if is_server(tool)]
        self.policy = policy
        self.grants = grants
        self.lock = lock
        self._given = given
        self._catalog = Catalog(
            [tool for tool in given if not is_server(tool)], [server.name for server in self.servers]
        )
        self._gate: Gate | None = None
        self._versions: tuple[int, ...] = ()
        self._left_out: dict[str, list[str]] = {}

    def beside(self, tools: Iterable[Tool | Callable[..., Any]], *, alone: bool) -> Offer:
        """The same tools (none of them, if `alone`) and more after them. `CatalogError`: they cannot stand together."""
        return Offer([*(() if alone else self._given), *tools], self.policy, self.grants, self.lock)

    async def start(self, tasks: TaskGroup, elicit: Elicit | None = None) -> None:
        """Start all servers at once; the first that is required and is not there is raised, in no group."""
        refused: list[Exception] = []

        async def begin(server: Server) -> None:
            try:
                await server.start(tasks, elicit=elicit)
            except Exception as error:  # noqa: BLE001  handed to whoever enters the executor
                refused.append(error)

        async with anyio.create_task_group() as starting:
            for server in self.servers:
                starting.start_soon(begin, server)
        if refused:
            raise refused[0]

    async def stop(self) -> None:
        """Stop all servers."""
        for server in self.servers:
            await server.stop()

    def gate(self) -> Gate:
        """The gate of the next run."""
        from bridge.gate import Gate, usable

        versions = tuple(server.version for server in self.servers)
        if self._gate is None or versions != self._versions:
            if self.servers:
                tools: list[Tool | Callable[..., Any]] = []
                unlocked: list[str] = []
                for given in self._given:
                    if is_server(given):
                        admitted, said = self._admitted(given)
                        kept, left_out = usable(admitted)
                        unlocked += said
                        tools += kept
                        self._left_out[given.name] = left_out
                    else:
                        tools.append(given)
                names = [server.name for server in self.servers]
                self._catalog = Catalog(tools, names, warnings=unlocked, down=lambda: down(self.servers))
            self._gate, self._versions = Gate(self._catalog, self.policy, self.grants), versions
        return self._gate

    def gate_for(self, state: RunState) -> Gate:
        """The gate of a run that began elsewhere or earlier: its names, with the tools as they are here and now.

        A run is bound to the tools that it called or awaits: those of them that are not what they were are asked about.
        """
        from bridge.gate import Gate

        gate = self.gate()
        if state.began.tools == gate.bound:
            return gate
        used = {call.tool for call in state.calls.values()}
        entries: list[Entry] = []
        changed: dict[str, tuple[str, str | None]] = {}
        for bound in state.began.tools:
            known = gate.catalog.lookup(bound.name)
            if known is None:
                continue
            entries.append(Entry(known.tool, bound.name, bound.path))
            if bound.name in used and (known.tool.digest, known.tool.server_identity) != (bound.digest, bound.identity):
                changed[bound.name] = (bound.digest, bound.identity)
        return Gate(Catalog.of(entries), self.policy, self.grants, changed)

    def live(self, entry: Entry) -> Tool | None:
        """The definition of a tool as its owner has it now; None where it is gone."""
        for server in self.servers:
            if server.name == entry.tool.server:
                found = [tool for tool in server.tools if tool.name == entry.tool.name]
                return next(iter(found if self.lock is None else self.lock.admit(server.name, found)[0]), None)
        return entry.tool

    def _admitted(self, server: Server) -> tuple[Iterable[Tool], list[str]]:
        return (server.tools, []) if self.lock is None else self.lock.admit(server.name, server.tools)

    def warnings(self) -> list[str]:
        """What an operator should know: renamed and dropped tools, servers that are down, rules that match nothing."""
        catalog = self.gate().catalog
        found = list(catalog.warnings)
        for server in self.servers:
            if server.error:
                found.append(f"server {server.name} is down: {server.error}")
            found += [f"server {server.name}: {warning}" for warning in server.warnings]
            found += self._left_out.get(server.name, [])
        if any(server.error for server in self.servers):
            return found  # what matches no tool may match one of theirs
        return found + self.policy.idle([entry.name for entry in catalog.entries])


def down(servers: Iterable[Server]) -> dict[str, str]:
    """Those of some servers that are down, and why, in words that a model may read."""
    return {server.name: why for server in servers if (why := server.down) is not None}


def is_server(tool: Tool | Server | Callable[..., Any]) -> TypeIs[Server]:
    """Whether it is an MCP server rather than a tool; asked without importing the SDK."""
    return hasattr(tool, "start") and hasattr(tool, "tools") and hasattr(tool, "identity")


def checked_arguments(tools: Any, policy: Any, approver: Any, limits: Any, elicit: Any = None) -> list[Any]:
    """The tools as a list; what cannot be meant stops construction, in words."""
    if isinstance(tools, (Tool, str)) or not isinstance(tools, Iterable):
        raise TypeError(f"Executor takes a list of tools, not one {type(tools).__name__}: write Executor([...])")
    for name, value, kind in (("policy", policy, Policy), ("limits", limits, Limits)):
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"Executor({name}=) takes a {kind.__name__}, not a {type(value).__name__}")
    if approver is not None and not callable(approver):
        raise TypeError(f"Executor(approver=) takes a function of a list of requests: {type(approver).__name__}")
    if elicit is not None and not callable(elicit):
        raise TypeError(f"Executor(elicit=) takes a function of one Elicitation, not a {type(elicit).__name__}")
    given: list[Any] = list(cast("Iterable[Any]", tools))
    names = [tool.name for tool in given if is_server(tool)]
    for name in names:
        if names.count(name) > 1:
            raise CatalogError(f"two servers are named {name!r}: rename one, for rules and grants go by the name")
    return given
