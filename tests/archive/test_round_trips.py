"""A thread that was exported and imported is the same thread: the same bytes come out of it."""

import pytest
import sqlalchemy as sa

from engine_assistant import USE, Assistant, Caller, Conflict, ConflictReason, make_engine
from engine_assistant.archive.format import ThreadFields
from engine_assistant.archive.sections import SECTIONS
from engine_assistant.store import tables
from engine_assistant.store.tables import METADATA
from tests.rig.archives import archive_of, contents, is_settled, keeper, value_of
from tests.rig.record import TENANT, Record
from tests.rig.stage import Stage, delta


def _archives(record: Record, *, settled: bool) -> dict[str, bytes]:
    """Answer the archives of threads in which everything, or not everything, is over."""
    made = {name: archive_of(record.assistant, one) for name, one in record.threads.items()}
    found = {name: archive for name, archive in made.items() if is_settled(archive) is settled}
    assert len(found) > 3
    return found


@pytest.mark.guarantee("G-ARCH-01")
def test_what_did_not_change_is_exported_in_the_same_bytes(walked: Record) -> None:
    for thread_id in walked.threads.values():
        once = archive_of(walked.assistant, thread_id)
        assert once == archive_of(walked.assistant, thread_id)
        lines = once.splitlines(keepends=True)
        assert lines == list(walked.assistant.export_thread(keeper(), thread_id=thread_id))


@pytest.mark.guarantee("G-ARCH-02")
def test_every_column_is_carried_or_is_known_not_to_be() -> None:
    """A column that somebody adds must be put on one side."""
    where = {"tenant_id", "thread_id"}
    carried = {section.table.name: set(section.fields.model_fields) for section in SECTIONS}
    for section in SECTIONS:
        assert carried[section.table.name] == set(section.table.c.keys()) - where
        assert set(section.key) | where == set(section.table.primary_key.columns.keys())
    assert set(METADATA.tables) - set(carried) == {
        "assistant_threads",
        "assistant_contexts",
        "assistant_outbox",
    }
    assert set(tables.threads.c.keys()) - set(ThreadFields.model_fields) == {
        "tenant_id",
        "origin_tenant",
        "import_digest",
        "imported_seq",
        # The lease.
        "run_id",
        "stale_after",
        "lease_until",
        # The last batch, of use to whoever holds the lease.
        "last_batch",
        "batch_digest",
        "batch_first_seq",
        "batch_last_seq",
        "context_bytes",
    }


@pytest.mark.guarantee("G-ARCH-02")
def test_an_archive_holds_every_row_of_its_thread(walked: Record) -> None:
    for thread_id in walked.threads.values():
        lines = archive_of(walked.assistant, thread_id).splitlines()
        kinds = [next(iter(value_of(line))) for line in lines]
        for section in SECTIONS:
            with walked.engine.connect() as connection:
                count = connection.scalar(
                    sa.select(sa.func.count())
                    .select_from(section.table)
                    .where(section.table.c.thread_id == thread_id)
                )
            assert kinds.count(section.kind) == count, section.name


@pytest.mark.guarantee("G-ARCH-03")
@pytest.mark.parametrize("origin", ["sqlite", "postgres"])
@pytest.mark.parametrize("tenant", [TENANT, "elsewhere"])
def test_an_imported_thread_gives_its_archive_again(
    request: pytest.FixtureRequest, origin: str, tenant: str, target: Assistant
) -> None:
    record: Record = request.getfixturevalue(f"{origin}_record")
    for name, archive in _archives(record, settled=True).items():
        thread_id = record.threads[name]
        imported = target.import_thread(keeper(tenant), [archive])
        assert (imported.thread_id, imported.created) == (thread_id, True)
        assert imported.events == archive.count(b'\n{"event":')
        assert archive_of(target, thread_id, tenant) == archive, name
    assert list(target.doctor()) == []
    there = contents(target.engine)
    assert there["assistant_outbox"] == there["assistant_contexts"] == []


@pytest.mark.guarantee("G-ARCH-03")
def test_rows_are_stored_as_they_were(sqlite_record: Record, target: Assistant) -> None:
    """Read by plain SQL, so that no fault of the export hides one of the import."""
    archives = _archives(sqlite_record, settled=True)
    for archive in archives.values():
        target.import_thread(keeper(), [archive])
    moved = {sqlite_record.threads[name] for name in archives}
    before, after = contents(sqlite_record.engine, TENANT), contents(target.engine)
    for section in SECTIONS:
        name = section.table.name
        mine = [row for row in before[name] if row[1] in moved]
        assert after[name] == mine, name


@pytest.mark.guarantee("G-ARCH-03", "G-OPS-19")
def test_events_that_only_a_newer_release_knows_travel_as_they_are(engine: sa.Engine) -> None:
    stage = Stage(engine)
    run = stage.open_turn()
    thread_id = str(run["thread_id"])
    stage.append(run, delta("how do I feel?"))
    mood = {"type": "mood", "body": '{"level":3,"type":"mood"}'}
    with engine.begin() as connection:
        connection.execute(sa.update(tables.events).where(tables.events.c.seq == 3).values(mood))
    stage.rest(run)
    archive = archive_of(stage.assistant, thread_id)
    assert b'"type":"mood"' in archive
    there = keeper("elsewhere")
    assert stage.assistant.import_thread(there, [archive]).events == 4
    assert archive_of(stage.assistant, thread_id, there.tenant) == archive
    told = stage.assistant.acting_as(there).read_events(thread_id=thread_id).events
    assert told == stage.me.read_events(thread_id=thread_id).events


@pytest.mark.guarantee("G-ARCH-07")
def test_a_thread_in_the_middle_of_something_is_refused(
    sqlite_record: Record, target: Assistant
) -> None:
    for archive in _archives(sqlite_record, settled=False).values():
        with pytest.raises(Conflict) as refused:
            target.import_thread(keeper(), [archive])
        assert refused.value.reason is ConflictReason.ARCHIVE_UNSETTLED
    assert not any(contents(target.engine).values())


@pytest.mark.guarantee("G-ARCH-07")
def test_cancel_open_ends_it_as_the_stop_button_would(
    sqlite_record: Record, target: Assistant
) -> None:
    archives = _archives(sqlite_record, settled=False)
    ended = 0
    for name, archive in archives.items():
        thread_id = sqlite_record.threads[name]
        assert target.import_thread(keeper(), [archive], cancel_open=True).created
        assert not target.import_thread(keeper(), [archive]).created, "the same archive again"
        owner = target.acting_as(Caller(tenant=TENANT, principal="usr_alice", permissions={USE}))
        assert owner.get_thread(thread_id=thread_id).turn_state == "idle"
        last = owner.read_events(thread_id=thread_id, last=1).events[0]
        assert (last.type, last.model_dump()["reason"]) == ("turn-finish", "interrupted")
        inputs = owner.list_inputs(thread_id=thread_id).items
        assert "queued" not in {one.state for one in inputs}
        ended += sum(one.state == "cancelled" for one in inputs)
    assert ended > 0, "somewhere a message waits"
    calls = owner.list_calls(thread_id=sqlite_record.threads["running"]).items
    assert {call.call_id: call.state.value for call in calls} == {
        "c1": "unknown",
        "c2": "unknown",
        "c3": "cancelled",
    }
    assert list(target.doctor()) == []
    kinds = [row[3] for row in contents(target.engine)["assistant_outbox"]]
    assert sorted(set(kinds)) == ["call-closed", "turn-finished"]
    assert kinds.count("turn-finished") == len(archives)


@pytest.mark.guarantee("G-ARCH-05")
def test_the_same_archive_again_is_nothing_new(sqlite_record: Record, target: Assistant) -> None:
    thread_id = sqlite_record.threads["everyday"]
    archive = archive_of(sqlite_record.assistant, thread_id)
    assert target.import_thread(keeper(), [archive]).created
    before = contents(target.engine)
    again = target.import_thread(keeper(), [archive])
    assert (again.created, again.thread_id, again.events) == (False, thread_id, 26)
    assert contents(target.engine) == before
    owner = target.acting_as(Caller(tenant=TENANT, principal="usr_alice", permissions={USE}))
    owner.send_message(thread_id=thread_id, text="It goes on here")
    before = contents(target.engine)
    assert not target.import_thread(keeper(), [archive]).created
    assert contents(target.engine) == before


@pytest.mark.guarantee("G-ARCH-05")
def test_a_tenant_that_gets_its_own_thread_back_keeps_what_it_has(walked: Record) -> None:
    before = contents(walked.engine)
    for thread_id in walked.threads.values():
        archive = archive_of(walked.assistant, thread_id)
        assert not walked.assistant.import_thread(keeper(), [archive]).created
    assert contents(walked.engine) == before


@pytest.mark.guarantee("G-ARCH-03")
def test_into_a_schema_of_its_own_and_out_of_it(
    sqlite_record: Record, empty_postgres_url: str
) -> None:
    engine = make_engine(empty_postgres_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA chat")
    assistant = Assistant(engine, schema="chat")
    assistant.migrate()
    archives = _archives(sqlite_record, settled=True)
    outcomes = assistant.import_threads(keeper(), archives.values())
    assert all(one.created for one in outcomes)
    for name, archive in archives.items():
        assert archive_of(assistant, sqlite_record.threads[name]) == archive
    assert list(assistant.doctor()) == []
    engine.dispose()


@pytest.mark.guarantee("G-ARCH-03", "G-ARCH-09")
def test_on_a_sqlite_engine_that_nobody_prepared(sqlite_record: Record, sqlite_url: str) -> None:
    bare = sa.create_engine(sqlite_url)
    assistant = Assistant(bare)
    archive = archive_of(sqlite_record.assistant, sqlite_record.threads["everyday"])
    assert assistant.import_thread(keeper(), [archive]).created
    assert archive_of(assistant, sqlite_record.threads["everyday"]) == archive
    bare.dispose()
