"""The examination: every thread in key order, each inside one snapshot, nothing written.

A thread is read in the transaction that it is judged in, so that a system which goes on writing
gives no false finding. Between threads the snapshot is let go: an examination of days holds back
no cleaning of the database.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import sqlalchemy as sa

from engine_assistant.context import refuse_other_ids
from engine_assistant.doctor import log, reading, rows, threads, turns
from engine_assistant.doctor.compactions import Cuts
from engine_assistant.doctor.derived import Derived
from engine_assistant.doctor.findings import Code, Finding, Notes, Progress, Report
from engine_assistant.doctor.inputs import Inputs
from engine_assistant.doctor.milestones import Milestones
from engine_assistant.doctor.reading import Columns, Key, Scope
from engine_assistant.doctor.runs import check_context, check_fences, check_runs
from engine_assistant.model.errors import NotFound
from engine_assistant.model.events import UserMessage
from engine_assistant.model.machines import ThreadStatus
from engine_assistant.model.milestones import MilestoneType
from engine_assistant.model.parts import FilePart
from engine_assistant.store.database import Database
from engine_assistant.store.dialects import dialect_of
from engine_assistant.store.tables import (
    approvals,
    compactions,
    contexts,
    inputs,
    outbox,
    runs,
    tool_calls,
)

__all__ = ["examine", "examine_held"]


@dataclass(slots=True)
class _Totals:
    threads: int = 0
    events: int = 0
    unknown_events: int = 0
    calls: int = 0
    approvals: int = 0
    findings: int = 0

    def report(self) -> Report:
        return Report(
            threads=self.threads,
            events=self.events,
            unknown_events=self.unknown_events,
            calls=self.calls,
            approvals=self.approvals,
            findings=self.findings,
        )


def examine(
    connection: sa.Connection,
    *,
    schema: str | None = None,
    tenant: str | None = None,
    thread_id: str | None = None,
    progress: Progress | None = None,
) -> Iterator[Finding]:
    """Examine threads one by one and return what is wrong with them, as it is found.

    Everything is read and nothing is written or locked. What rows must hold is derived from the
    events alone, not by the rules that wrote them. Memory does not grow with the number of
    threads or events; a thread takes some hundred bytes for each of its calls and messages.

    The doctor must be of the release that writes, or of a newer one: events of types that it does
    not know are counted, but what they moved is not.

    Args:
        connection: one that is not in a transaction, of an engine made by `reading_engine`. Inside
            a transaction of the caller's everything is read in that one.
        schema: the schema of the tables, when it is not the connection's default.
        tenant: only this tenant's threads.
        thread_id: only threads of this id.
        progress: told the totals after each thread, and at the end.

    Raises:
        NotFound: there is no thread of this id.
        ValidationFailed: a name can be no id, or the connection's transactions do not see one
            snapshot.
    """
    refuse_other_ids(tenant=tenant, thread_id=thread_id)
    scope, totals = Scope(tenant, thread_id), _Totals()
    everywhere = Database(connection, "", schema=schema)
    after: Key | None = None
    while True:
        with _snapshot(everywhere):
            keys = reading.thread_keys(everywhere, scope, after)
        for key in keys:
            with _snapshot(everywhere):
                yield from _counted(
                    _thread(replace(everywhere, tenant=key[0]), key, totals), totals
                )
            if progress is not None:
                progress(totals.report())
        until = keys[-1] if len(keys) == reading.PAGE else None
        yield from _counted(_strays(everywhere, scope, after, until), totals)
        if until is None:
            break
        after = until
    if progress is not None:
        progress(totals.report())
    if thread_id is not None and not totals.threads and not totals.findings:
        raise NotFound("There is no thread of this id.")


def examine_held(db: Database, thread_id: str) -> Iterator[Finding]:
    """Examine one thread in a transaction in which nobody else can write to it."""
    yield from _thread(db, (db.tenant, thread_id), _Totals())


@contextmanager
def _snapshot(db: Database) -> Iterator[None]:
    """Read in one transaction: the caller's, or one of our own."""
    dialect = dialect_of(db.connection)
    if db.connection.in_transaction():
        dialect.begin_snapshot(db)
        yield
        return
    with db.connection.begin():
        dialect.begin_snapshot(db)
        yield


def _counted(findings: Iterator[Finding], totals: _Totals) -> Iterator[Finding]:
    for finding in findings:
        totals.findings += 1
        yield finding


def _strays(db: Database, scope: Scope, after: Key | None, until: Key | None) -> Iterator[Finding]:
    """Find rows between two threads that belong to no thread at all."""
    for table in reading.CHILDREN:
        last = after
        while True:
            with _snapshot(db):
                keys = reading.stray_keys(db, table, scope, last, until)
            for tenant, thread_id in keys:
                yield Finding(
                    tenant=tenant,
                    thread_id=thread_id,
                    code=Code.STRAY,
                    where="thread",
                    message=f"Rows of {table.name} belong to it, and it does not exist.",
                )
            if len(keys) < reading.PAGE:
                break
            last = keys[-1]


def _thread(db: Database, key: Key, totals: _Totals) -> Iterator[Finding]:
    """Examine one thread."""
    row = reading.thread_row(db, key[1])
    if row is None:  # Erased since it was listed.
        return
    notes = Notes(*key)
    closed_at = row["closed_at"] if row["status"] == ThreadStatus.CLOSED else None
    derived = Derived(
        origin=str(row["origin_tenant"] or key[0]),
        thread_id=key[1],
        imported_seq=threads.imported_seq(row),
        notes=notes,
        milestones=Milestones(
            reading.rows_of(db, outbox, key[1], "n"),
            notes,
            thread=key[1],
            subject=str(row["subject_id"]),
        ),
        last_active_at=str(row["created_at"]),
        closed_at=None if closed_at is None else str(closed_at),
    )
    totals.threads += 1
    derived.milestones.expect(MilestoneType.THREAD_CREATED, str(row["created_at"]))
    yield from _log(db, derived, row, totals)
    yield from _beside(db, derived, row, totals)


def _log(db: Database, derived: Derived, row: Columns, totals: _Totals) -> Iterator[Finding]:
    """Follow the events, and compare the thread row with them."""
    batch = threads.Batch(row)
    cuts = Cuts(derived.notes, reading.rows_of(db, compactions, derived.thread_id, "n"))
    for page in reading.event_pages(db, derived.thread_id):
        totals.events += len(page)
        known = log.follow(derived, page)
        for stored in page:
            batch.take(stored, known.get(stored.seq))
            cuts.take(known.get(stored.seq), stored.seq)
        said = ((seq, event) for seq, event in known.items() if isinstance(event, UserMessage))
        _files(db, derived, {f"event {seq}": event.files or () for seq, event in said})
        yield from derived.notes.drain()
    totals.unknown_events += derived.unknown_events
    turns.end(derived)
    if derived.closed_at is not None:
        derived.milestones.expect(MilestoneType.THREAD_CLOSED, derived.closed_at)
    derived.milestones.finish(row["milestones"])
    threads.check_thread(derived, row)
    batch.check(derived.notes, derived.last_seq)
    cuts.finish(derived.last_seq)
    yield from derived.notes.drain()


def _beside(db: Database, derived: Derived, row: Columns, totals: _Totals) -> Iterator[Finding]:
    """Compare the rows beside the log with it."""
    thread_id, notes = derived.thread_id, derived.notes
    held = check_runs(derived, row, reading.rows_of(db, runs, thread_id, "fence"))
    for call in reading.rows_of(db, tool_calls, thread_id, "call_id"):
        totals.calls += 1
        rows.check_call(derived, call, closed=derived.closed_at is not None)
        yield from notes.drain()
    check_fences(derived, held, row["fence"])
    check_context(notes, row, reading.rows_of(db, contexts, thread_id, "turn"))
    key = ("call_id", "request_seq", "approver_id")
    for approval in reading.rows_of(db, approvals, thread_id, *key):
        totals.approvals += 1
        rows.check_approval(derived, approval)
        yield from notes.drain()
    messages = Inputs(derived)
    for receipt in reading.rows_of(db, inputs, thread_id, "id"):
        messages.check(receipt)
        yield from notes.drain()
    messages.finish(row)
    _files(db, derived, messages.files)
    rows.missing(derived)
    yield from notes.drain()


def _files(db: Database, derived: Derived, named: Mapping[str, tuple[FilePart, ...]]) -> None:
    """Look for the files that messages name, in one statement."""
    parts = {part.id for files in named.values() for part in files}
    rows.check_files(derived, named, reading.files_by_id(db, derived.thread_id, parts))
