"""A race in slow motion: one side stops on its way, the other is seen waiting, then both go on.

The first side stops where it has taken the lock and read the clock, but has not decided, or where
it has written everything, but has not committed. On Postgres the second side is then seen in
`pg_locks`. On SQLite nobody waits at a busy timeout of 0: the second side is refused with `Raced`
and does its operation again when the first is through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Generic, TypeVar, cast

import sqlalchemy as sa

from engine_assistant import Assistant, Conflict, ConflictReason, Raced, make_engine
from engine_assistant.engines import BEGIN_OPTION, DEFERRED
from engine_assistant.model.errors import AssistantError
from engine_assistant.model.rows import ApprovalRow, CallRow, RunRow, ThreadRow
from engine_assistant.model.views import Lease
from engine_assistant.store import tables
from engine_assistant.store.reads import row_of
from engine_assistant.testing.polling import poll_until
from engine_assistant.testing.races import Barrier, Signal
from tests.rig.engines import kept_engine
from tests.rig.races import PATIENCE, Worker, wait_until_blocked
from tests.rig.sides import (
    ALICE,
    ROBOT,
    Scene,
    Side,
    acquire,
    append,
    ask,
    claim,
    decide,
    finish,
    proposal,
    send,
)

T = TypeVar("T")
U = TypeVar("U")
R = TypeVar("R", CallRow, ApprovalRow, RunRow)

# Long enough for a loaded machine, short enough for a lock that is missing.
SEEN_WITHIN = 15.0


class Stop(Enum):
    """Where the first side of a race stops."""

    LOCKED = "locked"
    """It has the lock and the clock. Rows are not gathered, nothing is decided or written."""
    WRITTEN = "written"
    """It has decided and written, and is about to end its transaction."""


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What a side was told."""

    answer: T | None
    error: AssistantError | None

    def get(self) -> T:
        if self.error is not None:
            raise self.error
        return cast("T", self.answer)

    def refused(self, *reasons: ConflictReason | str) -> Conflict:
        """Answer the refusal, which must be one of these."""
        assert isinstance(self.error, Conflict), self
        assert self.error.reason in reasons, self.error.reason
        return self.error


class Undone(Exception):
    """Rolls a transaction back on purpose."""


class Gate(Barrier):
    """A barrier for the first side alone."""

    def __init__(self) -> None:
        super().__init__(PATIENCE)

    def stop(self) -> None:
        """Stop here the first time; later times pass, of the other side too."""
        if not self.reached.is_set:
            self.wait()

    def clock(self) -> datetime:
        """Stop where the clock is read: after the lock."""
        self.stop()
        return datetime.now(UTC)


class Arena:
    """One database, with people and runs on it, and with races."""

    def __init__(self, url: str) -> None:
        self.url = sa.make_url(url)
        self.is_postgres = self.url.get_backend_name() == "postgresql"
        self.engine = kept_engine(self.url)
        # The second side waits for no lock on SQLite, and is not retried behind our back.
        patient = {} if self.is_postgres else {"timeout": "0"}
        self.rival = kept_engine(self.url.update_query_dict(patient))
        self.assistant = Assistant(self.engine, retry_for=0)
        # Looking takes no write lock, so it is possible while somebody holds it.
        self._eyes = self.engine.execution_options(**{BEGIN_OPTION: DEFERRED})
        self.me = self.assistant.acting_as(ALICE)
        self.bot = self.assistant.acting_as(ROBOT)

    def dispose(self) -> None:
        self.engine.dispose()
        self.rival.dispose()

    # ------------------------------------------------------------ the race

    def does(self, side: Side[T]) -> T:
        """Let a side do it, alone."""
        return side.does(self.assistant.acting_as(side.caller))

    def attempt(self, side: Side[T], engine: sa.Engine | None = None) -> Outcome[T]:
        """Let a side try it once, as a call of its own on a connection of its own."""
        assistant = Assistant(self.rival if engine is None else engine, retry_for=0)
        return _outcome(lambda: side.does(assistant.acting_as(side.caller)))

    def race(
        self,
        first: Side[T],
        second: Side[U],
        *,
        stop: Stop = Stop.LOCKED,
        keep: bool = True,
        meanwhile: Callable[[], None] = lambda: None,
        engine: sa.Engine | None = None,
    ) -> tuple[Outcome[T], Outcome[U]]:
        """Run two sides at once, the second behind the lock of the first.

        Args:
            first: the side that comes first and stops.
            second: the side that is seen waiting.
            stop: where the first side stops.
            keep: whether the first side's transaction commits, or is rolled back.
            meanwhile: done while the second side waits.
            engine: the engine of the second side, when it is not an ordinary one.
        """
        with self.holding(first, stop=stop, keep=keep) as (ahead, gate):
            if self.is_postgres:
                waiter = Worker(lambda: self.attempt(second, engine), name="second side")
                wait_until_blocked(self.engine, timeout=SEEN_WITHIN)
                meanwhile()
                gate.release()
                return ahead.join(), waiter.join()
            assert isinstance(self.attempt(second, engine).error, Raced)
            meanwhile()
            gate.release()
            return ahead.join(), self.attempt(second, engine)

    def wait_behind(
        self,
        first: Side[T],
        second: Side[U],
        meanwhile: Callable[[], None],
        *,
        make: Callable[[sa.URL], sa.Engine] = make_engine,
    ) -> Outcome[U]:
        """Let the second side wait, on SQLite too, for a first that is rolled back.

        `make` makes the engine of the second side.
        """
        if self.is_postgres:
            with _disposed(make(self.url)) as engine:
                return self.race(
                    first, second, stop=Stop.WRITTEN, keep=False, meanwhile=meanwhile, engine=engine
                )[1]
        begun = Signal("the waiting side never began", PATIENCE)
        patient = make(self.url.update_query_dict({"timeout": str(PATIENCE)}))
        sa.event.listen(patient, "before_cursor_execute", lambda *_: begun.set())
        with _disposed(patient), self.holding(first, keep=False) as (ahead, gate):
            waiter = Worker(lambda: self.attempt(second, patient), name="waiting side")
            # Its first statement is the one that waits.
            begun.wait()
            meanwhile()
            gate.release()
            ahead.join()
            return waiter.join()

    @contextmanager
    def holding(
        self,
        side: Side[T],
        *,
        stop: Stop = Stop.WRITTEN,
        keep: bool = False,
        gate: Gate | None = None,
    ) -> Iterator[tuple[Worker[Outcome[T]], Gate]]:
        """Hold a side where it stops, with its locks, until its gate opens.

        A gate that is given may stand in its way earlier.
        """
        gate = gate or Gate()
        ahead = Worker(lambda: self._ahead(side, gate, stop, keep=keep), name="first side")
        try:
            poll_until(
                lambda: gate.reached.is_set or not ahead.running,
                lambda: "the first side never came to its stop",
                PATIENCE,
            )
            if not gate.reached.is_set:
                ahead.join().get()
                raise AssertionError("the first side went through without a stop")
            yield ahead, gate
        finally:
            gate.release()

    def _ahead(self, side: Side[T], gate: Gate, stop: Stop, *, keep: bool) -> Outcome[T]:
        clock = gate.clock if stop is Stop.LOCKED else None
        assistant = Assistant(self.engine, clock=clock, retry_for=0)
        done: list[Outcome[T]] = []
        try:
            with assistant.session(side.caller) as ops, _kept(keep=keep):
                done.append(_outcome(lambda: side.does(ops)))
                gate.stop()
        except Undone:
            pass
        except AssistantError as error:
            return Outcome(None, error)
        return done[0]

    # ------------------------------------------------------------ scenes

    def idle(self) -> str:
        """Make a thread in which nobody has said anything."""
        return self.me.create_thread(title="Refund").id

    def opened(self) -> Scene:
        """Make a thread whose turn is open, with no run."""
        thread_id = self.idle()
        self.does(send(thread_id))
        return Scene(thread_id)

    def running(self, run_id: str = "run-a") -> Scene:
        """Make a thread whose turn is run."""
        scene = self.opened()
        return scene.under(self.does(acquire(scene.thread_id, run_id)))

    def proposed(self) -> Scene:
        """Make a running turn with a call that nobody asked about."""
        scene = self.running()
        self.does(append(scene, proposal(scene.call_id)))
        return scene

    def asked(self, expires_in: float = 60) -> Scene:
        """Make a running turn with a call that waits for approval."""
        scene = self.proposed()
        request = self.does(ask(scene, expires_in=expires_in))
        return Scene(**scene.held, digest=request.requests[0].digest, expires_at=request.expires_at)

    def waiting(self, expires_in: float = 60) -> Scene:
        """Make a turn that rests and waits for approval."""
        scene = self.asked(expires_in)
        self.does(append(scene, finish("awaiting-approval")))
        return scene

    def approved(self, expires_in: float = 60) -> Scene:
        """Make a running turn with a call that was approved."""
        scene = self.asked(expires_in)
        self.does(decide(scene))
        return scene

    def claimed(self) -> Scene:
        """Make a running turn whose call is executing."""
        scene = self.approved()
        self.does(claim(scene))
        return scene

    def lined_up(self, *texts: str, when_busy: str = "queue") -> tuple[Scene, list[str]]:
        """Make a running turn behind which messages wait; answer their ids, too."""
        scene = self.running()
        sent = [self.does(send(scene.thread_id, text, when_busy=when_busy)) for text in texts]
        return scene, [receipt.input_id for receipt in sent]

    def lost(self, expires_in: float = 60) -> Scene:
        """Make a running turn with a claimed call that was lost, and that may run again."""
        scene = self.running("run-0")
        self.does(append(scene, proposal(scene.call_id, repeatable=True)))
        digest = self.does(ask(scene, expires_in=expires_in)).requests[0].digest
        self.does(decide(replace(scene, digest=digest)))
        self.does(claim(scene))
        return scene.under(self.take_over(scene, "run-a"))

    def lapse_lease(self, thread_id: str) -> None:
        """Let the lease have run out a while ago, as if its run had slept."""
        self.change_head(thread_id, lease_until=datetime(2020, 1, 1, tzinfo=UTC))

    def change_head(self, thread_id: str, **values: object) -> None:
        """Move what only time moves, without waiting for it."""
        with self.engine.begin() as connection:
            connection.execute(
                sa.update(tables.threads).where(tables.threads.c.id == thread_id).values(values)
            )

    def take_over(self, scene: Scene, run_id: str = "run-b") -> Lease:
        """Let another run replace one that sleeps."""
        self.lapse_lease(scene.thread_id)
        return self.does(acquire(scene.thread_id, run_id))

    # ------------------------------------------------------------ the clock

    def now(self) -> datetime:
        """Answer the clock that the engine goes by."""
        if not self.is_postgres:
            return datetime.now(UTC)
        with self._eyes.connect() as connection:
            found: datetime = connection.scalars(sa.select(sa.func.clock_timestamp())).one()
        return found

    def wait_past(self, moment: datetime) -> None:
        """Look at the clock until it stands after `moment`."""
        poll_until(lambda: self.now() > moment, lambda: f"it never became {moment}", PATIENCE)

    # ------------------------------------------------------------ the record

    def head(self, thread_id: str) -> ThreadRow:
        with self._eyes.connect() as connection:
            found = connection.execute(
                sa.select(tables.threads).where(tables.threads.c.id == thread_id)
            ).one()
        return row_of(ThreadRow, tuple(found))

    def rows(self, kind: type[R], thread_id: str) -> list[R]:
        table = {
            CallRow: tables.tool_calls,
            ApprovalRow: tables.approvals,
            RunRow: tables.runs,
        }[kind]
        with self._eyes.connect() as connection:
            found = connection.execute(
                sa.select(table).where(table.c.thread_id == thread_id).order_by(*table.primary_key)
            ).all()
        return [row_of(kind, tuple(row)) for row in found]

    def call(self, scene: Scene) -> CallRow:
        (found,) = [
            row for row in self.rows(CallRow, scene.thread_id) if row.call_id == scene.call_id
        ]
        return found

    def milestones(self, thread_id: str) -> list[str]:
        """Answer the types of the milestones, whose numbers must be 1 to the head's count."""
        box = tables.outbox
        with self._eyes.connect() as connection:
            found = connection.execute(
                sa.select(box.c.n, box.c.type).where(box.c.thread_id == thread_id).order_by(box.c.n)
            ).all()
        assert [n for n, _ in found] == list(range(1, self.head(thread_id).milestones + 1))
        return [kind for _, kind in found]

    def log(self, thread_id: str) -> list[str]:
        """Answer the types of the events of a record that must be whole.

        Numbers run from 1 to the head without a gap, and so do milestones; times never fall; at
        most the lease's own holding is running.
        """
        events = self.me.read_events(thread_id=thread_id, limit=1000).events
        head = self.head(thread_id)
        assert [event.seq for event in events] == list(range(1, head.last_seq + 1))
        times = [event.at for event in events if event.at is not None]
        assert len(times) == len(events)
        assert times == sorted(times)
        self.milestones(thread_id)
        runs = self.rows(RunRow, thread_id)
        held = [(row.run_id, row.fence) for row in runs if row.ended_at is None]
        assert held == ([] if head.run_id is None else [(head.run_id, head.fence)])
        return [event.type for event in events]


@contextmanager
def _disposed(engine: sa.Engine) -> Iterator[sa.Engine]:
    yield engine
    engine.dispose()


@contextmanager
def _kept(*, keep: bool) -> Iterator[None]:
    yield
    if not keep:
        raise Undone


def _outcome(work: Callable[[], T]) -> Outcome[T]:
    try:
        return Outcome(work(), None)
    except AssistantError as error:
        return Outcome(None, error)
