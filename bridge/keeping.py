"""Where the journals of an executor's runs go, and the states by which a paused run finds its way to another process.

With a store, a state is a run's id and a claim that can be used once: all that decides is in the store. Without one a
state is the journal itself, authenticated by the executor's key (HMAC-SHA256), with the audience that it is meant for
and the time after which nobody waits for it any more. It is not encrypted: whoever holds it can read it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import math
import os
import secrets
import socket
import time
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import anyio
import msgspec

from bridge.adopting import adopt
from bridge.approval import Grant, Grants
from bridge.errors import BridgeError, StateError
from bridge.journal import Began, Ended, Record, decode, encode
from bridge.sink import StoreSink, blocking
from bridge.state import RunState

if TYPE_CHECKING:
    from bridge.definitions import Definition
    from bridge.run import Run
    from bridge.store import Lease, Store, Waiting

log: Final = logging.getLogger("sandbridge")

LEASE_S: Final = 30.0  # a host that has been silent for so long is taken to be gone
STATE_BYTES: Final = 1 << 30  # of a journal inside a state; only one that we signed gets so far
_CLAIM, _SEALED = "sbrun1", "sbstate1"


class _Header(msgspec.Struct, omit_defaults=True):
    audience: str
    run: str
    expires: float


class Keeper:
    """Keeps runs for one executor: in a store, or only as long as the process lives.

    Args:
        url: Of the store; None: there is none.
        key: Signs states where there is no store; of several the first signs and all are accepted.
        audience: Who may load a state: executors that name the same.
        approver: Verifier of the key that signs verdicts of other processes; empty: any of them counts.
    """

    def __init__(
        self,
        url: str | None,
        keys: list[bytes],
        audience: str,
        lease_s: float = LEASE_S,
        *,
        approver: str = "",
    ) -> None:
        self.approver = approver
        self.keys = keys
        self.audience = audience
        self.lease_s = lease_s
        self.store: Store | None = None
        self._url = url
        self._owner = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        self._sinks: dict[str, StoreSink] = {}
        self._runs: dict[str, Run] = {}

    async def open(self) -> None:
        """Connect to the store, if there is one. `ConfigurationError`: it cannot be used."""
        url = self._url
        if url is not None and self.store is None:
            from bridge.store import Store  # SQLAlchemy loads only where there is a store

            self.store = await blocking(lambda: Store(url))

    async def close(self) -> None:
        """Close the store's connections."""
        store, self.store = self.store, None
        if store is not None:
            await blocking(store.close)

    async def renewing(self) -> None:
        """Keep the leases of all runs that are driven here. A task of the executor."""
        while True:
            await anyio.sleep(self.lease_s / 3)
            for run_id, sink in tuple(self._sinks.items()):
                try:
                    await sink.renew()
                except StateError as error:
                    run = self._runs.get(run_id)
                    if run is not None:
                        run.lose(error)
                except BridgeError as error:  # the next write or renewal will tell
                    log.warning("the lease of run %s could not be renewed: %s", run_id, error)

    async def exchange(self, grants: Grants, bound: Iterable[str] = ()) -> None:
        """Bring approvals that others gave into memory, and those given here into the store.

        Args:
            bound: Digests of definitions that may have changed: what they said is brought too, where it was kept.
        """
        store = self.store
        if store is None:
            return
        given, voided = grants.changes()
        unsaved = grants.seen.unsaved()
        now = time.time()

        def both() -> tuple[list[Grant], dict[str, Definition]]:
            kept = {} if self.approver else store.grants.valid(now=now)  # a row has no signature
            for grant_id in [grant_id for grant_id, grant in kept.items() if grant in voided]:
                store.grants.spend(grant_id)
                del kept[grant_id]
            for grant in given:
                store.grants.add(grant, now=now)
            if unsaved:
                store.grants.keep_definitions(unsaved, now=now)
            wanted = {*bound, *(grant.definition_digest for grant in kept.values())}
            return list(kept.values()), store.grants.definitions(grants.seen.missing(wanted))

        held, definitions = await blocking(both)
        for digest, said in definitions.items():
            grants.seen.know(digest, said)
        for grant in held:
            grants.hold(grant)

    # ---- the life of a run ------------------------------------------------------------------------------------------

    async def begin(self, began: Began) -> StoreSink | None:
        """A new run, with its first record; None where nothing is kept."""
        store = self.store
        if store is None:
            return None
        lease = await blocking(
            lambda: store.create(
                began.run_id,
                [encode(began)],
                owner=self._owner,
                lease_s=self.lease_s,
                now=time.time(),
                program=began.program,
                audience=self.audience,
                engine_digest=began.engine,
            )
        )
        return StoreSink(store, lease, 1, lease_s=self.lease_s)

    def driven(self, run: Run) -> None:
        """A run is driven here from now on: its lease is to be kept."""
        if isinstance(run.journal.sink, StoreSink):
            self._sinks[run.id], self._runs[run.id] = run.journal.sink, run

    async def retake(self, run: Run) -> None:
        """Take back a paused run before it goes on, with what others wrote meanwhile. One at a time for a run.

        Raises:
            StateError: Somebody else drives it, or has finished it.
        """
        sink, store = run.journal.sink, self.store
        if not isinstance(sink, StoreSink) or sink.lease is not None:
            return
        if store is None:
            raise StateError(f"the executor of run {run.id} is closed: load the run in another one")
        await self.exchange(run.gate.grants)
        lease, lines = await self._acquire(store, run.id, None)
        sink.lease, sink.claim = lease, ""
        if len(lines) > sink.seq:
            try:
                adopt(run, decode(lines)[sink.seq :], self.approver)
            except StateError:
                await self.give_back(run)
                raise
        sink.seq = len(lines)
        self.driven(run)

    async def give_back(self, run: Run) -> None:
        """The run is paused and all of it is in the store: whoever comes next may drive it."""
        sink, store = run.journal.sink, self.store
        if not isinstance(sink, StoreSink) or store is None or sink.lease is None:
            return
        await self.exchange(run.gate.grants)
        claim = secrets.token_urlsafe(24)
        lease, waiting = sink.lease, waiting_rows(run.state)
        await blocking(
            lambda: store.release(
                lease,
                now=time.time(),
                status="paused",
                claim_digest=_digest(claim),
                waiting=waiting,
                expires_at=min((row.expires_at for row in waiting), default=None),
            )
        )
        self._forget(run, claim)

    async def finish(self, run: Run, summary: str) -> None:
        """The run has its outcome, or is left to whoever takes it next."""
        sink, store = run.journal.sink, self.store
        if not isinstance(sink, StoreSink) or store is None or sink.lease is None:
            return
        await run.journal.flush()
        lease, ended = sink.lease, run.state.ended
        status = ended.status if ended is not None else "running"
        await blocking(lambda: store.release(lease, now=time.time(), status=status, outcome=summary[:200]))
        self._forget(run, "")

    async def let_go(self, sink: StoreSink | None, ended: Ended | None = None) -> None:
        """Give a run back as it was, that was taken and cannot go on here.

        Args:
            ended: Its journal's last record, where it has finished: whoever wrote that died before he could say so.
        """
        if sink is None or sink.lease is None:
            return
        run_id = sink.lease.run_id
        try:
            await sink.put_back(ended)
        except BridgeError:
            log.exception("run %s could not be given back: its lease lasts %g s", run_id, self.lease_s)

    def _forget(self, run: Run, claim: str) -> None:
        sink = self._sinks.pop(run.id, None) or run.journal.sink
        self._runs.pop(run.id, None)
        if isinstance(sink, StoreSink):
            sink.lease, sink.claim = None, claim

    async def _acquire(self, store: Store, run_id: str, claim: str | None) -> tuple[Lease, list[bytes]]:
        digest = None if claim is None else _digest(claim)
        return await blocking(
            lambda: store.acquire(run_id, owner=self._owner, lease_s=self.lease_s, now=time.time(), claim_digest=digest)
        )

    # ---- states -----------------------------------------------------------------------------------------------------

    def dump(self, run: Run) -> str:
        """The paused run as text. `StateError`: there is neither a store nor a key."""
        sink = run.journal.sink
        if isinstance(sink, StoreSink):
            return f"{_CLAIM}.{run.id}.{sink.claim}"
        if not self.keys:
            raise StateError("a state must be authenticated: give the executor a key= (or a store=)")
        expires = max((call.expires_at for call in run.state.waiting.values()), default=math.inf)
        header = msgspec.json.encode(_Header(self.audience, run.id, expires))
        payload = zlib.compress(b"\n".join([header, *map(encode, run.journal.records)]), 6)
        body = f"{_SEALED}.{_text(payload)}"
        return f"{body}.{_text(_mac(self.keys[0], body))}"

    async def read(self, state: str) -> tuple[list[Record], StoreSink | None]:
        """The journal that a state (or, with a store, a run's id) stands for, and where it goes on.

        Raises:
            StateError: Tampered with, of another audience, expired, used, finished, driven by somebody, unknown.
        """
        if not isinstance(state, str) or not state:  # pyright: ignore[reportUnnecessaryIsInstance]  from outside
            raise StateError(f"a state is the text that dump() gave, or a run's id, not {type(state).__name__}")
        kind, _, rest = state.partition(".")
        if kind == _SEALED:
            return self._unseal(state), None
        if self.store is None:
            raise StateError("this is no state that an executor without a store can load: give it the same store=")
        run_id, claim = (rest.partition(".")[0] if kind == _CLAIM else state), _claim(state)
        store = self.store
        row = await blocking(lambda: store.row(run_id))
        if row.audience != self.audience:
            raise StateError(f"run {run_id} is for {row.audience!r}, and this executor is {self.audience!r}")
        last = max((call.expires_at for call in row.waiting), default=math.inf)
        if kind == _CLAIM and last <= time.time():
            raise StateError(f"the state of run {run_id} has expired: nobody answered in time; run the program again")
        lease, lines = await self._acquire(store, run_id, claim if kind == _CLAIM else None)
        used = _digest(claim) if kind == _CLAIM else None
        sink = StoreSink(store, lease, len(lines), lease_s=self.lease_s, found=row, used=used)
        try:
            return decode(lines), sink
        except StateError:
            await self.let_go(sink)
            raise

    async def past(self, run_id: str) -> RunState:
        """A run as the store has it, to be read only. `StateError`: it does not know it."""
        from bridge.state import fold

        store = self.store
        if store is None:
            raise StateError(f"no run {run_id} is known here, and there is no store to look in")
        return fold(decode(await blocking(lambda: store.read(run_id))))

    def _unseal(self, state: str) -> list[Record]:
        body, _, mac = state.rpartition(".")
        if not self.keys:
            raise StateError("a state without a store is authenticated by a key: give the executor the same key=")
        try:
            given, payload = _bytes(mac), _bytes(body.partition(".")[2])
        except ValueError:
            raise StateError("the state is damaged: it is not the text that dump() gave") from None
        if not any(hmac.compare_digest(given, _mac(key, body)) for key in self.keys):
            raise StateError("the state was not signed with a key of this executor, or was changed since")
        header_line, *lines = zlib.decompressobj().decompress(payload, STATE_BYTES).split(b"\n")
        header = msgspec.json.decode(header_line, type=_Header)
        if header.audience != self.audience:
            raise StateError(f"the state is for {header.audience!r}, and this executor is {self.audience!r}")
        if header.expires <= time.time():
            raise StateError(f"the state of run {header.run} has expired: nobody answered in time; run it again")
        return decode(lines)


def waiting_rows(state: RunState) -> list[Waiting]:
    """What a paused run waits for, as a store lists it."""
    from bridge.store import Waiting

    return [
        Waiting(
            call=call.id,
            tool=call.tool,
            kind="client" if call.stage == "client" else "approval",
            expires_at=call.expires_at,
            line=call.line,
        )
        for call in state.waiting.values()
    ]


def _mac(key: bytes, body: str) -> bytes:
    return hmac.new(key, body.encode("ascii", "replace"), hashlib.sha256).digest()


def _claim(state: str) -> str:
    kind, _, rest = state.partition(".")
    return rest.partition(".")[2] if kind == _CLAIM else ""


def _digest(claim: str) -> str:
    return hashlib.sha256(claim.encode()).hexdigest()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
