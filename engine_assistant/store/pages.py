"""Reading lists: events by their numbers, the rest by cursors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Final, cast

import sqlalchemy as sa

from engine_assistant.model.fields import MAX_INTEGER
from engine_assistant.model.machines import ApprovalState, CallState, ThreadStatus
from engine_assistant.model.rows import ApprovalRow, CallRow, ThreadRow
from engine_assistant.model.times import from_text
from engine_assistant.store.database import Database
from engine_assistant.store.dialect import Dialect
from engine_assistant.store.dialects import dialect_of
from engine_assistant.store.reads import row_of
from engine_assistant.store.tables import approvals, events, threads, tool_calls

__all__ = [
    "EventsRead",
    "StoredEvent",
    "approval_page",
    "bodies_of",
    "call_page",
    "read_events",
    "thread_page",
]


StoredEvent = tuple[int, str, int, str, str]
"""(seq, type, turn, body, time as text)"""


@dataclass(frozen=True, slots=True)
class EventsRead:
    """A page of events as they are stored, in order, with the head they were read under."""

    subject_id: str
    head_seq: int
    rows: Sequence[StoredEvent]


_TENANT: Final = sa.bindparam("in_tenant", type_=sa.Text)
_THREAD: Final = sa.bindparam("in_thread", type_=sa.Text)
_OF_THREAD: Final = (threads.c.tenant_id == _TENANT, threads.c.id == _THREAD)


@lru_cache(maxsize=8)
def _page(kind: Dialect, *, last: bool) -> sa.CompoundSelect[tuple[object, ...]]:
    """Build a page: the thread itself as number 0, and the events of a range.

    Numbers have no gap, so a page is a range of numbers: an index range scan, whatever the
    length of the thread. A LIMIT would let the planner sort instead, and so would a join.
    """
    seq = events.c.seq
    head = sa.select(
        sa.cast(sa.literal_column("0"), seq.type),
        threads.c.subject_id,
        threads.c.last_seq,
        sa.cast(sa.null(), sa.Text),
        sa.cast(sa.null(), sa.Text),
    ).where(*_OF_THREAD)
    if last:
        last_seq = sa.select(threads.c.last_seq).where(*_OF_THREAD).scalar_subquery()
        in_range = [seq > last_seq - sa.bindparam("in_last", type_=seq.type)]
    else:
        in_range = [
            seq > sa.bindparam("in_after", type_=seq.type),
            seq <= sa.bindparam("in_through", type_=seq.type),
        ]
    page = sa.select(
        seq, events.c.type, events.c.turn, events.c.body, kind.as_text(events.c.created_at)
    ).where(events.c.tenant_id == _TENANT, events.c.thread_id == _THREAD, *in_range)
    return sa.union_all(head, page)


def read_events(
    db: Database, thread_id: str, *, after: int, limit: int, last: int | None
) -> EventsRead | None:
    """Return the events of a range, with the thread's owner and head, in one statement."""
    values: dict[str, object] = {"in_tenant": db.tenant, "in_thread": thread_id}
    if last is None:
        values |= {"in_after": after, "in_through": min(after + limit, MAX_INTEGER)}
    else:
        values["in_last"] = last
    found = db.fetch(_page(dialect_of(db.connection), last=last is not None), values)
    # They come in order, though nothing says so. To sort what is sorted costs next to nothing.
    rows = sorted(cast("Sequence[StoredEvent]", found), key=itemgetter(0))
    if not rows:
        return None
    _, subject, head_seq, _, _ = rows[0]
    return EventsRead(subject, head_seq, rows[1:])


def thread_page(
    db: Database,
    subject: str,
    *,
    status: ThreadStatus | None,
    limit: int,
    before: tuple[str, str] | None,
) -> list[ThreadRow]:
    """Return one person's threads, newest activity first, from (time, id) on."""
    statement = (
        sa.select(threads)
        .where(threads.c.tenant_id == db.tenant, threads.c.subject_id == subject)
        .order_by(threads.c.last_active_at.desc(), threads.c.id.desc())
        .limit(limit)
    )
    if status is not None:
        statement = statement.where(threads.c.status == status)
    if before is not None:
        at, thread_id = sa.literal(from_text(before[0]), threads.c.last_active_at.type), before[1]
        statement = statement.where(
            sa.tuple_(threads.c.last_active_at, threads.c.id) < sa.tuple_(at, thread_id)
        )
    return [row_of(ThreadRow, row) for row in db.rows(statement)]


def call_page(
    db: Database,
    thread_id: str,
    *,
    state: CallState | None,
    limit: int,
    after: tuple[int, str] | None,
) -> list[CallRow]:
    """Return a thread's calls in the order in which they were (last) proposed."""
    statement = (
        sa.select(tool_calls)
        .where(tool_calls.c.tenant_id == db.tenant, tool_calls.c.thread_id == thread_id)
        .order_by(tool_calls.c.input_seq, tool_calls.c.call_id)
        .limit(limit)
    )
    if state is not None:
        statement = statement.where(tool_calls.c.state == state)
    if after is not None:
        statement = statement.where(
            sa.tuple_(tool_calls.c.input_seq, tool_calls.c.call_id) > sa.tuple_(*after)
        )
    return [row_of(CallRow, row) for row in db.rows(statement)]


def approval_page(
    db: Database,
    *,
    thread_id: str | None,
    approver: str | None,
    state: ApprovalState | None,
    limit: int,
    after: tuple[str, int, str, str] | None,
) -> list[tuple[ApprovalRow, CallRow, str]]:
    """Return approvals with their calls and the body of the request that each belongs to."""
    same_call = sa.and_(
        tool_calls.c.tenant_id == approvals.c.tenant_id,
        tool_calls.c.thread_id == approvals.c.thread_id,
        tool_calls.c.call_id == approvals.c.call_id,
    )
    request = sa.and_(
        events.c.tenant_id == approvals.c.tenant_id,
        events.c.thread_id == approvals.c.thread_id,
        events.c.seq == approvals.c.request_seq,
    )
    order = (
        approvals.c.thread_id,
        approvals.c.request_seq,
        approvals.c.call_id,
        approvals.c.approver_id,
    )
    statement = (
        sa.select(*approvals.c, *tool_calls.c, events.c.body)
        .select_from(approvals.join(tool_calls, same_call).join(events, request))
        .where(approvals.c.tenant_id == db.tenant)
        .order_by(*order)
        .limit(limit)
    )
    if approver is not None:
        statement = statement.where(approvals.c.approver_id == approver)
    if thread_id is not None:
        statement = statement.where(approvals.c.thread_id == thread_id)
    if state is not None:
        statement = statement.where(approvals.c.state == state)
    if after is not None:
        statement = statement.where(sa.tuple_(*order) > sa.tuple_(*after))
    split = len(approvals.c)
    return [
        (
            row_of(ApprovalRow, row[:split]),
            row_of(CallRow, row[split:-1]),
            cast("str", row[-1]),
        )
        for row in db.rows(statement)
    ]


def bodies_of(db: Database, thread_id: str, seqs: Sequence[int]) -> Mapping[int, str]:
    """Return the bodies of the named events by number."""
    if not seqs:
        return {}
    statement = sa.select(events.c.seq, events.c.body).where(
        events.c.tenant_id == db.tenant,
        events.c.thread_id == thread_id,
        events.c.seq.in_(sorted(set(seqs))),
    )
    return dict(cast("Sequence[tuple[int, str]]", db.rows(statement)))
