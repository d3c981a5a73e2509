"""MCP servers as tools: `stdio` starts one as a process, `http` talks to one over Streamable HTTP.

Both return a `Server`: a description that an `Executor` opens. The SDK is imported when the first server is started and
not before. A server that is down takes nothing else down: its tools reject, and the next call tries to reach it again.

A server's process gets HOME, LOGNAME, PATH, SHELL, TERM and USER, what `inherit_env` names, and `env`, and nothing else
of the host's environment. It ends with the host, however the host ends (see `guard.py`).
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from bridge.errors import ConfigurationError
from bridge.mcp.rate import rate_of
from bridge.mcp.result import Blob
from bridge.mcp.server import Process, Remote, Server
from bridge.mcp.text import invisible, secrets_of, shown_command
from bridge.mcp.tools import Approval, Settings
from bridge.tools import NAME_LENGTH

if TYPE_CHECKING:
    import httpx2

__all__ = ["Blob", "OAuth", "Server", "http", "stdio"]

Token = Callable[[], Awaitable[str] | str]
BASE_ENV: Final = (
    ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
    if os.name == "posix"
    else (
        "APPDATA HOMEDRIVE HOMEPATH LOCALAPPDATA PATH PATHEXT PROCESSOR_ARCHITECTURE SYSTEMDRIVE SYSTEMROOT TEMP "
        "USERNAME USERPROFILE"
    ).split()
)


@dataclass(frozen=True, kw_only=True)
class OAuth:
    """Signing in with OAuth: once in a browser, then with the refresh token that `store` keeps.

    Attributes:
        store: File for tokens and registrations, made with mode 0600. Whoever reads it can act as who signed in.
        scopes: What to ask for; empty leaves the choice to the server.
        redirect_uri: Where the browser returns: a page on loopback that is served while somebody signs in.
        open_browser: Called with the address to open; may be async. Default: the system's browser.
        sign_in_s: Seconds that a person has; they are added to `connect_s`.
        client_name: Under which the server lists this client.
        client_id: As whom this client was registered by hand, where a server takes no registrations of its own.
        client_secret: Of that registration; sent to the token endpoint by HTTP Basic. None for a public client.
        client_metadata_url: An https address of a document about this client, which servers that can take it as the
            client's id do (client id metadata documents); others register it, as without one.
    """

    store: str | Path
    scopes: tuple[str, ...] = ()
    redirect_uri: str = "http://127.0.0.1:43117/callback"
    open_browser: Callable[[str], Awaitable[None] | object] | None = None
    sign_in_s: float = 300.0
    client_name: str = "Sandbridge"
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    client_metadata_url: str | None = None

    def __post_init__(self) -> None:
        if self.client_secret is not None and not self.client_id:
            raise ConfigurationError("OAuth.client_secret belongs to a client_id: give both")
        if self.client_metadata_url is not None:
            document = urlsplit(self.client_metadata_url)
            if self.client_id is not None:
                raise ConfigurationError("OAuth.client_id and OAuth.client_metadata_url are two ids: give one")
            if document.scheme != "https" or not document.hostname or document.path in ("", "/"):
                raise ConfigurationError(
                    f"OAuth.client_metadata_url must be https with a path, not {self.client_metadata_url!r}"
                )
        parts = urlsplit(self.redirect_uri)
        if parts.scheme != "http" or parts.hostname not in ("127.0.0.1", "::1", "localhost") or not parts.port:
            raise ConfigurationError(
                f"OAuth.redirect_uri must be http on loopback with a port, not {self.redirect_uri!r}"
            )


def stdio(
    name: str,
    command: str,
    args: Iterable[str] = (),
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    inherit_env: Collection[str] = (),
    optional: bool = True,
    trusted: bool = False,
    require_approval: Approval | Mapping[str, Approval] | None = None,
    allowed_tools: Collection[str] | None = None,
    call_s: float | None = None,
    connect_s: float = 30.0,
    max_concurrent: int | None = None,
    rate: str | None = None,
) -> Server:
    """A server that is started as a process and spoken to over its standard streams.

    Args:
        name: What its tools are found under: `tools.<name>.<tool>`.
        command: A file, or a name that is looked up on the PATH that the server gets.
        args: Its arguments, passed as they are.
        env: Variables for it, over everything inherited.
        cwd: Its directory; default: the host's at this moment.
        inherit_env: Names of the host's variables that it gets too; read now.
        optional: Whether the executor may open without it.
        trusted: Whether what it says of its tools (read-only, idempotent) is believed.
        require_approval: `"never"` or `"always"`, for all its tools or by tool; None leaves it to the policy.
        allowed_tools: The only tools that are offered; None offers all.
        call_s: Seconds one call may take, in place of `Limits.call_s`.
        connect_s: Seconds for the start, the handshake and the list of tools.
        max_concurrent: Calls at once; more wait their turn, first come first served.
        rate: Calls that may begin in any second, minute or hour (`5/s`, `100/m`, `1000/h`); more wait their turn.

    Raises:
        ConfigurationError: A setting that cannot be used; the text names server and setting.
    """
    settings = _settings(
        name, optional, trusted, require_approval, allowed_tools, call_s, connect_s, max_concurrent, rate
    )
    arguments = tuple(args)
    if isinstance(args, str) or not all(isinstance(arg, str) and "\0" not in arg for arg in (command, *arguments)):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without a type checker
        raise ConfigurationError(f"server {name!r}: command and args must be texts, args a list of them")
    if not command:
        raise ConfigurationError(f"server {name!r} has no command")
    given = dict(env or {})
    _check_pairs(name, "env", given)
    missing = [variable for variable in inherit_env if variable not in os.environ]
    inherited = {variable: os.environ[variable] for variable in inherit_env if variable in os.environ}
    # A value that starts like a function is an old way to make a shell run something.
    base = {v: os.environ[v] for v in BASE_ENV if v in os.environ and not os.environ[v].startswith("()")}
    directory = str(Path(cwd or ".").resolve())
    server = Server(
        name,
        settings,
        Process(command, arguments, {**base, **inherited, **given}, directory),
        shown=shown_command(command, arguments),
        identity=_digest("stdio", command, arguments, directory, _hashed({**inherited, **given})),
        secrets=secrets_of([*inherited.items(), *given.items()]),
    )
    if missing:
        server.warnings.append(f"inherit_env names {', '.join(map(repr, missing))}, not set here")
    return server


def http(
    name: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    token: Token | str | None = None,
    oauth: OAuth | httpx2.Auth | None = None,
    optional: bool = True,
    trusted: bool = False,
    require_approval: Approval | Mapping[str, Approval] | None = None,
    allowed_tools: Collection[str] | None = None,
    call_s: float | None = None,
    connect_s: float = 30.0,
    max_concurrent: int | None = None,
    rate: str | None = None,
) -> Server:
    """A server that is reached over Streamable HTTP.

    Args:
        name: As for `stdio`, and so are all settings not named here.
        url: Its endpoint; redirects are followed within its origin only.
        headers: Sent with every request.
        token: A bearer token, or what returns one (may be async): asked for every request and once more after a 401.
        oauth: OAuth settings, or an `httpx2.Auth` of your own.

    Raises:
        ConfigurationError: A setting that cannot be used; the text names server and setting.
    """
    settings = _settings(
        name, optional, trusted, require_approval, allowed_tools, call_s, connect_s, max_concurrent, rate
    )
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(
            f"server {name!r}: url must be http:// or https:// with a host, not {url.split('?')[0]!r}"
        )
    given = {key.lower(): value for key, value in (headers or {}).items()}
    _check_pairs(name, "headers", given)
    if token is not None and (oauth is not None or "authorization" in given):
        raise ConfigurationError(f"server {name!r}: give one of token, oauth and an Authorization header, not two")
    if oauth is not None and "authorization" in given:
        raise ConfigurationError(f"server {name!r}: oauth and an Authorization header contradict each other: give one")
    if isinstance(token, str):
        given["authorization"] = f"Bearer {token}"
        _check_pairs(name, "token", given)
    subject = str(oauth.store) if isinstance(oauth, OAuth) else type(oauth or token).__qualname__
    own = {
        "password": parts.password,
        "client_secret": oauth.client_secret if isinstance(oauth, OAuth) else None,
    }
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    server = Server(
        name,
        settings,
        Remote(url, given, token if callable(token) else None, oauth),
        shown=shown,
        identity=_digest("http", url, _hashed(given), subject),
        secrets=secrets_of([*given.items(), *((name, value) for name, value in own.items() if value)]),
    )
    local = parts.hostname in ("127.0.0.1", "::1", "localhost")
    if parts.scheme == "http" and not local and (token or oauth or "authorization" in given):
        server.warnings.append("its url is http://, so the credentials travel unencrypted: use https://")
    return server


def _settings(
    name: str,
    optional: bool,
    trusted: bool,
    require_approval: Approval | Mapping[str, Approval] | None,
    allowed_tools: Collection[str] | None,
    call_s: float | None,
    connect_s: float,
    max_concurrent: int | None,
    rate: str | None,
) -> Settings:
    """The settings that both transports share, checked."""
    who = f"server {name!r}"
    if not isinstance(name, str) or not 0 < len(name) <= NAME_LENGTH or "/" in name or invisible(name):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without a type checker
        raise ConfigurationError(
            f"{who}: a name has 1 to {NAME_LENGTH} characters that can be seen, and no '/' (it divides server and tool)"
        )
    approvals: dict[str, Any] | Any = require_approval
    if isinstance(require_approval, Mapping):
        approvals = dict(require_approval)
        wrong = [value for value in approvals.values() if value not in ("always", "never")]
    else:
        wrong = [] if require_approval in (None, "always", "never") else [require_approval]
    if wrong:
        raise ConfigurationError(f"{who}: require_approval is 'always' or 'never', or by tool, not {wrong[0]!r}")
    if isinstance(allowed_tools, str):
        raise ConfigurationError(f"{who}: allowed_tools is a list of names, not the text {allowed_tools!r}")
    for setting, seconds in (("call_s", call_s), ("connect_s", connect_s)):
        if seconds is not None and (isinstance(seconds, bool) or not 0 < seconds < math.inf):
            raise ConfigurationError(f"{who}: {setting} must be positive and finite, not {seconds!r}")
    if max_concurrent is not None and (not isinstance(max_concurrent, int) or max_concurrent < 1):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without a type checker
        raise ConfigurationError(f"{who}: max_concurrent must be at least 1, not {max_concurrent!r}")
    try:
        turns = None if rate is None else rate_of(rate)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{who}: rate {error}") from None
    return Settings(
        optional=optional,
        trusted=trusted,
        require_approval=approvals,
        allowed_tools=None if allowed_tools is None else frozenset(allowed_tools),
        call_s=call_s,
        connect_s=connect_s,
        max_concurrent=max_concurrent,
        rate=turns,
    )


def _check_pairs(name: str, setting: str, pairs: Mapping[str, Any]) -> None:
    """Names and values that an environment or a request can hold."""
    for key, value in pairs.items():
        if not isinstance(key, str) or not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without a type checker
            raise ConfigurationError(f"server {name!r}: {setting}[{key!r}] must be a text")
        forbidden = "\0" if setting == "env" else "\0\r\n"
        if not key or "=" in key or any(character in key + value for character in forbidden):
            raise ConfigurationError(f"server {name!r}: {setting}[{key!r}] has a character that does not belong there")


def _hashed(pairs: Mapping[str, str]) -> list[list[str]]:
    """Names, and hashes of values: an identity shows that a credential changed, and not what it is."""
    return [
        [key, hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()]
        for key, value in sorted(pairs.items())
    ]


def _digest(*what: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(what)).hexdigest()
