"""Any sequence of operations of three owners on two runs, beside a model of a few lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bridge.errors import StateError
from bridge.store import FINISHED, Lease, LeaseLost, Store
from tests.bridge.store.conftest import begin

OWNERS = st.sampled_from(["one", "two", "three"])
RUNS = st.sampled_from(["a", "b"])
CLAIMS = st.sampled_from(["x", "y"])


@dataclass
class Model:
    """What a run must look like."""

    status: str = "running"
    owner: str | None = None
    until: float = 0
    fence: int = 1
    claim: str | None = None
    records: list[bytes] = field(default_factory=list[bytes])


class Operations(RuleBasedStateMachine):
    """The store must do what the model does, refuse where it refuses, and change nothing then."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store("memory")
        self.now = 100.0
        self.models: dict[str, Model] = {}
        self.leases: list[Lease] = []  # all that were ever given, stale ones too
        self.number = 0

    def teardown(self) -> None:
        self.store.close()

    def fits(self, lease: Lease) -> Model | None:
        model = self.models.get(lease.run_id)
        held = model is not None and (model.owner, model.fence) == (lease.owner, lease.fence)
        return model if held else None

    def lease(self, data: st.DataObject) -> Lease | None:
        return data.draw(st.sampled_from(self.leases)) if self.leases else None

    @rule(seconds=st.sampled_from([1, 9, 10, 11]))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule(run_id=RUNS, owner=OWNERS)
    def create(self, run_id: str, owner: str) -> None:
        try:
            self.leases.append(begin(self.store, run_id, owner=owner, now=self.now))
        except StateError:
            assert run_id in self.models
        else:
            assert run_id not in self.models
            self.models[run_id] = Model(owner=owner, until=self.now + 10)

    @rule(data=st.data(), off=st.sampled_from([0, 0, 0, -1, 1]), count=st.integers(0, 3))
    def append(self, data: st.DataObject, off: int, count: int) -> None:
        if (lease := self.lease(data)) is None:
            return
        model = self.fits(lease)
        first = (len(model.records) if model else 0) + off
        added = [b"%d" % (self.number + each) for each in range(count)]
        self.number += count
        try:
            self.leases.append(self.store.append(lease, first, added, now=self.now, lease_s=10))
        except LeaseLost:
            assert model is None or off
        else:
            assert model is not None
            assert off == 0
            model.records += added
            model.until = self.now + 10

    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        if (lease := self.lease(data)) is None:
            return
        model = self.fits(lease)
        try:
            self.store.renew(lease, now=self.now, lease_s=20)
        except LeaseLost:
            assert model is None
        else:
            assert model is not None
            model.until = self.now + 20

    @rule(data=st.data(), status=st.sampled_from(["paused", "paused", "running", "completed"]), claim=CLAIMS)
    def release(self, data: st.DataObject, status: Any, claim: str) -> None:
        if (lease := self.lease(data)) is None:
            return
        model = self.fits(lease)
        given = claim if status == "paused" else None
        try:
            self.store.release(lease, now=self.now, status=status, claim_digest=given)
        except LeaseLost:
            assert model is None
        else:
            assert model is not None
            model.status, model.owner, model.until, model.claim = status, None, 0, given

    @rule(run_id=RUNS, owner=OWNERS, claim=st.none() | CLAIMS)
    def acquire(self, run_id: str, owner: str, claim: str | None) -> None:
        model = self.models.get(run_id)
        free = model is not None and model.status not in FINISHED and (model.owner is None or model.until <= self.now)
        claimed = model is not None and claim in (None, model.claim)
        try:
            lease, records = self.store.acquire(run_id, owner=owner, lease_s=10, now=self.now, claim_digest=claim)
        except StateError:
            assert not (free and claimed)
        else:
            assert model is not None
            assert free
            assert claimed
            assert records == model.records
            model.status, model.owner, model.until, model.fence = "running", owner, self.now + 10, model.fence + 1
            model.claim = model.claim if claim is None else None
            self.leases.append(lease)

    @rule(statuses=st.sampled_from([["completed"], ["completed", "paused", "running"]]))
    def prune(self, statuses: Any) -> None:
        old = [
            run_id
            for run_id, model in self.models.items()
            if model.status in statuses and (model.owner is None or model.until <= self.now)
        ]
        assert self.store.prune(before=self.now + 1, now=self.now, statuses=statuses) == len(old)
        for run_id in old:
            del self.models[run_id]
            self.leases = [lease for lease in self.leases if lease.run_id != run_id]  # a new run may be fenced alike

    @invariant()
    def all_is_as_in_the_model(self) -> None:
        rows = {row.id: row for row in self.store.runs()}
        assert rows.keys() == self.models.keys()
        for run_id, model in self.models.items():
            row = rows[run_id]
            assert (row.status, row.lease_owner, row.lease_until, row.fence, row.claim_digest, row.seq) == (
                model.status,
                model.owner,
                model.until,
                model.fence,
                model.claim,
                len(model.records),
            )
            assert self.store.read(run_id) == model.records


TestOperations = Operations.TestCase
TestOperations.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
