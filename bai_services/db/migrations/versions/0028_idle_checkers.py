"""Idle checkers, their bindings, results and decisions.

Follows 0027; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    op.create_table(
        "idle_checkers",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("description", sa.String(length=512), nullable=False),
        sa.Column("type", sa.String(length=32), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_idle_checkers")),
        sa.UniqueConstraint("name", name=op.f("uq_idle_checkers_name")),
    )
    op.create_table(
        "idle_decisions",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        sa.Column("checker_id", sa.String(length=64), nullable=False),
        sa.Column("checker", sa.String(length=64), nullable=False),
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("session", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("domain", sa.String(length=64), nullable=False),
        sa.Column("is_dry_run", sa.Boolean(), nullable=False),
        sa.Column("rule", sa.JSON(none_as_null=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_idle_decisions")),
        sa.UniqueConstraint(
            "session_id",
            "checker_id",
            "is_dry_run",
            name=op.f("uq_idle_decisions_session_id_checker_id_is_dry_run"),
        ),
    )
    with op.batch_alter_table("idle_decisions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_idle_decisions_at"), ["at"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_idle_decisions_checker_id"), ["checker_id"], unique=False
        )
        batch_op.create_index(batch_op.f("ix_idle_decisions_domain"), ["domain"], unique=False)

    op.create_table(
        "idle_checker_bindings",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("checker_id", sa.String(length=64), nullable=False),
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("scope_id", sa.String(length=64), nullable=False),
        sa.Column("domain", sa.String(length=64), nullable=True),
        sa.Column("is_enabled", sa.Boolean(), nullable=False),
        sa.Column("is_dry_run", sa.Boolean(), nullable=False),
        sa.Column("changed_by_role", sa.String(length=16), nullable=False),
        sa.ForeignKeyConstraint(
            ["checker_id"],
            ["idle_checkers.id"],
            name=op.f("fk_idle_checker_bindings_checker_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_idle_checker_bindings")),
        sa.UniqueConstraint(
            "checker_id",
            "scope",
            "scope_id",
            name=op.f("uq_idle_checker_bindings_checker_id_scope_scope_id"),
        ),
    )
    op.create_table(
        "session_idle_checks",
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("checker_id", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("is_dry_run", sa.Boolean(), nullable=False),
        sa.Column("is_due", sa.Boolean(), nullable=False),
        sa.Column("ends_at", sa.DateTime(), nullable=True),
        sa.Column("rule", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("kept_alive_at", sa.DateTime(), nullable=True),
        sa.Column("keep_alives", sa.Integer(), server_default="0", nullable=False),
        sa.Column("is_excluded", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(
            ["checker_id"],
            ["idle_checkers.id"],
            name=op.f("fk_session_idle_checks_checker_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
            name=op.f("fk_session_idle_checks_session_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("session_id", "checker_id", name=op.f("pk_session_idle_checks")),
    )
    with op.batch_alter_table("session_idle_checks", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_session_idle_checks_checker_id"), ["checker_id"], unique=False
        )
