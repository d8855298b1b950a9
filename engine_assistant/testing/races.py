"""Races in slow motion: places to stop, and a trace of what came first.

A side of a race is a thread or a task; all of this serves both alike, also together. A thread
calls `wait()`, a task writes `await`:

    driver = Driver()
    ...                                   # on one side, in a thread or in a task
    driver.barrier("claimed").wait()      # or: await driver.barrier("claimed")
    ...                                   # on the other
    driver.barrier("claimed").reached.wait()
    driver.barrier("claimed").release()
"""

import asyncio
import math
from collections.abc import Generator
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Final, Self

__all__ = ["BOUND", "Barrier", "Driver", "Entry", "Signal", "Trace"]

BOUND: Final = 5.0
"""Seconds after which a waiter gives up: longer than anything takes, shorter than patience."""


class Signal:
    """Something that happens once, which threads `wait()` for and tasks `await`."""

    def __init__(self, missing: str, bound: float = BOUND) -> None:
        """Wait for nothing yet.

        Args:
            missing: what a waiter says that waited in vain.
            bound: seconds that a waiter waits at most.

        Raises:
            ValueError: the bound is not a positive number of seconds.
        """
        if not 0 < bound < math.inf:
            raise ValueError(f"a bound is a positive number of seconds, not {bound!r}")
        self._missing = f"{missing} within {bound} s"
        self._bound = bound
        self._lock = Lock()
        self._is_set = False
        self._waiters: list[Future[None]] = []

    @property
    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._is_set

    def set(self) -> None:
        """Let it have happened. More than once is the same as once."""
        with self._lock:
            self._is_set = True
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            _wake(waiter)

    def wait(self) -> None:
        """Wait in a thread.

        Raises:
            TimeoutError: it has not happened when the bound was over.
        """
        waiter = self._waiter()
        try:
            waiter.result(self._bound)
        except TimeoutError:
            waiter.cancel()
            raise TimeoutError(self._missing) from None

    def __await__(self) -> Generator[object, None, None]:
        """Wait in a task, as `wait` does in a thread."""
        return self._awaited().__await__()

    async def _awaited(self) -> None:
        try:
            await asyncio.wait_for(asyncio.wrap_future(self._waiter()), self._bound)
        except TimeoutError:
            raise TimeoutError(self._missing) from None

    def _waiter(self) -> Future[None]:
        # One for each waiter: a task that is cancelled cancels its own and nobody else's.
        waiter: Future[None] = Future()
        with self._lock:
            if not self._is_set:
                self._waiters.append(waiter)
                return waiter
        _wake(waiter)
        return waiter


def _wake(waiter: Future[None]) -> None:
    if waiter.set_running_or_notify_cancel():
        waiter.set_result(None)


class Barrier:
    """A place where a side stops until the test lets it go on.

    Attributes:
        reached: set when the first one comes to it.
    """

    def __init__(self, bound: float = BOUND) -> None:
        """Stand closed.

        Args:
            bound: seconds that anybody waits here at most.

        Raises:
            ValueError: the bound is not a positive number of seconds.
        """
        self.reached = Signal("nobody reached the barrier", bound)
        self._released = Signal("nobody released the barrier", bound)

    def wait(self) -> None:
        """Stop here, in a thread, until `release`. Who comes later than that passes.

        Raises:
            TimeoutError: nobody released it while the bound lasted.
        """
        self.reached.set()
        self._released.wait()

    def __await__(self) -> Generator[object, None, None]:
        """Stop here, in a task, as `wait` does in a thread."""
        self.reached.set()
        return self._released.__await__()

    def release(self) -> None:
        """Let everybody go on, for good."""
        self._released.set()


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened: its number from 0, and its name."""

    n: int
    name: str


class Trace:
    """What happened, in the order in which it was recorded."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._entries: list[Entry] = []

    def record(self, name: str) -> int:
        """Add what just happened; return its number, from 0."""
        with self._lock:
            n = len(self._entries)
            self._entries.append(Entry(n, name))
            return n

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What was recorded until now: a copy, which does not grow."""
        with self._lock:
            return tuple(self._entries)

    def count(self, name: str) -> int:
        """Return how often this happened."""
        return self._names().count(name)

    def assert_order(self, *names: str) -> None:
        """Check that these happened in this order, each by its first time.

        Raises:
            AssertionError: one of them did not happen, or happened first after a later one.
        """
        happened = self._names()
        firsts = sorted((happened.index(name), name) for name in names if name in happened)
        received = [name for _, name in firsts]
        if received != list(names):
            raise AssertionError(f"expected the order {list(names)}, received {received}")

    def assert_exactly(self, *names: str) -> None:
        """Check that these happened, in this order, and nothing else.

        Raises:
            AssertionError: something else did, or not all of them, or in another order.
        """
        received = self._names()
        if received != list(names):
            raise AssertionError(f"expected exactly {list(names)}, received {received}")

    def _names(self) -> list[str]:
        return [entry.name for entry in self.entries]


class Driver:
    """Drives a race: one trace for all sides, and barriers by name.

    As a context manager it releases all of them at the end, so that a test which fails leaves
    nobody waiting.
    """

    def __init__(self, bound: float = BOUND) -> None:
        """Begin with an empty trace.

        Args:
            bound: seconds that anybody waits at one of its barriers.

        Raises:
            ValueError: the bound is not a positive number of seconds.
        """
        # Refused here rather than at the first barrier.
        Signal("", bound)
        self.trace = Trace()
        self._bound = bound
        self._lock = Lock()
        self._barriers: dict[str, Barrier] = {}

    def barrier(self, name: str) -> Barrier:
        """Return the barrier of this name, always the same one."""
        with self._lock:
            return self._barriers.setdefault(name, Barrier(self._bound))

    def release_all(self) -> None:
        """Release every barrier that somebody has named."""
        with self._lock:
            barriers = list(self._barriers.values())
        for barrier in barriers:
            barrier.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release_all()
