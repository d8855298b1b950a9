"""Two who bring the same thread in, and somebody who writes while it is given out.

The first import stops just before it commits; the second is seen waiting behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import TypeVar

import pytest
import sqlalchemy as sa

from engine_assistant import (
    USE,
    Assistant,
    Caller,
    Conflict,
    ConflictReason,
    Internal,
    NotFound,
    Raced,
    ValidationFailed,
    make_engine,
)
from engine_assistant.testing.races import Barrier
from tests.guest.test_faults_everywhere import Observer, failing
from tests.rig.archives import archive_of, contents, keeper, line_of, sealed, value_of
from tests.rig.duels import Arena
from tests.rig.races import PATIENCE, Worker, wait_until_blocked
from tests.rig.record import Record, Story, output, words

T = TypeVar("T")
ALICE = Caller(tenant="acme", principal="usr_alice", permissions={USE})


@pytest.fixture
def arena(database_url: str) -> Iterator[Arena]:
    made = Arena(database_url)
    yield made
    made.dispose()


@pytest.fixture
def archive(tmp_path, migrated_file) -> bytes:
    """The archive of a thread with a key, which begins in a database of its own."""
    from engine_assistant.testing.databases import sqlite_file

    engine = make_engine(sqlite_file(tmp_path / "origin.db", migrated_file))
    record = Record(engine)
    thread = record.person().create_thread(title="Refund", key="case-7")
    Story(record, thread.id).say().take().write(*words("hello")).rest()
    made = archive_of(record.assistant, thread.id)
    engine.dispose()
    return made


@contextmanager
def _stopped(arena: Arena, does: Callable[[Assistant], T], *, keep: bool) -> Iterator[Worker[T]]:
    """Let somebody do it until just before the commit, which comes at the end of the block."""
    engine = make_engine(arena.url)
    barrier = Barrier(PATIENCE)

    def stop(_: sa.Connection) -> None:
        barrier.wait()
        if not keep:
            raise Raced("Rolled back on purpose.")

    sa.event.listen(engine, "commit", stop)
    worker = Worker(lambda: does(Assistant(engine, retry_for=0)), name="first side")
    try:
        barrier.reached.wait()
        yield worker
    finally:
        barrier.release()
        worker.error()
        engine.dispose()


def _race(
    arena: Arena,
    first: Callable[[Assistant], object],
    second: Callable[[Assistant], T],
    *,
    keep: bool = True,
) -> T:
    """Answer what the second side is told, which waited for the first."""
    rival = Assistant(arena.rival, retry_for=0)
    with _stopped(arena, first, keep=keep) as ahead:
        if arena.is_postgres:
            waiter = Worker(lambda: second(rival), name="second side")
            wait_until_blocked(arena.engine)
        else:
            with pytest.raises(Raced):
                second(rival)
    if keep:
        ahead.join()
    else:
        assert isinstance(ahead.error(), Raced)
    return waiter.join() if arena.is_postgres else second(rival)


def _import(archive: bytes, tenant: str = "acme") -> Callable[[Assistant], bool]:
    def does(assistant: Assistant) -> bool:
        return assistant.import_thread(keeper(tenant), [archive]).created

    return does


@pytest.mark.guarantee("G-ARCH-10")
def test_two_who_import_one_thread_have_it_once(arena: Arena, archive: bytes) -> None:
    assert _race(arena, _import(archive), _import(archive)) is False
    (thread,) = contents(arena.engine)["assistant_threads"]
    assert archive_of(arena.assistant, thread[1]) == archive


@pytest.mark.guarantee("G-ARCH-10")
def test_when_the_first_is_rolled_back_the_second_has_it(arena: Arena, archive: bytes) -> None:
    assert _race(arena, _import(archive), _import(archive), keep=False) is True
    (thread,) = contents(arena.engine)["assistant_threads"]
    assert archive_of(arena.assistant, thread[1]) == archive


@pytest.mark.guarantee("G-ARCH-10", "G-ARCH-06")
def test_another_archive_of_the_same_thread_comes_too_late(arena: Arena, archive: bytes) -> None:
    head, *rest = archive.splitlines(keepends=True)
    value = value_of(head)
    value["thread"] = {**value["thread"], "title": "Another title"}
    other = sealed([line_of(value), *rest])
    with pytest.raises(Conflict) as refused:
        _race(arena, _import(archive), _import(other))
    assert refused.value.reason is ConflictReason.THREAD_EXISTS
    assert len(contents(arena.engine)["assistant_threads"]) == 1


@pytest.mark.guarantee("G-ARCH-24")
def test_nobody_meets_a_thread_that_is_not_whole_yet(arena: Arena, archive: bytes) -> None:
    """Until its import is committed there is nothing to read, to send to, or to wait for."""
    thread_id = value_of(archive.splitlines()[0])["thread"]["id"]
    me = Assistant(arena.rival, retry_for=0).acting_as(ALICE)
    send = partial(me.send_message, thread_id=thread_id, text="And order 8?")
    with _stopped(arena, _import(archive), keep=True):
        for reads in (me.get_thread, me.read_events, me.history, me.list_inputs):
            with pytest.raises(NotFound):
                reads(thread_id=thread_id)
        assert me.list_threads().items == ()
        # On SQLite whoever writes waits for the file, whatever it is about.
        with pytest.raises(NotFound if arena.is_postgres else Raced):
            send()
    assert send().turn == 2


@pytest.mark.guarantee("G-ARCH-24", "G-FAULT-06")
def test_a_fault_at_any_statement_of_an_import_keeps_nothing(
    database_url: str, archive: bytes
) -> None:
    engine, observer = make_engine(database_url), Observer(database_url)
    assistant = Assistant(engine, retry_for=0)
    before = observer.kept()
    for at in count(1):
        try:
            with failing(engine, at, "statement", observer):
                made = assistant.import_thread(keeper(), [archive])
        except Internal:
            assert observer.kept() == before, at
            observer.assert_free()
        else:
            break
    # As many as there are to write and to examine; then none is left to fail.
    assert at > 10
    assert made.created
    observer.close()
    engine.dispose()


@pytest.mark.guarantee("G-ARCH-10")
def test_tenants_do_not_meet(arena: Arena, archive: bytes) -> None:
    """On Postgres the second does not even wait; on SQLite one writes at a time."""
    rival = Assistant(arena.rival, retry_for=0)
    with _stopped(arena, _import(archive), keep=True) as ahead:
        if arena.is_postgres:
            assert _import(archive, "elsewhere")(rival) is True
    assert ahead.join() is True
    if not arena.is_postgres:
        assert _import(archive, "elsewhere")(rival) is True
    assert len(contents(arena.engine)["assistant_threads"]) == 2


@pytest.mark.guarantee("G-ARCH-10", "G-ARCH-06")
def test_a_key_that_somebody_takes_meanwhile_is_theirs(arena: Arena, archive: bytes) -> None:
    def create(assistant: Assistant) -> str:
        return assistant.acting_as(ALICE).create_thread(title="Refund", key="case-7").id

    with pytest.raises(Conflict) as refused:
        _race(arena, create, _import(archive))
    assert refused.value.reason is ConflictReason.KEY_REUSED
    assert len(contents(arena.engine)["assistant_threads"]) == 1
    assert contents(arena.engine)["assistant_events"] == []


@pytest.mark.guarantee("G-ARCH-10")
def test_a_key_that_is_imported_meanwhile_opens_that_thread(arena: Arena, archive: bytes) -> None:
    def create(assistant: Assistant) -> str:
        return assistant.acting_as(ALICE).create_thread(title="Refund", key="case-7").id

    opened = _race(arena, _import(archive), create)
    ((_, thread_id, *_rest),) = contents(arena.engine)["assistant_threads"]
    assert opened == thread_id


@pytest.mark.guarantee("G-ARCH-09")
def test_an_archive_is_of_one_moment_while_somebody_writes(engine: sa.Engine) -> None:
    """Between any two statements of the export, events, calls and runs are added."""
    record = Record(engine)
    story = record.open("busy").say().take()
    for number in range(60):
        story.propose(f"c{number}").write(output(f"c{number}"))
    story.rest()
    before = archive_of(record.assistant, story.thread_id)
    reads = writes = 0
    going = False

    def write(_c: object, _u: object, statement: str, *_rest: object) -> None:
        nonlocal reads, writes, going
        if going or not statement.startswith("SELECT"):
            return
        reads += 1
        if reads == 1:  # With this one the moment comes.
            return
        going = True
        writes += 1
        call = f"new{writes}"
        story.say().take().propose(call).ask(call).answer(call).claim(call)
        story.write(output(call), *words("x")).rest()
        going = False

    own = make_engine(engine.url)
    sa.event.listen(own, "before_cursor_execute", write)
    lines = Assistant(own).export_thread(keeper(), thread_id=story.thread_id)
    assert b"".join(lines) == before
    own.dispose()
    assert writes > 8
    assert archive_of(record.assistant, story.thread_id) != before


@pytest.mark.guarantee("G-ARCH-18")
def test_somebody_writes_while_an_archive_is_still_on_its_way(arena: Arena, archive: bytes) -> None:
    """Also on SQLite, where a transaction would keep everybody out."""
    rival = Assistant(arena.rival, retry_for=0).acting_as(ALICE)

    def pieces() -> Iterator[bytes]:
        for line in archive.splitlines(keepends=True):
            rival.create_thread()
            yield line

    assert arena.assistant.import_thread(keeper(), pieces()).created
    assert len(contents(arena.engine)["assistant_threads"]) > archive.count(b"\n")


@pytest.mark.guarantee("G-ARCH-18")
def test_nothing_is_held_while_somebody_reads(arena: Arena, archive: bytes) -> None:
    thread_id = arena.assistant.import_thread(keeper(), [archive]).thread_id
    lines = arena.assistant.export_thread(keeper(), thread_id=thread_id)
    for _ in lines:
        assert arena.engine.pool.checkedout() == 0
    file = arena.assistant.export_subject(keeper(), subject="usr_alice")
    for _ in file:
        assert arena.engine.pool.checkedout() == 0


@pytest.mark.guarantee("G-ARCH-18", "G-ARCH-08")
def test_a_damaged_archive_begins_no_transaction(arena: Arena, archive: bytes) -> None:
    begun: list[object] = []
    sa.event.listen(arena.engine, "begin", begun.append)
    with pytest.raises(ValidationFailed):
        arena.assistant.import_thread(keeper(), [archive[:-1]])
    assert begun == []
