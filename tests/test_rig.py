"""The rig itself: what the other tests lean on is tried here."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Engine, NullPool, create_engine, make_url, text

from engine_assistant.testing import processes
from engine_assistant.testing.polling import poll_until
from engine_assistant.testing.postgres import GIVEN_URL, PostgresServer, libpq
from tests.rig import moves
from tests.rig.races import Barrier, Worker, backend_pid, wait_until_blocked

ROOT = Path(__file__).parent.parent


@contextmanager
def plain(url: str) -> Iterator[Engine]:
    engine = create_engine(url, poolclass=NullPool)
    yield engine
    engine.dispose()


# ---------------------------------------------------------------- databases


def test_the_server_is_new_enough(postgres_server: PostgresServer) -> None:
    assert postgres_server.version >= 140000


def test_two_fresh_databases_share_nothing(postgres_server: PostgresServer) -> None:
    first, second = postgres_server.create(), postgres_server.create()
    try:
        with psycopg.connect(libpq(postgres_server.address(first))) as connection:
            connection.execute("CREATE TABLE only_here (n int)")
        with psycopg.connect(libpq(postgres_server.address(second))) as connection:
            assert connection.execute("SELECT to_regclass('only_here')").fetchone() == (None,)
        copy = postgres_server.create(template=first)
        with psycopg.connect(libpq(postgres_server.address(copy))) as connection:
            assert connection.execute("SELECT count(*) FROM only_here").fetchone() == (0,)
        postgres_server.drop(copy)
    finally:
        postgres_server.drop(first)
        postgres_server.drop(second)


def test_a_dropped_database_is_gone_even_when_somebody_is_connected(
    postgres_server: PostgresServer,
) -> None:
    name = postgres_server.create()
    with psycopg.connect(libpq(postgres_server.address(name))) as connection:
        postgres_server.drop(name)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(libpq(postgres_server.address(name)))


@pytest.mark.parametrize("again", [1, 2])
def test_each_test_finds_the_migrated_tables_and_no_row(engine: Engine, again: int) -> None:
    with engine.begin() as connection:
        count = text("SELECT count(*) FROM assistant_outbox")
        assert connection.scalar(count) == 0
        connection.execute(text("CREATE TABLE only_here (n int)"))


def test_the_empty_database_is_empty(empty_database_url: str) -> None:
    catalog = {"sqlite": "sqlite_master", "postgresql": "pg_tables WHERE schemaname = 'public'"}
    with plain(empty_database_url) as engine, engine.connect() as connection:
        assert connection.scalar(text(f"SELECT count(*) FROM {catalog[engine.name]}")) == 0


def test_the_async_url_names_the_same_database(database_url: str, async_database_url: str) -> None:
    one, other = make_url(database_url), make_url(async_database_url)
    assert (one.database, one.query) == (other.database, other.query)
    assert other.drivername in {"sqlite+aiosqlite", "postgresql+psycopg"}


def test_pgbouncer_gives_each_transaction_any_server_connection(pgbouncer_url: str) -> None:
    with plain(pgbouncer_url) as engine, engine.connect() as one, engine.connect() as other:
        used = backend_pid(one)
        one.commit()
        # The client that was idle takes over the server connection that the first gave back.
        assert backend_pid(other) == used


# ---------------------------------------------------------------- processes


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG and /proc are Linux's")
def test_no_server_outlives_a_killed_run() -> None:
    env = {name: value for name, value in os.environ.items() if name != GIVEN_URL}
    command = [sys.executable, "-m", "engine_assistant.testing.postgres"]
    run = subprocess.Popen(
        command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with run:
        assert run.stdout is not None
        url, pid = make_url(run.stdout.readline().strip()), int(run.stdout.readline())
        psycopg.connect(libpq(url)).close()
        assert _alive(pid)
        run.send_signal(signal.SIGKILL)
    poll_until(lambda: not _alive(pid), lambda: f"{pid} lives on", 30)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(libpq(url))
    # Its folder stays behind, and goes when the next run makes one of its own.
    left = Path(str(url.query["host"]))
    assert left.exists()
    processes.Folder.make(processes.server_user()).remove()
    poll_until(lambda: not left.exists(), lambda: f"{left} was left behind", 30)


def test_the_folder_of_a_living_run_is_left_alone() -> None:
    living = processes.Folder.make(processes.server_user())
    processes.Folder.make(processes.server_user()).remove()
    assert living.path.exists()
    living.remove()
    assert not living.path.exists()


# ---------------------------------------------------------------- races


def test_a_waiter_is_seen_waiting_and_nobody_else_is(empty_postgres_url: str) -> None:
    with plain(empty_postgres_url) as engine:
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE t (n int)"))
            connection.execute(text("INSERT INTO t VALUES (0)"))
        add = text("UPDATE t SET n = n + 1 RETURNING n")
        with engine.connect() as first, engine.connect() as second:
            assert first.scalar(add) == 1
            waiting = backend_pid(second)
            with pytest.raises(TimeoutError, match="never waited"):
                wait_until_blocked(engine, waiting, timeout=0.05)
            worker = Worker(lambda: second.scalar(add))
            assert wait_until_blocked(engine, waiting) == {waiting}
            assert wait_until_blocked(empty_postgres_url) == {waiting}
            assert worker.running
            first.rollback()
            assert worker.join() == 1


def test_a_worker_hands_over_what_its_side_raised() -> None:
    def side() -> int:
        raise LookupError("lost")

    worker = Worker(side)
    assert isinstance(worker.error(), LookupError)
    with pytest.raises(LookupError, match="lost"):
        worker.join()


def test_a_worker_that_hangs_is_not_waited_for() -> None:
    meet = Barrier(2)
    worker = Worker(meet.wait)
    with pytest.raises(TimeoutError, match="still runs"):
        worker.join(timeout=0.05)
    meet.wait()
    worker.join()


# ---------------------------------------------------------------- moves


def test_a_move_taken_on_one_database_is_missed_on_the_other() -> None:
    there, back = ("m", "go", "here", "there"), ("m", "return", "there", "here")
    taken = {("sqlite", there), ("postgres", there), ("sqlite", back)}
    assert moves.never_taken([there, back], taken) == [("postgres", back)]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 1, "postgres: turn: idle -> open on 'send-message'"),
        (("-n", "2"), 1, "postgres: turn: idle -> open on 'send-message'"),
        (("-k", "test_one"), 0, "1 passed"),
    ],
)
def test_a_full_run_fails_for_a_move_never_taken(
    tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "checks").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = checks\n")
    (tmp_path / "checks" / "conftest.py").write_text("pytest_plugins = ['tests.rig.moves']\n")
    (tmp_path / "checks" / "test_moves.py").write_text(
        "from engine_assistant.model.machines import TURN, Trigger, TurnState\n"
        "from tests.rig import moves\n"
        "def test_one():\n"
        "    with moves.on('sqlite'):\n"
        "        TURN.step(Trigger.SEND, TurnState.IDLE)\n"
    )
    command = [sys.executable, "-m", "pytest", "--import-mode=importlib", *arguments]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    env = {name: value for name, value in env.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, said in done.stdout) == (code, True), done.stdout + done.stderr
    assert "sqlite: turn: idle -> open on 'send-message'" not in done.stdout
