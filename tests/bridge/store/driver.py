"""A process that drives runs in a shared store: `python driver.py COMMAND URL`; talks over its standard streams.

It says a line for each thing that is done, and waits for a line before what the test wants to be first at.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict

from bridge.errors import BridgeError
from bridge.store import Lease, Store

PART = 3  # records in one append


def say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def record(number: int) -> bytes:
    return b"%d " % number * 50


def hold(url: str) -> None:
    """Begin a run, say so, and write to it when told."""
    store = Store(url)
    lease = store.create(
        "run", [record(0)], owner="child", lease_s=10, now=100, program="", audience="", engine_digest=""
    )
    say(lease=asdict(lease))
    sys.stdin.readline()
    try:
        store.append(lease, 1, [record(1)], now=105, lease_s=10)
        say(error=None)
    except BridgeError as error:
        say(error=type(error).__name__, text=str(error))


def loop(url: str) -> None:
    """For each line: fork a process that takes the run, and appends to it until it is killed."""
    for line in sys.stdin:
        now = float(line)
        child = os.fork()
        if child == 0:
            append_for_ever(url, now)
        os.waitpid(child, 0)
        say(dead=child)


def append_for_ever(url: str, now: float) -> None:
    store = Store(url)
    lease, records = store.acquire("run", owner=str(os.getpid()), lease_s=10, now=now)
    say(child=os.getpid(), found=len(records))
    count = len(records)
    while True:
        lease = store.append(lease, count, [record(count + i) for i in range(PART)], now=now, lease_s=10)
        count += PART
        say(acknowledged=count)


def take(url: str) -> None:
    """Try to take the run as soon as told, and say whether it worked."""
    store = Store(url)
    say(ready=True)
    sys.stdin.readline()
    try:
        lease, _ = store.acquire("run", owner=str(os.getpid()), lease_s=10, now=200, claim_digest="claim")
        say(fence=lease.fence)
    except BridgeError as error:
        say(error=str(error))


def spend(url: str) -> None:
    """Use up the grant whose id is told, and say whether it was there."""
    store = Store(url)
    say(ready=True)
    say(spent=store.grants.spend(sys.stdin.readline().strip()))


def open_only(url: str) -> None:
    """Open the store when told."""
    say(ready=True)
    sys.stdin.readline()
    Store(url).close()
    say(opened=True)


def open_as_nobody(url: str) -> None:
    """Open it as a user who owns nothing, and say what came of it."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    try:
        Store(url).close()
        say(error=None)
    except BridgeError as error:
        say(error=type(error).__name__, text=str(error))


def renewed(lease: dict[str, object]) -> Lease:
    """The lease that another process has said that it holds."""
    return Lease(**lease)


if __name__ == "__main__":
    commands = {each.__name__: each for each in (hold, loop, take, spend, open_only, open_as_nobody)}
    commands[sys.argv[1]](sys.argv[2])
