"""Queued messages, runs as a record, summaries, private context, imported threads.

Revision ID: engine_assistant_0003
Revises: engine_assistant_0002

Old code runs on this schema: the new columns are null or have a default, and it never reads the
new tables.
"""

import sqlalchemy as sa
from alembic import op as alembic_op
from alembic.operations import Operations

revision = "engine_assistant_0003"
down_revision = "engine_assistant_0002"
branch_labels = None
depends_on = None

IDENTITY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INSTANT = sa.TIMESTAMP(timezone=True).with_variant(sa.Text(), "sqlite")


def _counter(name: str) -> sa.Column:
    return sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0"))


def _added() -> dict[str, list[sa.Column]]:
    """Return the new columns of each table that is there."""
    return {
        "assistant_threads": [
            _counter("queued"),
            _counter("context_bytes"),
            sa.Column("origin_tenant", IDENTITY),
            sa.Column("import_digest", sa.Text()),
            _counter("imported_seq"),
        ],
        "assistant_inputs": [
            sa.Column("when_busy", sa.Text()),
            sa.Column("priority", sa.Text(), nullable=False, server_default=sa.text("'normal'")),
            _counter("position"),
            _counter("joins"),
            sa.Column("body", sa.Text()),
            sa.Column("queued_at", INSTANT),
        ],
        "assistant_runs": [
            _counter("turn"),
            sa.Column("reason", IDENTITY),
            sa.Column("usage", sa.Text()),
            sa.Column("operation", sa.Text()),
        ],
    }


def upgrade(op: Operations = alembic_op) -> None:
    """Add the columns, the two tables, and the index that finds what waits on a thread."""
    schema = _schema(op)
    for table, columns in _added().items():
        for column in columns:
            op.add_column(table, column, schema=schema)
    queued = sa.text("state IN ('queued')")
    op.create_index(
        "ix_assistant_inputs_queued",
        "assistant_inputs",
        ["tenant_id", "thread_id"],
        postgresql_where=queued,
        sqlite_where=queued,
    )
    _of_thread(
        op,
        "compactions",
        sa.Column("n", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("from_seq", sa.BigInteger(), nullable=False),
        sa.Column("to_seq", sa.BigInteger(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("covered_by", sa.BigInteger(), nullable=True),
        sa.Column("created_at", INSTANT, nullable=False),
        key="n",
    )
    _of_thread(
        op,
        "contexts",
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("updated_at", INSTANT, nullable=False),
    )


def downgrade(op: Operations = alembic_op) -> None:
    """Take all of it away again.

    What waits in a queue, summaries, contexts, and where an imported thread began are lost. A
    message that no turn holds goes whole: its key may be used again.
    """
    schema = _schema(op)
    inputs = sa.table("assistant_inputs", sa.column("turn"), schema=schema)
    op.execute(sa.delete(inputs).where(inputs.c.turn == 0))
    op.drop_table("assistant_contexts")
    op.drop_table("assistant_compactions")
    op.drop_index("ix_assistant_inputs_queued", table_name="assistant_inputs")
    for table, columns in reversed(_added().items()):
        for column in reversed(columns):
            op.drop_column(table, column.name, schema=schema)


def _of_thread(op: Operations, name: str, *columns: sa.Column, key: str | None = None) -> None:
    table = f"assistant_{name}"
    keys = ["tenant_id", "thread_id", *([] if key is None else [key])]
    op.create_table(
        table,
        sa.Column("tenant_id", IDENTITY, nullable=False),
        sa.Column("thread_id", IDENTITY, nullable=False),
        *columns,
        sa.PrimaryKeyConstraint(*keys, name=f"pk_{table}"),
        sa.ForeignKeyConstraint(
            ["tenant_id", "thread_id"],
            ["assistant_threads.tenant_id", "assistant_threads.id"],
            name=f"fk_{table}_thread",
        ),
    )


def _schema(op: Operations) -> str | None:
    """Return where the tables are: ALTER TABLE is the one statement that no map translates."""
    if op.get_context().as_sql:
        return None
    options = op.get_bind().get_execution_options()
    return (options.get("schema_translate_map") or {}).get(None)
