"""Postgres databases that are emptied after a test and given again, instead of made anew."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from sqlalchemy import URL

from engine_assistant import MANIFEST
from engine_assistant.testing.databases import Server
from engine_assistant.testing.postgres import libpq

__all__ = ["Washed"]

# Everything that a test could leave behind beside rows. Statistics too: they change plans.
_FORM: Final = """
WITH ours AS (SELECT oid, nspname, nspacl FROM pg_namespace
  WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'),
parts AS (
  SELECT concat_ws(' ', 'schema', nspname, nspacl) AS part FROM ours
  UNION ALL
  SELECT concat_ws(' ', 'relation', c.relname, c.relkind, c.relacl, c.reloptions, c.relowner,
    c.relrowsecurity)
    FROM pg_class c JOIN ours ON c.relnamespace = ours.oid
  UNION ALL
  SELECT concat_ws(' ', 'column', a.attrelid::regclass, a.attname, a.atttypid, a.attnotnull,
    a.attcollation, a.attacl, pg_get_expr(d.adbin, d.adrelid))
    FROM pg_attribute a JOIN pg_class c ON a.attrelid = c.oid JOIN ours ON c.relnamespace = ours.oid
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attnum > 0
  UNION ALL
  SELECT concat_ws(' ', 'constraint', conname, pg_get_constraintdef(k.oid))
    FROM pg_constraint k JOIN ours ON k.connamespace = ours.oid
  UNION ALL
  SELECT concat_ws(' ', 'index', pg_get_indexdef(i.indexrelid))
    FROM pg_index i JOIN pg_class c ON i.indexrelid = c.oid JOIN ours ON c.relnamespace = ours.oid
  UNION ALL
  SELECT concat_ws(' ', 'trigger', tgname, tgenabled) FROM pg_trigger WHERE NOT tgisinternal
  UNION ALL
  SELECT concat_ws(' ', 'rule', rulename) FROM pg_rewrite r
    JOIN pg_class c ON r.ev_class = c.oid JOIN ours ON c.relnamespace = ours.oid
  UNION ALL
  SELECT concat_ws(' ', 'function', proname) FROM pg_proc p JOIN ours ON p.pronamespace = ours.oid
  UNION ALL
  SELECT concat_ws(' ', 'database', datacl, datconnlimit) FROM pg_database
    WHERE datname = current_database()
  UNION ALL
  SELECT concat_ws(' ', 'setting', setconfig) FROM pg_db_role_setting
    WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
  UNION ALL
  SELECT concat_ws(' ', 'statistics', count(*)) FROM pg_statistic s
    JOIN pg_class c ON s.starelid = c.oid JOIN ours ON c.relnamespace = ours.oid
  UNION ALL
  SELECT concat_ws(' ', 'version', string_agg(version_num, ',')) FROM assistant_alembic_version
)
SELECT md5(string_agg(part, chr(10) ORDER BY part)) FROM parts
"""

_LEAVE: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
# Threads last: the others refer to them.
_EMPTY: Final = "; ".join(
    f"DELETE FROM {name}"  # noqa: S608 - the names are our own
    for name in sorted((one.name for one in MANIFEST.tables), key="assistant_threads".__eq__)
)


class Washed:
    """Copies of a template that are emptied and given again: in a tenth of the time of a new one.

    Whatever else a test did to one (tables, constraints, roles, statistics) is seen, and it is
    removed instead.
    """

    def __init__(self, server: Server, template: str) -> None:
        self._server = server
        self._template = template
        self._free: list[str] = []
        self._form = ""

    @contextmanager
    def lend(self) -> Iterator[str]:
        """Give the URL of an empty migrated database that nobody else has."""
        name = self._free.pop() if self._free else self._server.create(self._template)
        address = self._server.address(name)
        self._form = self._form or _form_of(address)
        try:
            yield address.render_as_string(hide_password=False)
        finally:
            if _wash(address, self._form):
                self._free.append(name)
            else:
                self._server.drop(name)

    def close(self) -> None:
        """Remove them all."""
        while self._free:
            self._server.drop(self._free.pop())


def _form_of(address: URL) -> str:
    """Return a digest of everything in a database but its rows."""
    with psycopg.connect(libpq(address), autocommit=True) as connection:
        return _form(connection)


def _wash(address: URL, wanted: str) -> bool:
    """Send everybody away and remove all rows; answer whether it is as good as new."""
    try:
        with psycopg.connect(libpq(address), autocommit=True) as connection:
            connection.execute("SET lock_timeout = '5s'")
            connection.execute(_LEAVE)
            if _form(connection) != wanted:
                return False
            connection.execute(_EMPTY.encode())
    except psycopg.Error:
        return False
    return True


def _form(connection: psycopg.Connection[tuple[object, ...]]) -> str:
    row = connection.execute(_FORM.encode()).fetchone()
    return "" if row is None else str(row[0])
