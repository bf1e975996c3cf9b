"""Endpoints of model serving; policies permit public endpoints.

Follows 0042; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"


def upgrade() -> None:
    op.add_column(
        "user_policies",
        sa.Column("allows_public_endpoints", sa.Boolean(), nullable=False, server_default="0"),
    )
    op.create_table(
        "endpoints",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False, server_default="1"),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("owner_id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("is_public", sa.Boolean(), nullable=False),
        sa.Column("is_paused", sa.Boolean(), nullable=False),
        sa.Column("is_deleting", sa.Boolean(), nullable=False),
        sa.Column("replicas", sa.Integer(), nullable=False),
        sa.Column("active_revision_id", sa.String(64)),
        sa.Column("target_revision_id", sa.String(64), nullable=False),
        sa.Column("is_promoted", sa.Boolean(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("failed_at", sa.DateTime()),
        sa.Column("problem", sa.JSON()),
        sa.Column("weights", sa.JSON(), nullable=False),
        sa.Column("max_queue", sa.Integer(), nullable=False),
        sa.Column("queue_seconds", sa.Integer(), nullable=False),
        sa.Column("max_concurrent_per_replica", sa.Integer(), nullable=False),
        sa.Column("request_seconds", sa.Integer(), nullable=False),
        sa.Column("max_body_bytes", sa.BigInteger(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("errors", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["owner_id"], ["users.id"], name=op.f("fk_endpoints_owner_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["projects.id"],
            name=op.f("fk_endpoints_project_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_endpoints")),
        sa.UniqueConstraint("name", name=op.f("uq_endpoints_name")),
    )
    op.create_index("ix_endpoints_owner_id", "endpoints", ["owner_id"])
    op.create_index("ix_endpoints_project_id", "endpoints", ["project_id"])
    op.create_table(
        "endpoint_revisions",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("endpoint_id", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("outcome", sa.String(16)),
        sa.Column("reason", sa.JSON()),
        _endpoint_key("endpoint_revisions"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_endpoint_revisions")),
        sa.UniqueConstraint(
            "endpoint_id", "number", name=op.f("uq_endpoint_revisions_endpoint_id_number")
        ),
    )
    op.create_table(
        "endpoint_replicas",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("endpoint_id", sa.String(64), nullable=False),
        sa.Column("revision_id", sa.String(64), nullable=False),
        sa.Column("phase", sa.String(16), nullable=False),
        sa.Column("url", sa.String(255), nullable=False),
        sa.Column("changed_at", sa.DateTime(), nullable=False),
        sa.Column("drained_by", sa.JSON(), nullable=False),
        sa.Column("reason", sa.JSON()),
        _endpoint_key("endpoint_replicas"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_endpoint_replicas")),
    )
    op.create_index(
        "ix_endpoint_replicas_endpoint_id", "endpoint_replicas", ["endpoint_id", "phase"]
    )
    op.create_index("ix_endpoint_replicas_phase", "endpoint_replicas", ["phase", "changed_at"])
    op.create_table(
        "endpoint_tokens",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("endpoint_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("networks", sa.JSON(), nullable=False),
        sa.Column("expires_at", sa.DateTime()),
        sa.Column("requests_per_minute", sa.Integer()),
        sa.Column("max_concurrent", sa.Integer()),
        sa.Column("author", sa.String(64), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("last_used_at", sa.DateTime()),
        _endpoint_key("endpoint_tokens"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_endpoint_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_endpoint_tokens_digest")),
        sa.UniqueConstraint(
            "endpoint_id", "name", name=op.f("uq_endpoint_tokens_endpoint_id_name")
        ),
    )
    op.create_index(op.f("ix_endpoint_tokens_expires_at"), "endpoint_tokens", ["expires_at"])
    op.create_table(
        "gateways",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("last_report_id", sa.String(64), nullable=False),
        sa.Column("reported_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gateways")),
    )


def _endpoint_key(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["endpoint_id"],
        ["endpoints.id"],
        name=op.f(f"fk_{table}_endpoint_id"),
        ondelete="CASCADE",
    )
