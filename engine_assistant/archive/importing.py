"""Bringing a thread in: all of it or nothing, and nothing that the doctor would find fault with."""

from datetime import datetime
from itertools import groupby, islice, zip_longest
from operator import itemgetter
from typing import Final

import sqlalchemy as sa

from engine_assistant.archive.export import lines_of
from engine_assistant.archive.unpacking import Archive
from engine_assistant.context import Caller, Context, refuse_no_caller
from engine_assistant.doctor import reading
from engine_assistant.doctor.examination import examine_held
from engine_assistant.model.errors import (
    Conflict,
    ConflictReason,
    PermissionDenied,
    ValidationFailed,
)
from engine_assistant.model.machines import RunState
from engine_assistant.model.permissions import RUN
from engine_assistant.model.rows import Plan, ThreadRow
from engine_assistant.model.times import from_text
from engine_assistant.model.views.archives import Imported, Refused
from engine_assistant.rules.archives import settle_imported
from engine_assistant.rules.draft import Draft
from engine_assistant.store.database import Database
from engine_assistant.store.dialects import dialect_of
from engine_assistant.store.inputs import queued_inputs
from engine_assistant.store.locks import lock_thread
from engine_assistant.store.reads import find_run, gather_calls
from engine_assistant.store.writes import insert_thread, write

__all__ = ["admit", "import_archive", "refusal"]

_PAGE: Final = 100
"""Rows that are written at a time."""


def admit(caller: Caller, *, in_pieces: bool, cancel_open: bool) -> None:
    """Ask for the permission, before anything is read.

    Raises:
        PermissionDenied: the caller does not hold `run`.
        ValidationFailed: the caller is none; the archive does not come in pieces; what is to be
            done with what is open is not said with a bool.
    """
    refuse_no_caller(caller)
    if not caller.holds(RUN):
        raise PermissionDenied(f"This needs the permission {RUN}.", needs=RUN)
    if not in_pieces:
        raise ValidationFailed("An archive comes as bytes, in pieces.", path="lines")
    if type(cancel_open) is not bool:
        raise ValidationFailed("cancel_open must be a bool.", path="cancel_open")


def import_archive(ctx: Context, archive: Archive, *, cancel_open: bool) -> Imported:
    """Bring a thread into the caller's tenant, in a transaction of its own.

    Raises:
        Conflict: `thread_exists`, `key_reused`, `archive_unsettled`.
        ValidationFailed: the thread cannot be as the archive says.
        Raced: another transaction was in the way.
    """
    with ctx.connection.begin():
        return _import(ctx, archive, cancel_open=cancel_open)


def refusal(archive: Archive, error: Conflict | ValidationFailed) -> Refused:
    """Return an error as the outcome for one thread of several."""
    return Refused(thread_id=archive.header.thread.id, error=error.to_dict())


def _import(ctx: Context, archive: Archive, *, cancel_open: bool) -> Imported:
    """Bring everything in, or raise so that all of it is rolled back.

    The thread's row comes first: whoever else brings the same one in waits for it, and then finds
    it there.
    """
    db = ctx.database
    dialect_of(ctx.connection).begin_write(db)
    thread = _imported(ctx.caller.tenant, archive)
    if not insert_thread(db, Plan(answer=None, before=thread, after=thread)):
        return _there_already(db, thread, archive)
    if archive.unsettled and not cancel_open:
        raise Conflict(
            ConflictReason.ARCHIVE_UNSETTLED,
            "A turn, a call or a message of this thread is not over. Import it with cancel_open,"
            " which ends them, or export it again when it rests.",
            thread_id=thread.id,
        )
    _insert_rows(db, archive, thread.id)
    if archive.unsettled:
        _settle(ctx, thread)
    for finding in examine_held(db, thread.id):
        raise ValidationFailed(
            f"This thread cannot be as the archive says. {finding.where}: {finding.message}",
            path="lines",
            thread_id=thread.id,
            code=finding.code.value,
            where=finding.where,
        )
    return Imported(thread_id=thread.id, events=archive.events, created=True)


def _imported(tenant: str, archive: Archive) -> ThreadRow:
    """Return the row of a thread that begins its life here: nobody holds its lease."""
    header = archive.header
    given = header.thread
    return ThreadRow(
        tenant_id=tenant,
        id=given.id,
        subject_id=given.subject_id,
        key=given.key,
        title=given.title,
        status=given.status,
        turn_state=given.turn_state,
        turn=given.turn,
        open_since=_moment(given.open_since),
        next_deadline=_moment(given.next_deadline),
        last_seq=given.last_seq,
        run_id=None,
        fence=given.fence,
        stale_after=None,
        lease_until=None,
        last_batch=0,
        batch_digest=None,
        batch_first_seq=None,
        batch_last_seq=None,
        interrupt_requested_at=_moment(given.interrupt_requested_at),
        milestones=given.milestones,
        created_at=from_text(given.created_at),
        last_active_at=from_text(given.last_active_at),
        closed_at=_moment(given.closed_at),
        queued=given.queued,
        context_bytes=0,
        origin_tenant=None if header.origin_tenant == tenant else header.origin_tenant,
        import_digest=archive.digest,
        imported_seq=given.last_seq,
    )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else from_text(text)


def _there_already(db: Database, thread: ThreadRow, archive: Archive) -> Imported:
    """Answer an archive whose thread is there: the same again is nothing new.

    Raises:
        Conflict: `thread_exists` when something else is there under this id; `key_reused` when the
            person opened another thread under its key.
    """
    locked = lock_thread(db, thread.id)
    if locked is None:
        raise Conflict(
            ConflictReason.KEY_REUSED,
            "The key of this thread opened another one of this person here.",
            thread_id=thread.id,
        )
    if locked[0].import_digest != archive.digest and not _is_unchanged(db, thread.id, archive):
        raise Conflict(
            ConflictReason.THREAD_EXISTS,
            "Another thread is here under this id, or this one has gone on since.",
            thread_id=thread.id,
        )
    return Imported(thread_id=thread.id, events=archive.events, created=False)


def _is_unchanged(db: Database, thread_id: str, archive: Archive) -> bool:
    """Return whether an export would give this archive now. The first other line ends it."""
    there = reading.thread_row(db, thread_id)
    lines = iter(()) if there is None else lines_of(db, there)
    return all(here == given for here, given in zip_longest(lines, archive.lines()))


def _insert_rows(db: Database, archive: Archive, thread_id: str) -> None:
    """Write every row, some at a time.

    Raises:
        ValidationFailed: the tables do not admit one beside the others.
    """
    where = {"tenant_id": db.tenant, "thread_id": thread_id}
    try:
        for section, rows in groupby(archive.rows(), key=itemgetter(0)):
            values = (where | section.values(fields) for _, fields in rows)
            # RETURNING makes one statement of a page. A pipeline of many logs what is refused.
            statement = sa.insert(section.table).returning(section.table.c.tenant_id)
            while page := list(islice(values, _PAGE)):
                db.execute(statement, page)
    except sa.exc.IntegrityError:
        pass
    else:
        return
    raise ValidationFailed(
        "This thread cannot be as the archive says: its rows contradict each other.",
        path="lines",
        thread_id=thread_id,
    )


def _settle(ctx: Context, thread: ThreadRow) -> None:
    """End what is not over, as the owner's stop button would."""
    db = ctx.database
    calls, approvals = gather_calls(db, thread.id, unended=True)
    run = find_run(db, thread.id, thread.fence)
    draft = Draft(
        thread,
        dialect_of(ctx.connection).now(db),
        calls=calls,
        approvals=approvals,
        inputs=queued_inputs(db, thread.id),
        run=run if run is not None and run.state is RunState.RUNNING else None,
        limits=ctx.limits,
    )
    write(db, settle_imported(draft))
