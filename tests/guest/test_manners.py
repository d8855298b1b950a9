"""What a process notices of us: nothing, until it asks for something."""

import json

import pytest
import sqlalchemy as sa

from engine_assistant import Assistant
from tests.rig.guest import ALICE, ROBOT, WALKED, python, types, walk

IMPORTING = """
import logging, socket, sqlite3, sys, threading, time
before = (list(logging.root.handlers), logging.root.level, set(threading.enumerate()))
opened = []
sys.addaudithook(lambda name, args: opened.append(name)
    if name in ("socket.connect", "sqlite3.connect", "subprocess.Popen") else None)
import engine_assistant
assert (list(logging.root.handlers), logging.root.level, set(threading.enumerate())) == before
assert opened == [], opened
assert not [name for name in logging.root.manager.loggerDict if name.startswith("engine_assistant")
            and logging.getLogger(name).handlers]
"""

WALK = """
import json, sys
from engine_assistant import Assistant
from tests.rig.guest import ALICE, ROBOT, walk
url = sys.stdin.readline().strip()
assistant = Assistant.from_url(url)
me, bot = assistant.acting_as(ALICE), assistant.acting_as(ROBOT)
thread = walk(me, bot)
print(json.dumps({
    "thread": thread,
    "page": me.read_events_json(thread_id=thread).decode(),
    "typed": [event.at.isoformat() for event in me.read_events(thread_id=thread).events],
    "created": me.get_thread(thread_id=thread).created_at.isoformat(),
    "expires": str(me.list_calls(thread_id=thread).items[0].expires_at),
}))
assistant.engine.dispose()
"""


@pytest.mark.guarantee("G-GUEST-64")
def test_importing_says_nothing_and_starts_nothing() -> None:
    done = python(IMPORTING, "-W", "error")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.guarantee("G-GUEST-64")
def test_importing_loads_no_driver_and_no_part_of_the_command() -> None:
    late = ("typer", "rich", "click", "aiosqlite", "alembic", "psycopg", "engine_assistant.cli")
    done = python(
        f"import sys, engine_assistant; print([name for name in {late!r} if name in sys.modules])"
    )
    loaded = set(json.loads(done.stdout.replace("'", '"')))
    # Alembic is a dependency of the core; the rest comes when it is needed.
    assert loaded <= {"alembic"}


@pytest.mark.guarantee("G-GUEST-64")
def test_without_the_extras_sqlite_works(sqlite_url: str) -> None:
    block = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"typer", "rich", "click", "aiosqlite", "psycopg_binary",
                                  "psycopg", "psycopg_pool"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
from engine_assistant import Assistant, Caller, USE, make_engine, make_async_engine, Internal
"""
    done = python(
        block
        + f"""
assistant = Assistant.from_url({sqlite_url!r})
me = assistant.acting_as(Caller(tenant="a", principal="b", permissions={{USE}}))
thread = me.create_thread().id
print(me.send_message(thread_id=thread, text="hi").last_seq)
for make, url in ((make_engine, "postgresql://localhost/x"), (make_async_engine, "sqlite://")):
    try:
        make(url)
    except Internal as error:
        print(error)
""",
        "-W",
        "error",
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "2"
    assert "engine-assistant[pg]" in lines[1]
    assert "engine-assistant[sqlite-async]" in lines[2]


@pytest.mark.guarantee("G-GUEST-64")
def test_importing_costs_little_more_than_what_it_stands_on() -> None:
    code = """
import time
import sqlalchemy, sqlalchemy.ext.asyncio, pydantic, alembic.operations, alembic.script
import alembic.runtime.migration, ulid
started = time.process_time()
import engine_assistant
print(time.process_time() - started)
"""
    spent = min(float(python(code).stdout) for _ in range(3))
    # Building the models and statements takes a fraction of a second of one core.
    assert spent < 2.5


@pytest.mark.parametrize(
    "env",
    [
        {"TZ": "America/Los_Angeles"},
        {"TZ": "Asia/Kathmandu", "PGTZ": "Pacific/Kiritimati"},
        {"PYTHONUTF8": "0", "LC_ALL": "C", "LANG": "C"},
        {"PYTHONUTF8": "1", "LC_ALL": "C.UTF-8"},
        {"PYTHONOPTIMIZE": "2"},
        {"PYTHONHASHSEED": "1", "PYTHONDEVMODE": "1"},
    ],
    ids=lambda env: " ".join(f"{name}={value}" for name, value in env.items()),
)
@pytest.mark.guarantee("G-GUEST-65")
def test_the_environment_of_the_process_changes_nothing(
    env: dict[str, str], database_url: str
) -> None:
    done = python(WALK, "-W", "error", given=database_url, **env)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assistant = Assistant.from_url(database_url)
    me = assistant.acting_as(ALICE)
    thread = told["thread"]
    assert types(me, thread) == WALKED
    # What it read of what it wrote is what this process, in its own zone, reads of it.
    assert me.read_events_json(thread_id=thread).decode() == told["page"]
    events = me.read_events(thread_id=thread).events
    assert [event.at.isoformat() for event in events] == told["typed"]
    assert all(text.endswith("+00:00") for text in told["typed"])
    assert me.get_thread(thread_id=thread).created_at.isoformat() == told["created"]
    assert str(me.list_calls(thread_id=thread).items[0].expires_at) == told["expires"]
    assistant.engine.dispose()


@pytest.mark.guarantee("G-GUEST-65")
def test_times_do_not_lean_on_the_zone_of_the_session(postgres_url: str) -> None:
    engine = sa.create_engine(postgres_url)
    assistant = Assistant(engine)
    pages, walked = set(), None
    for zone in ("Asia/Kolkata", "America/St_Johns", "UTC"):
        with engine.begin() as connection:
            connection.exec_driver_sql(f"SET LOCAL TIME ZONE '{zone}'")
            me, bot = assistant.bind(connection, ALICE), assistant.bind(connection, ROBOT)
            walked = walked or walk(me, bot)
            typed = [event.at.isoformat() for event in me.read_events(thread_id=walked).events]
            pages.add((me.read_events_json(thread_id=walked), tuple(typed)))
            lease = me.get_thread(thread_id=walked).created_at
            assert lease.utcoffset() is not None
            assert lease.isoformat().endswith("+00:00")
    assert len(pages) == 1
    engine.dispose()
