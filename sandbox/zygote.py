"""The process that has V8 loaded and forks one jailed worker for each program.

It makes one isolate with its realm, which never runs a program, and forks on that isolate's own thread: a fork has the
thread that called it and no other, so each worker has a whole isolate, copied page by page as it is written. The other
thread of this process waits in Python for ever, outside V8 and the C library's allocator: that is what makes forking
sound. On its control socket (SEQPACKET, the host's only line to it):

    "F" with one descriptor   fork a worker that speaks on it; the answer is its process id (4 bytes)
    "S" with one descriptor   the same, for a spare: it rehearses before it says that it is ready
    "R" and a process id (4)  reap it: status (4), peak resident bytes (8), CPU microseconds (8)

A worker stays a zombie until the host asks for "R", so its id cannot be reused before the host holds a pidfd of it.
Nothing of a program, a catalog or a tenant is ever here.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from typing import Final, NoReturn

import msgspec

from sandbox import jail, source
from sandbox.engine import Isolate
from sandbox.messages import Settings
from sandbox.wire import EXIT, FORK_SPARE, REAP, ZYGOTE_READY
from sandbox.worker import Engine, cell, serve

QUIET_S: Final = 0.05
INTERNATIONAL: Final = "[new Date(0).toLocaleString('en'), 'e'.normalize('NFD'), 'a'.localeCompare('b')].length"


def main() -> NoReturn:
    """Serve until the host closes its end."""
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    control = socket.socket(fileno=settings.channel)
    walls = cell(settings)
    parent = settings.parent or os.getppid()
    try:
        raised = jail.in_zygote(walls, parent=parent)
        loaded = Engine(settings)
        source.warm()
        jail.seal_code_pages(walls, raised)
        jail.before_forking(walls, raised, parent=parent)
        isolate = Isolate(loaded.dll)
    except Exception as error:  # noqa: BLE001  whatever it is, the host is the one that can say it to a person
        give_up(control, error)

    async def life() -> NoReturn:
        try:
            made = await loaded.realm(isolate)
        except Exception as error:  # noqa: BLE001  as above
            give_up(control, error)
        control.send(ZYGOTE_READY)
        me = os.getpid()
        asked = serve_requests(control, quiet_s=QUIET_S)
        if asked is None:  # nobody waits: what few programs need is made ready for all that come
            await isolate.evaluate(INTERNATIONAL)
            asked = serve_requests(control)
        assert asked is not None, "it waits for as long as it takes"
        channel, spare = asked
        # Only a fork gets here, and no way leads out of it but its end: it must never go on as a second zygote.
        await serve(loaded, made, raised, channel=channel, parent=me, spare=spare)

    isolate.live(life)


def give_up(control: socket.socket, error: Exception) -> NoReturn:
    """Say why there will be no workers."""
    control.send(f"{type(error).__name__}: {error}".encode()[:4000])
    os._exit(1)


def serve_requests(control: socket.socket, quiet_s: float | None = None) -> tuple[int, bool] | None:
    """Do what the host asks for.

    Returns:
        In forks only: the descriptor of the worker, and whether it is a spare. None when nothing was asked for
        `quiet_s` seconds.
    """
    while True:
        if quiet_s is not None and not select.select([control], [], [], quiet_s)[0]:
            return None
        request, ancillary, *_ = control.recvmsg(16, socket.CMSG_SPACE(4))
        if not request:
            os._exit(0)  # the host is gone
        if request[:1] == REAP:
            control.send(reap(int.from_bytes(request[1:5], "little")))
            continue
        channel = int.from_bytes(ancillary[0][2][:4], sys.byteorder)
        pid = os.fork()
        if pid == 0:
            return channel, request == FORK_SPARE
        os.close(channel)
        control.send(pid.to_bytes(4, "little"))


def reap(pid: int) -> bytes:
    """How a worker ended and what it used, from the only process that the kernel tells it to."""
    try:
        _, status, usage = os.wait4(pid, 0)
    except ChildProcessError:
        return EXIT.pack(0, 0, 0)
    return EXIT.pack(status & 0xFFFFFFFF, usage.ru_maxrss << 10, int((usage.ru_utime + usage.ru_stime) * 1e6))
