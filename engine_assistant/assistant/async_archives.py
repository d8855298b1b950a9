"""Archives through the asynchronous front door: the same bodies, run by `run_sync`."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
)
from contextlib import aclosing, closing, suppress
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from engine_assistant.archive.export import Around, export_thread, threads_of
from engine_assistant.archive.importing import admit, import_archive, refusal
from engine_assistant.archive.unpacking import Archive, Unpacking
from engine_assistant.assistant.settings import Patience, Settings
from engine_assistant.context import Caller, Context
from engine_assistant.doctor import reading_engine
from engine_assistant.model.errors import Conflict, NotFound, Raced, ValidationFailed
from engine_assistant.model.views.archives import Imported, Refused
from engine_assistant.store.faults import translated

__all__ = ["AsyncArchives"]

T = TypeVar("T")


class AsyncArchives:
    """`Archives`, awaited. What is taken in may come from an async iterator, too."""

    engine: AsyncEngine
    _settings: Settings

    async def export_thread(self, caller: Caller, *, thread_id: str) -> AsyncGenerator[bytes, None]:
        """See `Archives.export_thread`."""
        spool = await self._read(caller, lambda context: export_thread(context, thread_id))
        with spool as lines:
            for line in lines:
                yield line

    async def export_subject(self, caller: Caller, *, subject: str) -> AsyncGenerator[bytes, None]:
        """See `Archives.export_subject`."""
        around, page = Around(subject), await self._threads(caller, subject)
        yield around.first()
        while page:
            for thread_id in page:
                archive = self.export_thread(caller, thread_id=thread_id)
                # Erased since it was listed, it is missing.
                with suppress(NotFound):
                    async with aclosing(archive) as lines:
                        async for line in lines:
                            yield around.take(line)
            page = await self._threads(caller, subject, page[-1])
        yield around.last()

    async def import_thread(
        self,
        caller: Caller,
        lines: Iterable[bytes] | AsyncIterable[bytes],
        *,
        cancel_open: bool = False,
    ) -> Imported:
        """See `Archives.import_thread`."""
        admit(
            caller, in_pieces=isinstance(lines, Iterable | AsyncIterable), cancel_open=cancel_open
        )
        with closing(Unpacking()) as unpacking:
            async for piece in _each(lines):
                unpacking.feed_one(piece)
            return await self._import(caller, unpacking.end_one(), cancel_open=cancel_open)

    async def import_threads(
        self,
        caller: Caller,
        lines: Iterable[bytes] | AsyncIterable[bytes],
        *,
        cancel_open: bool = False,
    ) -> AsyncGenerator[Imported | Refused, None]:
        """See `Archives.import_threads`."""
        admit(
            caller, in_pieces=isinstance(lines, Iterable | AsyncIterable), cancel_open=cancel_open
        )
        with closing(Unpacking()) as unpacking:
            async for piece in _each(lines):
                for archive in unpacking.feed(piece):
                    yield await self._outcome(caller, archive, cancel_open=cancel_open)
            unpacking.end()

    async def _outcome(
        self, caller: Caller, archive: Archive, *, cancel_open: bool
    ) -> Imported | Refused:
        try:
            return await self._import(caller, archive, cancel_open=cancel_open)
        except (Conflict, ValidationFailed) as error:
            return refusal(archive, error)

    async def _threads(self, caller: Caller, subject: str, after: str | None = None) -> list[str]:
        return await self._read(caller, lambda context: threads_of(context, subject, after))

    async def _read(self, caller: Caller, work: Callable[[Context], T]) -> T:
        with translated():
            async with reading_engine(self.engine).connect() as connection:
                return await connection.run_sync(
                    lambda plain: work(self._settings.context(plain, caller))
                )

    async def _import(self, caller: Caller, archive: Archive, *, cancel_open: bool) -> Imported:
        def attempt(connection: sa.Connection) -> Imported:
            context = self._settings.context(connection, caller)
            return import_archive(context, archive, cancel_open=cancel_open)

        patience = Patience(self._settings.retry_for)
        while True:
            try:
                with translated():
                    async with self.engine.connect() as connection:
                        return await connection.run_sync(attempt)
            except Raced as error:
                pause = patience.pause(error)
            await asyncio.sleep(pause)


async def _each(lines: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(lines, AsyncIterable):
        async for piece in lines:
            yield piece
    else:
        for piece in lines:
            yield piece
