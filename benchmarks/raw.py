"""The other side: the same work by the bare drivers, written as one would write it by hand."""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, cast

import psycopg
import sqlalchemy as sa

from benchmarks.measure import Work
from benchmarks.stage import TENANT, Event, Stage, Talk
from engine_assistant.model.events import EVENTS

__all__ = ["RawPostgres", "RawSqlite", "Sent", "sent_by"]

_BEGIN: Final = "BEGIN"
_COMMIT: Final = "COMMIT"
_LOCK: Final = """
SELECT last_seq, turn, fence, run_id, status, turn_state FROM assistant_threads
WHERE tenant_id = %(tenant)s AND id = %(thread)s FOR NO KEY UPDATE"""
_RENEW: Final = """
UPDATE assistant_threads SET lease_until = clock_timestamp() + interval '300 seconds'
WHERE tenant_id = %(tenant)s AND id = %(thread)s AND fence = %(fence)s AND run_id = %(run)s"""
_NUMBER: Final = """
UPDATE assistant_threads SET last_seq = last_seq + %(count)s
WHERE tenant_id = %(tenant)s AND id = %(thread)s RETURNING last_seq, turn"""
_NUMBER_AND_RENEW: Final = """
UPDATE assistant_threads
SET last_seq = last_seq + %(count)s, lease_until = clock_timestamp() + interval '300 seconds'
WHERE tenant_id = %(tenant)s AND id = %(thread)s AND fence = %(fence)s AND run_id = %(run)s
  AND status = 'open' AND turn_state = 'open'
RETURNING last_seq, turn"""
_INSERT: Final = """
INSERT INTO assistant_events (tenant_id, thread_id, seq, type, turn, body, created_at)
SELECT %(tenant)s, %(thread)s, %(last)s - %(count)s + ord, type, %(turn)s, body, clock_timestamp()
FROM unnest(%(types)s::text[], %(bodies)s::text[]) WITH ORDINALITY AS batch (type, body, ord)"""
_ROWS: Final = """
SELECT seq, type, turn, body, created_at FROM assistant_events
WHERE tenant_id = %(tenant)s AND thread_id = %(thread)s AND seq > %(after)s AND seq <= %(last)s
ORDER BY seq"""
_PAGE: Final = """
SELECT seq, turn, body,
  to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
FROM assistant_events
WHERE tenant_id = %(tenant)s AND thread_id = %(thread)s AND seq > %(after)s AND seq <= %(last)s
ORDER BY seq"""

_json: Final = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), check_circular=False
).encode
"""The bytes that ours stores, by the quickest encoder of the standard library."""


@dataclass(frozen=True)
class Sent:
    """One statement as our engine sent it to the driver."""

    statement: str
    parameters: Mapping[str, object]


def sent_by(stage: Stage, work: Work) -> Sent:
    """Answer the one statement that our engine sends while it does something."""
    seen: list[Sent] = []

    def note(*event: object) -> None:
        _, _, statement, parameters, *_ = event
        seen.append(Sent(str(statement), cast("dict[str, object]", parameters)))

    sa.event.listen(stage.engine, "before_cursor_execute", note)
    try:
        work()
    finally:
        sa.event.remove(stage.engine, "before_cursor_execute", note)
    (sent,) = seen
    return sent


@dataclass
class RawPostgres:
    """One psycopg connection, and what it does to one thread.

    It begins where a host begins: with events that are Python values.
    """

    url: str
    talk: Talk
    events: Sequence[Event] = ()

    def __post_init__(self) -> None:
        self.connection = psycopg.connect(self.url, autocommit=True)
        self._key = {"tenant": TENANT, "thread": self.talk.thread_id}
        self._held = self._key | {"run": self.talk.run_id, "fence": self.talk.fence}

    def append_in_one(self, sent: Sent) -> Work:
        """Answer the work of sending what ours sends."""
        statement, fixed = sent.statement, dict(sent.parameters)

        def work() -> object:
            types = "\n".join([str(event["type"]) for event in self.events])
            bodies = "\n".join([_json(event) for event in self.events])
            values = {**fixed, "in_types": types, "in_bodies": bodies}
            return self.connection.execute(statement, values).fetchone()

        return work

    def append_in_four(self) -> None:
        """Number and renew in one guarded update: four statements, BEGIN and COMMIT counted."""
        execute = self.connection.execute
        execute(_BEGIN)
        head = execute(_NUMBER_AND_RENEW, self._held | {"count": len(self.events)}).fetchone()
        self._insert(head)
        execute(_COMMIT)

    def append_in_six(self) -> None:
        """Lock, renew, number, insert, each by itself: six statements."""
        execute = self.connection.execute
        execute(_BEGIN)
        found = execute(_LOCK, self._key).fetchone()
        if found is None or found[2:4] != (self.talk.fence, self.talk.run_id):
            raise RuntimeError("the lease is gone")
        execute(_RENEW, self._held)
        head = execute(_NUMBER, self._key | {"count": len(self.events)}).fetchone()
        self._insert(head)
        execute(_COMMIT)

    def _insert(self, head: tuple[object, ...] | None) -> None:
        if head is None:
            raise RuntimeError("the thread is gone")
        values: dict[str, object] = {
            **self._key,
            "last": head[0],
            "turn": head[1],
            "count": len(self.events),
            "types": [str(event["type"]) for event in self.events],
            "bodies": [_json(event) for event in self.events],
        }
        self.connection.execute(_INSERT, values)

    def rows(self, after: int, limit: int) -> list[tuple[object, ...]]:
        """Fetch a page's rows, and do nothing with them."""
        values = {**self._key, "after": after, "last": after + limit}
        return self.connection.execute(_ROWS, values).fetchall()

    def typed(self, after: int, limit: int) -> list[object]:
        """Fetch a page and validate it as one list of the same models."""
        values = {**self._key, "after": after, "last": after + limit}
        texts = [
            f'{{"seq":{seq},"turn":{turn},"at":"{at}",{str(body)[1:]}'
            for seq, turn, body, at in self.connection.execute(_PAGE, values)
        ]
        return list(EVENTS.validate_json(f"[{','.join(texts)}]"))


class RawSqlite:
    """One sqlite3 connection, set up as ours are, and what it does to one thread."""

    _NUMBER = """
UPDATE assistant_threads SET last_seq = last_seq + ?, lease_until = ?
WHERE tenant_id = ? AND id = ? AND fence = ? AND run_id = ?
  AND status = 'open' AND turn_state = 'open'
RETURNING last_seq, turn, interrupt_requested_at"""
    _INSERT = """
INSERT INTO assistant_events (tenant_id, thread_id, seq, type, turn, body, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?)"""

    def __init__(self, path: Path, talk: Talk, events: Sequence[Event]) -> None:
        """Connect."""
        self.connection = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode = WAL", "foreign_keys = ON", "synchronous = FULL"):
            self.connection.execute(f"PRAGMA {pragma}").close()
        self._talk = talk
        self._events = events

    def append(self) -> None:
        """Append in one transaction."""
        execute: Callable[..., sqlite3.Cursor] = self.connection.execute
        talk, count, now = self._talk, len(self._events), datetime.now(UTC)
        until, at = _text(now + timedelta(seconds=300)), _text(now)
        bodies = [_json(event) for event in self._events]
        execute("BEGIN IMMEDIATE")
        key = (TENANT, talk.thread_id)
        head = execute(self._NUMBER, (count, until, *key, talk.fence, talk.run_id)).fetchone()
        last, turn, _ = head
        first = last - count + 1
        self.connection.executemany(
            self._INSERT,
            [
                (*key, seq, event["type"], turn, body, at)
                for seq, (event, body) in enumerate(zip(self._events, bodies, strict=True), first)
            ],
        )
        execute("COMMIT")


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
