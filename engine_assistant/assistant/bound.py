"""The operations inside a transaction that somebody else commits."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from engine_assistant.assistant.async_verbs import AsyncOperations
from engine_assistant.assistant.settings import CLEAN, Settings, refuse_other_kind
from engine_assistant.assistant.verbs import Operations
from engine_assistant.context import Caller, Context, refuse_no_caller
from engine_assistant.model.commands import Command
from engine_assistant.model.errors import Unavailable
from engine_assistant.model.views import Thread
from engine_assistant.operations.locking import lock_threads
from engine_assistant.operations.operation import Operation

__all__ = ["AsyncBound", "Bound"]

C = TypeVar("C", bound=Command)
V = TypeVar("V")
T = TypeVar("T")


class _Joined:
    """A transaction that can break: a refusal leaves it clean, anything else must roll back."""

    def __init__(self, settings: Settings, caller: Caller) -> None:
        refuse_no_caller(caller)
        self._settings = settings
        self._caller = caller
        self._failure: Exception | None = None

    def work(self, connection: sa.Connection, body: Callable[[Context], T]) -> T:
        self.raise_failure()
        try:
            return body(self._settings.context(connection, self._caller))
        except CLEAN:
            raise
        except Exception as error:
            self._failure = error
            raise
        except BaseException:
            # Cancelled or interrupted half-way, which the host may swallow.
            self._failure = Unavailable("A call was cut short in this transaction. Roll back.")
            raise

    def parse(self, operation: Operation[C, V], values: Mapping[str, object]) -> C:
        return operation.parse(values, self._settings.limits)

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


class Bound(Operations):
    """The operations on a connection of the host's, in its transaction."""

    def __init__(self, connection: sa.Connection, settings: Settings, caller: Caller) -> None:
        """Join the connection's transaction."""
        refuse_other_kind(connection, sa.Connection, "connection")
        super().__init__(caller, settings.observer)
        self._connection = connection
        self._joined = _Joined(settings, caller)
        self.context: Context = settings.context(connection, caller)

    def _perform(self, operation: Operation[C, V], values: Mapping[str, object]) -> V:
        command = self._joined.parse(operation, values)
        return self._joined.work(self._connection, lambda ctx: operation(ctx, command))

    def lock_threads(self, thread_ids: Iterable[str]) -> tuple[Thread, ...]:
        """Lock several threads in one order, before anything else is done with them.

        Two transactions that lock the same threads in this way never wait for each other in a
        circle. A caller without `run` can only lock threads of its own.

        Raises:
            NotFound: one of them does not exist, or is not for this caller.
        """
        return self._joined.work(self._connection, lambda ctx: lock_threads(ctx, thread_ids))

    def raise_failure(self) -> None:
        """Raise again what broke this transaction, if anything did: it must be rolled back."""
        self._joined.raise_failure()


class AsyncBound(AsyncOperations):
    """The same, awaited."""

    def __init__(self, connection: AsyncConnection, settings: Settings, caller: Caller) -> None:
        """Join the connection's transaction."""
        refuse_other_kind(connection, AsyncConnection, "connection")
        super().__init__(caller, settings.observer)
        self._connection = connection
        self._joined = _Joined(settings, caller)

    async def _perform(self, operation: Operation[C, V], values: Mapping[str, object]) -> V:
        command = self._joined.parse(operation, values)
        return await self._connection.run_sync(
            self._joined.work, lambda ctx: operation(ctx, command)
        )

    async def lock_threads(self, thread_ids: Iterable[str]) -> tuple[Thread, ...]:
        """See `Bound.lock_threads`."""
        return await self._connection.run_sync(
            self._joined.work, lambda ctx: lock_threads(ctx, thread_ids)
        )

    def raise_failure(self) -> None:
        """See `Bound.raise_failure`."""
        self._joined.raise_failure()
