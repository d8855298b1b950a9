"""Reading what a history is made of: summaries, and the events that none stands for.

How much is read depends on the events after the newest summary and between the older ones, never
on how long the thread is: each stretch is a range of numbers, and so an index range scan.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, cast

import sqlalchemy as sa

from engine_assistant.model.rows import CompactionRow
from engine_assistant.store.database import Database
from engine_assistant.store.dialects import dialect_of
from engine_assistant.store.pages import StoredEvent
from engine_assistant.store.reads import row_of
from engine_assistant.store.tables import compactions, events, threads, tool_calls

__all__ = [
    "Summarised",
    "compaction_page",
    "find_standing",
    "find_summarised",
    "first_events",
    "read_ranges",
    "tools_of",
]

_RANGES: Final = 100
"""Ranges that one statement asks for. SQLite takes no more than 500 parts in one."""


@dataclass(frozen=True, slots=True)
class Summarised:
    """Whose thread it is, its head, and the summaries in force, of one moment."""

    subject_id: str
    head_seq: int
    effective: Sequence[CompactionRow]


def _of(db: Database, thread_id: str) -> sa.ColumnElement[bool]:
    return sa.and_(compactions.c.tenant_id == db.tenant, compactions.c.thread_id == thread_id)


def find_standing(db: Database, thread_id: str, of: tuple[int, int]) -> list[CompactionRow]:
    """Return the summaries that no other one covers, and all that were made of one range."""
    same = sa.and_(compactions.c.from_seq == of[0], compactions.c.to_seq == of[1])
    statement = (
        sa.select(compactions)
        .where(_of(db, thread_id), sa.or_(compactions.c.covered_by.is_(None), same))
        .order_by(compactions.c.n)
    )
    return [row_of(CompactionRow, row) for row in db.rows(statement)]


def find_summarised(db: Database, thread_id: str) -> Summarised | None:
    """Return the summaries in force with the head that they stand under, in one statement."""
    in_force = sa.and_(
        compactions.c.tenant_id == threads.c.tenant_id,
        compactions.c.thread_id == threads.c.id,
        compactions.c.covered_by.is_(None),
    )
    statement = (
        sa.select(threads.c.subject_id, threads.c.last_seq, *compactions.c)
        .select_from(threads.outerjoin(compactions, in_force))
        .where(threads.c.tenant_id == db.tenant, threads.c.id == thread_id)
        .order_by(compactions.c.from_seq)
    )
    found = db.rows(statement)
    if not found:
        return None
    subject, head = cast("tuple[str, int]", found[0][:2])
    rows = [row_of(CompactionRow, row[2:]) for row in found if row[2] is not None]
    return Summarised(subject, head, rows)


def read_ranges(
    db: Database, thread_id: str, ranges: Sequence[tuple[int, int]], types: Collection[str]
) -> list[StoredEvent]:
    """Return the events of these types in these ranges of numbers, in order."""
    found: list[StoredEvent] = []
    for at in range(0, len(ranges), _RANGES):
        arms = [_range(db, thread_id, one, types) for one in ranges[at : at + _RANGES]]
        statement = arms[0] if len(arms) == 1 else sa.union_all(*arms)
        found += cast("Sequence[StoredEvent]", db.rows(statement))
    # Nothing says in which order the parts of a statement come.
    return sorted(found, key=lambda event: event[0])


def _range(
    db: Database, thread_id: str, numbers: tuple[int, int], types: Collection[str]
) -> sa.Select[tuple[int, str, int, str, str]]:
    at = dialect_of(db.connection).as_text(events.c.created_at)
    first, last = numbers
    return sa.select(events.c.seq, events.c.type, events.c.turn, events.c.body, at).where(
        events.c.tenant_id == db.tenant,
        events.c.thread_id == thread_id,
        events.c.seq >= first,
        events.c.seq <= last,
        events.c.type.in_(sorted(types)),
    )


def first_events(db: Database, thread_id: str, count: int) -> list[tuple[str, str]]:
    """Return type and body of the first events of a thread."""
    statement = (
        sa.select(events.c.type, events.c.body)
        .where(
            events.c.tenant_id == db.tenant,
            events.c.thread_id == thread_id,
            events.c.seq <= count,
        )
        .order_by(events.c.seq)
    )
    return [cast("tuple[str, str]", tuple(row)) for row in db.rows(statement)]


def tools_of(db: Database, thread_id: str, call_ids: Collection[str]) -> dict[str, str]:
    """Return the tools of these calls, by call id."""
    if not call_ids:
        return {}
    statement = sa.select(tool_calls.c.call_id, tool_calls.c.tool).where(
        tool_calls.c.tenant_id == db.tenant,
        tool_calls.c.thread_id == thread_id,
        tool_calls.c.call_id.in_(sorted(call_ids)),
    )
    return dict(cast("Sequence[tuple[str, str]]", db.rows(statement)))


def compaction_page(
    db: Database, thread_id: str, *, limit: int, after: int | None
) -> list[CompactionRow]:
    """Return the summaries of a thread in the order in which they were made."""
    statement = (
        sa.select(compactions).where(_of(db, thread_id)).order_by(compactions.c.n).limit(limit)
    )
    if after is not None:
        statement = statement.where(compactions.c.n > after)
    return [row_of(CompactionRow, row) for row in db.rows(statement)]
