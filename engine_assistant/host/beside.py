"""A function that cannot be awaited, run beside the event loop.

The loop's own threads are few and shared: names are resolved there, too. What hangs in one of them
keeps it, and keeps the process from its end. So each function gets a thread of its own, which takes
nothing from anybody and which no process waits for.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from threading import Thread
from typing import TypeVar

__all__ = ["beside"]

T = TypeVar("T")


async def beside(work: Callable[[], T]) -> T:
    """Return what a function returns that runs in a thread, in the context of the caller.

    Nothing stops it: who is cancelled leaves it to itself.

    Raises:
        Exception: whatever it raised. What would end a thread, or a process, is a `RuntimeError`.
    """
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    came: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            came.append(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits for it
            raised.append(error)
        with suppress(RuntimeError):  # the loop has ended, and nobody waits any more
            loop.call_soon_threadsafe(ended.set)

    Thread(target=copy_context().run, args=(run,), name="tool", daemon=True).start()
    await ended.wait()
    for error in raised:
        if isinstance(error, Exception):
            raise error
        raise RuntimeError("the function wanted to end its thread") from error
    return came[0]
