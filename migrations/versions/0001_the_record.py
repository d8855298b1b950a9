"""The record: threads, events, inputs, runs, tool calls, approvals, files, outbox.

Revision ID: engine_assistant_0001
Revises: (nothing)

A revision is frozen text. It imports nothing of engine_assistant and is never edited once
released: what it made must stay what it makes.
"""

import sqlalchemy as sa
from alembic import op as alembic_op
from alembic.operations import Operations

revision = "engine_assistant_0001"
down_revision = None
branch_labels = ("engine_assistant",)
depends_on = None

# Identifiers compare bytewise on both databases; on SQLite that is what TEXT does.
IDENTITY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INSTANT = sa.TIMESTAMP(timezone=True).with_variant(sa.Text(), "sqlite")


# Alembic's global `op` serves one migration per process at a time; our own runner passes another.
def upgrade(op: Operations = alembic_op) -> None:
    """Make the eight tables, in any schema, on Postgres and on SQLite."""
    _threads(op)
    _events(op)
    _inputs(op)
    _runs(op)
    _tool_calls(op)
    _approvals(op)
    _files(op)
    _outbox(op)


def downgrade(op: Operations = alembic_op) -> None:
    """Drop the tables and everything in them."""
    for name in (
        "outbox",
        "files",
        "approvals",
        "tool_calls",
        "runs",
        "inputs",
        "events",
        "threads",
    ):
        op.drop_table(f"assistant_{name}")


def _id(name: str, *, null: bool = False) -> sa.Column:
    return sa.Column(name, IDENTITY, nullable=null)


def _text(name: str, *, null: bool = False) -> sa.Column:
    return sa.Column(name, sa.Text(), nullable=null)


def _number(name: str, *, null: bool = False) -> sa.Column:
    return sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=null)


def _instant(name: str, *, null: bool = False) -> sa.Column:
    return sa.Column(name, INSTANT, nullable=null)


def _primary(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint("tenant_id", *columns, name=f"pk_assistant_{table}")


def _of_thread(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["tenant_id", "thread_id"],
        ["assistant_threads.tenant_id", "assistant_threads.id"],
        name=f"fk_assistant_{table}_thread",
    )


def _check(table: str, name: str, condition: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(condition, name=f"ck_assistant_{table}_{name}")


def _index(
    op: Operations, table: str, name: str, *columns: str, unique: bool = False, where: str = ""
) -> None:
    condition = sa.text(where) if where else None
    op.create_index(
        f"ix_assistant_{table}_{name}",
        f"assistant_{table}",
        list(columns),
        unique=unique,
        postgresql_where=condition,
        sqlite_where=condition,
    )


def _threads(op: Operations) -> None:
    threads = op.create_table(
        "assistant_threads",
        _id("tenant_id"),
        _id("id"),
        _id("subject_id"),
        _id("key", null=True),
        _text("title", null=True),
        _text("status"),
        _text("turn_state"),
        _number("turn"),
        _instant("open_since", null=True),
        _instant("next_deadline", null=True),
        _number("last_seq"),
        _id("run_id", null=True),
        _number("fence"),
        sa.Column("stale_after", sa.Double(), nullable=True),
        _instant("lease_until", null=True),
        _number("last_batch"),
        _text("batch_digest", null=True),
        _number("batch_first_seq", null=True),
        _number("batch_last_seq", null=True),
        _instant("interrupt_requested_at", null=True),
        _number("milestones"),
        _instant("created_at"),
        _instant("last_active_at"),
        _instant("closed_at", null=True),
        _primary("threads", "id"),
        _check("threads", "status", "status IN ('open', 'closed')"),
        _check("threads", "turn_state", "turn_state IN ('idle', 'open', 'awaiting')"),
        _check("threads", "counters", "last_seq >= 0 AND fence >= 0 AND turn >= 0"),
        _check(
            "threads",
            "lease",
            "(run_id IS NULL AND lease_until IS NULL AND stale_after IS NULL)"
            " OR (run_id IS NOT NULL AND lease_until IS NOT NULL AND stale_after IS NOT NULL)",
        ),
    )
    _index(op, "threads", "key", "tenant_id", "subject_id", "key", unique=True)
    _index(op, "threads", "listing", "tenant_id", "subject_id", "last_active_at", "id")
    _index(op, "threads", "open", "open_since", where="turn_state = 'open'")
    _index(op, "threads", "deadline", "next_deadline", where="turn_state = 'awaiting'")
    if op.get_context().dialect.name == "postgresql":
        # Every append updates this row. Half a page of room keeps the new version in the page of
        # the old one, and then no index is touched.
        room = sa.DDL("ALTER TABLE %(fullname)s SET (fillfactor = 50)")
        op.execute(room.against(threads))


def _events(op: Operations) -> None:
    op.create_table(
        "assistant_events",
        _id("tenant_id"),
        _id("thread_id"),
        _number("seq"),
        _text("type"),
        _number("turn"),
        _text("body"),
        _instant("created_at"),
        _primary("events", "thread_id", "seq"),
    )


def _inputs(op: Operations) -> None:
    op.create_table(
        "assistant_inputs",
        _id("tenant_id"),
        _id("thread_id"),
        _id("id"),
        _id("author_id"),
        _id("key", null=True),
        _text("key_digest"),
        _text("state"),
        _number("turn"),
        _number("first_seq"),
        _number("last_seq"),
        _primary("inputs", "thread_id", "id"),
        _of_thread("inputs"),
        _check("inputs", "state", "state IN ('queued', 'opened', 'absorbed', 'cancelled')"),
    )
    _index(op, "inputs", "key", "tenant_id", "thread_id", "author_id", "key", unique=True)
    _index(op, "inputs", "author", "tenant_id", "author_id")


def _runs(op: Operations) -> None:
    op.create_table(
        "assistant_runs",
        _id("tenant_id"),
        _id("thread_id"),
        _number("fence"),
        _id("run_id"),
        _text("state"),
        _instant("started_at"),
        _instant("ended_at", null=True),
        _primary("runs", "thread_id", "fence"),
        _of_thread("runs"),
        _check("runs", "state", "state IN ('running', 'finished', 'released', 'lost', 'closed')"),
    )


def _tool_calls(op: Operations) -> None:
    op.create_table(
        "assistant_tool_calls",
        _id("tenant_id"),
        _id("thread_id"),
        _id("call_id"),
        _number("turn"),
        _id("step"),
        _id("tool"),
        _text("state"),
        _id("provider_call_id", null=True),
        _number("input_seq"),
        _text("input_digest"),
        _id("operation", null=True),
        _id("version", null=True),
        _id("expires_at", null=True),
        _number("required", null=True),
        _number("request_seq", null=True),
        _text("request_digest", null=True),
        _number("claimed_fence", null=True),
        _number("claimed_attempt", null=True),
        _instant("claimed_at", null=True),
        _text("result", null=True),
        _instant("created_at"),
        _instant("updated_at"),
        _primary("tool_calls", "thread_id", "call_id"),
        _of_thread("tool_calls"),
        _check(
            "tool_calls",
            "state",
            "state IN ('running', 'awaiting-approval', 'approved', 'denied', 'executing', 'done',"
            " 'failed', 'expired', 'superseded', 'cancelled', 'unknown')",
        ),
        _check(
            "tool_calls",
            "gated",
            "request_digest IS NOT NULL"
            " OR NOT state IN ('awaiting-approval', 'approved', 'denied', 'executing')",
        ),
        _check(
            "tool_calls",
            "binding",
            "(operation IS NULL AND version IS NULL AND expires_at IS NULL"
            " AND required IS NULL AND request_seq IS NULL AND request_digest IS NULL)"
            " OR (operation IS NOT NULL AND version IS NOT NULL AND expires_at IS NOT NULL"
            " AND required IS NOT NULL AND request_seq IS NOT NULL"
            " AND request_digest IS NOT NULL)",
        ),
    )
    _index(op, "tool_calls", "order", "tenant_id", "thread_id", "input_seq")
    _index(
        op,
        "tool_calls",
        "open",
        "tenant_id",
        "thread_id",
        where="state IN ('running', 'awaiting-approval', 'approved', 'executing')",
    )


def _approvals(op: Operations) -> None:
    op.create_table(
        "assistant_approvals",
        _id("tenant_id"),
        _id("thread_id"),
        _id("call_id"),
        _number("request_seq"),
        _id("approver_id"),
        _id("nonce"),
        _text("digest"),
        _text("state"),
        _instant("decided_at", null=True),
        _number("decided_seq", null=True),
        _id("channel", null=True),
        _text("reason", null=True),
        _primary("approvals", "thread_id", "call_id", "request_seq", "approver_id"),
        _of_thread("approvals"),
        _check(
            "approvals",
            "state",
            "state IN ('pending', 'approved', 'denied', 'expired', 'superseded', 'cancelled')",
        ),
    )
    _index(op, "approvals", "inbox", "tenant_id", "approver_id", "state", "thread_id")


def _files(op: Operations) -> None:
    op.create_table(
        "assistant_files",
        _id("tenant_id"),
        _id("thread_id"),
        _id("id"),
        _text("filename"),
        _text("content_type"),
        _number("size"),
        _text("sha256"),
        _primary("files", "thread_id", "id"),
        _of_thread("files"),
    )


def _outbox(op: Operations) -> None:
    op.create_table(
        "assistant_outbox",
        _id("tenant_id"),
        _id("thread_id"),
        _number("n"),
        _text("type"),
        _text("payload"),
        _instant("created_at"),
        _primary("outbox", "thread_id", "n"),
    )
