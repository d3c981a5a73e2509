"""What a run comes back with, and what of it the model gets to read."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from bridge.approval import canonical
from bridge.ledger import Ledger, Traffic, account
from bridge.render import Parts, render
from sandbox import LimitName, Notice

if TYPE_CHECKING:
    from bridge.approval import ApprovalRequest
    from bridge.journal import Outcome
    from sandbox import Image, Limits, Log, Usage

Status = Literal["completed", "failed", "exceeded", "stalled", "crashed", "violation", "cancelled", "paused"]
_SHALLOW: Final = 50  # brackets: no text with fewer is nested deeper than anybody's stack allows
_STACK_TO_SPARE: Final = 150  # frames: whoever encodes a value later may stand deeper than we do


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a run did not complete, in words for the model that has to mend its program.

    Attributes:
        code: See `FailureCode` of the sandbox.
        name: Name of the JavaScript error; empty for what the host says.
        line, column: Of the text that the model sent, from 1; columns in UTF-16 units, as V8 counts.
        limit: The field of `Limits` that ended the run.
    """

    code: str
    name: str = ""
    message: str = ""
    line: int | None = None
    column: int | None = None
    limit: LimitName | None = None
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class CallRow:
    """One call of the run.

    Attributes:
        tool: Full name.
        arguments: As checked (as made, where they did not pass). `arguments_made` and `arguments_executed` are set only
            where they differ from these.
        decision: `allow`, `ask` or `deny`, or the verdict that followed.
        started: When it was sent, seconds since 1970, UTC; None if it never was.
        reused: Its reply came from an earlier run.
        error: What the program was told, `code: message`; empty where the call came back with a value.
        preview: The beginning of the reply's JSON text.
    """

    id: str
    tool: str
    arguments: Any
    decision: str
    outcome: Outcome
    started: float | None = None
    duration_s: float = 0.0
    argument_bytes: int = 0
    reply_bytes: int = 0
    reused: bool = False
    line: int | None = None
    error: str = ""
    preview: str = ""
    arguments_made: Any = msgspec.UNSET
    arguments_executed: Any = msgspec.UNSET


@dataclass(frozen=True, kw_only=True)
class PendingCall:
    """A client-owned call that waits for the application's answer."""

    id: str
    run_id: str
    tool: str
    arguments: Any
    line: int | None
    expires_at: float


@dataclass(frozen=True, kw_only=True)
class Result:
    """The outcome of a run, or its state at a pause. Plain JSON data throughout.

    Attributes:
        value: What the program returned, whole (up to `Limits.value_bytes`), whatever `text` shows of it; None also
            where there is none.
        text: What the model reads: at most `Limits.output_bytes`, a status line of the host first.
        pending, approvals: What a pause waits for, in call order; empty otherwise.
        handle: For `Executor.fetch`; None unless `text` shows less than there is.
        error: None where the run completed or is paused.
        emitted, images, logs: What the program gave to `text()`, `image()` and `console`.
    """

    status: Status
    value: Any
    text: str
    run_id: str
    pending: tuple[PendingCall, ...]
    approvals: tuple[ApprovalRequest, ...]
    handle: str | None
    error: Failure | None
    warnings: tuple[Notice, ...]
    emitted: tuple[str, ...]
    images: tuple[Image, ...]
    logs: tuple[Log, ...]
    calls: tuple[CallRow, ...]
    usage: Usage
    ledger: Ledger

    @property
    def body(self) -> str:
        """`text` without its status line."""
        return self.text.partition("\n")[2]

    def to_data(self) -> dict[str, Any]:
        """The fields as dicts, lists and scalars. `value` and arguments are not copied."""
        data = _fields(self)
        for name in ("pending", "calls"):
            data[name] = [_fields(each) for each in data[name]]
        data["approvals"] = [
            _fields(each) | {"annotations": _fields(each.annotations), "before": list(each.before)}
            for each in self.approvals
        ]
        data["warnings"] = [{"code": each.code, "message": each.message, "line": each.line} for each in self.warnings]
        data["emitted"] = list(self.emitted)
        for name in ("images", "logs"):
            data[name] = [msgspec.to_builtins(each) for each in data[name]]
        for name in ("error", "usage"):
            data[name] = msgspec.to_builtins(data[name])
        data["ledger"] = self.ledger.to_data()
        return data

    def to_json(self) -> str:
        """`to_data` as JSON text; in ASCII and with sorted keys where the usual encoder gives up (half characters)."""
        data = self.to_data()
        try:
            return msgspec.json.encode(data).decode()
        except (UnicodeEncodeError, OverflowError, RecursionError):
            return canonical(data)


def _fields(record: Any) -> dict[str, Any]:
    """The fields of a dataclass, those that are not set left out. One level: what is nested may be so without end."""
    parts = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return {name: part for name, part in parts.items() if part is not msgspec.UNSET}


def finish(
    *,
    status: Status,
    value_json: bytes | None,
    emitted: Sequence[str],
    images: Sequence[Image],
    logs: Sequence[Log],
    dropped_logs: int,
    failure: Failure | None,
    notices: Sequence[Notice],
    rows: Sequence[CallRow],
    usage: Usage,
    limits: Limits,
    program: str,
    run_id: str,
    pending: Sequence[PendingCall],
    approvals: Sequence[ApprovalRequest],
    handle: str | None,
    traffic: Traffic | None = None,
) -> Result:
    """Make a `Result` of everything that a run left. Raises nothing, whatever the program returned.

    Args:
        value_json: The value as the worker sent it; None where there is none. One that cannot be read as JSON becomes
            None, with the warning `value_unreadable`.
        handle: What the host keeps the whole under, should it be needed.
        traffic: What the ledger wants to know beyond the rows.
    """
    warnings = list(notices)
    value: Any = None
    if value_json is not None:
        try:
            value = decode_value(value_json)
        except ValueError as error:
            warnings.append(Notice("value_unreadable", f"the value ({len(value_json):,} bytes) was dropped: {error}"))
            value_json = None
    parts = Parts(
        status=status,
        value=value,
        value_bytes=-1 if value_json is None else len(value_json),
        emitted=emitted,
        images=len(images),
        logs=logs,
        dropped_logs=dropped_logs,
        failure=failure,
        warnings=warnings,
        rows=rows,
        program=program,
        pending=tuple(pending),
        approvals=approvals,
        handle=handle,
    )
    text, truncated = render(parts, limits.output_bytes)
    if dropped_logs:  # the text has said so already, in its own place
        what = f"{dropped_logs:,} console line(s) did not fit into log_bytes={limits.log_bytes:,}: counted, not kept"
        warnings.append(Notice("truncated", what))
    if truncated:
        what = (
            f"the model was shown {len(text.encode()):,} bytes (output_bytes={limits.output_bytes:,}), not all there is"
        )
        warnings.append(Notice("truncated", what))
    return Result(
        status=status,
        value=value,
        text=text,
        run_id=run_id,
        pending=tuple(pending),
        approvals=tuple(approvals),
        handle=handle if truncated else None,
        error=failure,
        warnings=tuple(warnings),
        emitted=tuple(emitted),
        images=tuple(images),
        logs=tuple(logs),
        calls=tuple(rows),
        usage=dataclasses.replace(usage, output_bytes=len(text.encode()), value_bytes=len(value_json or b"")),
        ledger=account(rows, program, text, traffic),
    )


def decode_value(text: bytes) -> Any:
    """A program's value from its JSON text. Lone surrogates, which JavaScript texts may have, become U+FFFD.

    Raises:
        ValueError: No JSON, a number that no float holds, or nested too deeply.
    """
    try:
        if text.count(b"[") + text.count(b"{") < _SHALLOW:
            return msgspec.json.decode(text)
        return _decode_deep_down(text, _STACK_TO_SPARE)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except msgspec.MsgspecError:
        mended = _ESCAPES.sub(_mended, text)
    if mended != text:
        return decode_value(mended)
    raise ValueError("it is no JSON")


def _decode_deep_down(text: bytes, frames: int) -> Any:
    return _decode_deep_down(text, frames - 1) if frames else msgspec.json.decode(text)


_ESCAPES: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)


def _mended(escaped: re.Match[bytes]) -> bytes:
    return escaped[0] if escaped[1] is None else b"\\ufffd"
