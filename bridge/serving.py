"""`sandbridge serve`: the gateway as a command. Standard output belongs to the protocol, all else goes to stderr.

Exit status: 0 when the host closed its end, 2 for configuration and for a sandbox or server that cannot start, 128 +
the signal that ended it.
"""

from __future__ import annotations

import dataclasses
import logging
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import anyio
import typer

from bridge import config, deciding, screen, where
from bridge.approver_key import NOBODY
from bridge.errors import BridgeError, ConfigurationError
from bridge.threads import in_thread
from bridge.working import StoreOption, StrictOption
from sandbox import SandboxError

if TYPE_CHECKING:
    from bridge.gateway import Gateway
    from bridge.policy import Kind

_SIGNALS: Final = [signal.SIGINT, signal.SIGTERM]
PRUNE_S: Final = 3_600.0  # between two looks at what nobody has touched in the default store for long
GRACE_S: Final = 1  # for requests that are being answered when a signal comes; then they are cancelled


def serve(
    config_file: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Functions, servers, rules, limits. Default: ./sandbridge.toml."),
    ] = None,
    mcp: Annotated[
        list[Path] | None, typer.Option("--mcp", metavar="FILE", help="An mcp.json, as hosts have it. May be repeated.")
    ] = None,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Streamable HTTP at /mcp, in place of standard streams.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Bearer tokens for --http, a line each: NAME:TOKEN. Needed off loopback."),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name that --http is reached by off loopback.")
    ] = None,
    allow: Annotated[list[str] | None, typer.Option(metavar="PATTERN", help="Tools to allow: 'shop.*'.")] = None,
    ask: Annotated[list[str] | None, typer.Option(metavar="PATTERN", help="Tools to ask about.")] = None,
    deny: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Tools to deny; the strictest wins.")
    ] = None,
    limit: Annotated[list[str] | None, typer.Option(metavar="NAME=NUMBER", help="A limit, such as cpu_s=2.")] = None,
    budget: Annotated[
        int | None, typer.Option(min=0, metavar="TOKENS", help="Of declarations at once; the rest is searched for.")
    ] = None,
    embedding: Annotated[
        bool, typer.Option("--embedding", help="Rank searches by meaning too (extra `embedding`).")
    ] = False,
    strict: StrictOption = False,
    store: StoreOption = None,
    no_store: Annotated[
        bool, typer.Option("--no-store", help="Keep nothing: what waits ends with this process.")
    ] = False,
    approver: Annotated[
        str | None,
        typer.Option(metavar="VERIFIER", help="Whose verdicts count, as `sandbridge approver-key` prints it."),
    ] = None,
) -> int:
    """Serve as an MCP server: run_program, search_tools, resume_program for all configured servers and functions."""
    given: dict[Kind, list[str] | None] = {"allow": allow, "ask": ask, "deny": deny}
    rules: list[tuple[Kind, str]] = [(kind, pattern) for kind, patterns in given.items() for pattern in patterns or ()]
    default = Path(config.DEFAULT_FILE)
    chosen = config_file or (default if default.is_file() else None)
    settings = config.load(chosen, mcp or (), rules=rules, limits=limit or (), strict=strict)
    if no_store and store:
        raise ConfigurationError("--no-store stands against --store: leave out one of them")
    kept = where.place(store, settings.store)
    signer = deciding.verifier(approver)
    settings = dataclasses.replace(settings, store=None if no_store else kept.url, approver_key=signer)
    place = None if http is None else _place(http)
    if place is None and (token_file or allow_host):
        raise ConfigurationError("--token-file and --allow-host are for --http")
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="sandbridge: %(message)s")
    for noisy in ("mcp", "uvicorn", "httpx2", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    told = screen.Screen()
    told.warn(settings.warnings)
    pruned = None if no_store or kept.chosen else kept  # a chosen one is its owner's, who has `sandbridge prune`
    if pruned is not None:
        _prepare(pruned)
    from bridge.gateway import Gateway

    options: dict[str, Any] = {"elsewhere": _elsewhere(None if no_store else store, config_file, no_store, signer)}
    if budget is not None:
        options["budget"] = budget
    if embedding:
        from bridge.embedding import multilingual

        options["embed"] = multilingual()
    gateway = Gateway(**options)
    if place is None:
        return _work(settings, gateway, told, pruned, lambda stop: _stdio(gateway, stop))
    listening = _bound(*place)
    try:
        app = _http_app(gateway, place[0], token_file, allow_host or [])
        told.say(f"sandbridge: serving http://{_shown(listening)}/mcp")
        return _work(settings, gateway, told, pruned, lambda stop: _http(app, listening, stop))
    finally:
        listening.close()


def _prepare(kept: where.Place) -> None:
    """Make the place of the default store, and drop what nobody has touched in it for long.

    Raises:
        BridgeError: It cannot be used.
    """
    with kept.open() as opened:
        where.prune(opened, time.time())


async def _prepare_again(kept: where.Place, every_s: float) -> None:
    """The same again and again, until cancelled: a gateway may live for months."""
    while True:
        await anyio.sleep(every_s)
        try:
            await in_thread(lambda: _prepare(kept))
        except BridgeError as error:
            logging.getLogger("sandbridge").warning("old runs are not dropped: %s", error)


def _elsewhere(store: str | None, config_file: Path | None, no_store: bool, signer: str) -> str:
    """How a person decides beside the host, with the run's id in place of {run}; an empty text where nobody can."""
    if no_store:
        return ""
    if signer == NOBODY:
        return "They can decide in the host only: nobody has made an approver key (sandbridge approver-key)."
    options = screen.words([("--store", store), ("--config", config_file)])
    return (
        f"They see it by `sandbridge show {{run}}{options}` and decide by `sandbridge approve {{run}} CALL{options}`."
    )


def _work(
    settings: config.Configuration,
    gateway: Gateway,
    told: screen.Screen,
    pruned: where.Place | None,
    transport: Callable[[anyio.Event], Awaitable[None]],
) -> int:
    """Open the executor beside the transport, so that a host's handshake waits for no server; the exit status.

    Args:
        pruned: A store to be kept small meanwhile.
        transport: Returns when its host has gone, or soon after the event was set.

    Raises:
        BridgeError, SandboxError: The executor cannot be opened.
    """
    failed: list[Exception] = []
    signals: list[int] = []

    from bridge.gateway.questions import elicit

    stop = anyio.Event()

    async def own() -> None:
        try:
            async with settings.executor(elicit=elicit) as executor:
                told.warn(config.remarks(executor.catalog, settings))
                if settings.store is not None and settings.approver_key == NOBODY:
                    told.say(
                        "sandbridge: there is no approver key, so nobody can decide what a host cannot ask about: make "
                        "one with `sandbridge approver-key` and start this again"
                    )
                gateway.opened(executor)
                await gateway.watch()
        except (BridgeError, SandboxError) as error:
            failed.append(error)
            gateway.failed(str(error))
            stop.set()

    async def listen(over: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(*_SIGNALS) as received:
            async for number in received:
                signals.append(number)
                if stop.is_set():  # it was told before, and is still there
                    over.cancel()
                stop.set()

    async def together() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen, tasks.cancel_scope)
            tasks.start_soon(own)
            if pruned is not None:
                tasks.start_soon(_prepare_again, pruned, PRUNE_S)
            await transport(stop)
            tasks.cancel_scope.cancel()

    anyio.run(together)
    if failed:
        raise failed[0]
    return 128 + signals[0] if signals else 0


async def _stdio(gateway: Gateway, stop: anyio.Event) -> None:
    from bridge.gateway.over_stdio import stdio_streams

    async with anyio.create_task_group() as tasks:

        async def end() -> None:
            await stop.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(end)
        async with stdio_streams() as (received, sent):
            await gateway.server.run(received, sent, gateway.server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def _http(app: Any, listening: socket.socket, stop: anyio.Event) -> None:
    import uvicorn

    class Server(uvicorn.Server):
        """One that leaves signals to who runs it: cancelled, it would log a traceback of its own."""

        @contextmanager
        def capture_signals(self) -> Generator[None]:
            yield

    options = uvicorn.Config(app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=GRACE_S)
    server = Server(options)

    async def end() -> None:
        await stop.wait()
        server.should_exit = True
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # what is cut off now is cut off on purpose

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end)
        await server.serve(sockets=[listening])
        tasks.cancel_scope.cancel()


def _http_app(gateway: Gateway, host: str, token_file: Path | None, allowed_hosts: list[str]) -> Any:
    from bridge.gateway import Tokens, http_app

    tokens = None
    if token_file is not None:
        try:
            lines = token_file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"--token-file: {token_file} cannot be read: {error}") from None
        try:
            tokens = Tokens(line for line in lines if line.strip() and not line.startswith("#"))
        except ConfigurationError as error:
            raise ConfigurationError(f"--token-file: {token_file}: {error}") from None
        if not len(tokens):
            raise ConfigurationError(f"--token-file: {token_file} has no token in it")
    return http_app(gateway, host=host, tokens=tokens, allowed_hosts=allowed_hosts)


def _place(given: str) -> tuple[str, int]:
    host, colon, port = given.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigurationError(f"--http {given}: write HOST:PORT, such as 127.0.0.1:8808")
    return host.strip("[]"), int(port)


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigurationError(f"--http {host}:{port}: {error.strerror or error}") from None


def _shown(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
