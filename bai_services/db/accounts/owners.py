"""Limits of lists by the role that the owner of each row has now."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from bai_services.core.accounts.roles import Role

from ..tables.accounts import users

# An alias, so that it is not taken for the users that a list is joined with.
_owners = users.alias("hidden_owners")


def is_shown(owner_id: sa.ColumnElement[Any], hidden: Collection[Role]) -> sa.ColumnElement[bool]:
    """Match what has no owner, or an owner whose present role is not hidden."""
    if not hidden:
        return sa.true()
    found = sa.select(_owners.c.id).where(_owners.c.role.in_(sorted(hidden)))
    return sa.or_(owner_id.is_(None), owner_id.not_in(found))
