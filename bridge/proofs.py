"""Which verdicts in a journal the approver's key has signed, where an executor counts no others of other processes.

A signature is of everything that the verdict decides: run, call, tool and definition, the arguments that were shown,
the verdict with its scope and time, and the answer that came with it. So none can be moved to another call, or used for
arguments or a definition that nobody saw.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from bridge.approval import canonical, digest
from bridge.approver_key import ApproverKey, is_signed
from bridge.errors import StateError
from bridge.journal import Began, CameBack, Judged, Record, Redefined, encode
from bridge.loading import binding
from bridge.state import RunState

_decoder: Final = msgspec.json.Decoder(Record)


def statement(state: RunState, record: Judged, reply: CameBack | None) -> bytes:
    """What is signed.

    Args:
        state: The run as it was before the verdict.
        reply: What the program gets by it, where the verdict says that.
    """
    call = state.calls[record.call]
    known = binding(state, call)
    said = {
        "run": state.id,
        "call": call.id,
        "tool": call.tool,
        "definition": None if known is None else list(known),
        "arguments": digest(call.executed),
        "verdict": _sum(msgspec.structs.replace(record, proof="")),
        "reply": "" if reply is None else _sum(reply),
    }
    return b"sandbridge verdict\n" + canonical(said).encode("ascii")


def signed(state: RunState, record: Judged, reply: CameBack | None, key: ApproverKey) -> Judged:
    """The verdict with its proof; `state` as for `statement`."""
    return msgspec.structs.replace(record, proof=key.sign(statement(state, record, reply)))


def pairs(records: Sequence[Record]) -> Iterator[tuple[Record, CameBack | None]]:
    """Each record, a verdict with the reply that came with it."""
    for number, record in enumerate(records):
        after = records[number + 1] if number + 1 < len(records) else None
        if isinstance(record, Judged) and isinstance(after, CameBack) and after.call == record.call:
            yield record, after
        else:
            yield record, None


class Proofs:
    """What an executor counts of a journal that others could write to.

    Args:
        verifier: Of the key.

    Attributes:
        calls: Numbers of the calls whose last verdict is signed.
        records: The signed verdicts themselves.
    """

    def __init__(self, verifier: str) -> None:
        self.calls: set[int] = set()
        self.records: list[Record] = []
        self._verifier = verifier

    def read(self, state: RunState, record: Record, reply: CameBack | None) -> bool:
        """Look at the next record, before it is applied to the state; whether it is a signed verdict."""
        if isinstance(record, (Judged, Redefined)):
            self.calls.discard(record.call)
        if not isinstance(record, Judged) or record.call not in state.calls:
            return False
        if not is_signed(self._verifier, statement(state, record, reply), record.proof):
            return False
        self.calls.add(record.call)
        self.records.append(record)
        return True

    def fold(self, records: Sequence[Record]) -> RunState:
        """What a whole journal tells, as `bridge.state.fold`; none of it has to be signed."""
        first, *rest = records
        assert isinstance(first, Began), "decode has seen to it"
        state = RunState(first)
        for record, reply in pairs(rest):
            self.read(state, record, reply)
            state.apply(record)
        return state

    def take(self, state: RunState, records: Sequence[Record]) -> None:
        """Apply what others wrote to the state of a run that we hold, as long as every verdict in it is signed.

        Raises:
            StateError: Something else is in it; the state is of no use any more.
        """
        given: CameBack | None = None
        for record, reply in pairs(records):
            if self.read(state, record, reply):
                given = reply
            elif record is not given and not _is_expiry(record):
                raise StateError(
                    f"what was written to run {state.id} meanwhile is not signed with the approver key: none of it "
                    "counts; run the program again"
                )
            state.apply(record)


def _is_expiry(record: Record) -> bool:
    """Whether it says only that nobody answered in time."""
    return isinstance(record, CameBack) and record.outcome == "expired" and record.value is msgspec.UNSET


def _sum(record: Record) -> str:
    """A digest of a record as it reads once it was stored."""
    return hashlib.sha256(encode(_decoder.decode(encode(record)))).hexdigest()
