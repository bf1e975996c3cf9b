"""Session setups of users and projects.

Follows 0031; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    op.create_table(
        "setups",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("user_id", sa.String(64)),
        sa.Column("project_id", sa.String(64)),
        sa.Column("variables", sa.JSON, nullable=False),
        sa.Column("dotfiles", sa.JSON, nullable=False),
        sa.Column("bootstrap", sa.JSON),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_setups_user_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_setups_project_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_setups")),
        sa.UniqueConstraint("user_id", name=op.f("uq_setups_user_id")),
        sa.UniqueConstraint("project_id", name=op.f("uq_setups_project_id")),
    )
    op.create_table(
        "session_secrets",
        sa.Column("session_id", sa.String(64), nullable=False),
        sa.Column("encrypted", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
            name=op.f("fk_session_secrets_session_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("session_id", name=op.f("pk_session_secrets")),
    )
