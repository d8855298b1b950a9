"""Reading the record as it is stored, in pages, whatever is wrong with it.

States are read as their words and times as their text: a word that no machine knows must be
found, not stumbled over.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from engine_assistant.engines import BEGIN_OPTION, DEFERRED
from engine_assistant.store.columns import Instant, State
from engine_assistant.store.database import Database
from engine_assistant.store.dialects import dialect_of
from engine_assistant.store.tables import METADATA, events, files, threads

__all__ = [
    "CHILDREN",
    "PAGE",
    "Columns",
    "Key",
    "Scope",
    "StoredEvent",
    "event_pages",
    "files_by_id",
    "reading_engine",
    "rows_of",
    "stray_keys",
    "thread_keys",
    "thread_row",
]

PAGE: Final = 100
"""Rows that are in memory at a time. A row may hold 256 KiB."""

CHILDREN: Final = tuple(table for table in METADATA.sorted_tables if table is not threads)
"""Every table whose rows belong to a thread."""

Columns = Mapping[str, object]
"""One row by column name."""

Key = tuple[str, str]
"""Tenant and thread id."""

E = TypeVar("E", sa.Engine, AsyncEngine)


def reading_engine(engine: E) -> E:
    """Return the engine with transactions that see one snapshot, write nothing and lock nothing.

    On Postgres they are REPEATABLE READ and READ ONLY; on a prepared SQLite engine they begin
    with a plain BEGIN. The pool is the same.
    """
    if engine.dialect.name == "sqlite":
        return engine.execution_options(**{BEGIN_OPTION: DEFERRED})
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


@dataclass(frozen=True, slots=True)
class Scope:
    """Which threads are meant: all, those of a tenant, or those of one id."""

    tenant: str | None = None
    thread_id: str | None = None

    def within(
        self, tenant: sa.Column[str], thread: sa.Column[str], after: Key | None
    ) -> list[sa.ColumnElement[bool]]:
        """Return the conditions on the two columns of a key: in scope, and after `after`."""
        wanted: list[sa.ColumnElement[bool]] = []
        if self.tenant is not None:
            wanted.append(tenant == self.tenant)
        if self.thread_id is not None:
            wanted.append(thread == self.thread_id)
        if after is not None:
            wanted.append(sa.tuple_(tenant, thread) > sa.tuple_(*after))
        return wanted


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as it stands in its row."""

    seq: int
    type: object
    turn: object
    body: object
    at: object

    @property
    def where(self) -> str:
        """Return its place, for a finding."""
        return f"event {self.seq}"


def _readable(db: Database, table: sa.Table) -> list[sa.ColumnElement[str] | sa.Column[object]]:
    """Return the columns in a form that can be read whatever stands in them."""
    as_text = dialect_of(db.connection).as_text
    columns: list[sa.ColumnElement[str] | sa.Column[object]] = []
    for column in table.c:
        if isinstance(column.type, Instant):
            columns.append(as_text(column).label(column.name))
        elif isinstance(column.type, State):
            columns.append(sa.type_coerce(column, sa.Text).label(column.name))
        else:
            columns.append(column)
    return columns


def _mappings(db: Database, statement: sa.Executable) -> Sequence[Columns]:
    return cast("Sequence[Columns]", db.execute(statement).mappings().all())


def thread_keys(db: Database, scope: Scope, after: Key | None) -> list[Key]:
    """Return the next page of threads in key order."""
    key = (threads.c.tenant_id, threads.c.id)
    statement = sa.select(*key).where(*scope.within(*key, after)).order_by(*key).limit(PAGE)
    return [(row[0], row[1]) for row in cast("Sequence[Key]", db.rows(statement))]


def stray_keys(
    db: Database, table: sa.Table, scope: Scope, after: Key | None, until: Key | None
) -> list[Key]:
    """Return threads that rows of `table` belong to and that do not exist, in key order."""
    key = (table.c.tenant_id, table.c.thread_id)
    owner = sa.select(sa.literal(1)).where(threads.c.tenant_id == key[0], threads.c.id == key[1])
    wanted = [*scope.within(*key, after), ~owner.exists()]
    if until is not None:
        wanted.append(sa.tuple_(*key) <= sa.tuple_(*until))
    statement = sa.select(*key).where(*wanted).distinct().order_by(*key).limit(PAGE)
    return [(row[0], row[1]) for row in cast("Sequence[Key]", db.rows(statement))]


def thread_row(db: Database, thread_id: str) -> Columns | None:
    """Return the row of one thread."""
    statement = sa.select(*_readable(db, threads)).where(
        threads.c.tenant_id == db.tenant, threads.c.id == thread_id
    )
    found = _mappings(db, statement)
    return found[0] if found else None


def rows_of(db: Database, table: sa.Table, thread_id: str, *key: str) -> Iterator[Columns]:
    """Walk the rows of a thread in the order of `key`, which names them within the thread."""
    order = [table.c[name] for name in key]
    page = (
        sa.select(*_readable(db, table))
        .where(table.c.tenant_id == db.tenant, table.c.thread_id == thread_id)
        .order_by(*order)
        .limit(PAGE)
    )
    statement = page
    while True:
        found = _mappings(db, statement)
        yield from found
        if len(found) < PAGE:
            return
        last = [sa.literal(found[-1][column.name], column.type) for column in order]
        statement = page.where(sa.tuple_(*order) > sa.tuple_(*last))


def event_pages(db: Database, thread_id: str) -> Iterator[list[StoredEvent]]:
    """Walk the events of a thread in pages.

    A page is a range of numbers, which stays an index range scan however long the thread is. Where
    numbers are missing the walk goes on with the next one that there is.
    """
    after: int | None = None
    full = False
    while True:
        first = after + 1 if full and after is not None else _next_number(db, thread_id, after)
        if first is None:
            return
        page = _numbered(db, thread_id, first)
        if page:
            yield page
            after = page[-1].seq
        full = len(page) == PAGE


def _next_number(db: Database, thread_id: str, after: int | None) -> int | None:
    statement = sa.select(sa.func.min(events.c.seq)).where(
        events.c.tenant_id == db.tenant, events.c.thread_id == thread_id
    )
    if after is not None:
        statement = statement.where(events.c.seq > after)
    return cast("int | None", db.rows(statement)[0][0])


def _numbered(db: Database, thread_id: str, first: int) -> list[StoredEvent]:
    at = dialect_of(db.connection).as_text(events.c.created_at)
    statement = (
        sa.select(events.c.seq, events.c.type, events.c.turn, events.c.body, at)
        .where(
            events.c.tenant_id == db.tenant,
            events.c.thread_id == thread_id,
            events.c.seq >= first,
            events.c.seq < first + PAGE,
        )
        .order_by(events.c.seq)
    )
    return [StoredEvent(cast("int", row[0]), *row[1:]) for row in db.rows(statement)]


def files_by_id(db: Database, thread_id: str, ids: Collection[str]) -> dict[object, Columns]:
    """Return those of the named files that belong to the thread."""
    if not ids:
        return {}
    statement = sa.select(*_readable(db, files)).where(
        files.c.tenant_id == db.tenant, files.c.thread_id == thread_id, files.c.id.in_(sorted(ids))
    )
    return {row["id"]: row for row in _mappings(db, statement)}
