"""The lease of one run: renewed while it works, and a deadline as soon as it is not.

The record knows who holds the lease. A process can only know for how long it may believe that it
does: for `stale_after` seconds from the moment when it *began* the last write that the record took,
because the record counts from a later one. A write that was tried again may have been taken the
first time, so it counts from its first try. That trust is an `asyncio.timeout` around the whole
run. Each write that went well moves it on; a refusal makes it now. So nothing has to ask, and a run
that lost its lease stops wherever it is.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self, TypedDict, TypeVar

from engine_assistant import (
    AsyncOperations,
    Conflict,
    ConflictReason,
    NotFound,
    Raced,
    Unavailable,
)
from engine_assistant.model.ids import new_id
from engine_assistant.model.views import Lease

__all__ = ["Holding", "Key", "LeaseLost", "take"]

T = TypeVar("T")

_GONE: Final = frozenset(
    {ConflictReason.RUN_FENCED, ConflictReason.THREAD_CLOSED, ConflictReason.THREAD_ERASED}
)
_BEATS: Final = 3
"""Renewals that are due within the time after which a lease is stale."""

_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0


class LeaseLost(BaseException):
    """This run does not hold its lease any more, or cannot know that it does. Write nothing.

    Like a cancellation it is no `Exception`: a tool or a hook that catches its own failures must
    not take this for one of them.
    """


class Key(TypedDict):
    """What every write of a run is given."""

    thread_id: str
    run_id: str
    fence: int


class Holding:
    """One holding of a lease, kept while it is entered. `take` makes it.

    What runs inside is cancelled when the lease is lost, and `LeaseLost` is raised in its place.
    Who leaves without having given the lease up leaves it to run out.

    Attributes:
        ops: the record, for the caller whose lease it is.
        key: names the holding, in every write.
        interrupt: set once the person has asked this run to stop.
        took_over: another run had it, and fell silent.
    """

    def __init__(
        self, ops: AsyncOperations, lease: Lease, began: float, stale_after: float
    ) -> None:
        self.ops = ops
        self.key = Key(thread_id=lease.thread_id, run_id=lease.run_id, fence=lease.fence)
        self.interrupt = asyncio.Event()
        self.took_over = lease.took_over
        self._clock = asyncio.get_running_loop().time
        self._deadline = asyncio.timeout_at(began + stale_after)
        self._stale_after = stale_after
        self._beating = asyncio.Lock()
        self._why: Exception | None = None
        self._lost = False
        self._over = False
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._deadline.__aenter__()
        self._keeper = asyncio.create_task(self._keep())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            # First, so that it cancels nobody who waits here.
            await self._deadline.__aexit__(kind, error, trace)
        except TimeoutError:
            raise LeaseLost from None
        finally:
            if self._keeper is not None:
                self._keeper.cancel()
                await asyncio.wait({self._keeper})

    @property
    def lost(self) -> bool:
        """Whether the lease is gone, or the time is over for which it could be trusted."""
        return self._lost or self._clock() >= self._until

    @property
    def why(self) -> Exception | None:
        """What was refused, or failed, when it was lost. None: no renewal came in time."""
        return self._why

    def check(self) -> None:
        """Raise `LeaseLost` if it is."""
        if self.lost:
            raise self._lose()

    def heard(self, *, interrupt_requested: bool) -> None:
        """Take note of what the record answered to a write."""
        if interrupt_requested:
            self.interrupt.set()

    async def write(self, do: Callable[[], Awaitable[T]]) -> T:
        """Write under this lease, and renew it so. Every write of the run goes through here.

        What may have been kept or not is done again, for as long as the lease can be trusted. So
        `do` must be something that may be asked twice.

        Raises:
            LeaseLost: the record says that the lease is another's, or the time is over.
            AssistantError: any other refusal, as it is.
        """
        began, answer = await self._insist(do)
        if not self.lost:
            self._why = None
            self._deadline.reschedule(max(self._until, began + self._stale_after))
        return answer

    async def read(self, do: Callable[[], Awaitable[T]]) -> T:
        """Read something of the thread. It renews nothing.

        Raises:
            LeaseLost, AssistantError: as `write` does.
        """
        _, answer = await self._insist(do)
        return answer

    async def _insist(self, do: Callable[[], Awaitable[T]]) -> tuple[float, T]:
        """Return the answer, and when it was first asked for."""
        pause = _FIRST_PAUSE
        began = self._clock()
        while True:
            self.check()
            try:
                return began, await do()
            except (Unavailable, Raced) as error:
                self._why = error
            except (Conflict, NotFound) as refused:
                if isinstance(refused, Conflict) and refused.reason not in _GONE:
                    raise
                raise self._lose(refused) from None
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def beat(self) -> None:
        """Renew the lease, and hear whether to stop."""
        beat = await self.write(lambda: self.ops.beat_run(**self.key))
        self.heard(interrupt_requested=beat.interrupt_requested)

    async def give_up(self, write: Callable[[], Awaitable[None]]) -> None:
        """Do the write that gives the lease up: no beat is on its way, and none comes after it."""
        async with self._beating:
            await write()
            self._over = True

    async def _keep(self) -> None:
        """Beat whenever no other write has renewed the lease for a while."""
        every = self._stale_after / _BEATS
        try:
            while not self._over:
                due = self._until - self._stale_after + every
                if self._clock() < due:
                    await asyncio.sleep(due - self._clock())
                    continue
                async with self._beating:
                    if not self._over:
                        await self.beat()
        except LeaseLost:
            pass
        except Exception as error:  # noqa: BLE001 - a renewal that failed is a lease that is lost
            self._lose(error)

    @property
    def _until(self) -> float:
        until = self._deadline.when()
        return float("inf") if until is None else until

    def _lose(self, why: Exception | None = None) -> LeaseLost:
        if not self._lost:
            self._lost = True
            self._why = why or self._why
            if not self._deadline.expired():
                self._deadline.reschedule(self._clock())
        return LeaseLost()


async def take(ops: AsyncOperations, thread_id: str, *, stale_after: float) -> Holding:
    """Take the lease of a thread's turn.

    Raises:
        AssistantError: the record does not give it.
    """
    began = asyncio.get_running_loop().time()
    lease = await ops.acquire_run(thread_id=thread_id, run_id=new_id(), stale_after=stale_after)
    return Holding(ops, lease, began, stale_after)
