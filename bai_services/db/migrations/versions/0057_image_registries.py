"""Image registries, the projects that may use them, and the registry of each image.

Follows 0056; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0057"
down_revision = "0056"

_DOCKER_HUB = "docker.io"


def upgrade() -> None:
    op.add_column(
        "images", sa.Column("registry", sa.String(255), nullable=False, server_default="")
    )
    images = sa.table("images", sa.column("id"), sa.column("name"), sa.column("registry"))
    connection = op.get_bind()
    for row in connection.execute(sa.select(images.c.id, images.c.name)).all():
        registry = _registry(row.name)
        connection.execute(images.update().where(images.c.id == row.id).values(registry=registry))
    op.create_table(
        "image_registries",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("url", sa.String(255), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("username", sa.String(255), nullable=False),
        sa.Column("password_encrypted", sa.Text, nullable=False),
        sa.Column("ca_certificate", sa.Text, nullable=False),
        sa.Column("repositories", sa.JSON, nullable=False),
        sa.Column("patterns", sa.JSON, nullable=False),
        sa.Column("rescan_seconds", sa.Integer, nullable=False),
        sa.Column("is_enabled", sa.Boolean, nullable=False),
        sa.Column("activates_images", sa.Boolean, nullable=False),
        sa.Column("labelled_only", sa.Boolean, nullable=False),
        sa.Column("is_global", sa.Boolean, nullable=False),
        sa.Column("scan_id", sa.String(64), nullable=False),
        sa.Column("scan_status", sa.String(16), nullable=False),
        sa.Column("scan_requested_by", sa.String(64), nullable=False),
        sa.Column("scan_started_at", sa.DateTime),
        sa.Column("scan_ended_at", sa.DateTime),
        sa.Column("scan_tags", sa.Integer, nullable=False),
        sa.Column("scan_checked", sa.Integer, nullable=False),
        sa.Column("scan_new", sa.Integer, nullable=False),
        sa.Column("scan_changed", sa.Integer, nullable=False),
        sa.Column("scan_skipped", sa.Integer, nullable=False),
        sa.Column("scan_problem", sa.String(500), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_image_registries")),
        sa.UniqueConstraint("name", name=op.f("uq_image_registries_name")),
        sa.UniqueConstraint("host", name=op.f("uq_image_registries_host")),
    )
    op.create_table(
        "image_registry_projects",
        sa.Column("registry_id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(
            ["registry_id"],
            ["image_registries.id"],
            name=op.f("fk_image_registry_projects_registry_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["projects.id"],
            name=op.f("fk_image_registry_projects_project_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "registry_id", "project_id", name=op.f("pk_image_registry_projects")
        ),
    )
    op.create_index(
        op.f("ix_image_registry_projects_project_id"), "image_registry_projects", ["project_id"]
    )


def _registry(name: str) -> str:
    first, slash, _ = name.partition("/")
    is_host = bool(slash) and ("." in first or ":" in first or first == "localhost")
    return first.lower() if is_host else _DOCKER_HUB
