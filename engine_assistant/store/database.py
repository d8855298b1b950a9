"""One connection inside a transaction, bound to one tenant."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import cast

import sqlalchemy as sa

from engine_assistant.model.rows import MilestoneRow

__all__ = ["Database"]


@lru_cache(maxsize=64)
def _compiled(
    statement: sa.UpdateBase | sa.Select[tuple[object, ...]],
    dialect: sa.Dialect,
    schema: str | None,
) -> tuple[str, tuple[str, ...]]:
    """Return the text, and the names of its parameters where the driver takes them by position."""
    compiled = statement.compile(
        dialect=dialect,
        schema_translate_map=None if schema is None else {None: schema},
        render_schema_translate=schema is not None,
    )
    return str(compiled), tuple(getattr(compiled, "positiontup", None) or ())


@dataclass(frozen=True, slots=True)
class Database:
    """What every function of the store is given.

    Attributes:
        connection: the host's connection, or ours.
        tenant: stands in every key and every WHERE.
        schema: the schema of our tables, or None for the connection's default.
        clock: an injected clock, or None for the database's own.
        emit: where milestones go instead of our outbox table.
    """

    connection: sa.Connection
    tenant: str
    schema: str | None = None
    clock: Callable[[], datetime] | None = None
    emit: Callable[[Sequence[MilestoneRow]], None] | None = None

    def execute(
        self,
        statement: sa.Executable,
        parameters: Mapping[str, object] | Sequence[Mapping[str, object]] | None = None,
    ) -> sa.CursorResult[tuple[object, ...]]:
        """Run one statement in the schema of our tables."""
        options = {} if self.schema is None else {"schema_translate_map": {None: self.schema}}
        return self.connection.execute(statement, parameters, execution_options=options)

    def rows(
        self, statement: sa.Executable, parameters: Mapping[str, object] | None = None
    ) -> Sequence[Sequence[object]]:
        """Run one statement and return all its rows, each a sequence of columns."""
        return cast("Sequence[Sequence[object]]", self.execute(statement, parameters).all())

    def send(
        self,
        statement: sa.UpdateBase | sa.Select[tuple[object, ...]],
        values: Mapping[str, object] | Sequence[tuple[object, ...]],
    ) -> sa.CursorResult[tuple[object, ...]]:
        """Hand a statement that is always the same to the driver as it is.

        For the hot path: to look a statement up and to convert each value costs SQLAlchemy as
        much as an append costs the driver. The statement is one that lives as long as the process
        and has no parameters but those named, in the form in which the driver takes them; rows,
        for the driver's executemany, come in the order of its columns.
        """
        # Compiled text is translated by nobody, so the host's own map is asked here.
        mapped = self.connection.get_execution_options().get("schema_translate_map") or {}
        schema = self.schema or mapped.get(None)
        text, names = _compiled(statement, self.connection.dialect, schema)
        if isinstance(values, Mapping):
            by_place = tuple(values[name] for name in names)
            return self.connection.exec_driver_sql(text, by_place if names else dict(values))
        return self.connection.exec_driver_sql(text, list(values))
