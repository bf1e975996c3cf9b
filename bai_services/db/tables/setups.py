"""Session setups of users and projects, and the secrets given to sessions."""

from __future__ import annotations

import sqlalchemy as sa

from .base import metadata

# A user or project has at most one row; exactly one of ``user_id`` and ``project_id`` is set.
setups = sa.Table(
    "setups",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), unique=True),
    sa.Column("project_id", sa.ForeignKey("projects.id", ondelete="CASCADE"), unique=True),
    # Lists of objects; the values of secret variables are encrypted.
    sa.Column("variables", sa.JSON, nullable=False),
    sa.Column("dotfiles", sa.JSON, nullable=False),
    # NULL: no script.
    sa.Column("bootstrap", sa.JSON),
)

# Secrets of a session as encrypted JSON, which are masked in its logs.
session_secrets = sa.Table(
    "session_secrets",
    metadata,
    sa.Column("session_id", sa.ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("encrypted", sa.Text, nullable=False),
)
