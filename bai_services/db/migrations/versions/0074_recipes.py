"""Custom images that are built from a recipe.

Follows 0073; created 2026-11-28.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0074"
down_revision = "0073"


def upgrade() -> None:
    is_built = sa.Column("is_built", sa.Boolean, nullable=False, server_default="0")
    op.add_column("custom_images", is_built)
    op.add_column("custom_images", sa.Column("recipe", sa.JSON(none_as_null=True)))
    op.add_column("custom_images", sa.Column("log", sa.Text, nullable=False, server_default=""))
