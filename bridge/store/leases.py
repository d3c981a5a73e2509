"""Who may take a run and write to it: decided from its row, in plain functions."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

from bridge.clock import moment_text
from bridge.errors import StateError
from bridge.store.rows import FINISHED, Lease, LeaseHeld, LeaseLost, moment, shown

Found = Mapping[Any, Any]  # a row of the table, by column


def until(now: float, lease_s: float) -> float:
    """When a lease ends that is taken now.

    Raises:
        StateError: No time, or no duration.
    """
    if moment("lease_s", lease_s) <= 0:
        raise StateError(f"lease_s must be more than 0 seconds, not {lease_s!r}")
    return moment("now", now) + lease_s


def check_free(found: Found, *, now: float, claim_digest: str | None) -> None:
    """Decide whether a run may be taken.

    Raises:
        LeaseHeld: Somebody drives it.
        StateError: Finished, or this claim is not the one that is open.
    """
    run = f"run {shown(found['id'])}"
    if found["status"] in FINISHED:
        raise StateError(f"{run} is finished ({found['status']})")
    if claim_digest is not None and not _same(claim_digest, found["claim_digest"]):
        if _same(claim_digest, found["spent_claim"]):
            raise StateError(f"this state of {run} was used already: each can be loaded once")
        raise StateError(f"this is no current state of {run}: the run went on since, or it is another run's")
    if found["lease_owner"] is not None and found["lease_until"] > now:
        ends = found["lease_until"]
        more = f"its lease lasts {ends - now:.1f} s more, until {moment_text(ends)}"
        raise LeaseHeld(f"{run} is driven by {shown(found['lease_owner'])}: {more}", ends)


def lost(found: Found | None, lease: Lease, first_seq: int | None) -> LeaseLost:
    """Why a write under this lease found nothing to write to."""
    run = f"run {shown(lease.run_id)}"
    if found is None:
        return LeaseLost(f"{run} is not in this store (any more)")
    if (found["lease_owner"], found["fence"]) == (lease.owner, lease.fence):
        return LeaseLost(f"{run} has {found['seq']} records, not {first_seq}: its journal must be read again")
    if found["lease_owner"] is None:
        return LeaseLost(f"{run} was released: acquire it again before writing to it")
    return LeaseLost(
        f"{run} is driven by {shown(found['lease_owner'])} under fence {found['fence']}, this lease had {lease.fence}"
    )


def unknown(run_id: str) -> StateError:
    """What to say of a run that is not there."""
    return StateError(f"no run {shown(run_id)} in this store: it was pruned, or belongs to another")


def _same(given: str, held: str | None) -> bool:
    """Whether it is that claim; the time taken says nothing about how much of it fits."""
    return held is not None and hmac.compare_digest(given.encode("utf-8", "surrogatepass"), held.encode())
