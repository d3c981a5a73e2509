"""An event loop for code that has none: one thread runs it, as long as a `with` block lasts.

The thread lives as long as the block, because a sandbox has to be started from one that does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

T = TypeVar("T")


class Portal:
    """The thread and its event loop, closed at first; entered and left as often as one likes."""

    def __init__(self) -> None:
        self._held: tuple[ExitStack, BlockingPortal] | None = None

    @property
    def opened(self) -> bool:
        """Whether it has been entered, and not left."""
        return self._held is not None

    def enter(self, context: AbstractAsyncContextManager[Any]) -> None:
        """Start the thread and enter the context in its event loop; what that raises leaves no thread behind."""
        from anyio.from_thread import start_blocking_portal

        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal())
            self._held = stack, portal  # the context may look whether it is opened
            try:
                stack.enter_context(portal.wrap_async_context_manager(context))
            except BaseException:
                self._held = None
                raise
            self._held = stack.pop_all(), portal

    def leave(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the context, and end the thread; nothing where it was not entered."""
        held, self._held = self._held, None
        if held is not None:
            held[0].__exit__(kind, error, traceback)

    def call(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """What the coroutine function gives, in that event loop. It has to be opened."""
        assert self._held is not None, "who calls has looked"
        return self._held[1].call(function, *arguments)
