"""Index of stored logs by age, for their removal; settings that override the environment.

Follows 0039; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"


def upgrade() -> None:
    has_log = sa.text("log IS NOT NULL")
    op.create_index(
        "ix_kernels_stored_log",
        "kernels",
        ["created_at"],
        sqlite_where=has_log,
        postgresql_where=has_log,
    )
    op.create_table(
        "setting_overrides",
        sa.Column("variable", sa.String(64), nullable=False),
        sa.Column("value", sa.String(64), nullable=False),
        sa.Column("changed_at", sa.DateTime, nullable=False),
        sa.Column("changed_by", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("variable", name=op.f("pk_setting_overrides")),
    )
