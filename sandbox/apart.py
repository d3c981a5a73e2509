"""Keeps a worker off its host's core while a step is short, so that neither waits until the other leaves it.

A kernel wakes whoever is written to on the writer's own core where it knows of no idle one, and the idle cores of a
virtual machine may seem taken to it (`available_idle_cpu` of Linux asks `vcpu_is_preempted`). Host and worker then
share a core, as seen in half of all programs, and a step takes half as long again. Where none of the cores is
idle for certain, and for whoever takes longer than a short step, the kernel knows better.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from typing import Final

# The core that the calling thread is on. With the GIL held: to give it up and take it again costs more than the answer.
_core: Final = getattr(ctypes.PyDLL(None), "sched_getcpu", None) if hasattr(os, "sched_setaffinity") else None


QUOTA: Final = "/sys/fs/cgroup/cpu.max"  # two numbers: microseconds of CPU time, in so many of the clock


def cores(quota: str = QUOTA) -> int:
    """Cores that this process may use at once: those that it may run on, or fewer where its time is limited."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open(quota) as file:  # noqa: PTH123  one line
            time, period = file.read().split()
        return max(1, min(usable, int(time) // int(period)))
    except (OSError, ValueError):  # there is none, or it is "max"
        return usable


def crowded(count: int) -> bool:
    """Whether so many cores may all have something to run: whatever runs on the machine may run on them."""
    try:
        with open("/proc/loadavg", "rb") as file:  # noqa: PTH123  for every program: a third of the time
            runnable, _, _ = file.read().split()[3].partition(b"/")
            return int(runnable) >= count
    except (OSError, ValueError, IndexError):
        return False


class Place:
    """Where one process may run.

    Its id is somebody else's once it is reaped, as it may be by whoever takes its dead zygote's children while it waits
    for a call: so its pidfd is asked first.
    """

    def __init__(self, pid: int, pidfd: int) -> None:
        self._pid = pid
        self._pidfd = pidfd
        self._cores: frozenset[int] | None = None  # all that it may use; fewer than two: there is nothing to choose
        self._shunned = -1

    def keep_off(self) -> bool:
        """Keep it off the caller's core. False where no other one is to be had, or we may not say so."""
        if _core is None:
            return False
        try:
            if self._cores is None:
                allowed = frozenset(os.sched_getaffinity(self._pid))
                self._cores = frozenset() if crowded(len(allowed)) else allowed
            here = _core() if len(self._cores) > 1 else -1
            if here >= 0 and here != self._shunned:
                self._put(self._cores - {here})
                self._shunned = here
        except OSError:  # the capability is missing where workers have another user id; or the process is gone
            self._cores, here = frozenset(), -1
        return here >= 0

    def let_loose(self) -> None:
        """The kernel decides, from now on; nothing where it does."""
        if self._shunned >= 0 and self._cores:
            with suppress(OSError):
                self._put(self._cores)
        self._cores = frozenset()

    def _put(self, where: frozenset[int]) -> None:
        signal.pidfd_send_signal(self._pidfd, 0)  # nothing is sent: it fails where the process was reaped
        os.sched_setaffinity(self._pid, where)
