"""The doctor only looks: it writes nothing, holds up nobody, and is not fooled by who writes."""

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection

from engine_assistant.doctor import Finding, Report, examine, reading_engine
from engine_assistant.engines import make_engine
from engine_assistant.store.tables import METADATA
from tests.rig.record import Record, Story, output, unfinished, words


def _dump(connection: Connection) -> dict[str, list[object]]:
    return {
        table.name: list(connection.execute(sa.select(table).order_by(*table.primary_key)))
        for table in METADATA.sorted_tables
    }


@pytest.mark.guarantee("G-DOCTOR-10")
def test_nothing_is_written(walked: Record) -> None:
    statements: list[str] = []

    def keep(_c: object, _u: object, statement: str, *_rest: object) -> None:
        statements.append(statement)

    with walked.engine.connect() as connection:
        before = _dump(connection)
    sa.event.listen(walked.engine, "before_cursor_execute", keep)
    try:
        assert list(walked.assistant.doctor()) == []
    finally:
        sa.event.remove(walked.engine, "before_cursor_execute", keep)
    with walked.engine.connect() as connection:
        assert _dump(connection) == before
    verbs = {statement.split()[0] for statement in statements}
    assert verbs <= {"SELECT", "SHOW", "BEGIN"}
    assert not [
        statement for statement in statements if "FOR " in statement.upper().split("FROM")[-1]
    ]


@pytest.mark.guarantee("G-DOCTOR-10")
def test_the_database_itself_lets_the_doctor_write_nothing(postgres_record: Record) -> None:
    reading = reading_engine(postgres_record.engine)
    update = sa.text("UPDATE assistant_threads SET turn = turn")
    with reading.connect() as connection, pytest.raises(sa.exc.InternalError, match="read-only"):
        connection.execute(update)
    with postgres_record.engine.begin() as connection:
        assert connection.scalar(sa.text("SHOW transaction_read_only")) == "off"
        assert connection.scalar(sa.text("SHOW transaction_isolation")) == "read committed"


@pytest.mark.guarantee("G-DOCTOR-11")
def test_somebody_in_the_middle_of_writing_is_neither_waited_for_nor_seen(record: Record) -> None:
    with record.engine.connect() as writer, writer.begin() as transaction:
        # The head is moved, the events are not there yet: half of an append.
        writer.execute(sa.text("UPDATE assistant_threads SET last_seq = last_seq + 1"))
        assert list(record.assistant.doctor()) == []
        transaction.rollback()


def _let_go(record: Record) -> Story:
    """Go on where a thread was left with its lease held."""
    return Story(record, record.threads["let go"], fence=1, batch=1)


@pytest.mark.guarantee("G-DOCTOR-11")
def test_nobody_is_held_up_by_an_examination(record: Record) -> None:
    """A writer goes on, and commits, while a thread is half examined."""
    thread_id = record.threads["let go"]
    with record.engine.begin() as connection:
        connection.execute(sa.text("UPDATE assistant_threads SET turn = 9"))
    reports: list[Report] = []
    findings = record.assistant.doctor(thread_id=thread_id, progress=reports.append)
    first = next(findings)
    assert first.thread_id == thread_id
    _let_go(record).write(*words("more"))
    assert [*findings] == []
    assert reports[-1].events == 3


@pytest.mark.guarantee("G-DOCTOR-11")
def test_a_thread_that_changes_meanwhile_is_seen_at_one_moment(record: Record) -> None:
    """Between any two statements of the examination the thread is written to, and it is clean."""
    story = _let_go(record)
    writes = 0
    going = False

    def write(_c: object, _u: object, statement: str, *_rest: object) -> None:
        nonlocal writes, going
        if going or not statement.startswith("SELECT"):
            return
        going = True
        writes += 1
        call = f"new{writes}"
        story.propose(call).write(output(call), *words("x")).rest()
        story.say().take()
        going = False

    # An engine of the doctor's own, so that the listener hears nobody else.
    own = make_engine(record.engine.url.render_as_string(hide_password=False))
    with reading_engine(own).connect() as connection:
        sa.event.listen(connection, "before_cursor_execute", write)
        found: list[Finding] = list(examine(connection, thread_id=story.thread_id))
    own.dispose()
    assert found == []
    assert writes > 5
    assert list(record.assistant.doctor()) == []


@pytest.mark.guarantee("G-DOCTOR-11")
def test_a_sqlite_engine_that_nobody_prepared_reads_one_moment_too(sqlite_url: str) -> None:
    prepared = make_engine(sqlite_url)
    story = _let_go(unfinished(prepared))
    bare = sa.create_engine(sqlite_url)
    written = []

    def write(_c: object, _u: object, statement: str, *_rest: object) -> None:
        if "assistant_events" in statement and not written:
            written.append(statement)
            story.write(*words("more"))

    with bare.connect() as connection:
        sa.event.listen(connection, "before_cursor_execute", write)
        assert list(examine(connection, thread_id=story.thread_id)) == []
    assert written
    bare.dispose()
    prepared.dispose()
