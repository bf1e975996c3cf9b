"""Settings that the Hub and agents report.

Follows 0043; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"


def upgrade() -> None:
    op.create_table(
        "component_settings",
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("component", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("value", sa.String(500)),
        sa.Column("default", sa.String(500)),
        sa.Column("origin", sa.String(16), nullable=False),
        sa.PrimaryKeyConstraint("kind", "component", "name", name=op.f("pk_component_settings")),
    )


def downgrade() -> None:
    op.drop_table("component_settings")
