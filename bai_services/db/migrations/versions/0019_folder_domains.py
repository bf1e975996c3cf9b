"""Folders and templates have the domain of their owner; no grants between domains.

Follows 0018; created 2026-11-25.
"""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0018"

IS_BETWEEN_DOMAINS = """
EXISTS (
    SELECT 1 FROM vfolders, users
    WHERE vfolders.id = {table}.vfolder_id AND users.id = {table}.{user}
    AND vfolders.domain <> users.domain
)
"""


def upgrade() -> None:
    op.execute(
        "UPDATE vfolders SET domain = "
        "(SELECT domain FROM users WHERE users.id = vfolders.owner_id) "
        "WHERE owner_id IS NOT NULL"
    )
    op.execute(
        "UPDATE session_templates SET domain = "
        "(SELECT domain FROM users WHERE users.id = session_templates.owner_id) "
        "WHERE owner_id IS NOT NULL"
    )
    granted = IS_BETWEEN_DOMAINS.format(table="vfolder_grants", user="user_id")
    op.execute(f"DELETE FROM vfolder_grants WHERE {granted}")
    invited = IS_BETWEEN_DOMAINS.format(table="vfolder_invitations", user="invitee_id")
    op.execute(
        f"UPDATE vfolder_invitations SET status = 'canceled' WHERE status = 'pending' AND {invited}"
    )
