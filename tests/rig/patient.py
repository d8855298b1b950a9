"""A healthy record that a test may harm by plain SQL: what it does is rolled back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa

from engine_assistant.doctor import Code, Finding, Report, examine
from engine_assistant.engines import make_engine
from tests.rig.record import TENANT, Record

# Whoever harms a database does not stop at its constraints.
_UNCHECKED = """
DO $$ DECLARE it record; BEGIN
  FOR it IN SELECT conrelid::regclass AS t, conname AS n FROM pg_constraint
             WHERE contype = 'c' AND conrelid::regclass::text LIKE 'assistant_%%'
  LOOP EXECUTE format('ALTER TABLE %%s DROP CONSTRAINT %%I', it.t, it.n); END LOOP;
END $$"""


@dataclass(frozen=True)
class Harm:
    """What is done to one thread, and what the doctor must say of it, and where.

    In the SQL `{t}` stands for the thread's id.
    """

    thread: str
    code: Code
    where: str
    sql: tuple[str, ...]


def harm(thread: str, code: Code, where: str, *sql: str) -> Harm:
    return Harm(thread, code, where, sql)


def change(table: str, values: str, where: str = "") -> str:
    """Update rows of the thread."""
    return f"UPDATE assistant_{table} SET {values} WHERE {_mine(table)}{_also(where)}"


def remove(table: str, where: str = "") -> str:
    """Delete rows of the thread."""
    return f"DELETE FROM assistant_{table} WHERE {_mine(table)}{_also(where)}"


def event(seq: int, values: str) -> str:
    """Update one event of the thread."""
    return change("events", values, f"seq = {seq}")


def body(seq: int, old: str, new: str) -> str:
    """Replace a piece of an event's body."""
    return event(seq, f"body = replace(body, '{old}', '{new}')")


def becomes(seq: int, kind: str, text: str) -> str:
    """Make another event of one that is there."""
    return event(seq, f"type = '{kind}', body = '{text}'")


def added(
    seq: int, kind: str, text: str, turn: int = 1, at: str = "2030-01-01T01:00:00.000Z"
) -> str:
    """Add an event to the thread."""
    values = f"'{TENANT}', '{{t}}', {seq}, '{kind}', {turn}, '{text}', '{at}'"
    columns = "tenant_id, thread_id, seq, type, turn, body, created_at"
    return f"INSERT INTO assistant_events ({columns}) VALUES ({values})"


def headed(seq: int) -> str:
    """Move the head."""
    return change("threads", f"last_seq = {seq}")


def copied(table: str, columns: str, values: str, where: str) -> str:
    """Add a row that is like another one but for some columns."""
    return (
        f"INSERT INTO assistant_{table} ({columns}) SELECT {values} FROM assistant_{table}"
        f" WHERE {_mine(table)}{_also(where)}"
    )


def _mine(table: str) -> str:
    return "id = '{t}'" if table == "threads" else "thread_id = '{t}'"


def _also(where: str) -> str:
    return f" AND {where}" if where else ""


@dataclass(frozen=True)
class Patient:
    """A connection inside a transaction that is never committed."""

    record: Record
    connection: sa.Connection

    def suffer(self, thread: str, *sql: str) -> None:
        for statement in sql:
            text = statement.replace("{t}", self.record.threads[thread])
            self.connection.exec_driver_sql(text)

    def examined(self, thread: str | None = None) -> tuple[list[Finding], Report]:
        """Answer what the doctor finds in one thread, or in all of them, and its totals."""
        reports: list[Report] = []
        thread_id = None if thread is None else self.record.threads[thread]
        found = list(examine(self.connection, thread_id=thread_id, progress=reports.append))
        return found, reports[-1]


@contextmanager
def admitted(record: Record) -> Iterator[Patient]:
    """Open a record to be harmed, with no constraint that could prevent it."""
    if record.engine.dialect.name == "sqlite":
        engine = sa.create_engine(record.engine.url)
        first = ("PRAGMA ignore_check_constraints = ON", "BEGIN")
    else:
        url = record.engine.url.render_as_string(hide_password=False)
        engine = make_engine(url).execution_options(isolation_level="REPEATABLE READ")
        first = ("SET LOCAL session_replication_role = replica", _UNCHECKED)
    try:
        with engine.connect() as connection:
            connection.begin()
            for statement in first:
                connection.exec_driver_sql(statement)
            yield Patient(record, connection)
            connection.rollback()
    finally:
        engine.dispose()
