"""What Postgres and SQLite do differently, as one contract with two implementations."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import sqlalchemy as sa

from engine_assistant.model.rows import EventRow
from engine_assistant.store.database import Database

__all__ = ["Appending", "Dialect", "Head"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Appending:
    """A batch of plain events, ready to be written in the fewest statements there are.

    `types` and `bodies` go together; `batch` and `digest` are None for an unnumbered batch.
    """

    thread_id: str
    run_id: str
    fence: int
    types: Sequence[str]
    bodies: Sequence[str]
    batch: int | None
    digest: str | None


@dataclass(frozen=True, slots=True)
class Head:
    """The head after a plain batch was written: where its numbers end, in which turn, and when."""

    last_seq: int
    turn: int
    now: datetime
    interrupt_requested: bool


class Dialect(Protocol):
    """What Postgres and SQLite do differently."""

    def __hash__(self) -> int:
        """Let statements be kept for each."""

    def begin_write(self, db: Database) -> None:
        """Make sure that what follows is one transaction that may write.

        Raises:
            ValidationFailed: the connection commits by itself, so that a lock would not last.
        """

    def begin_snapshot(self, db: Database) -> None:
        """Make sure that what follows is one transaction in which all reads see one moment.

        Raises:
            ValidationFailed: the connection's transactions do not.
        """

    def lock(
        self, db: Database, where: Sequence[sa.ColumnElement[bool]]
    ) -> tuple[Sequence[object], datetime] | None:
        """Lock the one thread row that `where` finds; return it with the clock after the lock."""

    def now(self, db: Database) -> datetime:
        """Return the database's clock, or the injected one."""

    def append(self, db: Database, batch: Appending) -> Head | None:
        """Number and write plain events if the run may; None when any guard said no."""

    def insert_events(self, db: Database, thread_id: str, rows: Sequence[EventRow]) -> None:
        """Write numbered events in one statement."""

    def insert_new(self, db: Database, table: sa.Table, values: dict[str, object]) -> bool:
        """Insert a row unless its key is taken; return whether it was inserted."""

    def as_text(self, moment: sa.ColumnElement[datetime]) -> sa.ColumnElement[str]:
        """Return a time column as 24 bytes of UTC text, without making a datetime of it."""
