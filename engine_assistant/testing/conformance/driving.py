"""An engine that is awaited, in the shape of one that is not, so that a scenario is written once.

There is one event loop, in a thread of its own, as a host has one. `Driven` stands before an object
of the asynchronous face. What is called on it runs there, and so does what that gives: a coroutine
is awaited, an async iterator is walked, an async context manager is entered. It knows no method by
name.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Generator, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from inspect import ismethod
from threading import Thread
from types import TracebackType
from typing import Final, TypeVar, cast

from sqlalchemy.ext.asyncio import AsyncEngine

from engine_assistant import AsyncAssistant, AsyncOperations

__all__ = ["Loop", "running_loop"]

T = TypeVar("T")

_FACE: Final = (AsyncAssistant, AsyncOperations, AsyncEngine, AbstractAsyncContextManager)
_END: Final = object()


class Loop:
    """An event loop that another thread runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use a loop that runs, or will."""
        self._loop = loop

    def run(self, awaitable: Awaitable[T]) -> T:
        """Await it in the loop; return or raise what comes. Any number of threads may wait."""

        async def awaited() -> T:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result()

    def driven(self, value: object) -> object:
        """Return a value as the synchronous face would have given it."""
        if isinstance(value, _FACE):
            return Driven(self, value)
        if isinstance(value, AsyncGenerator):
            return self._walked(value)
        if isinstance(value, Awaitable):
            return self.driven(self.run(value))
        return value

    def _walked(self, values: AsyncGenerator[object]) -> Generator[object]:
        try:
            while (value := self.run(anext(values, _END))) is not _END:
                yield value
        finally:
            self.run(values.aclose())

    def undriven(self, value: object) -> object:
        """Return an argument as the asynchronous face takes it: a function is awaited there."""
        if isinstance(value, Driven):
            return value.behind
        if not callable(value):
            return value

        async def awaited(*given: object) -> object:
            return await asyncio.to_thread(value, *map(self.driven, given))

        return awaited


class Driven:
    """What stands before an object of the asynchronous face.

    Attributes:
        behind: that object.
    """

    def __init__(self, loop: Loop, behind: object) -> None:
        """Stand before it."""
        self._loop = loop
        self.behind = behind

    def __getattr__(self, name: str) -> object:
        """Return what the object has under this name, driven."""
        found = getattr(self.behind, name)
        if not ismethod(found):
            return self._loop.driven(found)

        def called(*args: object, **named: object) -> object:
            plain = {key: self._loop.undriven(value) for key, value in named.items()}
            return self._loop.driven(found(*map(self._loop.undriven, args), **plain))

        return called

    def __enter__(self) -> object:
        """Enter an async context manager."""
        return self._loop.driven(self._manager.__aenter__())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Leave it."""
        return self._loop.run(self._manager.__aexit__(kind, error, trace))

    @property
    def _manager(self) -> AbstractAsyncContextManager[object]:
        return cast("AbstractAsyncContextManager[object]", self.behind)


@contextmanager
def running_loop() -> Iterator[Loop]:
    """Run an event loop in a thread; at the end it is over, and nothing is left in it."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        thread = Thread(target=loop.run_forever, name="conformance")
        thread.start()
        try:
            yield Loop(loop)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
