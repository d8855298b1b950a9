"""How values stand in columns, the same in meaning on both databases."""

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from engine_assistant.model.errors import Internal
from engine_assistant.model.times import from_text, to_text

__all__ = [
    "IDENTITY",
    "Instant",
    "State",
    "any_of",
    "counter",
    "is_any_of",
    "key",
    "number",
    "of_thread",
    "partial",
]

IDENTITY: Final = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
"""Text that compares bytewise: two ids are equal only if their bytes are."""

E = TypeVar("E", bound=StrEnum)


class Instant(TypeDecorator[datetime]):
    """An aware UTC time: TIMESTAMPTZ on Postgres, 24 bytes of text on SQLite.

    The bind and result types are told apart from Text so that arithmetic stays arithmetic.
    """

    impl = sa.TIMESTAMP(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[datetime] | TypeEngine[str]:
        """Choose the column type."""
        if dialect.name == "sqlite":
            return dialect.type_descriptor(sa.Text())
        return dialect.type_descriptor(sa.TIMESTAMP(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> object:
        """Write the text form on SQLite."""
        if value is None or dialect.name != "sqlite":
            return value
        return to_text(value)

    def process_result_value(self, value: object, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Read either form as aware UTC, whatever zone the session has."""
        if isinstance(value, str):
            return from_text(value)
        return value.astimezone(UTC) if isinstance(value, datetime) else None


class State(TypeDecorator[E], Generic[E]):
    """A state, stored as its word. A word that no enum knows is an error, not a value."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, states: type[E]) -> None:
        """Read words as members of `states`."""
        super().__init__()
        self.states = states

    def process_bind_param(self, value: E | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Write the word."""
        return None if value is None else value.value

    def process_result_value(self, value: str | None, dialect: Dialect) -> E | None:  # noqa: ARG002
        """Read the member."""
        if value is None:
            return None
        try:
            return self.states(value)
        except ValueError:
            raise Internal(
                "The record holds a state that no machine knows.", machine=self.states.__name__
            ) from None


def any_of(column: str, states: Iterable[StrEnum]) -> str:
    """Return the SQL condition that `column` holds one of `states`, with the words spelled out.

    Spelled out, because a partial index is only used for a condition known when planning.
    """
    words = ", ".join(f"'{state.value}'" for state in states)
    return f"{column} IN ({words})"


def is_any_of(column: sa.ColumnElement[E], states: Iterable[E]) -> sa.ColumnElement[bool]:
    """Return the same condition as an expression, with the words spelled out as well."""
    words: list[sa.ColumnClause[E]] = [sa.literal_column(f"'{state.value}'") for state in states]
    # SQLite takes a partial index for `=` where it does not for IN with one word.
    return column == words[0] if len(words) == 1 else column.in_(words)


def key(name: str) -> sa.Column[str]:
    """Return a part of a primary key."""
    return sa.Column(name, IDENTITY, primary_key=True)


def number(name: str, *, null: bool = False) -> sa.Column[int]:
    """Return a number."""
    return sa.Column(name, sa.BigInteger, nullable=null)


def counter(name: str) -> sa.Column[int]:
    """Return a number that an older writer, who does not know it, leaves at zero."""
    return sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text("0"))


def of_thread() -> sa.ForeignKeyConstraint:
    """Return the reference of a row to its thread."""
    return sa.ForeignKeyConstraint(
        ["tenant_id", "thread_id"], ["assistant_threads.tenant_id", "assistant_threads.id"]
    )


def partial(name: str, *columns: str, where: str) -> sa.Index:
    """Return an index over those rows for which `where` holds."""
    return sa.Index(name, *columns, postgresql_where=sa.text(where), sqlite_where=sa.text(where))
