"""A record with a bit of everything in it, walked once for each kind of database."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine

from engine_assistant.testing.postgres import PostgresServer
from tests.rig import moves
from tests.rig.databases import DATABASES
from tests.rig.patient import Patient, admitted
from tests.rig.record import Record, unfinished, walk


def _walked(url: URL, kind: str) -> Iterator[Record]:
    from engine_assistant.engines import make_engine

    engine = make_engine(url.render_as_string(hide_password=False))
    try:
        # Not while it is lent out: others then walk on a database of their own.
        with moves.on(kind):
            record = walk(engine)
        yield record
    finally:
        engine.dispose()


@pytest.fixture(scope="session")
def sqlite_record(
    migrated_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Record]:
    path = tmp_path_factory.mktemp("doctor") / "assistant.db"
    shutil.copyfile(migrated_file, path)
    yield from _walked(URL.create("sqlite", database=str(path)), "sqlite")


@pytest.fixture(scope="session")
def postgres_record(postgres_server: PostgresServer, migrated_template: str) -> Iterator[Record]:
    name = postgres_server.create(migrated_template)
    yield from _walked(postgres_server.address(name), "postgres")
    postgres_server.drop(name)


@pytest.fixture(params=DATABASES)
def walked(request: pytest.FixtureRequest) -> Record:
    """A healthy record that many tests look at. None may change it for good."""
    record: Record = request.getfixturevalue(f"{request.param}_record")
    return record


@pytest.fixture
def patient(walked: Record) -> Iterator[Patient]:
    """The same record, to be harmed: all of it is rolled back."""
    with admitted(walked) as patient:
        yield patient


@pytest.fixture
def record(engine: Engine) -> Record:
    """A few threads in the middle of something, for this test alone."""
    return unfinished(engine)
