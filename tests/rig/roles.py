"""The two roles of the grants file, and an engine that acts as one of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import psycopg
import sqlalchemy as sa

from engine_assistant import make_engine, migrate


@contextmanager
def acting_as_role(url: str, which: Literal["application", "keeper"]) -> Iterator[sa.Engine]:
    """Make both roles, run the grants, and give an engine whose connections are one of them."""
    owner = make_engine(url)
    name = sa.make_url(url).database or ""
    roles = {"application": f"app_{name}"[:60], "keeper": f"keep_{name}"[:60]}
    with owner.begin() as connection:
        for role in roles.values():
            connection.exec_driver_sql(f'CREATE ROLE "{role}" NOLOGIN')
    grant(owner, roles["application"], roles["keeper"])
    engine = make_engine(url)

    @sa.event.listens_for(engine, "connect")
    def become(connection: psycopg.Connection, _: object) -> None:
        connection.execute(f'SET ROLE "{roles[which]}"')
        connection.commit()

    try:
        yield engine
    finally:
        engine.dispose()
        with owner.begin() as connection:
            for role in roles.values():
                connection.exec_driver_sql(f'DROP OWNED BY "{role}"')
                connection.exec_driver_sql(f'DROP ROLE "{role}"')
        owner.dispose()


def grant(engine: sa.Engine, application: str, keeper: str) -> None:
    """Run the grants file as psql would."""
    text = (Path(migrate.migrations_path()) / "grants.sql").read_text()
    for name, value in {"application": application, "keeper": keeper, "schema": "public"}.items():
        text = text.replace(f':"{name}"', f'"{value}"')
    assert ':"' not in text
    bare = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    with engine.begin() as connection:
        for statement in filter(str.strip, bare.split(";")):
            connection.exec_driver_sql(statement)
