"""The third beat: write a plan by conditional writes that must each change exactly one row.

Under the lock every guard holds. If one ever does not, somebody wrote past the lock: `Raced` is
raised and nothing of the transaction may be kept. So each guard protects the record alone.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Final, TypeVar

import sqlalchemy as sa

from engine_assistant.model.errors import Internal, Raced
from engine_assistant.model.rows import (
    ApprovalRow,
    CallRow,
    Change,
    CompactionRow,
    ContextRow,
    FileRow,
    InputRow,
    MilestoneRow,
    Plan,
    Row,
    RunRow,
    ThreadRow,
)
from engine_assistant.store import tables
from engine_assistant.store.database import Database
from engine_assistant.store.dialects import dialect_of

__all__ = ["insert_thread", "write"]

A = TypeVar("A")

_TABLES: Final[dict[type[Row], sa.Table]] = {
    InputRow: tables.inputs,
    RunRow: tables.runs,
    CallRow: tables.tool_calls,
    ApprovalRow: tables.approvals,
    FileRow: tables.files,
    CompactionRow: tables.compactions,
    ContextRow: tables.contexts,
}

_HEAD_KEY: Final = ("tenant_id", "id")
_HEAD_GUARDS: Final = ("status", "turn_state", "last_seq", "fence", "queued", "context_bytes")
_GUARDS: Final = ("state", "request_digest", "digest", "body", "covered_by")
"""What a row's move is conditional on beside its key, where the row has it."""


def write(db: Database, plan: Plan[A]) -> A:
    """Write everything that a rule decided, and return its answer.

    Head and events first: if the head was lost, nothing was written.

    Raises:
        Raced: a guard did not hold. Roll back and start again from the lock.
    """
    _move(db, tables.threads, (plan.before, plan.after), key=_HEAD_KEY, guards=_HEAD_GUARDS)
    if plan.events:
        dialect_of(db.connection).insert_events(db, plan.after.id, plan.events)
    _drop_context(db, plan)
    for change in plan.changes:
        _apply(db, change)
    emit(db, plan.milestones)
    return plan.answer


def insert_thread(db: Database, plan: Plan[A]) -> bool:
    """Insert a new thread with what it begins with; return False if its key is taken."""
    dialect = dialect_of(db.connection)
    inserted = dialect.insert_new(db, tables.threads, _values(plan.after))
    if inserted:
        if plan.events:
            dialect.insert_events(db, plan.after.id, plan.events)
        emit(db, plan.milestones)
    return inserted


def emit(db: Database, milestones: Sequence[MilestoneRow]) -> None:
    """Write milestones with the change they tell of: to the host's outbox, or to ours."""
    if not milestones:
        return
    if db.emit is not None:
        db.emit(milestones)
    else:
        db.execute(sa.insert(tables.outbox), [_values(row) for row in milestones])


def _drop_context(db: Database, plan: Plan[A]) -> None:
    """Take the private context away: with the end of its turn, or for another one in its place."""
    replaced = any(isinstance(change.after, ContextRow) for change in plan.changes)
    if plan.before.context_bytes and (replaced or not plan.after.context_bytes):
        kept = tables.contexts.c
        of_thread = (kept.tenant_id == db.tenant, kept.thread_id == plan.after.id)
        db.execute(sa.delete(tables.contexts).where(*of_thread))


def _apply(db: Database, change: Change) -> None:
    table = _TABLES[type(change.after)]
    if change.before is None:
        # A new row's key is its guard: in a strict isolation level a rule may not see who took it.
        if not dialect_of(db.connection).insert_new(db, table, _values(change.after)):
            raise _raced(table)
        return
    guards = tuple(name for name in _GUARDS if hasattr(change.before, name))
    _move(db, table, (change.before, change.after), key=change.before.KEY, guards=guards)


def _move(
    db: Database,
    table: sa.Table,
    rows: tuple[Row | ThreadRow, Row | ThreadRow],
    *,
    key: Sequence[str],
    guards: Sequence[str],
) -> None:
    """UPDATE the columns that changed, where key and guards are as the rule saw them."""
    old, new = (_values(row) for row in rows)
    changed = {name: value for name, value in new.items() if value != old[name]}
    if not changed:
        return
    if any(name in changed for name in key):
        raise Internal("A rule changed the key of a row.", table=table.name)
    statement = (
        sa.update(table)
        .where(*(table.c[name] == old[name] for name in key))
        .where(*(table.c[name].is_not_distinct_from(old[name]) for name in guards))
        .values(changed)
    )
    if db.execute(statement).rowcount != 1:
        raise _raced(table)


def _raced(table: sa.Table) -> Raced:
    return Raced("The record changed under the lock. Roll back and try again.", table=table.name)


def _values(row: Row | ThreadRow | MilestoneRow) -> dict[str, object]:
    return {field.name: getattr(row, field.name) for field in fields(row)}
