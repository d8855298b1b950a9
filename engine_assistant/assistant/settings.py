"""What both front doors share: how a host set the engine up, and how one operation is run."""

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Final, TypeVar

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError

from engine_assistant.context import (
    Caller,
    Clock,
    Context,
    Emit,
    refuse_no_caller,
    refuse_other_ids,
)
from engine_assistant.engines import BEGIN_OPTION, DEFERRED
from engine_assistant.model.commands import Command
from engine_assistant.model.errors import (
    Conflict,
    NotFound,
    PermissionDenied,
    Raced,
    ValidationFailed,
)
from engine_assistant.model.fields import Id
from engine_assistant.model.limits import LIMITS, Limits
from engine_assistant.model.observing import Observer
from engine_assistant.model.service import Backlog, Runnable, Surveyed
from engine_assistant.operations.operation import Operation
from engine_assistant.store.alone import alone
from engine_assistant.store.backlog import backlog
from engine_assistant.store.database import Database
from engine_assistant.store.runnable import runnable
from engine_assistant.store.survey import Survey, survey

__all__ = [
    "CLEAN",
    "Mode",
    "Patience",
    "Settings",
    "mode_of",
    "reading_mode",
    "refuse_other_kind",
]

C = TypeVar("C", bound=Command)
V = TypeVar("V")

CLEAN: Final = (NotFound, PermissionDenied, ValidationFailed, Conflict)
"""Errors that are raised before anything is written: the transaction may go on."""

_PAIRS: Final[TypeAdapter[list[tuple[str, str]]]] = TypeAdapter(list[tuple[Id, Id]])

_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.25


@dataclass(frozen=True, slots=True)
class Settings:
    """How a host set the engine up. See `Assistant` for the meaning of each."""

    schema: str | None = None
    clock: Clock | None = None
    emit: Emit | None = None
    limits: Limits = field(default=LIMITS)
    retry_for: float = 5.0
    observer: Observer | None = None

    def context(self, connection: sa.Connection, caller: Caller) -> Context:
        """Return what an operation is given.

        Raises:
            ValidationFailed: the caller is none.
        """
        refuse_no_caller(caller)
        return Context(
            connection=connection,
            caller=caller,
            schema=self.schema,
            clock=self.clock,
            emit=self.emit,
            limits=self.limits,
        )

    def run(
        self,
        connection: sa.Connection,
        caller: Caller,
        mode: "Mode",
        operation: Operation[C, V],
        command: C,
    ) -> V:
        """Run one operation on a connection of ours, in a transaction unless it needs none."""
        ctx = self.context(connection, caller)
        # Before BEGIN: on SQLite that takes the write lock.
        operation.admit(ctx)
        if mode is Mode.ALONE:
            with alone(connection):
                return operation.admitted(ctx, command)
        with connection.begin():
            return operation.admitted(ctx, command)

    def runnable(
        self, connection: sa.Connection, limit: int, exclude: Sequence[tuple[str, str]]
    ) -> list[Runnable]:
        """Return the threads that a run should pick up.

        Raises:
            ValidationFailed: the limit is not between 1 and the largest page, or more threads
                than that are excluded.
        """
        self.check_limit(limit)
        given: Sequence[object] | None
        try:
            given = list(islice(exclude, self.limits.page + 1))
        except TypeError:
            given = None
        pairs = _pairs(given, "exclude")
        if len(pairs) > self.limits.page:
            raise ValidationFailed(f"Exclude at most {self.limits.page} threads.", path="exclude")
        rows = runnable(
            connection, schema=self.schema, clock=self.clock, limit=limit, exclude=pairs
        )
        return [Runnable.model_validate(dict(row)) for row in rows]

    def survey(self, connection: sa.Connection, asked: Survey) -> list[Surveyed]:
        """Return threads of every tenant in key order.

        Raises:
            ValidationFailed: the limit is not between 1 and the largest page, or what should name
                a tenant or a thread can be no id.
        """
        self.check_limit(asked.limit)
        refuse_other_ids(tenant=asked.tenant, thread_id=asked.thread_id)
        if asked.after is not None:
            _pairs([asked.after], "after")
        rows = survey(Database(connection, "", schema=self.schema), asked)
        names = tuple(Surveyed.model_fields)
        return [Surveyed(**{name: getattr(row, name) for name in names}) for row in rows]

    def backlog(self, connection: sa.Connection) -> Backlog:
        """Return what waits for somebody, of every tenant."""
        return backlog(Database(connection, "", schema=self.schema, clock=self.clock))

    def check_limit(self, limit: int) -> None:
        """Refuse a number of rows that no page may have.

        Raises:
            ValidationFailed: it is not an int between 1 and the largest page.
        """
        if type(limit) is not int or not 1 <= limit <= self.limits.page:
            raise ValidationFailed(
                f"The limit must be an int between 1 and {self.limits.page}.", path="limit"
            )


def _pairs(given: object, path: str) -> list[tuple[str, str]]:
    """Return what names threads of several tenants.

    Raises:
        ValidationFailed: it does not.
    """
    try:
        return _PAIRS.validate_python(given)
    except ValidationError:
        pass
    raise ValidationFailed("Threads are named by (tenant, thread id).", path=path)


class Mode(Enum):
    """What an operation needs of a connection of ours."""

    TRANSACTION = "transaction"
    ALONE = "alone"
    """One statement: BEGIN and COMMIT would be two more round trips. Postgres only."""
    SNAPSHOT = "snapshot"
    """Readers see one moment and do not take the file's write lock. SQLite only."""

    @property
    def options(self) -> Mapping[str, str]:
        """The execution options of such a connection."""
        return {BEGIN_OPTION: DEFERRED} if self is Mode.SNAPSHOT else {}


def mode_of(dialect: str, operation: Operation[C, V], command: C, *, injected: bool) -> Mode:
    """Return how an operation is run on this database.

    `injected` says that the host gives the time: then a write locks before it asks for it.
    """
    one_statement = operation.one_statement(command) and (operation.reads or not injected)
    if dialect == "postgresql" and one_statement:
        return Mode.ALONE
    return reading_mode(dialect) if operation.reads else Mode.TRANSACTION


def reading_mode(dialect: str) -> Mode:
    """Return how several reads are run together."""
    return Mode.SNAPSHOT if dialect == "sqlite" else Mode.TRANSACTION


def refuse_other_kind(value: object, kind: type[object], path: str) -> None:
    """Refuse an engine or a connection of the other face before it is used.

    Raises:
        ValidationFailed: it is not a `kind`. The message names types only: a URL holds passwords.
    """
    if not isinstance(value, kind):
        raise ValidationFailed(
            f"This needs a SQLAlchemy {kind.__name__}, not a {type(value).__name__}.", path=path
        )


class Patience:
    """How long to go on after `Raced`: growing random pauses until the time is up."""

    def __init__(self, seconds: float) -> None:
        """Start the clock."""
        self._until = time.monotonic() + seconds
        self._tries = 0

    def pause(self, error: Raced) -> float:
        """Return the seconds to wait before the next try.

        Raises:
            Raced: the error itself, when the time is up.
        """
        if time.monotonic() >= self._until:
            raise error
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self._tries)
        self._tries = min(self._tries + 1, 16)
        return random.uniform(0, longest)  # noqa: S311 - jitter, not a secret
