"""Filter lists by the current role of each row's owner."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from bai_services.core.accounts.roles import Role

from ..tables.accounts import users

# An alias, because the list itself may join the table of users.
_owners = users.alias("hidden_owners")


def is_owner_visible(
    owner_id: sa.ColumnElement[Any], hidden: Collection[Role]
) -> sa.ColumnElement[bool]:
    """Return the condition that a row has no owner, or an owner without a hidden role."""
    if not hidden:
        return sa.true()
    found = sa.select(_owners.c.id).where(_owners.c.role.in_(sorted(hidden)))
    return sa.or_(owner_id.is_(None), owner_id.not_in(found))
