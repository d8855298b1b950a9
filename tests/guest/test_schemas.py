"""The host's schema: by `schema=`, or by the map of the host's own connection."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from engine_assistant import Assistant, Internal, NotFound, ValidationFailed, make_engine, migrate
from engine_assistant.store.tables import METADATA
from tests.rig.guest import ALICE, HELLO, ROBOT, WALKED, counted, dump, kept, opened, types, walk


@pytest.fixture
def two(empty_postgres_url: str) -> Iterator[sa.Engine]:
    """A database with two schemas and nothing of ours in the default one."""
    engine = make_engine(empty_postgres_url)
    with engine.begin() as connection:
        connection.exec_driver_sql('CREATE SCHEMA chat; CREATE SCHEMA "Other Chat"')
    yield engine
    engine.dispose()


def _tables(engine: sa.Engine) -> dict[str, int]:
    """Answer how many of our tables stand in each schema."""
    inspector = sa.inspect(engine)
    names = {name: set(inspector.get_table_names(name)) for name in inspector.get_schema_names()}
    return {name: len(found & set(METADATA.tables)) for name, found in names.items()}


@pytest.mark.guarantee("G-GUEST-55")
def test_two_schemas_side_by_side_know_nothing_of_each_other(two: sa.Engine) -> None:
    one, other = Assistant(two, schema="chat"), Assistant(two, schema="Other Chat")
    one.migrate()
    with pytest.raises(Internal, match="db upgrade"):
        other.acting_as(ALICE).create_thread()
    other.migrate()
    all_of_them = len(METADATA.tables)
    found = _tables(two)
    assert (found["chat"], found["Other Chat"], found["public"]) == (all_of_them, all_of_them, 0)

    me, bot = one.acting_as(ALICE), one.acting_as(ROBOT)
    thread = walk(me, bot)
    assert types(me, thread) == WALKED
    with pytest.raises(NotFound):
        other.acting_as(ALICE).get_thread(thread_id=thread)
    assert other.acting_as(ALICE).list_threads().items == ()
    assert other.list_runnable() == []
    mine, _ = opened(other)
    assert [item.thread_id for item in other.list_runnable()] == []
    assert one.list_runnable() == []
    with pytest.raises(NotFound):
        one.acting_as(ALICE).get_thread(thread_id=mine)
    with two.connect() as connection:
        assert len(dump(connection, "chat")["assistant_threads"]) == 1
        assert len(dump(connection, "Other Chat")["assistant_threads"]) == 1


def _everything_else(assistant: Assistant) -> None:
    """Try what `walk` leaves out."""
    me, bot = assistant.acting_as(ALICE), assistant.acting_as(ROBOT)
    thread = me.create_thread(key="k").id
    assert me.create_thread(key="k").id == thread
    me.authorize_file_upload(thread_id=thread)
    file = bot.register_file(
        thread_id=thread, filename="a.txt", content_type="text/plain", size=1, sha256="0" * 64
    )
    sent = me.send_message(thread_id=thread, text="see", attachment_ids=[file.id], key="m")
    assert me.send_message(
        thread_id=thread, text="see", attachment_ids=[file.id], key="m"
    ).duplicate
    assert [item.thread_id for item in assistant.list_runnable()] == [thread]
    lease = bot.acquire_run(thread_id=thread, run_id="r1")
    run = {"thread_id": thread, "run_id": "r1", "fence": lease.fence}
    bot.append_events(**run, events=[HELLO], batch=1)
    assert bot.append_events(**run, events=[HELLO], batch=1).duplicate
    call = {"type": "tool-input", "call_id": "c1", "tool": "look", "input": {}, "step": "s"}
    bot.append_events(**run, events=[call])
    assert bot.beat_run(**run).lease_until >= lease.lease_until
    assert bot.release_run(**run)
    bot.settle_execution(thread_id=thread, call_id="c1", claimed_fence=lease.fence, output=1)
    assert me.get_call(thread_id=thread, call_id="c1").call_id == "c1"
    assert [item.call_id for item in me.list_calls(thread_id=thread).items] == ["c1"]
    assert me.interrupt_turn(thread_id=thread).ended
    assert [item.id for item in me.list_threads(limit=1).items] == [thread]
    assert b"user-message" in me.read_events_json(thread_id=thread)
    me.close_thread(thread_id=thread)
    assert sent.first_seq == 1
    with assistant.session(ALICE) as ops:
        assert ops.lock_threads([thread])[0].status == "closed"


@pytest.mark.guarantee("G-GUEST-55")
def test_every_operation_works_in_a_schema_and_touches_no_other(two: sa.Engine) -> None:
    assistant = Assistant(two, schema="Other Chat")
    assistant.migrate()
    # Tables of the same names in the default schema, where nothing may come to stand.
    Assistant(two).migrate()
    with counted(two) as statements:
        walk(assistant.acting_as(ALICE), assistant.acting_as(ROBOT))
        _everything_else(assistant)
    ours = [line for line in statements if "assistant_" in line]
    assert ours
    assert [line for line in ours if '"Other Chat".' not in line] == []
    with two.connect() as connection:
        assert not any(dump(connection, "public").values())
        assert len(dump(connection, "Other Chat")["assistant_threads"]) == 2


@pytest.mark.guarantee("G-GUEST-56")
def test_the_map_of_the_hosts_connection_says_where(two: sa.Engine) -> None:
    host = two.execution_options(schema_translate_map={None: "chat"})
    with host.begin() as connection:
        migrate.upgrade(connection)
    # A plain front door: only the connection knows the schema.
    assistant = Assistant(two)
    with host.begin() as connection:
        me, bot = assistant.bind(connection, ALICE), assistant.bind(connection, ROBOT)
        thread = walk(me, bot)
        assert types(me, thread) == WALKED
    assert _tables(two)["public"] == 0
    mapped = Assistant(host)
    assert types(mapped.acting_as(ALICE), thread) == WALKED
    _everything_else(mapped)
    assert types(Assistant(two, schema="chat").acting_as(ALICE), thread) == WALKED


@pytest.mark.guarantee("G-GUEST-56")
def test_the_hosts_map_for_its_own_tables_is_left_alone(two: sa.Engine) -> None:
    notes = sa.Table("notes", sa.MetaData(), sa.Column("n", sa.Integer))
    assistant = Assistant(two, schema="chat")
    assistant.migrate()
    host = two.execution_options(schema_translate_map={None: "Other Chat"})
    notes.create(host)
    with host.begin() as connection:
        thread = walk(assistant.bind(connection, ALICE), assistant.bind(connection, ROBOT))
        connection.execute(notes.insert(), {"n": 1})
    assert types(assistant.acting_as(ALICE), thread) == WALKED
    with two.connect() as connection:
        assert connection.exec_driver_sql('SELECT n FROM "Other Chat".notes').scalar() == 1


@pytest.mark.guarantee("G-GUEST-55")
def test_a_schema_that_does_not_exist_says_so(two: sa.Engine) -> None:
    assistant = Assistant(two, schema="nowhere")
    with pytest.raises(ValidationFailed, match="does not exist"):
        assistant.migrate()
    with pytest.raises(Internal, match="db upgrade"):
        assistant.acting_as(ALICE).create_thread()


@pytest.mark.parametrize("by", ["argument", "map"])
@pytest.mark.guarantee("G-GUEST-55", "G-GUEST-56")
def test_an_attached_file_is_a_schema_on_sqlite(
    by: str, sqlite_url: str, empty_sqlite_url: str
) -> None:
    engine = make_engine(sqlite_url)
    other = sa.make_url(empty_sqlite_url).database

    @sa.event.listens_for(engine, "connect")
    def attach(dbapi: object, record: object) -> None:
        dbapi.execute("ATTACH ? AS chat", (other,))  # type: ignore[attr-defined]

    mapped = engine.execution_options(schema_translate_map={None: "chat"})
    assistant = Assistant(engine, schema="chat") if by == "argument" else Assistant(mapped)
    assistant.migrate()
    me, bot = assistant.acting_as(ALICE), assistant.acting_as(ROBOT)
    assert types(me, walk(me, bot)) == WALKED
    _everything_else(assistant)
    engine.dispose()
    assert not any(kept(sqlite_url).values())
    assert len(kept(empty_sqlite_url)["assistant_threads"]) == 2
