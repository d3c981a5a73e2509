"""The keys that authenticate the states of runs where there is no store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bridge.errors import ConfigurationError

KEY_BYTES: Final = 16  # at least; a key of fewer can be guessed


def checked_keys(given: bytes | str | Sequence[bytes | str] | None) -> list[bytes]:
    """Every key as bytes, in their order. `ConfigurationError`: one can be guessed."""
    keys = [] if given is None else [given] if isinstance(given, (bytes, str)) else list(given)
    made = [key.encode() if isinstance(key, str) else bytes(key) for key in keys]
    for key in made:
        if len(key) < KEY_BYTES:
            raise ConfigurationError(f"a key has at least {KEY_BYTES} bytes, such as secrets.token_bytes(32)")
    return made
