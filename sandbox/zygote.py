"""The process that has V8 loaded and forks one jailed worker for each program.

Single-threaded for its whole life, so that forking is sound. On its control socket (SEQPACKET, the host's only line to
it):

    "F" with one descriptor   fork a worker that speaks on it; the answer is its process id (4 bytes)
    "R" and a process id (4)  reap it: status (4), peak resident bytes (8), CPU microseconds (8)

A worker stays a zombie until the host asks for "R", so its id cannot be reused before the host holds a pidfd of it.
Nothing of a program, a catalog or a tenant is ever here.
"""

from __future__ import annotations

import array
import gc
import os
import socket
import sys
from typing import NoReturn

import msgspec

from sandbox import jail
from sandbox.messages import Settings
from sandbox.wire import EXIT, ZYGOTE_READY
from sandbox.worker import Engine, cell, serve


def main() -> NoReturn:
    """Serve until the host closes its end."""
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    control = socket.socket(fileno=settings.channel)
    walls = cell(settings)
    raised = jail.in_zygote(walls, parent=settings.parent)
    try:
        loaded = Engine(settings)
        loaded.warm_up()
    except Exception as error:  # noqa: BLE001  whatever it is, the host is the one that can say it to a person
        control.send(f"{type(error).__name__}: {error}".encode()[:4000])
        os._exit(1)
    jail.seal_code_pages(walls, raised)
    jail.before_forking(walls, raised, parent=settings.parent)
    gc.collect()
    gc.freeze()  # children then do not copy every page whose reference counts the collector touches
    control.send(ZYGOTE_READY)
    me = os.getpid()
    while True:
        request, ancillary, *_ = control.recvmsg(16, socket.CMSG_SPACE(4))
        if not request:
            os._exit(0)  # the host is gone
        if request[:1] == b"R":
            control.send(reap(int.from_bytes(request[1:5], "little")))
            continue
        descriptors = array.array("i")
        descriptors.frombytes(ancillary[0][2][:4])
        pid = os.fork()
        if pid == 0:
            # No way out of this branch but os._exit: a child must never go on as a second zygote.
            try:
                serve(loaded, raised, channel=descriptors[0], parent=me)
            finally:
                os._exit(1)
        os.close(descriptors[0])
        control.send(pid.to_bytes(4, "little"))


def reap(pid: int) -> bytes:
    """How a worker ended and what it used, from the only process that the kernel tells it to."""
    try:
        _, status, usage = os.wait4(pid, 0)
    except ChildProcessError:
        return EXIT.pack(0, 0, 0)
    return EXIT.pack(status & 0xFFFFFFFF, usage.ru_maxrss << 10, int((usage.ru_utime + usage.ru_stime) * 1e6))
