"""The relay: who is handing a milestone out, until when, and how often it failed.

Revision ID: engine_assistant_0002
Revises: engine_assistant_0001

Old code runs on this schema: the new columns are null or have a default.
"""

import sqlalchemy as sa
from alembic import op as alembic_op
from alembic.operations import Operations

revision = "engine_assistant_0002"
down_revision = "engine_assistant_0001"
branch_labels = None
depends_on = None

INSTANT = sa.TIMESTAMP(timezone=True).with_variant(sa.Text(), "sqlite")


def upgrade(op: Operations = alembic_op) -> None:
    """Add the claim to the outbox, and the index that finds the oldest milestone."""
    schema = _schema(op)
    op.add_column(
        "assistant_outbox", sa.Column("claimed_until", INSTANT, nullable=True), schema=schema
    )
    op.add_column(
        "assistant_outbox",
        sa.Column("attempts", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        schema=schema,
    )
    op.create_index("ix_assistant_outbox_age", "assistant_outbox", ["created_at"])


def downgrade(op: Operations = alembic_op) -> None:
    """Take both away again."""
    schema = _schema(op)
    op.drop_index("ix_assistant_outbox_age", table_name="assistant_outbox")
    op.drop_column("assistant_outbox", "attempts", schema=schema)
    op.drop_column("assistant_outbox", "claimed_until", schema=schema)


def _schema(op: Operations) -> str | None:
    """Return where the tables are: ALTER TABLE is the one statement that no map translates."""
    if op.get_context().as_sql:
        return None
    options = op.get_bind().get_execution_options()
    return (options.get("schema_translate_map") or {}).get(None)
