"""Images whose tags were deleted in the registry.

Follows 0066; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0067"
down_revision = "0066"


def upgrade() -> None:
    problem = sa.Column("registry_problem", sa.String(255), nullable=False, server_default="")
    op.add_column("images", problem)
    removed = sa.Column("scan_removed", sa.Integer(), nullable=False, server_default="0")
    op.add_column("image_registries", removed)
