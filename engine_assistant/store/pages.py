"""Reading lists: events by their numbers, the rest by cursors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, cast

import sqlalchemy as sa

from engine_assistant.model.events import WRITERS
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
    "approval_page",
    "bodies_of",
    "call_page",
    "read_events",
    "single_events",
    "thread_page",
]


@dataclass(frozen=True, slots=True)
class EventsRead:
    """A page of events in their read form, with the head they were read under.

    Attributes:
        subject_id: the thread's owner.
        head_seq: the thread's last number.
        after: the number before the page.
        records: the events as JSON, joined by commas.
        facts: of each event number, turn and type, to compare with what was read; joined by commas.
    """

    subject_id: str
    head_seq: int
    after: int
    records: str
    facts: str


_TENANT: Final = sa.bindparam("in_tenant", type_=sa.Text)
_THREAD: Final = sa.bindparam("in_thread", type_=sa.Text)
_OF_THREAD: Final = (threads.c.tenant_id == _TENANT, threads.c.id == _THREAD)


def _said(text: str) -> sa.ColumnElement[str]:
    return sa.literal_column(f"'{text}'", sa.Text)


def _records(kind: Dialect, *, last: bool = False) -> sa.Select[tuple[int, str, str]]:
    """Build the events of a range, as (number, facts, read form) in order.

    The database puts number, turn and time into each stored body, which stays as it is. Numbers
    have no gap, so a page is a range of numbers: an index range scan, whatever the length of the
    thread. A LIMIT would let the planner sort instead.
    """
    known = events.c.type.in_([_said(name) for name in sorted(WRITERS)])
    seq, turn = sa.cast(events.c.seq, sa.Text), sa.cast(events.c.turn, sa.Text)
    name = sa.case((known, events.c.type), else_=_said("unknown"))
    fact = seq + _said(" ") + turn + _said(" ") + name
    start = _said('{"seq":') + seq + _said(',"turn":') + turn + _said(',"at":"')
    other = _said('"type":"unknown","name":') + kind.as_json(events.c.type) + _said(',"body":')
    said = sa.case((known, kind.tail(events.c.body)), else_=other + events.c.body + _said("}"))
    record = start + kind.as_text(events.c.created_at) + _said('",') + said
    statement = (
        sa.select(events.c.seq, fact.label("fact"), record.label("record"))
        .where(events.c.tenant_id == _TENANT, events.c.thread_id == _THREAD)
        .order_by(events.c.seq)
    )
    if last:
        head = sa.select(threads.c.last_seq).where(*_OF_THREAD).scalar_subquery()
        return statement.where(events.c.seq > head - sa.bindparam("in_last"))
    return statement.where(
        events.c.seq > sa.bindparam("in_after"), events.c.seq <= sa.bindparam("in_through")
    )


@lru_cache(maxsize=8)
def _page(kind: Dialect, *, last: bool, typed: bool) -> sa.Select[tuple[str, int, str, str]]:
    rows = _records(kind, last=last).subquery("records")
    facts = kind.joined(rows.c.fact) if typed else sa.null()
    page = sa.select(kind.joined(rows.c.record).label("records"), facts.label("facts")).subquery(
        "page"
    )
    return (
        sa.select(threads.c.subject_id, threads.c.last_seq, page.c.records, page.c.facts)
        .select_from(threads.join(page, sa.true()))
        .where(*_OF_THREAD)
    )


def read_events(
    db: Database,
    thread_id: str,
    *,
    after: int = 0,
    limit: int = 0,
    last: int | None = None,
    typed: bool = True,
) -> EventsRead | None:
    """Return the events of a range, with the thread's owner and head, in one statement.

    One value holds them all: to make a row of each costs as much as to read it. `facts` are
    empty unless `typed`.
    """
    values: dict[str, object] = {"in_tenant": db.tenant, "in_thread": thread_id, "in_last": last}
    if last is None:
        values |= {"in_after": after, "in_through": min(after + limit, MAX_INTEGER)}
    statement = _page(dialect_of(db.connection), last=last is not None, typed=typed)
    found = db.send(statement, values).first()
    if found is None:
        return None
    subject, head, records, facts = cast("tuple[str, int, str | None, str | None]", found)
    before = after if last is None else max(head - last, 0)
    return EventsRead(subject, head, before, records or "", facts or "")


def single_events(
    db: Database, thread_id: str, *, after: int, through: int
) -> Sequence[tuple[int, str, str]]:
    """Return the events of a range one by one: number, facts, read form."""
    found = db.rows(
        _records(dialect_of(db.connection)),
        {
            "in_tenant": db.tenant,
            "in_thread": thread_id,
            "in_after": after,
            "in_through": through,
        },
    )
    return cast("Sequence[tuple[int, str, str]]", found)


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
