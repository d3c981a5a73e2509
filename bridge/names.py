"""JavaScript names for tools: every exact name becomes an identifier, and no two become the same one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Final

from bridge.errors import CatalogError

# Reserved words of ECMA-262 (12.7.2), strict mode included, and the names that every program leans on.
RESERVED_WORDS: Final = frozenset(
    """
    arguments await break case catch class const continue debugger default delete do else enum eval export extends
    false finally for function if implements import in instanceof interface let new null package private protected
    public return static super switch this throw true try typeof undefined var void while with yield
    """.split()
)
# Members that the language itself looks up: a `then` would make `await tools.server` call a tool.
LOOKED_UP: Final = frozenset(
    """
    then toJSON constructor prototype valueOf toString toLocaleString hasOwnProperty isPrototypeOf
    propertyIsEnumerable __proto__ __defineGetter__ __defineSetter__ __lookupGetter__ __lookupSetter__
    """.split()
)
_OUTSIDE: Final = re.compile(r"[^A-Za-z0-9_$]")


def identifier(name: str) -> str:
    """The identifier for one name; two names may share it (see `names_of_server`, `Catalog`).

    Characters outside `[A-Za-z0-9_$]` become `_`, a leading digit gets `_` before it, a reserved word or a member that
    the language looks up by itself gets `_` after it.
    """
    alias = _OUTSIDE.sub("_", name)
    if alias[:1].isdigit():
        alias = f"_{alias}"
    return f"{alias}_" if alias in RESERVED_WORDS or alias in LOOKED_UP else alias


def keep_apart(server: str, others: Iterable[tuple[str, str]]) -> None:
    """Refuse a name that a rule could not tell from what a server may call a tool of its own tomorrow.

    Args:
        server: The server's exact name.
        others: Name, and who has it, of other servers and of client functions.

    Raises:
        CatalogError: One begins with the server's name and what divides it from a tool's.
    """
    for name, who in others:
        if name.startswith((f"{server}.", f"{server}/")):
            raise CatalogError(
                f"a tool of server {server!r} could be named so that rules for {who} match it ({name!r}): rename one"
            )


def names_of_server(server: str, space: str, names: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Identifiers for the tools of one server, one-to-one, and a warning for each identifier that several wanted.

    All that wanted it get a suffix made from their exact name: the order of the server's list makes no difference.

    Args:
        server, space: The server's exact name, and its identifier below `tools`.
        names: Exact names, each once.
    """
    by_alias: dict[str, list[str]] = {}
    for name in names:
        by_alias.setdefault(identifier(name), []).append(name)
    taken = set(by_alias)
    aliases: dict[str, str] = {}
    warnings: list[str] = []
    for alias, rivals in by_alias.items():
        if len(rivals) == 1:
            aliases[rivals[0]] = alias
            continue
        for name in rivals:
            digest = hashlib.sha256(f"{server}/{name}".encode("utf-8", "replace")).hexdigest()
            length = next(n for n in range(6, 65) if f"{alias}_{digest[:n]}" not in taken)
            aliases[name] = f"{alias}_{digest[:length]}"
            taken.add(aliases[name])
        called = ", ".join(f"{name!r} is tools.{space}.{aliases[name]}" for name in rivals)
        warnings.append(f"server {server!r} has tools whose names meet in tools.{space}.{alias}: {called}")
    return {name: aliases[name] for name in names}, warnings
