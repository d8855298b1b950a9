"""Archives in tests: made, taken apart, and sealed again by somebody who changed them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from engine_assistant import RUN, Assistant, Caller
from engine_assistant.store.tables import METADATA

__all__ = ["archive_of", "contents", "is_settled", "keeper", "line_of", "sealed", "value_of"]

Value = dict[str, object]


def keeper(tenant: str = "acme") -> Caller:
    """Answer who imports, and may export everything of a tenant."""
    return Caller(tenant=tenant, principal="sys_keeper", permissions={RUN}, system=True)


def archive_of(assistant: Assistant, thread_id: str, tenant: str = "acme") -> bytes:
    """Answer a thread's whole archive."""
    return b"".join(assistant.export_thread(keeper(tenant), thread_id=thread_id))


def is_settled(archive: bytes) -> bool:
    """Answer whether nothing in a thread is in the middle."""
    thread = value_of(archive.splitlines()[0])["thread"]
    assert isinstance(thread, dict)
    return (thread["turn_state"], thread["queued"]) == ("idle", 0)


def value_of(line: bytes) -> Value:
    read: Value = json.loads(line)
    return read


def line_of(value: Value) -> bytes:
    """Write a line as the engine does."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return f"{text}\n".encode()


def sealed(lines: Iterable[bytes]) -> bytes:
    """Make counts and digests anew, so that only what the lines say can give a change away."""
    kept: list[bytes] = []
    rows: list[bytes] = []
    for line in lines:
        value = value_of(line)
        if value.get("end") == "thread":
            kept.append(line_of({**value, "sha256": _sha256(kept)}))
        elif "end" in value:
            kept.append(line_of({**value, "count": len(rows), "sha256": _sha256(rows)}))
            rows = []
        else:
            kept.append(line)
            rows += [] if "archive" in value else [line]
    return b"".join(kept)


def _sha256(lines: Iterable[bytes]) -> str:
    return hashlib.sha256(b"".join(lines)).hexdigest()


def contents(engine: sa.Engine, tenant: str | None = None) -> dict[str, Sequence[object]]:
    """Answer every row there is, or every row of one tenant."""
    with engine.connect() as connection:
        return {
            table.name: [
                tuple(row)
                for row in connection.execute(
                    sa.select(table)
                    .where(sa.true() if tenant is None else table.c.tenant_id == tenant)
                    .order_by(*table.primary_key)
                )
            ]
            for table in METADATA.sorted_tables
        }
