"""Waiting for what may not end: for as long as it may take, and then no longer."""

import asyncio
from collections.abc import Coroutine
from typing import Final, TypeVar

__all__ = ["Overdue", "bounded"]

T = TypeVar("T")

_LAST: Final = 1.0
"""Seconds that what was told to stop may take to clean up."""


class Overdue(Exception):
    """It took longer than it may."""


async def bounded(work: Coroutine[object, object, T], seconds: float | None) -> T:
    """Return what comes of some work, in a task of its own.

    When its time is over, or who waits is cancelled, it is told to stop. If it does not, it is left
    to itself: who waits goes on all the same.

    Raises:
        Overdue: its time is over.
        BaseException: whatever it raised.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            raise Overdue
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=_LAST)
            # Nobody asks any more what became of it.
            task.add_done_callback(_forget)


def _forget(task: "asyncio.Task[T]") -> None:
    if not task.cancelled():
        task.exception()
