"""Postgres: row locks, the server's clock, and plain events in one statement."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import array, insert

from engine_assistant.model.errors import ValidationFailed
from engine_assistant.model.machines import ThreadStatus, TurnState
from engine_assistant.model.rows import EventRow
from engine_assistant.model.times import truncated
from engine_assistant.store.columns import Instant, is_any_of
from engine_assistant.store.database import Database
from engine_assistant.store.dialect import Appending, Head
from engine_assistant.store.tables import events, threads

__all__ = ["POSTGRES"]

_SEPARATOR: Final = "\n"
"""JSON escapes control characters, so no body and no type holds one."""

# Constants stand in the text of the statement: each parameter costs the driver a microsecond.
_BETWEEN: Final = sa.literal_column("E'\\n'", sa.Text)
_ZERO: Final[sa.ColumnElement[int]] = sa.literal_column("0", sa.Integer)
_ONE: Final[sa.ColumnElement[int]] = sa.literal_column("1", sa.Integer)
_THOUSAND: Final[sa.ColumnElement[int]] = sa.literal_column("1000", sa.Integer)
_MILLISECONDS: Final = sa.literal_column("'milliseconds'", sa.Text)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_ONE_MOMENT: Final = ("repeatable read", "serializable")

# Never rounded: a rounded clock could stand before an expiry that has passed.
_CLOCK: Final = sa.func.date_trunc(_MILLISECONDS, sa.func.clock_timestamp(), type_=Instant())

_TENANT: Final = sa.bindparam("in_tenant", type_=sa.Text)
_THREAD: Final = sa.bindparam("in_thread", type_=sa.Text)
_COUNT: Final = sa.bindparam("in_count", type_=sa.BigInteger)
_NUMBER: Final = sa.bindparam("in_batch", type_=sa.BigInteger)


_SEEN: Final = (
    threads.c.tenant_id,
    threads.c.id,
    threads.c.status,
    threads.c.turn_state,
    threads.c.last_seq,
    threads.c.run_id,
    threads.c.fence,
    threads.c.stale_after,
    threads.c.last_batch,
)
"""What an append looks at."""


def _split(name: str) -> sa.Function[str]:
    return sa.func.string_to_array(sa.bindparam(name, type_=sa.Text), _BETWEEN)


def _batch(*names: str) -> sa.TableValuedAlias:
    """Return the batch as rows of text. The server splits it without looking inside."""
    return (
        sa.func.unnest(*(_split(f"in_{name}") for name in names))
        .table_valued(
            *(sa.column(name, sa.Text) for name in names),
            with_ordinality="ord",
            name="batch",
        )
        .render_derived()
    )


def _locked(
    *where: sa.ColumnElement[bool], columns: Iterable[sa.Column[Any]] = threads.c
) -> sa.CTE:
    """Return the lock as a first arm.

    NO KEY UPDATE, because FOR UPDATE deadlocks against the foreign keys of the children.
    """
    lock = sa.select(*columns).where(*where).with_for_update(key_share=True)
    return lock.cte("locked").prefix_with("MATERIALIZED")


def _append_statement(*, numbered: bool, injected: bool) -> sa.Select[tuple[object, ...]]:
    """Build the hot path: lock, then number and renew, then insert, in one statement.

    The guards look at the row that the lock arm returned, and the update joins it by key only:
    a guard on the table itself would see the snapshot from before a wait. For the same reason
    the clock stands on top of the locked row.
    """
    locked = _locked(threads.c.tenant_id == _TENANT, threads.c.id == _THREAD, columns=_SEEN)
    clock = sa.bindparam("in_now", type_=Instant()) if injected else _CLOCK
    seen = sa.select(locked, clock.label("now")).cte("seen").prefix_with("MATERIALIZED")
    guards = [
        seen.c.fence == sa.bindparam("in_fence"),
        seen.c.run_id == sa.bindparam("in_run"),
        is_any_of(seen.c.status, [ThreadStatus.OPEN]),
        is_any_of(seen.c.turn_state, [TurnState.OPEN]),
    ]
    if numbered:
        guards.append(seen.c.last_batch + _ONE == _NUMBER)
    head = (
        sa.update(threads)
        .where(threads.c.tenant_id == seen.c.tenant_id, threads.c.id == seen.c.id, *guards)
        .values(_head_values(seen, numbered=numbered))
        .returning(
            threads.c.last_seq,
            threads.c.turn,
            seen.c.now.label("now"),
            threads.c.interrupt_requested_at,
        )
        .cte("head")
    )
    batch = _batch("types", "bodies")
    added = (
        sa.insert(events)
        .from_select(
            [column.name for column in events.c],
            sa.select(
                _TENANT,
                _THREAD,
                head.c.last_seq - _COUNT + batch.c.ord,
                batch.c.types,
                head.c.turn,
                batch.c.bodies,
                head.c.now,
            ).select_from(head.join(batch, sa.true())),
        )
        .cte("added")
    )
    # One value: to describe a column costs as much as to read an event costs.
    answer = array(
        [
            head.c.last_seq,
            head.c.turn,
            sa.cast(sa.extract("epoch", head.c.now) * _THOUSAND, sa.BigInteger),
            sa.cast(head.c.interrupt_requested_at.is_not(None), sa.Integer),
        ]
    )
    return sa.select(answer).add_cte(added)


def _head_values(seen: sa.CTE, *, numbered: bool) -> dict[sa.Column[object], object]:
    """Return what an append makes of the thread row: its numbering, and its lease renewed."""
    full_time = sa.func.make_interval(*[_ZERO] * 6, seen.c.stale_after, type_=sa.Interval)
    values: dict[sa.Column[object], object] = {
        threads.c.last_seq: seen.c.last_seq + _COUNT,
        threads.c.lease_until: sa.func.date_trunc(_MILLISECONDS, seen.c.now + full_time),
    }
    if numbered:
        values |= {
            threads.c.last_batch: _NUMBER,
            threads.c.batch_digest: sa.bindparam("in_digest"),
            threads.c.batch_first_seq: seen.c.last_seq + _ONE,
            threads.c.batch_last_seq: seen.c.last_seq + _COUNT,
        }
    return values


_APPEND: Final = {
    (numbered, injected): _append_statement(numbered=numbered, injected=injected)
    for numbered in (False, True)
    for injected in (False, True)
}


def _insert_statement() -> sa.Insert:
    rows = _batch("types", "bodies", "turns")
    return sa.insert(events).from_select(
        [column.name for column in events.c],
        sa.select(
            _TENANT,
            _THREAD,
            sa.bindparam("in_before", type_=sa.BigInteger) + rows.c.ord,
            rows.c.types,
            sa.cast(rows.c.turns, sa.BigInteger),
            rows.c.bodies,
            sa.bindparam("in_now", type_=Instant()),
        ),
    )


_INSERT: Final = _insert_statement()


class _Postgres:
    """See `Dialect`."""

    def begin_write(self, db: Database) -> None:
        driver = db.connection.connection.driver_connection
        if getattr(driver, "autocommit", False):
            raise ValidationFailed(
                "This connection is in autocommit, so a lock would not outlast its statement."
                " Give the engine a connection inside a transaction.",
                path="connection",
            )

    def begin_snapshot(self, db: Database) -> None:
        driver = db.connection.connection.driver_connection
        level = str(db.rows(sa.text("SHOW transaction_isolation"))[0][0])
        if getattr(driver, "autocommit", False) or level not in _ONE_MOMENT:
            raise ValidationFailed(
                "This connection does not read one snapshot. Give it the isolation level"
                " REPEATABLE READ, as reading_engine(engine) does.",
                path="connection",
            )

    def lock(
        self, db: Database, where: Sequence[sa.ColumnElement[bool]]
    ) -> tuple[Sequence[object], datetime] | None:
        found = db.rows(sa.select(_locked(*where), _CLOCK))
        if not found:
            return None
        columns = found[0]
        now = truncated(db.clock()) if db.clock else cast("datetime", columns[-1])
        return columns[:-1], now

    def now(self, db: Database) -> datetime:
        if db.clock is not None:
            return truncated(db.clock())
        return cast("datetime", db.execute(sa.select(_CLOCK)).scalar_one())

    def append(self, db: Database, batch: Appending) -> Head | None:
        values: dict[str, object] = {
            "in_tenant": db.tenant,
            "in_thread": batch.thread_id,
            "in_fence": batch.fence,
            "in_run": batch.run_id,
            "in_count": len(batch.bodies),
            "in_types": _SEPARATOR.join(batch.types),
            "in_bodies": _SEPARATOR.join(batch.bodies),
        }
        numbered = batch.batch is not None
        if numbered:
            values |= {"in_batch": batch.batch, "in_digest": batch.digest}
        if db.clock is not None:
            # An injected clock is read after the lock, so the lock is a statement of its own.
            self.begin_write(db)
            key = (threads.c.tenant_id == db.tenant, threads.c.id == batch.thread_id)
            if self.lock(db, key) is None:
                return None
            values["in_now"] = truncated(db.clock())
        found = db.fetch(_APPEND[numbered, db.clock is not None], values)
        if not found:
            return None
        last_seq, turn, milliseconds, interrupted = cast("list[int]", found[0][0])
        now = _EPOCH + timedelta(milliseconds=milliseconds)
        return Head(last_seq, turn, now, interrupt_requested=bool(interrupted))

    def insert_events(self, db: Database, thread_id: str, rows: Sequence[EventRow]) -> None:
        first = rows[0]
        db.send(
            _INSERT,
            {
                "in_tenant": db.tenant,
                "in_thread": thread_id,
                "in_before": first.seq - 1,
                "in_types": _SEPARATOR.join(row.type for row in rows),
                "in_turns": _SEPARATOR.join(str(row.turn) for row in rows),
                "in_bodies": _SEPARATOR.join(row.body for row in rows),
                "in_now": first.created_at,
            },
        )

    def insert_new(self, db: Database, table: sa.Table, values: dict[str, object]) -> bool:
        statement = insert(table).values(values).on_conflict_do_nothing().returning(table.c[0])
        return db.execute(statement).one_or_none() is not None

    def as_text(self, moment: sa.ColumnElement[datetime]) -> sa.ColumnElement[str]:
        in_utc = sa.func.timezone(sa.literal_column("'UTC'", sa.Text), moment)
        form = sa.literal_column("""'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'""", sa.Text)
        return sa.func.to_char(in_utc, form, type_=sa.Text)


POSTGRES: Final = _Postgres()
