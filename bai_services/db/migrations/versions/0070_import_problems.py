"""Reasons of failed imports as codes, and the time until which an import can be continued.

Follows 0069; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0070"
down_revision = "0069"


def upgrade() -> None:
    for table in ("model_imports", "folder_imports"):
        op.add_column(table, sa.Column("problem_coded", sa.JSON(none_as_null=True)))
    op.add_column("model_imports", sa.Column("kept_until", sa.DateTime))
    # Users may use the complete files of earlier imports, so their folders are not deleted.
    op.execute("UPDATE model_imports SET vfolder_id = NULL WHERE status IN ('failed', 'cancelled')")
