"""A process that serves: it finds turns that nobody runs, and runs some of them at a time.

    look      list_runnable, which is fair across tenants: on a timer with jitter, and when hinted
    run       a task for each turn: `AssistantHost.run_turn`, as the thread's tenant
    put off   a thread whose run failed is left alone, for twice as long each time
    drain     nothing more is picked up; what runs may come to rest, or gives its lease up

Who runs what is the record's to say. Two services that find the same turn ask for the same lease,
and one of them is refused.
"""

import asyncio
import logging
import random
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeAlias

from engine_assistant import AssistantError, Conflict, NotFound, Raced, Runnable, Unavailable
from engine_assistant.host.execution import ToolReturned
from engine_assistant.host.setbacks import Setbacks
from engine_assistant.host.turns.host import AssistantHost
from engine_assistant.host.turns.report import Ended, TurnReport, Unsettled

__all__ = ["Health", "Service"]

_LOG: Final = logging.getLogger("engine_assistant.host")

_FAILED: Final = frozenset({Ended.ERROR, Ended.RELEASED, Ended.LOST})
_LONGEST_DEAFNESS: Final = 30.0
_SETTLE_TRIES: Final = 8
_FIRST_SETTLE_PAUSE: Final = 0.1

_Key: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How a service is doing.

    Attributes:
        running: turns that it runs now.
        picked_up: turns that it has begun to run.
        failed: those that ended in an error, lost their lease, or could not be run here.
        last_poll: when the record last said what there is to do; None before the first time. It
            is not asked while as many turns run as may.
        draining: it picks up nothing more.
    """

    running: int
    picked_up: int
    failed: int
    last_poll: datetime | None
    draining: bool


class Service:
    """Runs the turns of every tenant, for as long as `run` is awaited. It runs once.

    Its methods belong to the event loop that it runs in. From another thread, say
    `loop.call_soon_threadsafe(service.hint)`.

    Args:
        host: what turns are run with. Its caller acts in the tenant of each thread.
        for_tenant: the host for a tenant, if not all are served alike.
        concurrency: how many turns may run at once.
        every: seconds between two looks at the record, give or take a half. A failed run's thread
            is left alone for as long at first.
        longest_pause: seconds for which a thread is left alone at most.
        grace: seconds that turns may take to come to rest once it was told to stop.
        on_report: told of every run that came to an end.

    Raises:
        ValueError: a number is out of its bounds.
    """

    def __init__(
        self,
        host: AssistantHost,
        *,
        for_tenant: Callable[[str], AssistantHost] | None = None,
        concurrency: int = 8,
        every: float = 1.0,
        longest_pause: float = 60.0,
        grace: float = 30.0,
        on_report: Callable[[Runnable, TurnReport], None] | None = None,
    ) -> None:
        if concurrency < 1 or not every > 0 or not longest_pause >= every or not grace >= 0:
            raise ValueError(
                "a service: concurrency is 1 or more, every above 0 and no more than"
                " longest_pause, and grace 0 or more"
            )
        self._host = host
        self._for_tenant = for_tenant or self._in_tenant
        self._concurrency = concurrency
        self._every = every
        self._grace = grace
        self._on_report = on_report
        self._setbacks = Setbacks(every, longest_pause)
        self._turns: dict[_Key, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._stops = 0
        self._deadline: asyncio.Timeout | None = None
        self._begun = False
        self._deaf = 0
        self._picked_up = 0
        self._failed = 0
        self._last_poll: datetime | None = None

    @property
    def health(self) -> Health:
        """How it is doing."""
        return Health(
            running=len(self._turns),
            picked_up=self._picked_up,
            failed=self._failed,
            last_poll=self._last_poll,
            draining=self._stops > 0,
        )

    def hint(self) -> None:
        """Look soon: somebody has sent something, or decided. A hint that is lost costs `every`."""
        self._wake.set()

    def stop(self) -> None:
        """Pick up nothing more, and let what runs come to rest. Asked again, do not wait for it."""
        self._stops += 1
        if self._stops > 1 and self._deadline is not None and not self._deadline.expired():
            self._deadline.reschedule(asyncio.get_running_loop().time())
        self._wake.set()

    async def run(self, *, stop_on: Collection[signal.Signals] = ()) -> None:
        """Serve until it is stopped, or cancelled: then no turn is waited for.

        A record that does not answer is asked again, less and less often.

        Args:
            stop_on: signals that stop it, `SIGTERM` and `SIGINT` mostly. Main thread only.

        Raises:
            Internal: the record is broken, or not there: a person must look.
            RuntimeError: it has run before.
        """
        if self._begun:
            raise RuntimeError("a service runs once")
        self._begun = True
        with self._stopped_by(stop_on):
            try:
                while not self._stops:
                    await self._look()
                    await self._wait()
                await self._drain()
            finally:
                await self._break_off()

    # ------------------------------------------------------------ look

    async def _look(self) -> None:
        room = self._concurrency - len(self._turns)
        if room < 1:
            return
        left_alone = [*self._turns, *self._setbacks.left_alone()]
        try:
            found = await self._host.assistant.list_runnable(limit=room, exclude=left_alone)
        except (Unavailable, Raced):
            self._deaf += 1
            return
        self._deaf = 0
        self._last_poll = datetime.now(UTC)
        for one in found:
            if not self._stops:
                self._pick_up(one)

    async def _wait(self) -> None:
        pause = self._every
        if self._deaf:
            pause = min(pause * 2.0 ** min(self._deaf, 16), max(pause, _LONGEST_DEAFNESS))
        with suppress(TimeoutError):
            # Services that were started together must not ask together.
            async with asyncio.timeout(pause * random.uniform(0.5, 1.5)):  # noqa: S311
                await self._wake.wait()
        self._wake.clear()

    def _pick_up(self, one: Runnable) -> None:
        key = (one.tenant, one.thread_id)
        self._picked_up += 1
        self._turns[key] = task = asyncio.create_task(self._serve(one, key))
        task.add_done_callback(lambda _: self._ended(key))

    def _ended(self, key: _Key) -> None:
        del self._turns[key]
        self._wake.set()  # there is room again, and maybe a message that waited for this turn

    # ------------------------------------------------------------ run

    async def _serve(self, one: Runnable, key: _Key) -> None:
        """Run one turn. Whatever comes of it, the service goes on."""
        try:
            host = self._for_tenant(one.tenant)
            report = await host.run_turn(one.thread_id)
        except (Conflict, NotFound):
            # Somebody else was faster, or it is over: it was not ours to run. Asked again at once
            # the record would answer the same.
            self._picked_up -= 1
            self._setbacks.put_off(key)
            return
        except AssistantError as error:
            _LOG.warning("The turn of thread %s could not be run: %s", one.thread_id, error.code)
            self._fail(key)
            return
        except Exception:  # noqa: BLE001 - one thread's failure is not that of the others
            _LOG.exception("The turn of thread %s could not be run.", one.thread_id)
            self._fail(key)
            return
        if report.ended in _FAILED:
            self._fail(key)
        else:
            self._setbacks.forget(key)
        for result in report.unsettled:
            await self._settle(host, report, result)
        self._tell(one, report)

    def _fail(self, key: _Key) -> None:
        self._failed += 1
        self._setbacks.failed(key)

    async def _settle(self, host: AssistantHost, report: TurnReport, late: Unsettled) -> None:
        """Bring a result into the record that came when the lease was lost."""
        outcome = late.outcome
        settle = partial(
            host.assistant.acting_as(host.caller).settle_execution,
            thread_id=report.thread_id,
            call_id=late.call_id,
            claimed_fence=late.claimed_fence,
        )
        if isinstance(outcome, ToolReturned):
            settle = partial(settle, output=outcome.output)
        else:
            settle = partial(settle, error={"code": outcome.code, "message": outcome.message})
        for tries in range(_SETTLE_TRIES):
            try:
                await settle()
            except (Unavailable, Raced):
                await asyncio.sleep(_FIRST_SETTLE_PAUSE * 2**tries)
            except Exception:  # noqa: BLE001 - the report still has it
                return
            else:
                return

    def _tell(self, one: Runnable, report: TurnReport) -> None:
        if self._on_report is None:
            return
        try:
            self._on_report(one, report)
        except Exception:  # noqa: BLE001 - nothing of the record depends on it
            _LOG.exception("Whoever is told of runs failed.")

    def _in_tenant(self, tenant: str) -> AssistantHost:
        return replace(self._host, caller=replace(self._host.caller, tenant=tenant))

    # ------------------------------------------------------------ drain

    async def _drain(self) -> None:
        """Wait for the turns that run, for as long as the grace time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace if self._stops == 1 else 0) as self._deadline:
                while self._turns:
                    await asyncio.wait(self._turns.values())

    async def _break_off(self) -> None:
        """Cancel what still runs. Each run gives its lease up."""
        left = list(self._turns.values())
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    @contextmanager
    def _stopped_by(self, signals: Collection[signal.Signals]) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for one in signals:
            loop.add_signal_handler(one, self.stop)
        try:
            yield
        finally:
            for one in signals:
                loop.remove_signal_handler(one)
