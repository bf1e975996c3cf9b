"""Amounts of budgets as integers of hundredths.

Follows 0074; created 2026-11-28.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0075"
down_revision = "0074"


def upgrade() -> None:
    op.execute("UPDATE project_budgets SET amount = round(amount * 100)")
    with op.batch_alter_table("project_budgets", schema=None) as batch_op:
        batch_op.alter_column(
            "amount",
            existing_type=sa.Double(),
            type_=sa.BigInteger(),
            existing_nullable=False,
            postgresql_using="amount::bigint",
        )
