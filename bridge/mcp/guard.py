"""Runs one MCP server as its child and sees to it that the server's process group ends with the host.

Started by path (`python -I -S guard.py FD COMMAND ...`), so it imports nothing but a few built-in modules and is
ready in about 15 ms. `FD` is one end of a socket pair whose other end only the host has:

- when the host is gone, killed with -9 included, that end reads as closed: the group gets SIGTERM, and SIGKILL a
  second later;
- when the server has ended, the guard writes a line `exit N` or `signal N` to it (after `start ERRNO`, if the command
  could not be executed) and kills what the server left behind in its group.

Why not the kernel's parent-death signal: it is bound to the thread that forked (one of trio's workers, which end when
idle), it is sent to one process only (`npx` would die and its child live on), and it is Linux's alone. What a server
starts in a session of its own (`setsid`) is out of reach of both.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress
from typing import Final, NoReturn

GRACE_S: Final = 1.0  # between SIGTERM and SIGKILL, once the host is gone
# Python ignores the last two for itself, and what is ignored stays ignored across exec.
RESTORED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)


def main(line: int, command: list[str]) -> NoReturn:
    """Run `command` with the standard streams of this process, and never return."""
    os.set_inheritable(line, False)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # makes the kernel tell the wakeup pipe
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are meant for the server; the guard ends with it
    child = os.fork()
    if child == 0:
        become(line, command)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)  # or the host would not see the server's streams end
    ended = wait(line, woken, child, None)
    if ended is None:
        with suppress(ProcessLookupError):
            os.killpg(0, signal.SIGTERM)
        wait(-1, woken, child, GRACE_S)
    else:
        with suppress(OSError):
            os.write(line, ended)
    os.killpg(0, signal.SIGKILL)  # what is left of the group, this process included
    os._exit(0)


def become(line: int, command: list[str]) -> NoReturn:
    """In the child: turn into the server, or say why not."""
    for number in RESTORED:
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    try:
        os.execv(command[0], command)  # noqa: S606  no shell is what is wanted
    except OSError as error:
        os.write(line, b"start %d\n" % (error.errno or 0))
    os._exit(127)


def wait(line: int, woken: int, child: int, seconds: float | None) -> bytes | None:
    """How the child ended, or None when the host went first or the time is up."""
    watched = [woken] if line < 0 else [woken, line]
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return b"exit %d\n" % code if code >= 0 else b"signal %d\n" % -code
        readable = select.select(watched, [], [], seconds)[0]
        if line in readable or not readable:
            return None
        os.read(woken, 4096)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
