"""What the commands share: their exit status, options, and how asynchronous work of theirs runs and is ended.

Exit status: 0 completed, 1 the program failed or a limit ended it, 2 usage, configuration or a sandbox that cannot
start, 3 paused, 128 + the signal that ended it (Ctrl-C: 130).
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, TypeVar

import anyio
import typer

from bridge import config, screen
from bridge.errors import ConfigurationError
from bridge.screen import COMPLETED, FAILED, PAUSED, USAGE

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from bridge.logbook import Logbook
    from bridge.policy import Kind

_SIGNALS: Final = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]

T = TypeVar("T")

__all__ = [
    "COMPLETED",
    "FAILED",
    "PAUSED",
    "USAGE",
    "Ended",
    "chosen",
    "no_json",
    "rules",
    "store_options",
    "tool_options",
    "work",
]

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Functions, servers, rules, limits. Default: ./sandbridge.toml."),
]
McpOption = Annotated[
    list[Path] | None, typer.Option("--mcp", metavar="FILE", help="An mcp.json, as hosts have it. May be repeated.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on standard output, and nothing else there.")]
AllowOption = Annotated[list[str] | None, typer.Option("--allow", metavar="PATTERN", help="Tools to allow: 'shop.*'.")]
AskOption = Annotated[list[str] | None, typer.Option("--ask", metavar="PATTERN", help="Tools to ask about.")]
DenyOption = Annotated[
    list[str] | None, typer.Option("--deny", metavar="PATTERN", help="Tools to deny; the strictest wins.")
]
LogOption = Annotated[
    str | None, typer.Option("--log", metavar="FILE|-", help="Append the run as JSON lines; - writes to stderr.")
]
NoApproverOption = Annotated[bool, typer.Option("--no-approver", help="Pause on what is to be asked, never ask.")]
StrictOption = Annotated[bool, typer.Option("--strict", help="Refuse where a wall does not stand, whichever it is.")]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="URL|PATH", help="Where runs are kept: runs.db, postgresql://user@host/database."),
]


class Ended(Exception):
    """A signal ended the work."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def chosen(file: Path | None) -> Path | None:
    """The configuration file: the one that was named, or the one that lies here, or None."""
    default = Path(config.DEFAULT_FILE)
    return file or (default if default.is_file() else None)


def rules(allow: list[str] | None, ask: list[str] | None, deny: list[str] | None) -> list[tuple[Kind, str]]:
    """The rules of the command line."""
    given: dict[Kind, list[str] | None] = {"allow": allow, "ask": ask, "deny": deny}
    return [(kind, pattern) for kind, patterns in given.items() for pattern in patterns or ()]


def logbook(file: str | None) -> Logbook | None:
    """What `--log` names; None where nothing is to be written.

    Raises:
        ConfigurationError: It cannot be written.
    """
    if file is None:
        return None
    from bridge.logbook import Logbook

    if file == "-":
        return Logbook.lines(sys.stderr)
    try:
        Path(file).open("ab").close()
    except OSError as error:
        raise ConfigurationError(f"--log {file} cannot be written: {error.strerror}") from None
    return Logbook.lines(file)


def store_options(store: str | None, config_file: Path | None) -> str:
    """Options that say where runs are, as a command repeats them that is shown to the person."""
    return screen.words([("--store", store), ("--config", config_file)])


def tool_options(mcp: list[Path] | None) -> str:
    """The same for what `run` and `resume` need beside them, for they alone start servers."""
    return screen.words([("--mcp", path) for path in mcp or ()])


def no_json(name: str) -> NoReturn:
    """For `json.loads(parse_constant=)`: NaN and infinities are no JSON."""
    raise ValueError(f"{name} is not JSON")


def work(work: Callable[[], Awaitable[T]], beside: Callable[[], Coroutine[Any, Any, None]] | None = None) -> T:
    """Run async work to its end, or until a signal: then it is cancelled, and what it opened is closed.

    Args:
        beside: Runs as long.

    Raises:
        Ended: There was a signal.
    """
    done: list[T] = []
    failed: list[Exception] = []
    signals: list[int] = []

    async def guarded() -> None:
        async with anyio.create_task_group() as tasks:

            async def listen(*, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
                with anyio.open_signal_receiver(*_SIGNALS) as received:
                    task_status.started()
                    async for number in received:
                        signals.append(number)
                        tasks.cancel_scope.cancel()

            await tasks.start(listen)
            if beside is not None:
                tasks.start_soon(beside)
            try:
                done.append(await work())
            except Exception as error:  # noqa: BLE001  raised below, out of the group that would wrap it
                failed.append(error)
            tasks.cancel_scope.cancel()

    anyio.run(guarded)
    if signals:
        raise Ended(signals[0])
    if failed:
        raise failed[0]
    return done[0]
