"""The one place that asks which database this is."""

import sqlalchemy as sa

from engine_assistant.model.errors import ValidationFailed
from engine_assistant.store.dialect import Dialect
from engine_assistant.store.postgres import POSTGRES
from engine_assistant.store.sqlite import SQLITE

__all__ = ["dialect_of"]


def dialect_of(connection: sa.Connection) -> Dialect:
    """Return how this connection's database does things.

    Raises:
        ValidationFailed: it is neither Postgres (through psycopg) nor SQLite.
    """
    dialect = connection.dialect
    if dialect.name == "postgresql" and dialect.driver in ("psycopg", "psycopg_async"):
        return POSTGRES
    if dialect.name == "sqlite":
        return SQLITE
    raise ValidationFailed(
        "The engine needs Postgres through psycopg (postgresql+psycopg://) or SQLite, not"
        f" {dialect.name}+{dialect.driver}.",
        path="connection",
    )
