"""Engines as we make them and as a host does, and ways to migrate through them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from engine_assistant import migrate
from engine_assistant.engines import make_engine
from tests.rig.schemas import Schema, read_schema

ROOT = Path(__file__).parent.parent.parent


@contextmanager
def using(url: str) -> Iterator[sa.Engine]:
    engine = make_engine(url)
    yield engine
    engine.dispose()


@contextmanager
def unprepared(url: str) -> Iterator[sa.Engine]:
    """An engine as a host makes it who knows nothing of us."""
    engine = sa.create_engine(url)
    yield engine
    engine.dispose()


def upgrade(engine: sa.Engine, schema: str | None = None) -> None:
    with engine.connect() as connection:
        migrate.upgrade(connection, schema)


def seen(engine: sa.Engine, schema: str | None = None) -> Schema:
    with engine.connect() as connection:
        return read_schema(connection, schema)


def record(engine: sa.Engine, schema: str | None = None) -> Schema:
    """Answer what stands there, without Alembic's own table."""
    found = seen(engine, schema)
    found.pop(migrate.VERSION_TABLE, None)
    return found


def alembic(
    *words: str, url: str | None = None, cwd: Path = ROOT, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own; `more` are variables of its environment."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ENGINE_")}
    env |= more
    if url is not None:
        env["ENGINE_ASSISTANT_DATABASE_URL"] = url
    command = [str(Path(sys.executable).with_name("alembic")), *words]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def done(run: subprocess.CompletedProcess[str]) -> str:
    """Answer what a command said that has to end well."""
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
    return run.stdout
