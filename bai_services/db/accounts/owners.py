"""Restrict lists by the current role of each row's owner."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from bai_services.core.accounts.roles import Role

from ..tables.accounts import users

# An alias, distinct from a users table that the list itself joins.
_owners = users.alias("hidden_owners")


def is_shown(owner_id: sa.ColumnElement[Any], hidden: Collection[Role]) -> sa.ColumnElement[bool]:
    """Match rows without an owner, or whose owner's current role is not hidden."""
    if not hidden:
        return sa.true()
    found = sa.select(_owners.c.id).where(_owners.c.role.in_(sorted(hidden)))
    return sa.or_(owner_id.is_(None), owner_id.not_in(found))
