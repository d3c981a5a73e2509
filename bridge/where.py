"""Where the command keeps runs: `--store`, else SANDBRIDGE_STORE, else `[store]` of the configuration, else a default.

The default is a SQLite file in the user's own directory for state (XDG_STATE_HOME, or what stands for it), made for its
owner only. A store that somebody chose keeps every run from its first line. The default one, which nobody chose, is
given a run only when it pauses or fails: then it can be resumed, or its calls reused.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from bridge.errors import ConfigurationError

if TYPE_CHECKING:
    from bridge.store import Store

VARIABLE: Final = "SANDBRIDGE_STORE"
KEPT_S: Final = 30 * 86_400  # how long the default store keeps what nobody touches
_FILE: Final = "sqlite:///"


@dataclass(frozen=True)
class Place:
    """One store.

    Attributes:
        by: What chose it.
        chosen: Whether somebody did; False for the default.
    """

    url: str
    by: str
    chosen: bool = True

    @property
    def shown(self) -> str:
        """Where it is, without a password."""
        if self.url.startswith(_FILE):
            return str(Path(self.url.removeprefix(_FILE)).absolute())
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def exists(self) -> bool:
        """Whether it is there, as far as can be told without opening it: a server is taken to be."""
        return not self.url.startswith(_FILE) or Path(self.url.removeprefix(_FILE)).exists()

    def open(self, *, make: bool = True) -> Store:
        """The store, opened; blocks.

        Args:
            make: Make it where it is not there yet.

        Raises:
            ConfigurationError: It cannot be used; or it is not there and is not to be made.
        """
        from bridge.store import Store  # SQLAlchemy loads only where there is a store

        if not make and not self.exists:
            raise ConfigurationError(
                f"there is no store {self.shown} ({self.by}): no run was kept there; name another with --store"
            )
        self.prepare()
        return Store(self.url)

    def prepare(self) -> None:
        """Make the directory of the default store. ConfigurationError: it cannot be made."""
        if self.chosen:
            return
        folder = Path(self.url.removeprefix(_FILE)).parent
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"{folder}, where runs are kept, cannot be made: {error.strerror or error}; name a store with --store"
            ) from None


def place(option: str | None, configured: str | None, environment: Mapping[str, str] | None = None) -> Place:
    """The store that holds, of those that were named. A path is a SQLite file.

    Args:
        option: What `--store` says.
        configured: What `[store]` says.
        environment: This process's where it is None.

    Raises:
        ConfigurationError: It is one that ends with the command.
    """
    environment = os.environ if environment is None else environment
    named = ((option, "--store"), (environment.get(VARIABLE), VARIABLE), (configured, "[store] of the configuration"))
    for url, by in named:
        if url:
            if url == "memory":
                raise ConfigurationError(f"{by}: a store in memory ends with the command: name a file or a server")
            return Place(url if "://" in url else f"{_FILE}{url}", by)
    return Place(f"{_FILE}{state_directory(environment) / 'runs.db'}", "the default", chosen=False)


def prune(store: Store, now: float) -> int:
    """Drop from the default store what nobody has touched for long; how many runs. Raises what `Store.prune` does."""
    from bridge.store import FINISHED

    return store.prune(before=now - KEPT_S, now=now, statuses={*FINISHED, "paused"})


def beside(url: str, folder: Path) -> str:
    """The URL of a configuration file: a relative path is relative to the file's folder."""
    path = url.removeprefix(_FILE)
    return f"{_FILE}{folder / path}" if path != url or not ("://" in url or url == "memory") else url


def state_directory(environment: Mapping[str, str] | None = None) -> Path:
    """The user's own directory for what programs keep, with ours in it."""
    environment = os.environ if environment is None else environment
    given = environment.get("XDG_STATE_HOME", "")
    if given and Path(given).is_absolute():  # the specification has relative ones ignored
        return Path(given) / "sandbridge"
    if sys.platform == "darwin":
        return Path.home() / "Library/Application Support/sandbridge"
    if sys.platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "sandbridge"
    return Path.home() / ".local/state/sandbridge"
