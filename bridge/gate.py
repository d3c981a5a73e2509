"""The one path of every call, whatever its origin: identity, arguments, policy, approval, governor, execution, reply.

`admit` decides and does no I/O; `perform` does the I/O and decides nothing. A run keeps the order between the two.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import math
import time
from collections.abc import Iterable
from typing import Any, Final

import anyio
import msgspec

from bridge import replies
from bridge.approval import ApprovalRequest, Grants, digest
from bridge.calls import CallState, Stage
from bridge.errors import HOST_CODES, CatalogError, ToolError
from bridge.policy import Policy, decide
from bridge.results import decode_value
from bridge.schema import Checker
from bridge.tools import Caller, Catalog, Entry, Tool, ToolContext
from sandbox import Call, Limits, Notice, Rejected, Reply, Resolved

log: Final = logging.getLogger("sandbridge")
DETAILS_BYTES: Final = 100_000  # of an error; more is data, which belongs into a reply
PROGRESS_CEILING: Final = 10  # a call that reports progress may take this many times its deadline


class Gate:
    """Checks, decides and performs calls against one catalog. Shared by the runs of an executor."""

    def __init__(self, catalog: Catalog, policy: Policy, grants: Grants) -> None:
        self.catalog = catalog
        self.policy = policy
        self.grants = grants
        self.names = catalog.realm_names()
        self._checkers = {entry.name: Checker(entry) for entry in catalog.entries}

    def admit(self, call: CallState, *, run_id: str, caller: Caller = "programmatic") -> None:
        """Check and decide one call: afterwards its stage is `queued`, `asked`, `client` or `done` (refused)."""
        try:
            given = _read(call.made)
        except ValueError:
            refuse(call, "invalid", ToolError("invalid_arguments", "the arguments are no JSON, or nested too deeply"))
            return
        try:
            checked = self._checker(call.entry).arguments(given)
        except ToolError as error:
            refuse(call, "invalid", error)
            return
        call.notices.extend(msgspec.structs.replace(notice, line=call.line or None) for notice in checked.notices)
        self.judge(call, checked.arguments, run_id=run_id, caller=caller)

    def judge(self, call: CallState, arguments: Any, *, run_id: str, caller: Caller = "programmatic") -> Stage:
        """Policy and grants on checked arguments, also on those that an approver has edited; the stage it is in now."""
        call.checked = call.executed = arguments
        decision = call.decision = decide(self.policy, call.entry.tool, call.entry.path, arguments, caller)
        if decision.kind == "deny":
            refuse(call, "denied", ToolError("denied", f"{call.entry.name} was denied: {decision.reason}"))
        elif decision.kind == "ask" and not self._granted(call, run_id):
            call.stage = "asked"
        else:
            call.stage = "client" if call.entry.tool.handler is None else "queued"
        return call.stage

    def edited(self, call: CallState, arguments: Any, *, run_id: str) -> None:
        """An approver's arguments pass the schema and the deny rules again; the approval itself stands.

        Raises:
            ToolError: They do not fit the schema; nothing has changed.
        """
        self.judge(call, self.check(call.entry, arguments), run_id=run_id)
        if call.stage == "asked":
            call.stage = "client" if call.entry.tool.handler is None else "queued"

    def check(self, entry: Entry, arguments: Any) -> Any:
        """Arguments as the handler would get them. Raises `ToolError` where they do not fit the schema."""
        return self._checker(entry).arguments([arguments]).arguments

    def request(self, call: CallState, *, run_id: str, program: str, before: tuple[str, ...]) -> ApprovalRequest:
        """What the one who approves is shown."""
        tool = call.entry.tool
        return ApprovalRequest(
            call_id=call.id,
            run_id=run_id,
            tool=call.entry.name,
            title=tool.title,
            description=tool.description,
            server=tool.server,
            arguments=copy.deepcopy(call.checked),  # the approver's to change: what was checked is what is sent
            arguments_digest=digest(call.checked),
            program=program,
            line=call.line,
            reason=call.decision.reason if call.decision else "",
            definition_digest=tool.digest,
            server_identity=tool.server_identity,
            before=before,
            expires_at=call.expires_at,
            annotations=tool.annotations,
            definition_changed=call.definition_changed
            or self.grants.changed(
                tool=call.entry.name, server_identity=tool.server_identity, definition_digest=tool.digest
            ),
        )

    async def perform(self, call: CallState, *, run_id: str, limits: Limits, context: Any) -> Reply:
        """Execute one admitted call within its deadline. Never raises but for cancellation."""
        tool = call.entry.tool
        assert tool.handler is not None, "a client-owned call is answered by the application"
        timeout_s = tool.timeout_s or limits.call_s
        call.stage, call.started = "running", time.time()
        began = time.perf_counter()
        try:
            with anyio.move_on_after(timeout_s) as scope:
                call.scope = scope
                if call.given_up:
                    scope.cancel()
                ceiling = scope.deadline + timeout_s * (PROGRESS_CEILING - 1)

                def progress(done: float, total: float | None, message: str | None) -> None:
                    scope.deadline = min(anyio.current_time() + timeout_s, ceiling)

                value = await tool.handler(
                    call.executed,
                    ToolContext(
                        run_id=run_id,
                        call_id=call.id,
                        idempotency_key=call.id,
                        caller_context=context,
                        progress=progress,
                    ),
                )
                return self.answered(call, value, limits)
            if call.given_up:
                return rejected(call, "cancelled", ToolError("cancelled", "the program ended before it came back"))
            message = f"{call.entry.name} did not answer within {timeout_s:g} s (call_s)"
            return rejected(call, "timeout", ToolError("timeout", message, retryable=True))
        except ToolError as error:
            outcome = "unknown" if error.code == "unknown_outcome" else "failed"
            return rejected(call, outcome, error, own=tool.server is None)
        except (Exception, SystemExit):  # a library's `sys.exit()` ends its call, not the host
            # The text of an unforeseen exception may hold paths or secrets: the operator's log has it, the program not.
            log.exception("tool %s failed in run %s, call %s", call.entry.name, run_id, call.id)
            return self._failed_inside(call)
        except BaseException as error:
            if isinstance(error, anyio.get_cancelled_exc_class()) and anyio.current_effective_deadline() > -math.inf:
                # Nobody cancelled this call: something that the tool itself waited for was cancelled.
                log.exception("tool %s was cancelled in run %s, call %s", call.entry.name, run_id, call.id)
                return self._failed_inside(call)
            call.outcome = "cancelled" if call.read_only else "unknown"
            raise
        finally:
            call.stage, call.duration_s = "done", time.perf_counter() - began

    def _failed_inside(self, call: CallState) -> Reply:
        message = f"{call.entry.name} failed inside; its operator has the details in the log (call {call.id})"
        return rejected(call, "failed", ToolError("failed", message))

    def answered(self, call: CallState, value: Any, limits: Limits) -> Reply:
        """A value as the reply that the program gets."""
        try:
            made = replies.encode(value)
            text, changed = replies.digits_kept(made)
        except ToolError as error:
            return rejected(call, "failed", error)
        if len(text) > limits.reply_bytes:
            size = f"{len(text):,} bytes, more than {limits.reply_bytes:,} (reply_bytes)"
            error = ToolError("too_large", f"{call.entry.name} returned {size}: ask it for less")
            return rejected(call, "failed", error, own=False)
        if changed:
            text_of = f"{changed} integer(s) beyond 2^53 in a reply of {call.entry.name} were delivered as strings"
            call.notices.append(Notice("big_integers", text_of, call.line or None))
        if call.entry.tool.server is not None and call.entry.tool.output_schema is not None:
            mismatch = self._mismatch(call.entry, made)
            if mismatch:
                what = f"a reply of {call.entry.name} is not what its output schema says: {mismatch}"
                call.notices.append(Notice("output_schema", what, call.line or None))
        call.text = text
        call.stage, call.outcome = "done", call.outcome or "completed"
        return Resolved(call.number, msgspec.Raw(text))

    def _checker(self, entry: Entry) -> Checker:
        known = self.catalog.lookup(entry.name)
        if known is None or known.tool is not entry.tool:  # its server has changed its definition meanwhile
            return Checker(entry)
        return self._checkers[entry.name]

    def _mismatch(self, entry: Entry, text: bytes) -> str | None:
        try:
            return self._checker(entry).result(msgspec.json.decode(text))
        except (CatalogError, RecursionError) as error:
            return str(error)

    def _granted(self, call: CallState, run_id: str) -> bool:
        tool = call.entry.tool
        return self.grants.covers(
            tool=call.entry.name,
            server_identity=tool.server_identity,
            definition_digest=tool.digest,
            arguments_digest=digest(call.checked),
            run_id=run_id,
            call_id=call.id,
            now=time.time(),
        )


def _read(made: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(made)
    except (msgspec.MsgspecError, RecursionError):
        return decode_value(bytes(made))  # half characters are mended, as in values


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


def new_call(call: Call, entry: Entry, run_id: str) -> CallState:
    """The state of a call that a wave brought."""
    return CallState(
        number=call.id, id=f"{run_id}.{call.id}", entry=entry, made=call.arguments, line=call.line, column=call.column
    )


def refuse(call: CallState, outcome: Any, error: ToolError) -> None:
    """End a call that is not executed."""
    call.stage, call.outcome, call.error_code, call.error_message = "done", outcome, error.code, error.message


def refusal(call: CallState) -> Rejected:
    """The reply to a call that was refused before it was executed."""
    return Rejected(call.number, call.error_code, call.entry.name, call.error_message)


def rejected(call: CallState, outcome: Any, error: ToolError, *, own: bool = True) -> Rejected:
    """The reply to a call that failed. A tool of our own may not use the host's codes: they mean something else."""
    code = "failed" if own and error.code in HOST_CODES - {"timeout"} else error.code
    refuse(call, outcome, ToolError(code, str(error.message)[:4000]))
    try:
        details = replies.digits_kept(replies.encode(error.details))[0]
    except ToolError:
        details = b"null"
    if len(details) > DETAILS_BYTES:
        details = b"null"
    return Rejected(call.number, code, call.entry.name, call.error_message, error.retryable, msgspec.Raw(details))
