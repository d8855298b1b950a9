"""The tables. `tenant_id` leads every key, so a forgotten check finds nothing instead of leaking.

The events table is lean on purpose: a primary key, no foreign key, no other index, no CHECK on
the type. It takes most of the writes, and each of those costs a fifth to a half of an append.
The thread row is hot: no index on a column that an append changes, so its updates stay cheap.
"""

from typing import Final

import sqlalchemy as sa

from engine_assistant.model.machines import (
    OPEN_CALLS,
    ApprovalState,
    CallState,
    InputState,
    Priority,
    RunState,
    ThreadStatus,
    TurnState,
    WhenBusy,
)
from engine_assistant.store.columns import (
    IDENTITY,
    Instant,
    State,
    any_of,
    counter,
    key,
    number,
    of_thread,
    partial,
)

__all__ = [
    "METADATA",
    "approvals",
    "compactions",
    "contexts",
    "events",
    "files",
    "inputs",
    "outbox",
    "runs",
    "threads",
    "tool_calls",
]

METADATA: Final = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_thread",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


threads: Final = sa.Table(
    "assistant_threads",
    METADATA,
    key("tenant_id"),
    key("id"),
    sa.Column("subject_id", IDENTITY, nullable=False),
    sa.Column("key", IDENTITY),
    sa.Column("title", sa.Text),
    sa.Column("status", State(ThreadStatus), nullable=False),
    sa.Column("turn_state", State(TurnState), nullable=False),
    number("turn"),
    sa.Column("open_since", Instant),
    sa.Column("next_deadline", Instant),
    number("last_seq"),
    sa.Column("run_id", IDENTITY),
    number("fence"),
    sa.Column("stale_after", sa.Double),
    sa.Column("lease_until", Instant),
    number("last_batch"),
    sa.Column("batch_digest", sa.Text),
    number("batch_first_seq", null=True),
    number("batch_last_seq", null=True),
    sa.Column("interrupt_requested_at", Instant),
    number("milestones"),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("last_active_at", Instant, nullable=False),
    sa.Column("closed_at", Instant),
    counter("queued"),
    counter("context_bytes"),
    sa.Column("origin_tenant", IDENTITY),
    sa.Column("import_digest", sa.Text),
    counter("imported_seq"),
    sa.CheckConstraint(any_of("status", ThreadStatus), name="status"),
    sa.CheckConstraint(any_of("turn_state", TurnState), name="turn_state"),
    sa.CheckConstraint("last_seq >= 0 AND fence >= 0 AND turn >= 0", name="counters"),
    sa.CheckConstraint(
        "(run_id IS NULL AND lease_until IS NULL AND stale_after IS NULL)"
        " OR (run_id IS NOT NULL AND lease_until IS NOT NULL AND stale_after IS NOT NULL)",
        name="lease",
    ),
    sa.Index("ix_assistant_threads_key", "tenant_id", "subject_id", "key", unique=True),
    sa.Index("ix_assistant_threads_listing", "tenant_id", "subject_id", "last_active_at", "id"),
    partial("ix_assistant_threads_open", "open_since", where=f"turn_state = '{TurnState.OPEN}'"),
    partial(
        "ix_assistant_threads_deadline",
        "next_deadline",
        where=f"turn_state = '{TurnState.AWAITING}'",
    ),
)

events: Final = sa.Table(
    "assistant_events",
    METADATA,
    key("tenant_id"),
    key("thread_id"),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("type", sa.Text, nullable=False),
    number("turn"),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("created_at", Instant, nullable=False),
)

inputs: Final = sa.Table(
    "assistant_inputs",
    METADATA,
    key("tenant_id"),
    key("thread_id"),
    key("id"),
    sa.Column("author_id", IDENTITY, nullable=False),
    sa.Column("key", IDENTITY),
    sa.Column("key_digest", sa.Text, nullable=False),
    sa.Column("state", State(InputState), nullable=False),
    number("turn"),
    number("first_seq"),
    number("last_seq"),
    sa.Column("when_busy", State(WhenBusy)),
    sa.Column(
        "priority", State(Priority), nullable=False, server_default=sa.text(f"'{Priority.NORMAL}'")
    ),
    counter("position"),
    counter("joins"),
    sa.Column("body", sa.Text),
    sa.Column("queued_at", Instant),
    of_thread(),
    sa.CheckConstraint(any_of("state", InputState), name="state"),
    sa.Index("ix_assistant_inputs_key", "tenant_id", "thread_id", "author_id", "key", unique=True),
    sa.Index("ix_assistant_inputs_author", "tenant_id", "author_id"),
    partial(
        "ix_assistant_inputs_queued",
        "tenant_id",
        "thread_id",
        where=any_of("state", (InputState.QUEUED,)),
    ),
)

runs: Final = sa.Table(
    "assistant_runs",
    METADATA,
    key("tenant_id"),
    key("thread_id"),
    sa.Column("fence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("run_id", IDENTITY, nullable=False),
    sa.Column("state", State(RunState), nullable=False),
    sa.Column("started_at", Instant, nullable=False),
    sa.Column("ended_at", Instant),
    counter("turn"),
    sa.Column("reason", IDENTITY),
    sa.Column("usage", sa.Text),
    sa.Column("operation", sa.Text),
    of_thread(),
    sa.CheckConstraint(any_of("state", RunState), name="state"),
)

_BINDING: Final = (
    "operation",
    "version",
    "expires_at",
    "required",
    "request_seq",
    "request_digest",
)

_GATED: Final = (CallState.AWAITING, CallState.APPROVED, CallState.DENIED, CallState.EXECUTING)

tool_calls: Final = sa.Table(
    "assistant_tool_calls",
    METADATA,
    key("tenant_id"),
    key("thread_id"),
    key("call_id"),
    number("turn"),
    sa.Column("step", IDENTITY, nullable=False),
    sa.Column("tool", IDENTITY, nullable=False),
    sa.Column("state", State(CallState), nullable=False),
    sa.Column("provider_call_id", IDENTITY),
    number("input_seq"),
    sa.Column("input_digest", sa.Text, nullable=False),
    sa.Column("operation", IDENTITY),
    sa.Column("version", IDENTITY),
    sa.Column("expires_at", IDENTITY),
    number("required", null=True),
    number("request_seq", null=True),
    sa.Column("request_digest", sa.Text),
    number("claimed_fence", null=True),
    number("claimed_attempt", null=True),
    sa.Column("claimed_at", Instant),
    sa.Column("result", sa.Text),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("updated_at", Instant, nullable=False),
    of_thread(),
    sa.CheckConstraint(any_of("state", CallState), name="state"),
    sa.CheckConstraint(
        f"request_digest IS NOT NULL OR NOT {any_of('state', _GATED)}", name="gated"
    ),
    sa.CheckConstraint(
        f"({' AND '.join(f'{name} IS NULL' for name in _BINDING)})"
        f" OR ({' AND '.join(f'{name} IS NOT NULL' for name in _BINDING)})",
        name="binding",
    ),
    sa.Index("ix_assistant_tool_calls_order", "tenant_id", "thread_id", "input_seq"),
    partial(
        "ix_assistant_tool_calls_open",
        "tenant_id",
        "thread_id",
        where=any_of("state", OPEN_CALLS),
    ),
)

approvals: Final = sa.Table(
    "assistant_approvals",
    METADATA,
    key("tenant_id"),
    key("thread_id"),
    key("call_id"),
    sa.Column("request_seq", sa.BigInteger, primary_key=True, autoincrement=False),
    key("approver_id"),
    sa.Column("nonce", IDENTITY, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("state", State(ApprovalState), nullable=False),
    sa.Column("decided_at", Instant),
    number("decided_seq", null=True),
    sa.Column("channel", IDENTITY),
    sa.Column("reason", sa.Text),
    of_thread(),
    sa.CheckConstraint(any_of("state", ApprovalState), name="state"),
    sa.Index("ix_assistant_approvals_inbox", "tenant_id", "approver_id", "state", "thread_id"),
)

files: Final = sa.Table(
    "assistant_files",
    METADATA,
    key("tenant_id"),
    key("thread_id"),
    key("id"),
    sa.Column("filename", sa.Text, nullable=False),
    sa.Column("content_type", sa.Text, nullable=False),
    number("size"),
    sa.Column("sha256", sa.Text, nullable=False),
    of_thread(),
)

compactions: Final = sa.Table(
    "assistant_compactions",
    METADATA,
    key("tenant_id"),
    key("thread_id"),
    sa.Column("n", sa.BigInteger, primary_key=True, autoincrement=False),
    number("from_seq"),
    number("to_seq"),
    sa.Column("summary", sa.Text, nullable=False),
    number("covered_by", null=True),
    sa.Column("created_at", Instant, nullable=False),
    of_thread(),
)

contexts: Final = sa.Table(
    "assistant_contexts",
    METADATA,
    key("tenant_id"),
    key("thread_id"),
    number("turn"),
    number("fence"),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("updated_at", Instant, nullable=False),
    of_thread(),
)

outbox: Final = sa.Table(
    "assistant_outbox",
    METADATA,
    key("tenant_id"),
    key("thread_id"),
    sa.Column("n", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("claimed_until", Instant),
    sa.Column("attempts", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Index("ix_assistant_outbox_age", "created_at"),
)
