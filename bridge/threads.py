"""Runs a synchronous function beside the event loop, in a thread that can hold nothing up.

anyio's own worker threads are joined when the interpreter ends, so one stuck tool would keep the process alive. These
are daemon threads: abandoned at a deadline, they go on by themselves, but keep nobody waiting. Python cannot kill one.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib.util
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import anyio
from anyio import from_thread, lowlevel

T = TypeVar("T")
THREADS: Final = 100  # at once in one event loop, abandoned ones included: as many as `Limits.in_flight` has calls
_limiter: lowlevel.RunVar[anyio.CapacityLimiter] = lowlevel.RunVar("bridge.threads")


async def in_thread(function: Callable[[], T]) -> T:
    """Call the function in a thread, with a copy of the caller's context variables, and give back what it does.

    When the caller is cancelled the thread is abandoned: what it returns or raises is lost. It keeps its place among
    `THREADS` until it ends; past that number callers wait. `anyio.from_thread` needs its `token=` in there.

    Raises:
        BaseException: Whatever the function raises.
    """
    token = lowlevel.current_token()
    limiter = _threads()
    place = object()
    done = anyio.Event()
    outcome: list[tuple[bool, Any]] = []
    context = contextvars.copy_context()
    context.run(_leave_event_loop)

    def finish() -> None:
        limiter.release_on_behalf_of(place)
        done.set()

    def work() -> None:
        try:
            outcome.append((True, context.run(function)))
        except BaseException as error:  # noqa: BLE001 - raised again where the caller waits
            outcome.append((False, error))
        with contextlib.suppress(RuntimeError, anyio.RunFinishedError):  # the event loop has ended: nobody waits
            from_thread.run_sync(finish, token=token)

    await limiter.acquire_on_behalf_of(place)
    try:
        threading.Thread(target=work, name="sandbridge tool", daemon=True).start()
    except BaseException:
        limiter.release_on_behalf_of(place)
        raise
    await done.wait()
    worked, value = outcome.pop()
    if worked:
        return value
    if isinstance(value, StopIteration):  # a coroutine cannot raise it
        raise RuntimeError("the function raised StopIteration") from value  # noqa: TRY004 - no wrong type
    raise value


def _threads() -> anyio.CapacityLimiter:
    """The limiter of this event loop."""
    try:
        return _limiter.get()
    except LookupError:
        _limiter.set(limiter := anyio.CapacityLimiter(THREADS))
        return limiter


def _leave_event_loop() -> None:
    """Say, in the thread's context, that no event loop runs there: a tool may start its own."""
    if importlib.util.find_spec("sniffio") is not None:
        from sniffio import current_async_library_cvar

        current_async_library_cvar.set(None)
