"""${message}

Revision ID: ${up_revision}
Revises: ${down_revision | comma,n}

A revision is frozen text. It imports nothing of engine_assistant and is never edited once
released. Expand first, contract a release later: old code must run on the new schema.
"""

import sqlalchemy as sa
from alembic import op as alembic_op
from alembic.operations import Operations
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


# Alembic's global `op` serves one migration per process at a time; our own runner passes another.
def upgrade(op: Operations = alembic_op) -> None:
    """Say what it makes."""
    ${upgrades if upgrades else "raise NotImplementedError"}


def downgrade(op: Operations = alembic_op) -> None:
    """Say what it takes away."""
    ${downgrades if downgrades else "raise NotImplementedError"}


def _schema(op: Operations) -> str | None:
    """Return where the tables are, for add_column and its kin: no map translates ALTER TABLE."""
    if op.get_context().as_sql:
        return None
    translated = op.get_bind().get_execution_options().get("schema_translate_map")
    return (translated or {}).get(None)
