"""Archives through the synchronous front door: threads given out as lines, and taken in."""

import time
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, suppress
from typing import TypeVar

import sqlalchemy as sa

from engine_assistant.archive.export import Around, export_thread, threads_of
from engine_assistant.archive.importing import admit, import_archive, refusal
from engine_assistant.archive.unpacking import Archive, Unpacking
from engine_assistant.assistant.settings import Patience, Settings
from engine_assistant.context import Caller, Context
from engine_assistant.doctor import reading_engine
from engine_assistant.model.errors import Conflict, NotFound, Raced, ValidationFailed
from engine_assistant.model.views.archives import Imported, Refused
from engine_assistant.store.faults import translated

__all__ = ["Archives"]

T = TypeVar("T")


class Archives:
    """Threads as archives. `docs/archives.md` says what is in one."""

    engine: sa.Engine
    _settings: Settings

    def export_thread(self, caller: Caller, *, thread_id: str) -> Generator[bytes, None, None]:
        """Give a thread's archive line by line, all of it as it stood at one moment.

        The same thread, unchanged, gives the same bytes, on either database. All of it is read
        before the first line is given, which is where it raises; then no transaction is open.
        Without its last line an archive is refused everywhere.

        Args:
            caller: the owner, an auditor, or a system principal with `run`.
            thread_id: which thread.

        Raises:
            PermissionDenied: the caller holds neither `use` nor `run`.
            NotFound: there is no such thread, or it is not for this caller.
            Internal: the record is broken in a place; the doctor says where.
        """
        with self._read(caller, lambda context: export_thread(context, thread_id)) as lines:
            yield from lines

    def export_subject(self, caller: Caller, *, subject: str) -> Generator[bytes, None, None]:
        """Give the archives of every thread that a person owns, one after the other.

        Each is of one moment of its own. What the person wrote or decided in threads of others is
        not in it.

        Args:
            caller: the person, an auditor, or a system principal with `run`.
            subject: who owns the threads.

        Raises:
            PermissionDenied: it is another person, and the caller holds neither `audit` nor `run`.
            Internal: as for `export_thread`.
        """
        around, page = Around(subject), self._threads(caller, subject)
        yield around.first()
        while page:
            for thread_id in page:
                archive = self.export_thread(caller, thread_id=thread_id)
                # Erased since it was listed, it is missing.
                with suppress(NotFound), closing(archive) as lines:
                    for line in lines:
                        yield around.take(line)
            page = self._threads(caller, subject, page[-1])
        yield around.last()

    def import_thread(
        self, caller: Caller, lines: Iterable[bytes], *, cancel_open: bool = False
    ) -> Imported:
        """Bring one thread into the caller's tenant, from either database and any tenant.

        All lines are read and checked before a transaction begins. Numbers, states and bytes stay
        as they are; an export gives the same archive again. The same archive a second time is
        nothing new, also when the thread has gone on.

        Args:
            caller: a system principal with `run`; the thread becomes its tenant's.
            lines: the bytes of the archive in any pieces.
            cancel_open: end what is not over: the turn as interrupted, its calls by the closing
                table, messages that wait as cancelled.

        Raises:
            PermissionDenied: the caller does not hold `run`.
            ValidationFailed: it is no archive, a damaged one (`facts["line"]` names the line), one
                of a newer release, or one that the doctor finds fault with.
            Conflict: `thread_exists`, `key_reused`, or `archive_unsettled` when something in it is
                not over.
        """
        admit(caller, in_pieces=isinstance(lines, Iterable), cancel_open=cancel_open)
        with closing(Unpacking()) as unpacking:
            for piece in lines:
                unpacking.feed_one(piece)
            return self._import(caller, unpacking.end_one(), cancel_open=cancel_open)

    def import_threads(
        self, caller: Caller, lines: Iterable[bytes], *, cancel_open: bool = False
    ) -> Generator[Imported | Refused, None, None]:
        """Bring in every thread of a file, each in a transaction of its own, as it is read.

        A file of `export_subject`, or any archives one after the other. A thread that is refused
        is answered as `Refused`, and the others go on. When the file is damaged, the threads
        before that place are in; the same file, mended, can be given again.

        Args:
            caller: as for `import_thread`.
            lines: the bytes of the file in any pieces.
            cancel_open: as for `import_thread`.

        Raises:
            PermissionDenied: the caller does not hold `run`.
            ValidationFailed: the file is damaged at `facts["line"]`.
        """
        admit(caller, in_pieces=isinstance(lines, Iterable), cancel_open=cancel_open)
        with closing(Unpacking()) as unpacking:
            for piece in lines:
                for archive in unpacking.feed(piece):
                    yield self._outcome(caller, archive, cancel_open=cancel_open)
            unpacking.end()

    def _threads(self, caller: Caller, subject: str, after: str | None = None) -> list[str]:
        return self._read(caller, lambda context: threads_of(context, subject, after))

    def _read(self, caller: Caller, work: Callable[[Context], T]) -> T:
        """Read on a connection that is given back before anything is given out."""
        with translated(), reading_engine(self.engine).connect() as connection:
            return work(self._settings.context(connection, caller))

    def _outcome(
        self, caller: Caller, archive: Archive, *, cancel_open: bool
    ) -> Imported | Refused:
        try:
            return self._import(caller, archive, cancel_open=cancel_open)
        except (Conflict, ValidationFailed) as error:
            return refusal(archive, error)

    def _import(self, caller: Caller, archive: Archive, *, cancel_open: bool) -> Imported:
        patience = Patience(self._settings.retry_for)
        while True:
            try:
                with translated(), self.engine.connect() as connection:
                    context = self._settings.context(connection, caller)
                    return import_archive(context, archive, cancel_open=cancel_open)
            except Raced as error:
                pause = patience.pause(error)
            time.sleep(pause)
