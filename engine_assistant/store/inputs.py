"""Reading messages: by key, by id, those that wait, and how the turn of one answered."""

from collections.abc import Sequence
from typing import Final, cast

import sqlalchemy as sa

from engine_assistant.model.fields import MAX_INTEGER
from engine_assistant.model.machines import InputState, Priority
from engine_assistant.model.rows import InputRow
from engine_assistant.store.columns import is_any_of
from engine_assistant.store.database import Database
from engine_assistant.store.dialects import dialect_of
from engine_assistant.store.pages import StoredEvent
from engine_assistant.store.reads import row_of
from engine_assistant.store.tables import events, inputs

__all__ = [
    "Place",
    "find_input",
    "find_input_by_key",
    "input_page",
    "place_of",
    "queued_inputs",
    "read_answer",
]

Place = tuple[int, int, int, int, int, str]
"""Where a message stands among those of its thread, see `place_of`."""

_HELD: Final = (InputState.OPENED, InputState.ABSORBED)


def _rows(
    db: Database, thread_id: str, *where: sa.ColumnElement[bool]
) -> sa.Select[tuple[object, ...]]:
    return sa.select(inputs).where(
        inputs.c.tenant_id == db.tenant, inputs.c.thread_id == thread_id, *where
    )


def _one(db: Database, statement: sa.Select[tuple[object, ...]]) -> InputRow | None:
    found = db.rows(statement)
    return row_of(InputRow, found[0]) if found else None


def find_input(db: Database, thread_id: str, input_id: str) -> InputRow | None:
    """Return one message of a thread."""
    return _one(db, _rows(db, thread_id, inputs.c.id == input_id))


def find_input_by_key(db: Database, thread_id: str, author: str, key: str) -> InputRow | None:
    """Return the message that this person sent under `key`."""
    return _one(db, _rows(db, thread_id, inputs.c.author_id == author, inputs.c.key == key))


def queued_inputs(db: Database, thread_id: str) -> list[InputRow]:
    """Return the messages that wait, in no order. They are at most as many as may wait."""
    waiting = _rows(db, thread_id, is_any_of(inputs.c.state, [InputState.QUEUED]))
    return [row_of(InputRow, row) for row in db.rows(waiting)]


_ORDER: Final = (
    sa.case(
        (is_any_of(inputs.c.state, _HELD), 0),
        (is_any_of(inputs.c.state, [InputState.QUEUED]), 1),
        else_=2,
    ),
    inputs.c.first_seq,
    sa.case((is_any_of(inputs.c.priority, [Priority.NEXT]), 0), else_=1),
    inputs.c.joins,
    inputs.c.position,
    inputs.c.id,
)


def place_of(row: InputRow) -> Place:
    """Return where a message stands: as the log has it, then those that wait, then the rest."""
    waits = 1 if row.state is InputState.QUEUED else 2
    return (
        0 if row.state in _HELD else waits,
        row.first_seq,
        0 if row.priority is Priority.NEXT else 1,
        row.joins,
        row.position,
        row.id,
    )


def input_page(
    db: Database, thread_id: str, *, state: InputState | None, limit: int, after: Place | None
) -> list[InputRow]:
    """Return messages of a thread in the order of `place_of`, after a place."""
    statement = _rows(db, thread_id).order_by(*_ORDER).limit(limit)
    if state is not None:
        statement = statement.where(is_any_of(inputs.c.state, [state]))
    if after is not None:
        statement = statement.where(sa.tuple_(*_ORDER) > sa.tuple_(*after))
    return [row_of(InputRow, row) for row in db.rows(statement)]


def read_answer(db: Database, row: InputRow) -> Sequence[StoredEvent]:
    """Return what the turn of a message said, and how it ended, in one statement.

    A turn lies between its turn-start and the next. Both are found from the message on, so only
    the events of this turn are read, however long the thread is.
    """
    own = (events.c.tenant_id == db.tenant, events.c.thread_id == row.thread_id)
    starts = (*own, events.c.type == "turn-start")
    begins = sa.select(sa.func.max(events.c.seq)).where(*starts, events.c.seq <= row.last_seq)
    follows = sa.select(sa.func.min(events.c.seq)).where(*starts, events.c.seq > row.last_seq)
    last = sa.literal(MAX_INTEGER, sa.BigInteger)
    statement = (
        sa.select(
            events.c.seq,
            events.c.type,
            events.c.turn,
            events.c.body,
            dialect_of(db.connection).as_text(events.c.created_at),
        )
        .where(
            *own,
            events.c.seq > begins.scalar_subquery(),
            events.c.seq < sa.func.coalesce(follows.scalar_subquery(), last),
            events.c.type.in_(["text-delta", "turn-finish", "turn-error"]),
        )
        .order_by(events.c.seq)
    )
    return cast("Sequence[StoredEvent]", db.rows(statement))
