"""The asynchronous front door: the same bodies, run by `AsyncConnection.run_sync`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Self, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from engine_assistant import migrate
from engine_assistant.assistant.async_archives import AsyncArchives
from engine_assistant.assistant.async_verbs import AsyncOperations
from engine_assistant.assistant.bound import AsyncBound
from engine_assistant.assistant.oversight import AsyncOversight
from engine_assistant.assistant.relay import AsyncHandler, Drain
from engine_assistant.assistant.settings import (
    Mode,
    Patience,
    Settings,
    mode_of,
    refuse_other_kind,
)
from engine_assistant.context import Caller, Clock, Emit, refuse_no_caller
from engine_assistant.doctor import Finding, Progress, examine, reading_engine
from engine_assistant.engines import make_async_engine
from engine_assistant.model.commands import Command
from engine_assistant.model.errors import Raced
from engine_assistant.model.limits import LIMITS, Limits
from engine_assistant.model.observing import Observer
from engine_assistant.model.service import Drained
from engine_assistant.operations.operation import Operation
from engine_assistant.store.faults import translated

__all__ = ["AsyncAssistant"]

C = TypeVar("C", bound=Command)
V = TypeVar("V")
T = TypeVar("T")


class AsyncAssistant(AsyncArchives, AsyncOversight):
    """`Assistant`, awaited. It works from any event loop that its engine works from."""

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        schema: str | None = None,
        clock: Clock | None = None,
        emit: Emit | None = None,
        limits: Limits = LIMITS,
        retry_for: float = 5.0,
        observer: Observer | None = None,
    ) -> None:
        """Use the host's engine. The arguments are those of `Assistant`."""
        refuse_other_kind(engine, AsyncEngine, "engine")
        self.engine = engine
        self._engines = {mode: engine.execution_options(**mode.options) for mode in Mode}
        self._settings = Settings(schema, clock, emit, limits, retry_for, observer)
        self.limits = limits

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        schema: str | None = None,
        clock: Clock | None = None,
        emit: Emit | None = None,
        limits: Limits = LIMITS,
        retry_for: float = 5.0,
        observer: Observer | None = None,
    ) -> Self:
        """See `Assistant.from_url`."""
        return cls(
            make_async_engine(url),
            schema=schema,
            clock=clock,
            emit=emit,
            limits=limits,
            retry_for=retry_for,
            observer=observer,
        )

    async def migrate(self) -> None:
        """See `Assistant.migrate`."""
        with translated():
            async with self.engine.connect() as connection:
                await connection.run_sync(migrate.upgrade, self._settings.schema)
                await connection.commit()

    def acting_as(self, caller: Caller) -> AsyncOperations:
        """See `Assistant.acting_as`."""
        refuse_no_caller(caller)
        return _Acting(self, caller, self._settings.observer)

    def bind(self, connection: AsyncConnection, caller: Caller) -> AsyncBound:
        """See `Assistant.bind`."""
        return AsyncBound(connection, self._settings, caller)

    @asynccontextmanager
    async def session(self, caller: Caller) -> AsyncIterator[AsyncBound]:
        """See `Assistant.session`."""
        with translated():
            connection = await self.engine.connect().start()
        try:
            with translated():
                transaction = await connection.begin()
            try:
                bound = self.bind(connection, caller)
                yield bound
                bound.raise_failure()
            except BaseException:
                with translated():
                    await transaction.rollback()
                raise
            with translated():
                await transaction.commit()
        finally:
            await connection.close()

    async def transact(self, caller: Caller, work: Callable[[AsyncBound], Awaitable[T]]) -> T:
        """See `Assistant.transact`."""
        patience = Patience(self._settings.retry_for)
        while True:
            try:
                async with self.session(caller) as bound:
                    return await work(bound)
            except Raced as error:
                pause = patience.pause(error)
            await asyncio.sleep(pause)

    async def drain_outbox(self, handler: AsyncHandler, limit: int = 100) -> Drained:
        """See `Assistant.drain_outbox`; the handler is awaited."""
        drain = Drain(self._settings, limit)
        with translated():
            async with self.engine.connect() as connection:
                await connection.run_sync(drain.claim)
        for queue in drain.queues:
            for milestone in queue.milestones:
                if not queue.may_go_on():
                    break
                try:
                    await handler(milestone)
                except Exception as error:  # noqa: BLE001 - whatever it is, the thread waits
                    queue.failed(milestone, error)
                    break
                queue.handed_out(milestone)
        with translated():
            async with self.engine.connect() as connection:
                return await connection.run_sync(drain.settle)

    async def doctor(
        self,
        *,
        tenant: str | None = None,
        thread_id: str | None = None,
        progress: Progress | None = None,
    ) -> AsyncIterator[Finding]:
        """See `Assistant.doctor`."""
        with translated():
            async with reading_engine(self.engine).connect() as connection:
                findings = await connection.run_sync(
                    examine,
                    schema=self._settings.schema,
                    tenant=tenant,
                    thread_id=thread_id,
                    progress=progress,
                )
                while True:
                    finding = await connection.run_sync(lambda _: next(findings, None))
                    if finding is None:
                        return
                    yield finding

    async def perform(self, caller: Caller, operation: Operation[C, V], command: C) -> V:
        """See `Assistant.perform`."""
        injected = self._settings.clock is not None
        mode = mode_of(self.engine.dialect.name, operation, command, injected=injected)
        patience = Patience(self._settings.retry_for)
        while True:
            try:
                with translated():
                    async with self._engines[mode].connect() as connection:
                        return await connection.run_sync(
                            self._settings.run, caller, mode, operation, command
                        )
            except Raced as error:
                pause = patience.pause(error)
            await asyncio.sleep(pause)


class _Acting(AsyncOperations):
    """Operations, each in a transaction of its own."""

    def __init__(
        self, assistant: AsyncAssistant, caller: Caller, observer: Observer | None
    ) -> None:
        super().__init__(caller, observer)
        self._assistant = assistant

    async def _perform(self, operation: Operation[C, V], values: Mapping[str, object]) -> V:
        command = operation.parse(values, self._assistant.limits)
        return await self._assistant.perform(self._caller, operation, command)
