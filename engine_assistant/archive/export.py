"""Writing archives: the rows of one thread at one moment, in their order.

Each line is read back before any is given, so whatever is given can be read. What is broken in the
record is found now, and not when the archive is needed.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Final

import sqlalchemy as sa

from engine_assistant.archive.format import SUBJECT, THREAD, VERSION, ThreadFields
from engine_assistant.archive.reading import Reader
from engine_assistant.archive.sections import SECTIONS, Section
from engine_assistant.archive.spool import Spool
from engine_assistant.context import Context
from engine_assistant.doctor import reading
from engine_assistant.doctor.reading import Columns
from engine_assistant.model import codec
from engine_assistant.model.errors import (
    Internal,
    PermissionDenied,
    ValidationFailed,
    not_found,
)
from engine_assistant.model.permissions import AUDIT, RUN, USE
from engine_assistant.operations.opening import may_read
from engine_assistant.operations.threads import GET_THREAD, LIST_THREADS
from engine_assistant.store import tables
from engine_assistant.store.database import Database
from engine_assistant.store.dialects import dialect_of

__all__ = ["Around", "export_thread", "lines_of", "threads_of"]

_PAGE: Final = 100
_LAST: Final = b'{"end":"thread",'


def export_thread(ctx: Context, thread_id: str) -> Spool:
    """Return one thread's archive, all of it read in one snapshot.

    Args:
        ctx: with a connection of a `reading_engine` that is in no transaction.
        thread_id: which thread.

    Raises:
        PermissionDenied: the caller holds neither `use` nor `run`.
        NotFound: there is no such thread, or not for this caller.
        Internal: the record cannot be archived, or there is no room for the archive.
    """
    ctx.require((USE, RUN))
    wanted = GET_THREAD.parse({"thread_id": thread_id}, ctx.limits).thread_id
    with ctx.connection.begin(), ExitStack() as unfinished:
        dialect_of(ctx.connection).begin_snapshot(ctx.database)
        thread = reading.thread_row(ctx.database, wanted)
        if thread is None or not may_read(ctx, str(thread["subject_id"])):
            raise not_found()
        spool = unfinished.enter_context(Spool())
        for line in lines_of(ctx.database, thread):
            spool.write(line)
        unfinished.pop_all()
    return spool


def threads_of(ctx: Context, subject: str, after: str | None) -> list[str]:
    """Return the ids of some threads that a person owns, in their order, after one of them.

    Raises:
        PermissionDenied: the caller holds neither `use` nor `run`, or it is another person and
            the caller holds neither `audit` nor `run`.
    """
    ctx.require((USE, RUN))
    owner = LIST_THREADS.parse({"subject": subject}, ctx.limits).subject
    if owner != ctx.caller.principal and not (ctx.holds(AUDIT) or ctx.holds(RUN)):
        raise PermissionDenied(f"Another person's threads need {AUDIT}.", needs=AUDIT)
    threads = tables.threads
    statement = (
        sa.select(threads.c.id)
        .where(threads.c.tenant_id == ctx.caller.tenant, threads.c.subject_id == owner)
        .order_by(threads.c.id)
        .limit(_PAGE)
    )
    if after is not None:
        statement = statement.where(threads.c.id > after)
    return [str(row[0]) for row in ctx.database.rows(statement)]


class Around:
    """What stands before and after the archives of one person's threads.

    With it, a file that was cut between two threads is noticed.
    """

    def __init__(self, subject: str) -> None:
        """Begin before the first archive."""
        self._subject = subject
        self._every = hashlib.sha256()
        self._count = 0

    def first(self) -> bytes:
        """Return the first line."""
        line = _written({"archive": SUBJECT, "version": VERSION, "subject_id": self._subject})
        self._every.update(line)
        return line

    def take(self, line: bytes) -> bytes:
        """Take a line of an archive, and return it."""
        self._every.update(line)
        self._count += line.startswith(_LAST)
        return line

    def last(self) -> bytes:
        """Return the last line."""
        return _end("subject", threads=self._count, sha256=self._every.hexdigest())


def lines_of(db: Database, thread: Columns) -> Iterator[bytes]:
    """Give the archive of a thread. All reads must see one moment.

    Args:
        db: where, in a snapshot or under the thread's lock.
        thread: its row, as `reading.thread_row` gave it in the same transaction.

    Raises:
        Internal: the record cannot be archived.
    """
    reader = Reader()
    try:
        for line in _lines(db, thread):
            reader.take(line)
            yield line
    except ValidationFailed as refusal:
        raise Internal(
            f"This thread cannot be archived; the doctor says more. {refusal.message}",
            thread_id=str(thread["id"]),
            line=reader.line,
        ) from None


def _lines(db: Database, thread: Columns) -> Iterator[bytes]:
    every = hashlib.sha256()
    for line in _before_the_end(db, thread):
        every.update(line)
        yield line
    yield _end("thread", sha256=every.hexdigest())


def _before_the_end(db: Database, thread: Columns) -> Iterator[bytes]:
    yield _written(
        {
            "archive": THREAD,
            "version": VERSION,
            "origin_tenant": thread["origin_tenant"] or thread["tenant_id"],
            "thread": {name: thread[name] for name in ThreadFields.model_fields},
        }
    )
    for section in SECTIONS:
        count, digest = 0, hashlib.sha256()
        for columns in _rows(db, section, str(thread["id"])):
            line = section.line(columns)
            count += 1
            digest.update(line)
            yield line
        yield _end(section.name, count=count, sha256=digest.hexdigest())


def _rows(db: Database, section: Section, thread_id: str) -> Iterator[Columns]:
    if section.table is not tables.events:
        yield from reading.rows_of(db, section.table, thread_id, *section.key)
        return
    for page in reading.event_pages(db, thread_id):
        for event in page:
            yield {
                "seq": event.seq,
                "type": event.type,
                "turn": event.turn,
                "body": event.body,
                "created_at": event.at,
            }


def _end(name: str, **facts: int | str) -> bytes:
    return _written({"end": name, **facts})


def _written(value: Mapping[str, object]) -> bytes:
    return codec.dumps(value).encode() + b"\n"
