"""Roles of the users who created or last changed objects that administrators share.

Objects from before this migration count as those of domain administrators.

Follows 0072; created 2026-11-28.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0073"
down_revision = "0072"


def upgrade() -> None:
    for table in ("announcements", "overflow_rules", "project_budgets", "webhooks"):
        column = sa.Column("changed_by_role", sa.String(16), nullable=False, server_default="admin")
        op.add_column(table, column)
