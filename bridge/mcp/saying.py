"""What exceptions of the SDK say of a server, in a sentence for its operator."""

from __future__ import annotations

from typing import Any, Final, cast

import mcp_types as types
from mcp.client import session
from mcp.shared.exceptions import MCPError

from bridge.mcp.wire import aside_of

_SLOW: Final = (
    "did not say within {:g} s that it speaks 2026-07-28 (server/discover), and refused the handshake of the older "
    "revisions: {}. Where it speaks the newer one only, it answers too late: look at what delays it (its start, a "
    "proxy, a sign-in), and connect again"
)


def said(error: BaseException) -> str:
    """The one sentence in an exception or in a group of them."""
    first: Any = error
    while isinstance(first, BaseExceptionGroup):
        first = cast("BaseExceptionGroup[BaseException]", first).exceptions[0]
    aside = aside_of(first.data) if isinstance(first, MCPError) else ""
    text = str(first).strip().split("\n")[0][:500] or type(first).__name__
    text = f"{text}: {aside}" if aside else text
    return _SLOW.format(session.DISCOVER_TIMEOUT_SECONDS, text) if _after_slow_probe(first) else text


def _after_slow_probe(error: BaseException) -> bool:
    """Whether it is of the handshake that the SDK tries where a server was too slow to say that it needs none.

    The SDK tries it while it handles the probe's timeout, which no text tells.
    """
    before = error.__context__
    while before is not None:
        if isinstance(before, MCPError) and before.code == types.REQUEST_TIMEOUT:
            return True
        before = before.__context__
    return False
