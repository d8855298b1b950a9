"""SQLite: one writer at a time, our own clock, and rows written by the driver's executemany."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, cast

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert

from engine_assistant.model.errors import ValidationFailed
from engine_assistant.model.machines import ThreadStatus, TurnState
from engine_assistant.model.rows import EventRow
from engine_assistant.model.times import to_text, truncated
from engine_assistant.store.columns import is_any_of
from engine_assistant.store.database import Database
from engine_assistant.store.dialect import Appending, Head
from engine_assistant.store.tables import events, threads

__all__ = ["SQLITE"]

_ONE: Final[sa.ColumnElement[int]] = sa.literal_column("1", sa.Integer)


def _append_statement(*, numbered: bool) -> sa.Update:
    """Build the head of a plain append: guards, numbering and renewal in one UPDATE."""
    count = sa.bindparam("in_count", type_=sa.BigInteger)
    until = sa.func.strftime(
        sa.literal_column("'%Y-%m-%dT%H:%M:%fZ'"),
        sa.bindparam("in_now", type_=sa.Text),
        sa.func.printf(sa.literal_column("'+%.3f seconds'"), threads.c.stale_after),
        type_=sa.Text,
    )
    values = {threads.c.last_seq: threads.c.last_seq + count, threads.c.lease_until: until}
    guards = [
        threads.c.tenant_id == sa.bindparam("in_tenant"),
        threads.c.id == sa.bindparam("in_thread"),
        threads.c.fence == sa.bindparam("in_fence"),
        threads.c.run_id == sa.bindparam("in_run"),
        is_any_of(threads.c.status, [ThreadStatus.OPEN]),
        is_any_of(threads.c.turn_state, [TurnState.OPEN]),
    ]
    if numbered:
        batch = sa.bindparam("in_batch", type_=sa.BigInteger)
        guards.append(threads.c.last_batch + _ONE == batch)
        values |= {
            threads.c.last_batch: batch,
            threads.c.batch_digest: sa.bindparam("in_digest"),
            threads.c.batch_first_seq: threads.c.last_seq + _ONE,
            threads.c.batch_last_seq: threads.c.last_seq + count,
        }
    return (
        sa.update(threads)
        .where(*guards)
        .values(values)
        .returning(threads.c.last_seq, threads.c.turn, threads.c.interrupt_requested_at)
    )


_APPEND: Final = {numbered: _append_statement(numbered=numbered) for numbered in (False, True)}
_INSERT: Final = sa.insert(events)


class _Sqlite:
    """See `Dialect`."""

    def begin_write(self, db: Database) -> None:
        driver = db.connection.connection.driver_connection
        if driver is None:
            return
        if not db.connection.in_transaction():
            # What SQLAlchemy does on the first statement. A prepared engine begins IMMEDIATE.
            db.connection.begin()
        legacy = driver.isolation_level is not None
        if legacy and db.connection.in_nested_transaction():
            raise ValidationFailed(
                "On this SQLite engine a savepoint would keep the write when the transaction"
                " around it rolls back. Call prepare_sqlite(engine) when you create the engine.",
                path="connection",
            )
        if driver.in_transaction:
            return
        if not legacy:
            raise ValidationFailed(
                "This SQLite connection is in autocommit, so a lock would not outlast its"
                " statement. Call prepare_sqlite(engine), or do not use AUTOCOMMIT.",
                path="connection",
            )
        db.connection.exec_driver_sql("BEGIN IMMEDIATE")

    def begin_snapshot(self, db: Database) -> None:
        driver = db.connection.connection.driver_connection
        if driver is not None and not driver.in_transaction:
            # A driver left to its own habit begins nothing for a read.
            db.connection.exec_driver_sql("BEGIN")

    def lock(
        self, db: Database, where: Sequence[sa.ColumnElement[bool]]
    ) -> tuple[Sequence[object], datetime] | None:
        # A write that changes nothing takes the file's write lock before anything is read.
        statement = sa.update(threads).where(*where).values(id=threads.c.id).returning(*threads.c)
        found = db.rows(statement)
        return (found[0], self.now(db)) if found else None

    def now(self, db: Database) -> datetime:
        return truncated(db.clock() if db.clock else datetime.now(UTC))

    def append(self, db: Database, batch: Appending) -> Head | None:
        self.begin_write(db)
        now = self.now(db)
        at = to_text(now)
        values: dict[str, object] = {
            "in_tenant": db.tenant,
            "in_thread": batch.thread_id,
            "in_fence": batch.fence,
            "in_run": batch.run_id,
            "in_count": len(batch.bodies),
            "in_now": at,
            "in_batch": batch.batch,
            "in_digest": batch.digest,
        }
        found = db.fetch(_APPEND[batch.batch is not None], values)
        if not found:
            return None
        last_seq, turn, interrupted = cast("tuple[int, int, str | None]", found[0])
        first = last_seq - len(batch.bodies) + 1
        pairs = enumerate(zip(batch.types, batch.bodies, strict=True), first)
        self._insert(
            db,
            batch.thread_id,
            [(seq, kind, turn, body, at) for seq, (kind, body) in pairs],
        )
        return Head(last_seq, turn, now, interrupt_requested=interrupted is not None)

    def insert_events(self, db: Database, thread_id: str, rows: Sequence[EventRow]) -> None:
        self._insert(
            db,
            thread_id,
            [(row.seq, row.type, row.turn, row.body, to_text(row.created_at)) for row in rows],
        )

    def _insert(self, db: Database, thread_id: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Write by the driver's executemany: the fastest there is."""
        key = (db.tenant, thread_id)
        db.send_rows(_INSERT, [key + row for row in rows])

    def insert_new(self, db: Database, table: sa.Table, values: dict[str, object]) -> bool:
        statement = insert(table).values(values).on_conflict_do_nothing().returning(table.c[0])
        return db.execute(statement).one_or_none() is not None

    def as_text(self, moment: sa.ColumnElement[datetime]) -> sa.ColumnElement[str]:
        return sa.type_coerce(moment, sa.Text)


SQLITE: Final = _Sqlite()
