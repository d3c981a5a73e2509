"""The world that durable runs act on: effects in a real SQLite file, replies that a test holds, hosts that die.

A host is an executor. One that crashes writes nothing any more: its store refuses everything, as a killed process's
would, and its tasks are dropped.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import anyio

from bridge import Annotations, Executor, Policy, Tool, ToolContext, ToolError, ask
from bridge.journal import decode, encode
from bridge.run import Run
from bridge.state import RunState, fold
from bridge.store import Store, StoreFailed
from sandbox import Sandbox

ANY = {"type": "object"}
POLICY = Policy([ask("gated"), ask("both")])
KEY = b"0123456789abcdef0123456789abcdef"
HOUR = 3600.0  # longer than any lease


class Effects:
    """A table with a row for each time that a tool was reached."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.execute("CREATE TABLE IF NOT EXISTS effects (tool TEXT, call TEXT, key TEXT, n INTEGER)")

    def take(self, tool: str, arguments: Any, context: ToolContext) -> None:
        """The effect itself."""
        self._connection.execute(
            "INSERT INTO effects VALUES (?, ?, ?, ?)",
            (tool, context.call_id, context.idempotency_key, arguments.get("n", -1)),
        )

    def rows(self) -> list[tuple[str, str, str, int]]:
        """All that took effect, in order."""
        return self._connection.execute("SELECT tool, call, key, n FROM effects ORDER BY rowid").fetchall()

    def times(self, call_id: str) -> int:
        """How often one call took effect."""
        query = "SELECT count(*) FROM effects WHERE call = ?"
        return self._connection.execute(query, (call_id,)).fetchone()[0]

    def close(self) -> None:
        self._connection.close()


class Tools:
    """`write` and the like take effect at once, and reply when the test says so (at once where `held` is False).

    `again` is idempotent, `fail` takes effect and raises, `gated` is asked about, `person` is client-owned, `both` is
    asked about first and then answered by the application. `echo` only reads, and returns what it was given.
    """

    def __init__(self, effects: Effects, *, held: bool = False) -> None:
        self.effects = effects
        self.held = held
        self.in_flight: dict[str, anyio.Event] = {}
        self.entered: Callable[[], None] = lambda: None

    async def _reached(self, tool: str, arguments: Any, context: ToolContext) -> None:
        self.effects.take(tool, arguments, context)
        if not self.held:
            return
        event = self.in_flight[context.call_id] = anyio.Event()
        self.entered()
        try:
            await event.wait()
        finally:
            self.in_flight.pop(context.call_id, None)

    def reply(self, call_id: str) -> None:
        """Let a call come back."""
        self.in_flight.pop(call_id).set()

    def all(self) -> list[Tool]:
        """The catalog."""

        def effect(name: str, **annotations: Any) -> Tool:
            async def handler(arguments: Any, context: ToolContext) -> Any:
                await self._reached(name, arguments, context)
                if name == "fail":
                    raise ToolError("NO", f"no {arguments.get('n')}", details={"n": arguments.get("n")})
                return arguments if name == "echo" else f"{name} {arguments.get('n')}"

            return Tool(name=name, input_schema=ANY, handler=handler, annotations=Annotations(**annotations))

        return [
            effect("write"),
            effect("again", idempotent=True),
            effect("fail"),
            effect("gated"),
            effect("echo", read_only=True),
            Tool(name="person", input_schema=ANY),
            Tool(name="both", input_schema=ANY),
        ]


class MortalStore:
    """A store as one host sees it, until the host dies. Its clock is the test's.

    Args:
        before, after: Called with the name of an operation that writes.
    """

    def __init__(self, store: Store, ahead_s: float = 0.0) -> None:
        self.grants = store.grants
        self.dead = False
        self.ahead_s = ahead_s
        self.before: Callable[[str], None] = lambda operation: None
        self.after: Callable[[str], None] = lambda operation: None
        self._store = store

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._store, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if self.dead:
                raise StoreFailed("this host is dead")
            if "now" in options:
                options["now"] += self.ahead_s
            self.before(name)
            done = operation(*arguments, **options)
            self.after(name)
            return done

        return call

    def close(self) -> None:
        """The store itself outlives the host."""


class Host:
    """One executor, in one process as it were."""

    def __init__(
        self, sandbox: Sandbox, tools: Sequence[Tool], store: Store | None, *, ahead_s: float = 0.0, **options: Any
    ) -> None:
        options.setdefault("policy", POLICY)
        self.executor = Executor(tools, sandbox=sandbox, key=None if store else KEY, **options)
        self.store = MortalStore(store, ahead_s) if store is not None else None
        self.executor._keeper.store = self.store  # the same operations

    async def __aenter__(self) -> Self:
        await self.executor.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.executor.__aexit__()

    def die(self) -> None:
        """From here on nothing is written. Leave the block to drop its tasks."""
        if self.store is not None:
            self.store.dead = True


def settled(run: Run, tools: Tools) -> bool:
    """Whether nothing more happens by itself: paused, finished, or all that is awaited is a reply that is held."""
    if run.status != "running":
        return True
    flights, state = run.flights, run.state
    return (
        state.at_wave
        and not state.waves[-1].more
        and bool(flights.flying)
        and not (state.ready or state.timers or run.people.asking)
        and all(f"{run.id}.{number}" in tools.in_flight for number in flights.flying)
        and (not flights.queue or len(flights.flying) >= run.limits.in_flight)
    )


async def quiet(run: Run, tools: Tools) -> None:
    """Wait until nothing more happens by itself."""
    tools.entered = run.journal.changed
    with anyio.fail_after(60):
        while not settled(run, tools):
            await run.journal.change()


def fields(state: RunState) -> dict[str, Any]:
    """Everything that is known of a run, in a form that compares; the tools themselves are no part of a journal."""

    def plain(value: Any) -> Any:
        if hasattr(value, "__slots__") and hasattr(value, "made"):  # a call
            kept = {name: plain(getattr(value, name)) for name in value.__slots__ if name != "entry"}
            return kept | {"made": bytes(value.made)}
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items()}
        if hasattr(value, "__dict__"):
            return {name: plain(each) for name, each in vars(value).items()}
        return value

    return {name: plain(value) for name, value in vars(state).items()}


def of_kind(store: Store, run_id: str, kind: type) -> list[Any]:
    return [record for record in decode(store.read(run_id)) if isinstance(record, kind)]


def assert_is_its_journal(run: Run) -> None:
    """What is known of a live run is what anybody reads from its journal."""
    read = fold(decode([encode(record) for record in run.journal.records]))
    live, told = fields(run.state), fields(read)
    for name, value in live.items():
        assert told[name] == value, f"{name}: the journal says {told[name]!r}, live it is {value!r}"


async def in_flight(run: Run, tools: Tools, number: int) -> str:
    """Wait until a call has reached its tool and its reply is held; its public id."""
    tools.entered = run.journal.changed
    with anyio.fail_after(60):
        while f"{run.id}.{number}" not in tools.in_flight:
            await run.journal.change()
    return f"{run.id}.{number}"
