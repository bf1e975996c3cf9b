"""Time at which the idle timeout of a keypair was introduced or reduced; first report after it.

Follows 0081; created 2026-11-28.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from bai_services.db.tables.base import UtcDateTime

revision = "0082"
down_revision = "0081"


def upgrade() -> None:
    op.add_column("keypairs", sa.Column("idle_limited_at", UtcDateTime()))
    op.add_column("sessions", sa.Column("use_known_since", UtcDateTime()))
