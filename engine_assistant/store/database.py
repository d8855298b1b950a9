"""One connection inside a transaction, bound to one tenant."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

import sqlalchemy as sa

from engine_assistant.model.rows import MilestoneRow

__all__ = ["Database"]


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
