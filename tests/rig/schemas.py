"""What a database was made to be, as plain data: two that are equal behave alike.

Texts are never compared with what somebody declared. Postgres rewrites CHECKs, so what is compared
is what each database says about itself.
"""

from __future__ import annotations

import re

import sqlalchemy as sa

Schema = dict[str, list[str]]
"""For each table, or index on SQLite, what the catalog says of it."""

_COLUMNS = """
    SELECT c.relname, format('%s. %s %s%s collate %s default %s identity %s', a.attnum, a.attname,
             format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN ' not null' END,
             (SELECT collname FROM pg_collation WHERE oid = a.attcollation),
             (SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef
               WHERE adrelid = a.attrelid AND adnum = a.attnum),
             a.attidentity)
      FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
     WHERE c.relnamespace = CAST(:schema AS regnamespace) AND c.relkind IN ('r', 'p')
       AND a.attnum > 0 AND NOT a.attisdropped
"""
_CONSTRAINTS = """
    SELECT c.relname, format('%s %s', o.conname, pg_get_constraintdef(o.oid))
      FROM pg_constraint o JOIN pg_class c ON c.oid = o.conrelid
     WHERE c.relnamespace = CAST(:schema AS regnamespace)
"""
_INDEXES = """
    SELECT c.relname, pg_get_indexdef(i.indexrelid)
      FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
     WHERE c.relnamespace = CAST(:schema AS regnamespace)
"""
_OPTIONS = """
    SELECT c.relname, format('options %s', c.reloptions)
      FROM pg_class c
     WHERE c.relnamespace = CAST(:schema AS regnamespace) AND c.relkind IN ('r', 'p')
"""


def read_schema(connection: sa.Connection, schema: str | None = None) -> Schema:
    """Answer what stands in the schema: columns, collations, keys, CHECKs, indexes, options."""
    if connection.dialect.name == "sqlite":
        return _sqlite(connection, schema or "main")
    found: Schema = {}
    name = schema or "public"
    for query in (_COLUMNS, _CONSTRAINTS, _INDEXES, _OPTIONS):
        rows = connection.execute(sa.text(query), {"schema": name})
        for table, line in sorted((row[0], row[1]) for row in rows):
            # The schema's own name is not a property of the tables.
            found.setdefault(table, []).append(line.replace(f" {name}.", " "))
    return found


def _sqlite(connection: sa.Connection, schema: str) -> Schema:
    master = connection.exec_driver_sql(
        f'SELECT name, sql FROM "{schema}".sqlite_master WHERE sql IS NOT NULL ORDER BY name'
    )
    found = {str(row[0]): _parts(str(row[1]).replace(f"{schema}.", "")) for row in master}
    for name in list(found):
        info = connection.exec_driver_sql(f'PRAGMA "{schema}".table_xinfo("{name}")')
        found[name] += [str(tuple(row)) for row in info]
    return found


def _parts(text: str) -> list[str]:
    """Cut a statement at its outer commas; where a constraint stands in it means nothing."""
    text = re.sub(r"\s+", " ", text)
    parts, depth = [""], 0
    for sign in text:
        depth += {"(": 1, ")": -1}.get(sign, 0)
        cut = (sign == "(" and depth == 1) or (sign == ")" and depth == 0)
        if cut or (sign == "," and depth == 1):
            parts.append("")
        else:
            parts[-1] += sign
    return sorted(part.strip() for part in parts if part.strip())
