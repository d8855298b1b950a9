"""The synchronous front door."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Self, TypeVar

import sqlalchemy as sa

from engine_assistant import migrate
from engine_assistant.assistant.archives import Archives
from engine_assistant.assistant.bound import Bound
from engine_assistant.assistant.oversight import Oversight
from engine_assistant.assistant.relay import Drain, Handler
from engine_assistant.assistant.settings import (
    Mode,
    Patience,
    Settings,
    mode_of,
    refuse_other_kind,
)
from engine_assistant.assistant.verbs import Operations
from engine_assistant.context import Caller, Clock, Emit, refuse_no_caller
from engine_assistant.doctor import Finding, Progress, examine, reading_engine
from engine_assistant.engines import make_engine
from engine_assistant.model.commands import Command
from engine_assistant.model.errors import Raced
from engine_assistant.model.limits import LIMITS, Limits
from engine_assistant.model.observing import Observer
from engine_assistant.model.service import Drained
from engine_assistant.operations.operation import Operation
from engine_assistant.store.faults import translated

__all__ = ["Assistant"]

C = TypeVar("C", bound=Command)
V = TypeVar("V")
T = TypeVar("T")


class Assistant(Archives, Oversight):
    """The engine over one database.

    Two doors to teach: `acting_as` (each call is its own transaction) and `bind` (calls join the
    host's). Two more for the rest: `session` and `transact` (several calls in one transaction).

    It holds no state beside the engine, so one instance may serve every thread of a process.
    """

    def __init__(
        self,
        engine: sa.Engine,
        *,
        schema: str | None = None,
        clock: Clock | None = None,
        emit: Emit | None = None,
        limits: Limits = LIMITS,
        retry_for: float = 5.0,
        observer: Observer | None = None,
    ) -> None:
        """Use the host's engine.

        Args:
            engine: Postgres through psycopg, or SQLite (see `prepare_sqlite`).
            schema: the schema of the tables, when it is not the connection's default.
            clock: gives the time, called after the lock; default is the database's clock.
            emit: the host's own outbox, called as `emit(connection, milestones)` inside the
                transaction; default is the table `assistant_outbox`.
            limits: bounds of every input, each at or below its default.
            retry_for: for how many seconds `acting_as` and `transact` go on after a race.
            observer: told how each operation begins and ends.
        """
        refuse_other_kind(engine, sa.Engine, "engine")
        self.engine = engine
        self._engines = {mode: engine.execution_options(**mode.options) for mode in Mode}
        self._settings = Settings(schema, clock, emit, limits, retry_for, observer)
        self.limits = limits

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        schema: str | None = None,
        clock: Clock | None = None,
        emit: Emit | None = None,
        limits: Limits = LIMITS,
        retry_for: float = 5.0,
        observer: Observer | None = None,
    ) -> Self:
        """Make a prepared engine for a URL. `?pooler=transaction` turns preparing off.

        Raises:
            ValidationFailed: the URL cannot be used. The message never shows the password.
        """
        return cls(
            make_engine(url),
            schema=schema,
            clock=clock,
            emit=emit,
            limits=limits,
            retry_for=retry_for,
            observer=observer,
        )

    def migrate(self) -> None:
        """Bring the tables to the newest schema: what `alembic upgrade head` does."""
        with translated(), self.engine.connect() as connection:
            migrate.upgrade(connection, self._settings.schema)
            connection.commit()

    def acting_as(self, caller: Caller) -> Operations:
        """Return the operations for a caller, each in a transaction of its own.

        A call that raced with another transaction is tried again until `retry_for` is over.
        """
        refuse_no_caller(caller)
        return _Acting(self, caller, self._settings.observer)

    def bind(self, connection: sa.Connection, caller: Caller) -> Bound:
        """Return the operations for a caller inside the host's transaction.

        Nothing is begun beyond what SQLAlchemy begins by itself, and nothing is committed. After
        `Raced`, or any error of the database, roll back and bind again.
        """
        return Bound(connection, self._settings, caller)

    @contextmanager
    def session(self, caller: Caller) -> Iterator[Bound]:
        """Open one transaction for several calls: committed at the end, or rolled back.

        Raises:
            AssistantError: what failed inside, also when it was swallowed there: nothing of such
                a transaction is kept.
        """
        with translated():
            connection = self.engine.connect()
        try:
            with translated():
                transaction = connection.begin()
            try:
                bound = self.bind(connection, caller)
                yield bound
                bound.raise_failure()
            except BaseException:
                with translated():
                    transaction.rollback()
                raise
            with translated():
                transaction.commit()
        finally:
            connection.close()

    def transact(self, caller: Caller, work: Callable[[Bound], T]) -> T:
        """Run `work` in one transaction, and all of it again when it raced.

        `work` must do nothing that cannot be done twice.
        """
        patience = Patience(self._settings.retry_for)
        while True:
            try:
                with self.session(caller) as bound:
                    return work(bound)
            except Raced as error:
                pause = patience.pause(error)
            time.sleep(pause)

    def drain_outbox(self, handler: Handler, limit: int = 100) -> Drained:
        """Hand waiting milestones to `handler`, oldest threads first, and forget them.

        A short transaction claims whole threads; the handler is called outside any transaction,
        in order within each thread; a second transaction deletes what it took. When it raises,
        its thread waits (1 second, doubling up to 5 minutes) and the others go on. A milestone
        may be handed out twice, after a crash, so the handler must tolerate that: (thread, n)
        names it. Any number of processes may drain at once.

        Args:
            handler: takes one milestone; what it returns is ignored.
            limit: how many milestones at most, 1 to 1,000.
        """
        drain = Drain(self._settings, limit)
        with translated(), self.engine.connect() as connection:
            drain.claim(connection)
        for queue in drain.queues:
            for milestone in queue.milestones:
                if not queue.may_go_on():
                    break
                try:
                    handler(milestone)
                except Exception as error:  # noqa: BLE001 - whatever it is, the thread waits
                    queue.failed(milestone, error)
                    break
                queue.handed_out(milestone)
        with translated(), self.engine.connect() as connection:
            return drain.settle(connection)

    def doctor(
        self,
        *,
        tenant: str | None = None,
        thread_id: str | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Finding]:
        """Examine the record and return what in it cannot be true, as it is found.

        It reads only, thread by thread, each inside one snapshot, and needs no quiet system. It
        asks for no caller: it is for operators, never for a person.

        Args:
            tenant: only this tenant's threads; default is everybody's.
            thread_id: only threads of this id.
            progress: told the totals after each thread, and at the end.

        Raises:
            NotFound: there is no thread of this id.
            ValidationFailed: a name can be no id.
        """
        with translated(), reading_engine(self.engine).connect() as connection:
            yield from examine(
                connection,
                schema=self._settings.schema,
                tenant=tenant,
                thread_id=thread_id,
                progress=progress,
            )

    def perform(self, caller: Caller, operation: Operation[C, V], command: C) -> V:
        """Run one operation in a transaction of its own, again when it raced."""
        injected = self._settings.clock is not None
        mode = mode_of(self.engine.dialect.name, operation, command, injected=injected)
        patience = Patience(self._settings.retry_for)
        while True:
            try:
                with translated(), self._engines[mode].connect() as connection:
                    return self._settings.run(connection, caller, mode, operation, command)
            except Raced as error:
                pause = patience.pause(error)
            time.sleep(pause)


class _Acting(Operations):
    """Operations, each in a transaction of its own."""

    def __init__(self, assistant: Assistant, caller: Caller, observer: Observer | None) -> None:
        super().__init__(caller, observer)
        self._assistant = assistant

    def _perform(self, operation: Operation[C, V], values: Mapping[str, object]) -> V:
        command = operation.parse(values, self._assistant.limits)
        return self._assistant.perform(self._caller, operation, command)
