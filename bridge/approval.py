"""Who may say yes, to exactly what, and for how long: requests, verdicts, grants.

A verdict comes from a person or the application, never from the model: no tool that a model can call gives one. What is
approved is the digest of the full arguments that will be executed, never a preview of them.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

from bridge.definitions import Seen
from bridge.errors import StateError
from bridge.text import FILLERS

if TYPE_CHECKING:
    from rich.console import Console

    from bridge.tools import Annotations, Tool

Scope = Literal["call", "run", "tool"]


@dataclass(frozen=True, kw_only=True)
class ApprovalRequest:
    """One call that policy wants somebody to decide.

    `program`, `line` and `arguments` were written by a program: show them escaped (`escape`) and as its claim. `title`,
    `description` and `annotations` were written by the tool's server.

    Attributes:
        call_id: What the verdict is given for; `id` is the same.
        tool: Full name of the tool, as its owner gave it.
        arguments: In full, as checked: what policy has seen. `arguments_digest` is theirs.
        program: The program's text; `line` (0: unknown) is where it says that it makes the call.
        reason: The rule or default that asks.
        before: What the run did before this call, a short line each, oldest first.
        expires_at: Seconds since 1970, UTC: a verdict after that finds the call rejected with `expired`.
        definition_changed: The tool is no longer what an earlier approval was given for.
        changes: How it differs, a line each, in the server's words: lost (`- `) and new (`+ `) lines of each part.
    """

    call_id: str
    run_id: str
    tool: str
    title: str | None
    description: str
    server: str | None
    arguments: Any
    arguments_digest: str
    program: str
    line: int
    reason: str
    definition_digest: str
    server_identity: str | None
    before: tuple[str, ...]
    expires_at: float
    annotations: Annotations
    definition_changed: bool = False
    changes: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The call's id, as `resume` takes it."""
        return self.call_id


@dataclass(frozen=True)
class Approve:
    """Let it run: this call; or this tool in this run; or this tool in every run until `until`.

    Args:
        scope: `call` is used once and bound to these very arguments; the wider ones are bound to the tool's name,
            definition and server identity, and cover whatever arguments policy asks about.
        until: Seconds since 1970, UTC, for `run` and `tool`. None: the end of the run, or what `Grants` was told.
    """

    scope: Scope = "call"
    until: float | None = None

    def __post_init__(self) -> None:
        if self.scope not in get_args(Scope):
            raise ValueError(f"Approve.scope must be call, run or tool, not {self.scope!r}")
        if self.until is not None and not math.isfinite(self.until):
            raise ValueError(f"Approve.until must be a time in seconds since 1970, not {self.until!r}")


@dataclass(frozen=True)
class Deny:
    """Refuse it. The program gets `denied` with the reason, which the model reads too; `stop` ends the whole run."""

    reason: str = ""
    stop: bool = False


@dataclass(frozen=True)
class Edit:
    """Let it run once with these arguments (a JSON value), after the tool's schema and the deny rules saw them."""

    arguments: Any


@dataclass(frozen=True)
class Answer:
    """Give this value (JSON) to the program in place of the tool, which is not called."""

    value: Any


@dataclass(frozen=True)
class Defer:
    """Not now: the run pauses with the request open."""


Verdict = Approve | Deny | Edit | Answer | Defer
Approver = Callable[[list[ApprovalRequest]], Awaitable[Mapping[str, Verdict]] | Mapping[str, Verdict]]
"""Asked once a wave, with all its requests. Returns verdicts by call id; one that it leaves out is a `Defer`."""

_VERDICTS: Final = (Approve, Deny, Edit, Answer, Defer)
_WAYS: Final = "Approve(), Deny(reason), Edit(arguments), Answer(value) or Defer()"


def validate(verdicts: Any, requests: Sequence[ApprovalRequest]) -> dict[str, Verdict]:
    """One verdict for each request, in their order: what an approver or `resume` gave, `Defer()` for what it left out.

    Raises:
        StateError: No mapping, an id that nobody asked about, something that is no verdict, a value that is no JSON.
    """
    if not isinstance(verdicts, Mapping):
        raise StateError(f"verdicts are a mapping from call id to {_WAYS}, not {type(verdicts).__name__}")
    given = cast("Mapping[Any, Any]", verdicts)
    known = [request.call_id for request in requests]
    for call_id, verdict in given.items():
        if call_id not in known:
            raise StateError(f"no call {call_id!r} waits for a verdict; those that do: {', '.join(known) or 'none'}")
        if not isinstance(verdict, _VERDICTS):
            what = f"the class {verdict.__name__}" if isinstance(verdict, type) else f"a {type(verdict).__name__}"
            raise StateError(f"the verdict on call {call_id} must be {_WAYS}, not {what}")
        if isinstance(verdict, (Edit, Answer)):
            try:
                digest(verdict.arguments if isinstance(verdict, Edit) else verdict.value)
            except (TypeError, ValueError) as error:
                raise StateError(
                    f"what {type(verdict).__name__} holds for call {call_id} is no JSON: {error}"
                ) from None
    return {call_id: given.get(call_id, Defer()) for call_id in known}


def digest(arguments: Any) -> str:
    """SHA-256 (hex) of a JSON value in canonical form: equal for the same JSON text but for spaces and order of keys.

    Strict everywhere else: 1, 1.0 and "1" are three values, "" is not a missing key, and Unicode is not normalised. Of
    any length and depth; integers of any size keep their digits.

    Raises:
        TypeError, ValueError: No JSON: other types, NaN, infinities, a cycle.
    """
    return hashlib.sha256(canonical(arguments).encode("ascii")).hexdigest()


def canonical(value: Any) -> str:
    """The JSON text that `digest` is of: ASCII, keys sorted, no spaces.

    Raises:
        TypeError, ValueError: As `digest`.
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        return "".join(_canonical(value))


def _canonical(value: Any) -> Iterator[str]:
    """The same text without recursion, for values nested deeper than the interpreter's stack allows."""
    closes, stack = object(), [value]
    seen: list[int] = []
    while stack:
        item = stack.pop()
        if item is closes:
            seen.pop()
        elif isinstance(item, _Text):
            yield item
        elif isinstance(item, (dict, list, tuple)):
            if len(seen) > _DEEPEST:
                raise ValueError("nested too deeply, or in a circle")
            seen.append(id(cast("object", item)))
            parts: list[Any] = []
            if isinstance(item, dict):
                for key, part in sorted(cast("dict[str, Any]", item).items()):
                    parts += [_Text(f"{',' if parts else '{'}{json.dumps(key)}:"), part]
                parts += [_Text("}" if parts else "{}"), closes]
            else:
                for part in cast("list[Any]", item):
                    parts += [_Text("," if parts else "["), part]
                parts += [_Text("]" if parts else "[]"), closes]
            stack.extend(reversed(parts))
        else:
            yield json.dumps(item, allow_nan=False)


_DEEPEST: Final = 1_000_000  # deeper than any text of `argument_bytes`; only a circle gets there


class _Text(str):
    """Finished text among values that are still to be written."""

    __slots__ = ()


@dataclass(frozen=True, kw_only=True)
class Grant:
    """An approval that still holds. `run_id`, `call_id` and `arguments_digest` are None where the scope leaves them."""

    tool: str
    server_identity: str | None
    definition_digest: str
    run_id: str | None = None
    call_id: str | None = None
    arguments_digest: str | None = None
    until: float = math.inf


@dataclass(kw_only=True)
class Grants:
    """Approvals given so far, in memory. One trust domain: what one user of it approved holds for the others.

    A changed definition voids what was granted to the old one, for good.

    Args:
        expires_s: Seconds that a grant of scope `tool` lasts where the verdict does not say.

    Attributes:
        seen: Definitions that somebody was asked about.
    """

    expires_s: float = 86_400.0
    seen: Seen = field(default_factory=Seen, init=False)
    _held: list[Grant] = field(default_factory=list[Grant], init=False)
    _known: dict[str, dict[str | None, str]] = field(default_factory=dict[str, dict[str | None, str]], init=False)
    _unsaved: list[Grant] = field(default_factory=list[Grant], init=False)
    _voided: list[Grant] = field(default_factory=list[Grant], init=False)

    def add(
        self,
        verdict: Verdict,
        request: ApprovalRequest,
        *,
        now: float | None = None,
        arguments_digest: str | None = None,
    ) -> Grant | None:
        """Keep what a verdict grants, and return it; None for verdicts that grant nothing.

        Args:
            now: Seconds since 1970, UTC; None: what the clock says.
            arguments_digest: Digest of what will be executed, where that is neither the request's arguments nor those
                of `Edit` as they stand (a check may have changed them).
        """
        if not isinstance(verdict, (Approve, Edit)):
            return None
        now = time.time() if now is None else now
        self._held = [grant for grant in self._held if grant.until > now]
        scope = verdict.scope if isinstance(verdict, Approve) else "call"
        until = verdict.until if isinstance(verdict, Approve) else None
        if until is None:
            until = now + self.expires_s if scope == "tool" else math.inf
        executed = arguments_digest or (digest(verdict.arguments) if isinstance(verdict, Edit) else None)
        grant = Grant(
            tool=request.tool,
            server_identity=request.server_identity,
            definition_digest=request.definition_digest,
            run_id=None if scope == "tool" else request.run_id,
            call_id=request.call_id if scope == "call" else None,
            arguments_digest=(executed or request.arguments_digest) if scope == "call" else None,
            until=until,
        )
        self._held.append(grant)
        if scope == "tool":
            self._unsaved.append(grant)
        self.remember(request)
        return grant

    def hold(self, grant: Grant) -> None:
        """Keep a grant that was given before: to a run that is loaded, or in another process."""
        if grant not in self._held:
            self._held.append(grant)
        self._known.setdefault(grant.tool, {}).setdefault(grant.server_identity, grant.definition_digest)

    def changes(self) -> tuple[list[Grant], list[Grant]]:
        """What was given for a tool here, and what was voided, since somebody asked last: to be kept for others."""
        given, self._unsaved = self._unsaved, []
        voided, self._voided = self._voided, []
        return given, voided

    def remember(self, request: ApprovalRequest) -> None:
        """Keep which definition somebody said yes to, so that `changed` can tell."""
        self._known.setdefault(request.tool, {})[request.server_identity] = request.definition_digest

    def covers(
        self,
        *,
        tool: str,
        server_identity: str | None,
        definition_digest: str,
        arguments_digest: str,
        run_id: str,
        call_id: str,
        now: float,
    ) -> bool:
        """Whether this very call may be sent without asking. A grant of scope `call` is spent by the yes it gives."""
        void = [
            grant
            for grant in self._held
            if (grant.tool, grant.server_identity) == (tool, server_identity)
            and grant.definition_digest != definition_digest
        ]
        self._voided += void
        self._held = [grant for grant in self._held if grant.until > now and grant not in void]
        fitting = [
            grant
            for grant in self._held
            if (grant.tool, grant.server_identity) == (tool, server_identity)
            and grant.run_id in (None, run_id)
            and grant.call_id in (None, call_id)
            and grant.arguments_digest in (None, arguments_digest)
        ]
        for grant in fitting:
            if grant.call_id is not None:
                self._held.remove(grant)
                return True
        return bool(fitting)

    def differences(self, tool: Tool) -> tuple[str, ...]:
        """How a tool differs from what was approved last, with its server: a line each, to be shown when asking again.

        Empty where nothing changed, or nothing of it was approved before.
        """
        known = self._known.get(tool.full_name, {})
        if not known or known.get(tool.server_identity) == tool.digest:
            return ()
        identity = tool.server_identity if tool.server_identity in known else next(reversed(known))
        return self.seen.changes((known[identity], identity), tool)

    def forget(self, run_id: str) -> None:
        """Drop what was granted within a run that has ended."""
        self._held = [grant for grant in self._held if grant.run_id != run_id]


_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape(text: str) -> str:
    r"""Make everything visible that acts on a terminal or on a reader without being seen.

    Control characters (so ANSI sequences too), bidirectional and zero-width characters, unusual spaces, tags, lone
    surrogates and unassigned ones become `\n`, `\r`, `\t` or `\u{1b}`; the result is one line. For whatever a worker, a
    server or a model wrote.
    """
    if text.isprintable() and FILLERS.isdisjoint(text):
        return text
    return "".join(
        character
        if character.isprintable() and character not in FILLERS
        else _SHORT.get(character) or f"\\u{{{ord(character):x}}}"
        for character in text
    )


def terminal_approver(console: Console | None = None, *, read: Callable[[], str] | None = None) -> Approver:
    """An approver that asks the person at the terminal; see `bridge.terminal`.

    Without a terminal, or at the end of input, everything is deferred. Ctrl-C goes on as `KeyboardInterrupt`.

    Args:
        console: Where to write; standard error where there is none, so that piped output stays clean.
        read: Returns the next line, an empty text at the end; standard input where there is none.
    """
    from bridge.terminal import Prompt  # rich loads only where somebody is asked

    return Prompt(console, read)
