"""Conditions for the rows of a list that a caller may see."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from bai_services.core.accounts.roles import Role, Visibility

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


def visible_rows(
    visible: Visibility,
    *,
    domain: sa.ColumnElement[Any],
    owner_id: sa.ColumnElement[Any],
    project_id: sa.ColumnElement[Any] | None = None,
) -> list[sa.ColumnElement[bool]]:
    """Return the conditions that select the visible rows; the arguments are columns of the rows.

    Without ``project_id``, no row is visible to a caller who may see only the rows of projects.
    """
    conditions: list[sa.ColumnElement[bool]] = []
    if visible.domain is not None:
        conditions.append(domain == visible.domain)
    if visible.project_ids is not None:
        projects = sorted(visible.project_ids)
        conditions.append(sa.false() if project_id is None else project_id.in_(projects))
    if visible.owner_id is not None:
        conditions.append(owner_id == visible.owner_id)
    if visible.hidden_roles:
        conditions.append(is_owner_visible(owner_id, visible.hidden_roles))
    return conditions
