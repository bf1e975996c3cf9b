"""Add the last activity of sessions, for the idle timeout of keypair policies.

``used_at`` is the time of the last activity, ``use_heard_at`` the time of the last activity report.

Follows 0010; created 2026-11-21.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    for column in ("used_at", "use_heard_at"):
        op.add_column("sessions", sa.Column(column, sa.DateTime()))
