"""The migrated schema is the declared one, and says at which revision it stands."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory

from engine_assistant import USE, Assistant, Caller, migrate
from engine_assistant.model.errors import Internal
from engine_assistant.store import tables
from tests.rig.migrating import ROOT, alembic, done, record, seen, upgrade, using
from tests.rig.schemas import Schema

PREFIX = "engine_assistant_"
NOON = "2026-01-01T12:00:00.000Z"
FULL_INDEX = (
    "DROP INDEX ix_assistant_threads_open;"
    "CREATE INDEX ix_assistant_threads_open ON assistant_threads (open_since)"
)
FEWER_STATES = (
    "ALTER TABLE assistant_runs DROP CONSTRAINT ck_assistant_runs_state;"
    "ALTER TABLE assistant_runs ADD CONSTRAINT ck_assistant_runs_state"
    " CHECK (state IN ('running', 'finished', 'released', 'lost'))"
)


# ---------------------------------------------------------------- declared = migrated


def declared(engine: sa.Engine) -> Schema:
    tables.METADATA.create_all(engine)
    found = seen(engine)
    tables.METADATA.drop_all(engine)
    assert seen(engine) == {}
    return found


def without_fillfactor(schema: Schema) -> Schema:
    """The one thing that only the migration makes: the declaration cannot say it everywhere."""
    return {
        name: [line.replace("{fillfactor=50}", "") for line in lines]
        for name, lines in schema.items()
    }


@pytest.mark.guarantee("G-SCHEMA-01")
def test_the_declared_schema_equals_the_migrated_one(empty_database_url: str) -> None:
    with using(empty_database_url) as engine:
        wanted = declared(engine)
        upgrade(engine)
        assert len(wanted) >= len(tables.METADATA.tables)
        assert without_fillfactor(record(engine)) == wanted


DRIFTS = {
    "postgres": [
        "ALTER TABLE assistant_threads DROP CONSTRAINT ck_assistant_threads_lease",
        "ALTER TABLE assistant_threads ALTER COLUMN title SET NOT NULL",
        'ALTER TABLE assistant_events ALTER COLUMN type TYPE text COLLATE "C"',
        'ALTER TABLE assistant_events ALTER COLUMN thread_id TYPE text COLLATE "default"',
        "ALTER TABLE assistant_events ALTER COLUMN turn SET DEFAULT 0",
        "ALTER TABLE assistant_runs DROP CONSTRAINT fk_assistant_runs_thread",
        FULL_INDEX,
        FEWER_STATES,
    ],
    "sqlite": [
        FULL_INDEX,
        "ALTER TABLE assistant_events ADD COLUMN more TEXT",
        "DROP TABLE assistant_files;CREATE TABLE assistant_files (tenant_id TEXT NOT NULL)",
    ],
}


@pytest.mark.parametrize(
    ("kind", "drift"), [(kind, drift) for kind, drifts in DRIFTS.items() for drift in drifts]
)
def test_a_drift_would_be_seen(request: pytest.FixtureRequest, kind: str, drift: str) -> None:
    with using(request.getfixturevalue(f"{kind}_url")) as engine:
        before = seen(engine)
        with engine.begin() as connection:
            for statement in drift.split(";"):
                connection.exec_driver_sql(statement)
        assert seen(engine) != before


@pytest.mark.guarantee("G-SCHEMA-02")
def test_identifiers_compare_bytewise(database_url: str) -> None:
    words = ["b", "a", "B", "é", "e\u0301", "Z", "-", "_", "10", "9", "\U0001f600", "\uffee"]
    row = {"subject_id": "s", "status": "open", "turn_state": "idle", "turn": 0, "last_seq": 0}
    row |= {"fence": 0, "last_batch": 0, "milestones": 0, "tenant_id": "t"}
    with using(database_url) as engine, engine.begin() as connection:
        bare = sa.table("assistant_threads", *(sa.column(name) for name in [*row, "id"]))
        when = dict.fromkeys(("created_at", "last_active_at"), NOON)
        moments = sa.table(
            "assistant_threads", *(sa.column(name) for name in [*bare.c.keys(), *when])
        )
        for word in words:
            connection.execute(sa.insert(moments).values({**row, **when, "id": word}))
        found = list(connection.scalars(sa.select(bare.c.id).order_by(bare.c.id)))
    assert found == sorted(words, key=lambda word: word.encode())


@pytest.mark.guarantee("G-SCHEMA-03")
def test_thread_rows_have_room_for_their_next_version(postgres_url: str) -> None:
    with using(postgres_url) as engine:
        options = {name: lines[-1] for name, lines in seen(engine).items()}
    assert options.pop("assistant_threads") == "options {fillfactor=50}"
    assert set(options.values()) == {"options "}


@pytest.mark.guarantee("G-SCHEMA-04")
@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("assistant_threads", {"status": "ajar"}),
        ("assistant_threads", {"turn_state": "running"}),
        ("assistant_threads", {"last_seq": -1}),
        ("assistant_threads", {"fence": -1}),
        ("assistant_threads", {"run_id": "r"}),
        ("assistant_threads", {"stale_after": 1.0}),
        ("assistant_tool_calls", {"state": "finished"}),
        ("assistant_tool_calls", {"state": "approved"}),
        ("assistant_tool_calls", {"operation": "refund"}),
        ("assistant_tool_calls", {"thread_id": "missing"}),
    ],
)
def test_the_database_itself_refuses(
    database_url: str, table: str, change: dict[str, object]
) -> None:
    when = dict.fromkeys(("created_at", "last_active_at"), NOON)
    thread = {"tenant_id": "t", "id": "h", "subject_id": "s", "status": "open"} | when
    thread |= {"turn_state": "idle", "turn": 0, "last_seq": 0, "fence": 0, "last_batch": 0}
    thread["milestones"] = 0
    call = {"tenant_id": "t", "thread_id": "h", "call_id": "c", "turn": 1, "step": "s1"}
    call |= {"tool": "x", "state": "running", "input_seq": 1, "input_digest": "d"}
    call |= {"created_at": when["created_at"], "updated_at": when["created_at"]}
    rows = {"assistant_threads": thread, "assistant_tool_calls": call}

    def insert(connection: sa.Connection, name: str, row: dict[str, object]) -> None:
        bare = sa.table(name, *(sa.column(column) for column in row))
        connection.execute(sa.insert(bare).values(row))

    with using(database_url) as engine:
        with engine.begin() as connection:
            for name, row in rows.items():
                insert(connection, name, row)
        other = "id" if table == "assistant_threads" else "call_id"
        with pytest.raises(sa.exc.IntegrityError), engine.begin() as connection:
            insert(connection, table, {**rows[table], other: "other", **change})


# ---------------------------------------------------------------- revisions


def test_there_is_one_head_and_its_name_fits() -> None:
    scripts = ScriptDirectory(migrate.migrations_path())
    revisions = list(scripts.walk_revisions())
    assert scripts.get_heads() == [migrate.head()]
    assert scripts.get_bases() == [f"{PREFIX}0001"]
    assert "engine_assistant" in revisions[-1].branch_labels
    # A host's Alembic keeps the name in VARCHAR(32), and finds ours by the prefix.
    assert all(revision.revision.startswith(PREFIX) for revision in revisions)
    assert all(len(revision.revision) <= 32 for revision in revisions)


def test_both_ways_to_migrate_take_the_same_lock_and_keep_the_same_table() -> None:
    env = (ROOT / "migrations" / "env.py").read_text(encoding="utf-8")
    assert f'VERSION_TABLE = "{migrate.VERSION_TABLE}"' in env
    assert re.findall(r"pg_advisory_xact_lock\(.+?\)", env) == [
        migrate._ADVISORY_LOCK.removeprefix("SELECT ")
    ]


@pytest.mark.guarantee("G-SCHEMA-05")
def test_up_down_up_ends_where_it_began(empty_database_url: str) -> None:
    with using(empty_database_url) as engine:
        done(alembic("upgrade", "head", url=empty_database_url))
        first = seen(engine)
        done(alembic("downgrade", "base", url=empty_database_url))
        assert list(record(engine)) == []
        done(alembic("upgrade", "head", url=empty_database_url))
        assert seen(engine) == first


@pytest.mark.guarantee("G-SCHEMA-05")
def test_what_no_older_release_knows_goes_whole(database_url: str) -> None:
    assistant = Assistant.from_url(database_url)
    person = assistant.acting_as(Caller(tenant="acme", principal="usr_alice", permissions={USE}))
    thread = person.create_thread().id
    sent = [
        person.send_message(thread_id=thread, text="Hi", key=key, when_busy="queue")
        for key in ("held", "withdrawn", "waits")
    ]
    person.cancel_input(thread_id=thread, input_id=sent[1].input_id)
    assistant.engine.dispose()
    done(alembic("downgrade", f"{PREFIX}0002", url=database_url))
    done(alembic("upgrade", "head", url=database_url))
    assert list(assistant.doctor()) == []
    again = [
        person.send_message(thread_id=thread, text="Hi", key=key, when_busy="queue")
        for key in ("held", "withdrawn", "waits")
    ]
    assert [one.duplicate for one in again] == [True, False, False]
    assistant.engine.dispose()


@pytest.mark.guarantee("G-SCHEMA-05")
@pytest.mark.parametrize("section", [[], ["-n", "engine_assistant"]], ids=["default", "named"])
def test_alembic_at_the_root_makes_what_the_function_makes(
    empty_database_url: str, section: list[str]
) -> None:
    said = done(alembic(*section, "upgrade", "head", url=empty_database_url))
    steps = [script.revision for script in ScriptDirectory(ROOT / "migrations").walk_revisions()]
    assert said.splitlines() == [f"up to {revision}" for revision in reversed(steps)]
    with using(empty_database_url) as engine:
        from_command = seen(engine)
        with engine.connect() as connection:
            migrate.check(connection)
        done(alembic(*section, "downgrade", "base", url=empty_database_url))
        upgrade(engine)
        assert seen(engine) == from_command


def test_alembic_without_a_database_named_makes_a_file_where_it_is_run(tmp_path: Path) -> None:
    ini = str(ROOT / "alembic.ini")
    done(alembic("-c", ini, "upgrade", "head", url=None, cwd=tmp_path))
    done(alembic("-c", ini, "-x", "url=sqlite:///x.db", "upgrade", "head", url=None, cwd=tmp_path))
    for name in ("assistant.db", "x.db"):
        with using(f"sqlite:///{tmp_path / name}") as engine, engine.connect() as connection:
            assert migrate.current(connection) == migrate.head()


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_alembic_reads_the_urls_that_the_package_reads(
    empty_postgres_url: str, scheme: str
) -> None:
    url = f"{scheme}{empty_postgres_url.removeprefix('postgresql+psycopg')}&pooler=transaction"
    done(alembic("upgrade", "head", url=url))


@pytest.mark.parametrize(
    "url", ["mysql://u:hunter2@h/d", "u:hunter2@h", "postgresql://u:hunter2@h:p/"]
)
def test_alembic_refuses_another_database_and_shows_no_password(url: str) -> None:
    run = alembic("upgrade", "head", url=url)
    assert run.returncode != 0
    assert "must be postgresql://" in run.stdout + run.stderr
    assert "hunter2" not in run.stdout + run.stderr


def test_the_sql_can_be_read_before_it_is_run(empty_postgres_url: str) -> None:
    script = done(alembic("upgrade", "head", "--sql", url=empty_postgres_url))
    with using(empty_postgres_url) as engine:
        with engine.begin() as connection:
            for statement in script.split(";\n"):
                if statement.strip() and statement.strip() not in ("BEGIN", "COMMIT"):
                    connection.exec_driver_sql(statement)
        by_hand = record(engine)
        with engine.connect() as connection:
            migrate.check(connection)
        done(alembic("downgrade", "base", url=empty_postgres_url))
        upgrade(engine)
        assert record(engine) == by_hand


# ---------------------------------------------------------------- check, ahead, behind


@pytest.fixture
def newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], None]]:
    """A switch between this code and code that has one more revision."""
    ours = migrate.migrations_path()
    more = tmp_path / "newer"
    shutil.copytree(ours, more)
    (more / "versions" / "9999_more.py").write_text(
        "import sqlalchemy as sa\n"
        f"revision = '{PREFIX}9999'\n"
        f"down_revision = '{migrate.head()}'\n"
        "branch_labels = None\n"
        "depends_on = None\n"
        "def upgrade(op):\n"
        "    op.add_column('assistant_threads', sa.Column('more', sa.Text()))\n"
        "def downgrade(op):\n"
        "    op.drop_column('assistant_threads', 'more')\n"
    )

    def forget() -> None:
        migrate._scripts.cache_clear()
        migrate._known.cache_clear()

    def switch(on: bool) -> None:
        monkeypatch.setattr(migrate, "migrations_path", lambda: more if on else ours)
        forget()

    yield switch
    monkeypatch.undo()
    forget()


@pytest.mark.guarantee("G-SCHEMA-06")
def test_check_says_missing_behind_and_ahead(
    empty_database_url: str, newer: Callable[[bool], None]
) -> None:
    known, unknown = migrate.head(), f"{PREFIX}9999"
    with using(empty_database_url) as engine, engine.connect() as connection:
        assert migrate.current(connection) is None
        with pytest.raises(Internal, match=r"not there.*engine-assistant db upgrade") as error:
            migrate.check(connection)
        assert error.value.facts == {"current": None, "head": known}

        migrate.upgrade(connection)
        migrate.check(connection)

        newer(True)
        with pytest.raises(Internal, match=r"behind.*alembic upgrade head") as error:
            migrate.check(connection)
        assert error.value.facts == {"current": known, "head": unknown}
        migrate.upgrade(connection)
        migrate.check(connection)
        assert "more" in {c["name"] for c in sa.inspect(engine).get_columns("assistant_threads")}

        newer(False)
        before = seen(engine)
        for refused in (migrate.check, migrate.upgrade):
            with pytest.raises(Internal, match="newer code") as error:
                refused(connection)
            assert error.value.facts == {"current": unknown, "head": known}
        assert seen(engine) == before


def test_two_versions_in_the_table_are_refused(database_url: str) -> None:
    with using(database_url) as engine:
        with engine.begin() as connection:
            connection.exec_driver_sql(
                f"INSERT INTO {migrate.VERSION_TABLE} VALUES ('{PREFIX}0000')"
            )
        with engine.connect() as connection, pytest.raises(Internal, match="several revisions"):
            migrate.check(connection)


@pytest.mark.guarantee("G-SCHEMA-06")
def test_asking_takes_no_write_lock(sqlite_url: str) -> None:
    with using(sqlite_url) as writer, using(f"{sqlite_url}?timeout=0") as reader:
        with writer.begin(), reader.connect() as connection:
            migrate.check(connection)
            with pytest.raises(sa.exc.OperationalError, match="locked"):
                migrate.upgrade(connection)
        # And the connection is as it was: its next transaction is one that writes.
        with reader.connect() as connection:
            migrate.check(connection)
            with connection.begin(), pytest.raises(sa.exc.OperationalError, match="locked"):
                upgrade(reader)
