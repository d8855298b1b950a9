"""What the platform's own processes see, across tenants, through either front door."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from engine_assistant.assistant.settings import Mode, Settings, reading_mode
from engine_assistant.model.service import Backlog, Runnable, Surveyed
from engine_assistant.store.faults import translated
from engine_assistant.store.survey import Survey

__all__ = ["AsyncOversight", "Oversight"]

T = TypeVar("T")


class Oversight:
    """What is to be done, who does it, and what waits.

    It asks for no caller: it is for whoever runs hosts and operates the database, never for a
    person.
    """

    engine: sa.Engine
    _engines: Mapping[Mode, sa.Engine]
    _settings: Settings

    def list_runnable(
        self, limit: int = 100, exclude: Sequence[tuple[str, str]] = ()
    ) -> list[Runnable]:
        """Return threads of every tenant that a run should pick up.

        These are open turns without a live lease, and waiting turns in which nothing unlapsed
        waits. The oldest of every tenant comes first, then the second of every tenant, and on.

        Args:
            limit: how many at most, 1 to 1,000.
            exclude: (tenant, thread id) pairs to leave out, 1,000 at most.
        """
        return self._look(lambda connection: self._settings.runnable(connection, limit, exclude))

    def survey(
        self,
        *,
        tenant: str | None = None,
        thread_id: str | None = None,
        unrested: bool = False,
        limit: int = 100,
        after: tuple[str, str] | None = None,
    ) -> list[Surveyed]:
        """Return threads of every tenant with their leases, in the order of (tenant, id).

        Args:
            tenant: only of this one.
            thread_id: only with this id.
            unrested: only those whose turn is not idle.
            limit: how many at most, 1 to 1,000.
            after: the (tenant, id) of the last one seen.

        Raises:
            ValidationFailed: the limit is another number, or a name can be no id.
        """
        asked = Survey(
            tenant=tenant, thread_id=thread_id, unrested=unrested, limit=limit, after=after
        )
        return self._look(lambda connection: self._settings.survey(connection, asked))

    def backlog(self) -> Backlog:
        """Return how much waits, of every tenant, and since when: for people, and for the relay.

        It reads open calls and the outbox, and nothing that is over.
        """
        return self._look(self._settings.backlog)

    def _look(self, look: Callable[[sa.Connection], T]) -> T:
        engine = self._engines[reading_mode(self.engine.dialect.name)]
        with translated(), engine.connect() as connection:
            return look(connection)


class AsyncOversight:
    """`Oversight`, awaited."""

    engine: AsyncEngine
    _engines: Mapping[Mode, AsyncEngine]
    _settings: Settings

    async def list_runnable(
        self, limit: int = 100, exclude: Sequence[tuple[str, str]] = ()
    ) -> list[Runnable]:
        """See `Oversight.list_runnable`."""
        return await self._look(
            lambda connection: self._settings.runnable(connection, limit, exclude)
        )

    async def survey(
        self,
        *,
        tenant: str | None = None,
        thread_id: str | None = None,
        unrested: bool = False,
        limit: int = 100,
        after: tuple[str, str] | None = None,
    ) -> list[Surveyed]:
        """See `Oversight.survey`."""
        asked = Survey(
            tenant=tenant, thread_id=thread_id, unrested=unrested, limit=limit, after=after
        )
        return await self._look(lambda connection: self._settings.survey(connection, asked))

    async def backlog(self) -> Backlog:
        """See `Oversight.backlog`."""
        return await self._look(self._settings.backlog)

    async def _look(self, look: Callable[[sa.Connection], T]) -> T:
        engine = self._engines[reading_mode(self.engine.dialect.name)]
        with translated():
            async with engine.connect() as connection:
                return await connection.run_sync(look)
