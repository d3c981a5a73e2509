"""The one path of every call, whatever its origin: identity, arguments, policy, approval, governor, execution, reply.

`admit` decides and does no I/O; `perform` does the I/O and decides nothing. Both answer with a record for the journal,
and change nothing themselves. A run keeps the order between the two.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import anyio
import msgspec
from msgspec import UNSET

from bridge import replies
from bridge.approval import ApprovalRequest, Grants, digest
from bridge.calls import CallState
from bridge.clock import CallClock
from bridge.errors import HOST_CODES, CatalogError, ToolError
from bridge.journal import Bound, CameBack, Decided, Outcome, Record, Stage
from bridge.policy import Policy, decide
from bridge.schema import Checker
from bridge.state import RunState
from bridge.tools import Caller, Catalog, Entry, Tool, ToolContext
from sandbox import Limits, Notice

log: Final = logging.getLogger("sandbridge")
DETAILS_BYTES: Final = 100_000  # of an error; more is data, which belongs into a reply
FUNCTION_BYTES: Final = 1 << 20  # of a function's result; in a larger one only types were checked, where it was made
PROGRESS_CEILING: Final = 10  # a call that reports progress may take this many times its deadline


@dataclass(slots=True)
class Flight:
    """A call that is being executed, for whoever may have to end it."""

    call: CallState
    changed: Callable[[], None] = lambda: None
    clock: CallClock | None = None
    given_up: bool = False

    @property
    def on_hold(self) -> bool:
        """Whether it waits for a person, whom the tool or its server asks; `changed` is called when that changes."""
        return self.clock is not None and self.clock.stands

    def give_up(self) -> None:
        """Nobody waits for it any more: end its execution."""
        self.given_up = True
        if self.clock is not None:
            self.clock.scope.cancel()


class Gate:
    """Checks, decides and performs calls against one catalog. Shared by the runs of an executor.

    Args:
        changed: Tools that are not what a loaded run was bound to, by name, with what they were (digest, server
            identity): they are asked about, whatever policy says.
    """

    def __init__(
        self,
        catalog: Catalog,
        policy: Policy,
        grants: Grants,
        changed: Mapping[str, tuple[str, str | None]] = MappingProxyType({}),
    ) -> None:
        self.catalog = catalog
        self.policy = policy
        self.grants = grants
        self.changed = changed
        self.bound = [bound(entry) for entry in catalog.entries if "programmatic" in entry.tool.callers]
        # What servers list was looked at when it was listed (`usable`): its checkers are made when it is first called.
        own = [entry for entry in catalog.entries if entry.tool.server_identity is None]
        self._checkers = {entry.name: Checker(entry) for entry in own}

    def admit(self, call: CallState, *, run_id: str, expires_s: float, caller: Caller = "programmatic") -> list[Record]:
        """Check and decide one call: where it goes, and its outcome if it is refused."""
        now = time.time()
        try:
            given = replies.read(call.made)
            checked = self._checker(call.owner).arguments(given)
        except ToolError as error:
            return [Decided(call=call.number, at=now, stage="done"), rejected(call, "invalid", error)]
        except ValueError:
            error = ToolError("invalid_arguments", "the arguments are no JSON, or nested too deeply")
            return [Decided(call=call.number, at=now, stage="done"), rejected(call, "invalid", error)]
        decision = decide(self.policy, call.owner.tool, call.owner.path, checked.arguments, caller)
        changed = call.tool in self.changed
        stage: Stage = "client" if call.client_owned else "queued"
        if decision.kind == "deny":
            stage = "done"
        elif (decision.kind == "ask" or changed) and not self._granted(call, checked.arguments, run_id):
            stage = "asked"
            self.grants.seen.add(call.owner.tool)
        record = Decided(
            call=call.number,
            at=now,
            stage=stage,
            kind="ask" if changed and decision.kind == "allow" else decision.kind,
            reason="its definition has changed since the run began" if changed else decision.reason,
            checked=checked.arguments,
            as_made=len(given) == 1 and checked.arguments is given[0],
            expires_at=now + expires_s if stage in ("asked", "client") else 0.0,
            notices=tuple(msgspec.structs.replace(notice, line=call.line or None) for notice in checked.notices),
            changes=self.changes(call) if stage == "asked" else (),
        )
        if stage != "done":
            return [record]
        return [record, refusal(call, "denied", f"{call.tool} was denied: {decision.reason}")]

    def changes(self, call: CallState) -> tuple[str, ...]:
        """How a call's tool differs from what the run began with, or from what was approved before."""
        tool = call.owner.tool
        before = self.changed.get(call.tool)
        return self.grants.differences(tool) if before is None else self.grants.seen.changes(before, tool)

    def denial(self, call: CallState, arguments: Any, caller: Caller) -> str:
        """Why a rule denies these arguments, which an approver has edited; an empty text where none does."""
        decision = decide(self.policy, call.owner.tool, call.owner.path, arguments, caller)
        return decision.reason if decision.kind == "deny" else ""

    def check(self, entry: Entry, arguments: Any) -> Any:
        """Arguments as the handler would get them. Raises `ToolError` where they do not fit the schema."""
        return self._checker(entry).arguments([arguments]).arguments

    def covered(self, call: CallState, run_id: str) -> bool:
        """Whether a grant has meanwhile been given that lets a waiting call through."""
        return self._granted(call, call.checked, run_id)

    def request(self, call: CallState, *, run_id: str, program: str, before: tuple[str, ...]) -> ApprovalRequest:
        """What the one who approves is shown."""
        tool = call.owner.tool
        changes = call.changes or self.changes(call)
        return ApprovalRequest(
            call_id=call.id,
            run_id=run_id,
            tool=call.tool,
            title=tool.title,
            description=tool.description,
            server=tool.server,
            arguments=copy.deepcopy(call.checked),  # the approver's to change: what was checked is what is sent
            arguments_digest=digest(call.checked),
            program=program,
            line=call.line,
            reason=call.reason,
            definition_digest=tool.digest,
            server_identity=tool.server_identity,
            before=before,
            expires_at=call.expires_at,
            annotations=tool.annotations,
            definition_changed=call.definition_changed or bool(changes),
            changes=changes,
        )

    async def perform(self, flight: Flight, *, run_id: str, limits: Limits, context: Any) -> CameBack:
        """Execute one admitted call within its deadline. Never raises but for cancellation."""
        call, tool = flight.call, flight.call.owner.tool
        assert tool.handler is not None, "a client-owned call is answered by the application"
        timeout_s = tool.timeout_s or limits.call_s
        began = time.perf_counter()
        try:
            ceiling_s, patience_s = timeout_s * PROGRESS_CEILING, limits.expires_s
            clock = CallClock(timeout_s, ceiling_s=ceiling_s, patience_s=patience_s, changed=flight.changed)
            with clock.scope:
                flight.clock = clock
                if flight.given_up:
                    clock.scope.cancel()
                value = await tool.handler(
                    call.executed,
                    ToolContext(
                        run_id=run_id,
                        call_id=call.id,
                        idempotency_key=call.id,
                        caller_context=context,
                        progress=lambda done, total, message: clock.progress(),
                        on_hold=clock.on_hold,
                    ),
                )
                return self.answered(call, value, limits, duration_s=time.perf_counter() - began)
            if flight.given_up:
                return rejected(call, "cancelled", ToolError("cancelled", "the program ended before it came back"))
            message = f"{call.tool} did not answer within {timeout_s:g} s (call_s)"
            error = ToolError("timeout", message, retryable=True)
            return rejected(call, "timeout", error, duration_s=time.perf_counter() - began)
        except ToolError as error:
            outcome = "unknown" if error.code == "unknown_outcome" else "failed"
            own = tool.server is None
            return rejected(call, outcome, error, own=own, duration_s=time.perf_counter() - began)
        except (Exception, SystemExit):  # a library's `sys.exit()` ends its call, not the host
            # The text of an unforeseen exception may hold paths or secrets: the operator's log has it, the program not.
            log.exception("tool %s failed in run %s, call %s", call.tool, run_id, call.id)
            return _failed_inside(call, time.perf_counter() - began)
        except BaseException as error:
            if isinstance(error, anyio.get_cancelled_exc_class()) and anyio.current_effective_deadline() > -math.inf:
                # Nobody cancelled this call: something that the tool itself waited for was cancelled.
                log.exception("tool %s was cancelled in run %s, call %s", call.tool, run_id, call.id)
                return _failed_inside(call, time.perf_counter() - began)
            raise

    def answered(
        self, call: CallState, value: Any, limits: Limits, *, outcome: Outcome = "completed", duration_s: float = 0.0
    ) -> CameBack:
        """A value as the reply that the program gets."""
        tool, why = call.owner.tool, None
        if isinstance(value, replies.Misfit):
            value, why = value
        mismatch = None
        if why is not None or tool.output_schema is not None:
            mismatch = functools.partial(self._mismatch, call.owner, why)
        return replied(call, value, limits, outcome=outcome, duration_s=duration_s, mismatch=mismatch)

    def _checker(self, entry: Entry) -> Checker:
        known = self.catalog.lookup(entry.name)
        if known is None or known.tool is not entry.tool:  # its server has changed its definition meanwhile
            return Checker(entry)
        if entry.name not in self._checkers:
            self._checkers[entry.name] = Checker(entry)
        return self._checkers[entry.name]

    def _mismatch(self, entry: Entry, why: str | None, text: bytes) -> str | None:
        """How a result breaks the promise of its tool; `why` is what the tool itself knows of that."""
        if why is not None or (entry.tool.function is not None and len(text) > FUNCTION_BYTES):
            return why
        try:
            return self._checker(entry).result(msgspec.json.decode(text))
        except (CatalogError, RecursionError) as error:
            return str(error)

    def _granted(self, call: CallState, arguments: Any, run_id: str) -> bool:
        tool = call.owner.tool
        return self.grants.covers(
            tool=call.tool,
            server_identity=tool.server_identity,
            definition_digest=tool.digest,
            arguments_digest=digest(arguments),
            run_id=run_id,
            call_id=call.id,
            now=time.time(),
        )


def bound(entry: Entry) -> Bound:
    """What a run is bound to of a tool."""
    client = entry.tool.handler is None
    return Bound(entry.name, entry.path, entry.tool.digest, entry.tool.server_identity, client)


def bind(state: RunState, gate: Gate) -> None:
    """Give the calls of a run that was read from its journal the tools that this process has."""
    for call in state.calls.values():
        if call.entry is None:
            call.entry = gate.catalog.lookup(call.tool)


def read_only(tool: Tool) -> bool:
    """Whether it certainly changes nothing: only a hint that is trusted counts."""
    return bool(tool.annotations.read_only) and (tool.annotations.trusted or tool.server is None)


def may_send_again(tool: Tool) -> bool:
    """Whether a call that was not heard of may be sent once more: its developer or a trusted server says so."""
    return read_only(tool) or (bool(tool.annotations.idempotent) and (tool.annotations.trusted or tool.server is None))


def usable(tools: Iterable[Tool]) -> tuple[list[Tool], list[str]]:
    """Tools of servers whose schemas can be checked, and what is left out: the developer did not write them."""
    kept: list[Tool] = []
    warnings: list[str] = []
    for tool in tools:
        try:
            Checker(tool.input_schema, tool.full_name)
        except CatalogError as error:
            warnings.append(f"{tool.full_name} is left out: {error}")
            continue
        try:
            Checker(tool.output_schema if tool.output_schema is not None else True, tool.full_name)
        except CatalogError as error:
            warnings.append(f"the output schema of {tool.full_name} is not used: {error}")
            tool = dataclasses.replace(tool, output_schema=None)  # noqa: PLW2901  the same tool, promising less
        kept.append(tool)
    return kept, warnings


def refusal(call: CallState, outcome: Outcome, message: str, code: str = "") -> CameBack:
    """The outcome of a call that is not executed; the code is the outcome's own name where none is given."""
    return CameBack(call=call.number, at=time.time(), outcome=outcome, code=code or outcome, message=message[:4000])


def replied(
    call: CallState,
    value: Any,
    limits: Limits,
    *,
    outcome: Outcome = "completed",
    duration_s: float = 0.0,
    mismatch: Callable[[bytes], str | None] | None = None,
) -> CameBack:
    """The outcome of a call that has a value; a failure where that has no JSON form, or is too large.

    Args:
        mismatch: Says how the value, as JSON text, breaks a promise of the tool's server; None where it does not.
    """
    try:
        made = replies.encode(value)
        text, changed = replies.digits_kept(made)
    except ToolError as error:
        return rejected(call, "failed", error, duration_s=duration_s)
    if len(text) > limits.reply_bytes:
        size = f"{len(text):,} bytes, more than {limits.reply_bytes:,} (reply_bytes)"
        error = ToolError("too_large", f"{call.tool} returned {size}: ask it for less")
        return rejected(call, "failed", error, own=False, duration_s=duration_s)
    notices: tuple[Notice, ...] = ()
    if changed:
        text_of = f"{changed} integer(s) beyond 2^53 in a reply of {call.tool} were delivered as strings"
        notices += (Notice("big_integers", text_of, call.line or None),)
    broken = mismatch(made) if mismatch is not None else None
    if broken:
        what = f"a reply of {call.tool} is not what its output schema says: {broken}"
        notices += (Notice("output_schema", what, call.line or None),)
    return CameBack(
        call=call.number,
        at=time.time(),
        outcome=outcome,
        value=msgspec.Raw(text),
        duration_s=duration_s,
        notices=notices,
    )


def rejected(
    call: CallState, outcome: Outcome, error: ToolError, *, own: bool = True, duration_s: float = 0.0
) -> CameBack:
    """The outcome of a call that failed. A tool of our own may not use the host's codes: they mean something else."""
    free = outcome in ("failed", "unknown")
    code = "failed" if own and free and error.code in HOST_CODES - {"timeout"} else error.code
    details: msgspec.Raw | msgspec.UnsetType = UNSET
    if error.details is not None:
        try:
            text = replies.digits_kept(replies.encode(error.details))[0]
            details = msgspec.Raw(text) if len(text) <= DETAILS_BYTES else UNSET
        except ToolError:
            pass
    return CameBack(
        call=call.number,
        at=time.time(),
        outcome=outcome,
        code=code,
        message=str(error.message)[:4000],
        retryable=bool(error.retryable),
        details=details,
        duration_s=duration_s,
    )


def _failed_inside(call: CallState, duration_s: float) -> CameBack:
    message = f"{call.tool} failed inside; its operator has the details in the log (call {call.id})"
    return rejected(call, "failed", ToolError("failed", message), duration_s=duration_s)
