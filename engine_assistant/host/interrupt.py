"""Stopping at the next boundary, on a host's word."""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVar

__all__ = ["Interrupted", "Interruptible"]

T = TypeVar("T")


class Interrupted(Exception):
    """The host asked the conversation to stop."""


class Interruptible:
    """Lets some waits end early once an event is set; everything else is left to finish.

    The wait is cancelled as `asyncio.timeout` cancels it: the deadline becomes now.
    """

    def __init__(self, event: asyncio.Event | None) -> None:
        self._event = event
        self._scope: asyncio.Timeout | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._event is not None:
            self._watcher = asyncio.create_task(self._watch(self._event))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._watcher is not None:
            self._watcher.cancel()

    def check(self) -> None:
        """Raise `Interrupted` if the event is set."""
        if self._event is not None and self._event.is_set():
            raise Interrupted

    async def wait(self, start: Callable[[], Awaitable[T]]) -> T:
        """Start something that may be abandoned, and wait for it. Raises `Interrupted`."""
        self.check()
        try:
            async with asyncio.timeout(None) as self._scope:
                return await start()
        except TimeoutError:
            if self._scope is not None and self._scope.expired():
                raise Interrupted from None
            raise
        finally:
            self._scope = None

    async def _watch(self, event: asyncio.Event) -> None:
        await event.wait()
        if self._scope is not None:
            self._scope.reschedule(asyncio.get_running_loop().time())
