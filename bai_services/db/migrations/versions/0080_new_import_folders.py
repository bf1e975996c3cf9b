"""Whether an import has created its folder, which is removed if the import fails.

Folders of earlier imports count as existing folders, so they are kept.

Follows 0079; created 2026-11-28.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0080"
down_revision = "0079"


def upgrade() -> None:
    op.add_column(
        "folder_imports",
        sa.Column("is_new_folder", sa.Boolean, nullable=False, server_default=sa.false()),
    )
