"""Hash chain, owners and represented users of the audit log.

Follows 0028; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.add_column(
        "audit_log",
        sa.Column("on_behalf_of", sa.String(64), nullable=False, server_default=""),
    )
    op.add_column("audit_log", sa.Column("owner_id", sa.String(64)))
    op.add_column("audit_log", sa.Column("position", sa.BigInteger))
    op.add_column("audit_log", sa.Column("hash", sa.String(64)))
    op.create_index("ix_audit_log_owner", "audit_log", ["owner_id", "id"])
    op.create_index("ix_audit_log_position", "audit_log", ["position"], unique=True)
    op.create_table(
        "audit_chain",
        sa.Column("name", sa.String(16), nullable=False),
        sa.Column("anchor_position", sa.BigInteger, nullable=False),
        sa.Column("anchor_hash", sa.String(64), nullable=False),
        sa.Column("head_position", sa.BigInteger, nullable=False),
        sa.Column("head_hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_audit_chain")),
    )
