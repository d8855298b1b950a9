"""What race tests need: two sides at once, a place to meet, and a waiter that is seen waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, make_url, text

from engine_assistant.testing.polling import poll_until

T = TypeVar("T")
PATIENCE = 30.0

_WAITERS = text("""
    SELECT DISTINCT l.pid
      FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
     WHERE NOT l.granted AND a.datname = current_database() AND a.pid <> pg_backend_pid()
""")


def backend_pid(connection: Connection) -> int:
    """Answer the server process behind a Postgres connection."""
    return int(connection.scalar(text("SELECT pg_backend_pid()")) or 0)


def wait_until_blocked(
    database: Engine | URL | str,
    pid: int | None = None,
    *,
    waiters: int = 1,
    timeout: float = PATIENCE,
) -> set[int]:
    """Wait until a backend of this Postgres database stands in `pg_locks` with a lock not granted.

    With `pid`, that one; without, any `waiters` of them. Answers the pids that wait; raises
    TimeoutError when nobody comes to wait. It looks through a connection of its own, so that it
    never joins a transaction or a pool of the test.
    """
    seen: set[int] = set()
    engine = create_engine(_address(database), poolclass=NullPool, isolation_level="AUTOCOMMIT")

    def waiting() -> bool:
        seen.clear()
        seen.update(connection.scalars(_WAITERS))
        return len(seen) >= waiters if pid is None else pid in seen

    with engine.connect() as connection:
        wanted = f"{waiters} waiter(s)" if pid is None else f"backend {pid}"
        poll_until(waiting, lambda: f"{wanted} never waited; waiting: {sorted(seen)}", timeout)
    return seen


def _address(database: Engine | URL | str) -> URL:
    url = database.url if isinstance(database, Engine) else make_url(database)
    # A word of ours, which the plain engine above would hand to libpq.
    return url.set(drivername="postgresql+psycopg").difference_update_query(["pooler"])


class Barrier(threading.Barrier):
    """A barrier that nobody waits at for ever."""

    def __init__(self, parties: int = 2, timeout: float = PATIENCE) -> None:
        super().__init__(parties, timeout=timeout)


class Worker(Generic[T]):
    """One side of a race: runs `side` in a thread at once and keeps what came of it."""

    def __init__(self, side: Callable[[], T], *, name: str | None = None) -> None:
        self._side = side
        self._results: list[T] = []
        self._error: BaseException | None = None
        # A side that hangs must not keep the test run alive.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._results.append(self._side())
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test decides
            self._error = error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def join(self, timeout: float = PATIENCE) -> T:
        """Answer what `side` returned, or raise what it raised; TimeoutError if it still runs."""
        error = self.error(timeout)
        if error is not None:
            raise error
        return self._results[0]

    def error(self, timeout: float = PATIENCE) -> BaseException | None:
        """Answer what `side` raised, None if it returned; TimeoutError if it still runs."""
        self._thread.join(timeout)
        if self.running:
            raise TimeoutError(f"{self._thread.name} still runs after {timeout} s")
        return self._error
