"""Reading what a rule needs, under the lock, and what an operation shows of single rows."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import fields
from typing import TypeVar, cast

import sqlalchemy as sa

from engine_assistant.model.errors import Internal
from engine_assistant.model.machines import OPEN_CALLS
from engine_assistant.model.rows import (
    ApprovalRow,
    CallRow,
    CompactionRow,
    ContextRow,
    FileRow,
    InputRow,
    RunRow,
    ThreadRow,
)
from engine_assistant.store.columns import is_any_of
from engine_assistant.store.database import Database
from engine_assistant.store.tables import (
    approvals,
    events,
    files,
    runs,
    threads,
    tool_calls,
)

__all__ = [
    "find_files",
    "find_run",
    "find_thread",
    "find_thread_by_key",
    "gather_calls",
    "read_body",
    "row_of",
]

R = TypeVar(
    "R",
    ThreadRow,
    InputRow,
    RunRow,
    CallRow,
    ApprovalRow,
    FileRow,
    CompactionRow,
    ContextRow,
)

_CALL_COLUMNS = len(tool_calls.c)


def row_of(kind: type[R], columns: Sequence[object]) -> R:
    """Make a row of its columns, which stand in field order.

    Raises:
        Internal: the columns are not those of the row.
    """
    names = [field.name for field in fields(kind)]
    if len(names) != len(columns):
        raise Internal("A table does not have the columns of its row.", row=kind.__name__)
    make = cast("Callable[..., R]", kind)
    return make(**dict(zip(names, columns, strict=True)))


def _one(db: Database, kind: type[R], statement: sa.Select[tuple[object, ...]]) -> R | None:
    found = db.rows(statement)
    return row_of(kind, found[0]) if found else None


def find_thread(db: Database, thread_id: str) -> ThreadRow | None:
    """Return a thread's row without locking it."""
    return _one(
        db,
        ThreadRow,
        sa.select(threads).where(threads.c.tenant_id == db.tenant, threads.c.id == thread_id),
    )


def find_thread_by_key(db: Database, subject: str, key: str) -> ThreadRow | None:
    """Return the thread that this person created under `key`."""
    return _one(
        db,
        ThreadRow,
        sa.select(threads).where(
            threads.c.tenant_id == db.tenant,
            threads.c.subject_id == subject,
            threads.c.key == key,
        ),
    )


def find_run(db: Database, thread_id: str, fence: int | None) -> RunRow | None:
    """Return the holding of the lease that had this fence."""
    if fence is None:
        return None
    return _one(
        db,
        RunRow,
        sa.select(runs).where(
            runs.c.tenant_id == db.tenant, runs.c.thread_id == thread_id, runs.c.fence == fence
        ),
    )


def find_files(db: Database, thread_id: str, ids: Collection[str]) -> dict[str, FileRow]:
    """Return those of the named files that belong to this very thread, by id."""
    if not ids:
        return {}
    statement = sa.select(files).where(
        files.c.tenant_id == db.tenant, files.c.thread_id == thread_id, files.c.id.in_(ids)
    )
    found = [row_of(FileRow, row) for row in db.rows(statement)]
    return {row.id: row for row in found}


def gather_calls(
    db: Database, thread_id: str, call_ids: Collection[str] = (), *, unended: bool = False
) -> tuple[list[CallRow], list[ApprovalRow]]:
    """Return calls with the approvals of their current requests, in one statement.

    Args:
        db: where.
        thread_id: whose calls.
        call_ids: the calls named.
        unended: also every call that has not ended.
    """
    wanted: list[sa.ColumnElement[bool]] = []
    if call_ids:
        wanted.append(tool_calls.c.call_id.in_(call_ids))
    if unended:
        wanted.append(is_any_of(tool_calls.c.state, OPEN_CALLS))
    if not wanted:
        return [], []
    current = sa.and_(
        approvals.c.tenant_id == tool_calls.c.tenant_id,
        approvals.c.thread_id == tool_calls.c.thread_id,
        approvals.c.call_id == tool_calls.c.call_id,
        approvals.c.request_seq == tool_calls.c.request_seq,
    )
    statement = (
        sa.select(*tool_calls.c, *approvals.c)
        .select_from(tool_calls.outerjoin(approvals, current))
        .where(tool_calls.c.tenant_id == db.tenant, tool_calls.c.thread_id == thread_id)
        .where(sa.or_(*wanted))
    )
    calls: dict[str, CallRow] = {}
    decisions: list[ApprovalRow] = []
    for columns in db.rows(statement):
        call = row_of(CallRow, columns[:_CALL_COLUMNS])
        calls[call.call_id] = call
        if columns[_CALL_COLUMNS] is not None:
            decisions.append(row_of(ApprovalRow, columns[_CALL_COLUMNS:]))
    return list(calls.values()), decisions


def read_body(db: Database, thread_id: str, seq: int | None) -> tuple[str, str]:
    """Return type and body of one event that a row refers to.

    Raises:
        Internal: there is no such event, so the record is broken.
    """
    statement = sa.select(events.c.type, events.c.body).where(
        events.c.tenant_id == db.tenant, events.c.thread_id == thread_id, events.c.seq == seq
    )
    found = db.rows(statement)
    if not found:
        raise Internal("An event that the record refers to is missing.", seq=seq)
    return cast("tuple[str, str]", found[0])
