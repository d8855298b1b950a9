"""One connection inside a transaction, bound to one tenant."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias, cast
from weakref import WeakKeyDictionary

import sqlalchemy as sa

from engine_assistant.model.rows import MilestoneRow

__all__ = ["Database"]


_Fixed: TypeAlias = (
    sa.UpdateBase | sa.Select[tuple[object, ...]] | sa.CompoundSelect[tuple[object, ...]]
)
"""A statement that is made once and lives as long as the process."""


class _Text(NamedTuple):
    """A statement as a driver takes it."""

    text: str
    names: tuple[str, ...]
    """The parameters in order."""
    by_name: bool
    """Whether the driver takes them by name."""


_TEXTS: Final[WeakKeyDictionary[sa.Dialect, dict[tuple[_Fixed, str | None], _Text]]] = (
    WeakKeyDictionary()
)
"""What was compiled, for as long as the engine that it was compiled for."""


def _text_of(statement: _Fixed, dialect: sa.Dialect, schema: str | None) -> _Text:
    texts = _TEXTS.setdefault(dialect, {})
    found = texts.get((statement, schema))
    if found is None:
        compiled = statement.compile(
            dialect=dialect,
            schema_translate_map=None if schema is None else {None: schema},
            render_schema_translate=schema is not None,
        )
        places = getattr(compiled, "positiontup", None)
        names = tuple(compiled.params if places is None else places)
        found = texts[statement, schema] = _Text(str(compiled), names, places is None)
    return found


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

    def send(self, statement: _Fixed, values: Mapping[str, object]) -> None:
        """Hand a fixed statement to the driver as text. It answers no rows.

        For the hot path: to look a statement up and to convert each value costs SQLAlchemy as
        much as an append costs the driver. Values come in the form in which the driver takes them.
        """
        self._send(statement, values)

    def fetch(
        self, statement: _Fixed, values: Mapping[str, object]
    ) -> Sequence[tuple[object, ...]]:
        """Do the same, and return all rows as the driver made them: values, not converted."""
        result = self._send(statement, values)
        # What `result.all()` does, without making an object of each row.
        rows = result.cursor_strategy.fetchall(result, result.cursor)
        return cast("Sequence[tuple[object, ...]]", rows)

    def _send(
        self, statement: _Fixed, values: Mapping[str, object]
    ) -> sa.CursorResult[tuple[object, ...]]:
        text, names, by_name = self._text_of(statement)
        if by_name:
            return self.connection.exec_driver_sql(text, dict(values))
        return self.connection.exec_driver_sql(text, tuple([values[name] for name in names]))

    def send_rows(self, statement: _Fixed, rows: Sequence[tuple[object, ...]]) -> None:
        """Do the same with many rows, each in the order of the statement's parameters."""
        text, names, by_name = self._text_of(statement)
        if by_name:
            named = [dict(zip(names, row, strict=True)) for row in rows]
            self.connection.exec_driver_sql(text, named)
        else:
            self.connection.exec_driver_sql(text, list(rows))

    def _text_of(self, statement: _Fixed) -> _Text:
        # Text is translated by nobody, so the host's own map is asked here.
        mapped = self.connection.get_execution_options().get("schema_translate_map") or {}
        return _text_of(statement, self.connection.dialect, self.schema or mapped.get(None))
