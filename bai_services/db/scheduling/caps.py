"""Read the caps and the usage of scopes.

Caps come from domains, projects, resource groups, and the policies of users and keypairs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.scheduling.caps import SESSIONS, Scope, ScopeCaps, ScopeKind, add
from bai_services.core.sessions.kernel_group import total_slots
from bai_services.core.sessions.lifecycle import Status

from .. import bulk
from ..tables.accounts import domains, keypair_policies, keypairs, projects, user_policies, users
from ..tables.cluster import resource_groups
from ..tables.sessions import scope_usage, sessions

# Maximum number of values in a list parameter of a statement. The total number of parameters must
# be below the limits of both databases.
CHUNK = 500


async def read_caps(tx: AsyncConnection, scopes: Iterable[Scope]) -> dict[Scope, ScopeCaps]:
    """Return the caps of each scope that exists."""
    wanted = sorted(set(scopes))
    caps_of: dict[Scope, ScopeCaps] = {}
    for start in range(0, len(wanted), CHUNK):
        part = wanted[start : start + CHUNK]
        ids = {kind: [scope.id for scope in part if scope.kind == kind] for kind in _SELECTS}
        for row in (await tx.execute(_CAPS_OF, ids)).mappings():
            caps = _caps(row)
            caps_of[caps.scope] = caps
    return caps_of


async def read_usage(tx: AsyncConnection, scopes: Iterable[Scope]) -> dict[Scope, dict[str, int]]:
    """Return the usage of each scope by slot; ``sessions`` is the number of sessions."""
    wanted = sorted(set(scopes))
    usage: dict[Scope, dict[str, int]] = {scope: {} for scope in wanted}
    for start in range(0, len(wanted), CHUNK):
        part = wanted[start : start + CHUNK]
        rows = await tx.execute(_USAGE_OF, {"ids": [scope.id for scope in part]})
        for row in rows:
            scope = Scope(row.scope, row.scope_id)
            if scope in usage:
                usage[scope][row.slot] = row.used
    return usage


async def read_pending_usage(
    tx: AsyncConnection, caps: Collection[ScopeCaps]
) -> dict[Scope, dict[str, int]]:
    """Return the usage by pending sessions, for each scope with a limit on pending sessions.

    Only users and keypairs have such limits; limits of users apply to the number of sessions.
    """
    usage: dict[Scope, dict[str, int]] = {}
    for scope in (one.scope for one in caps if one.limits_pending):
        counted = usage.setdefault(scope, {})
        if scope.kind == ScopeKind.USER:
            counted[SESSIONS] = int(await tx.scalar(_PENDING_COUNT, {"owner": scope.id}) or 0)
            continue
        for row in await tx.execute(_PENDING_SLOTS, {"access_key": scope.id}):
            add(usage, [scope], total_slots(row.requested_slots, row.cluster_size))
    return usage


def _caps(row: Any) -> ScopeCaps:
    return ScopeCaps(
        scope=Scope(ScopeKind(row["kind"]), row["id"]),
        name=row["name"],
        slots=row["total_resource_slots"],
        is_closed=row["default_for_unspecified"] == "LIMITED",
        max_sessions=row["max_concurrent_sessions"],
        max_pending_sessions=row["max_pending_sessions"],
        max_pending_slots=row["max_pending_slots"] or {},
        max_containers_per_session=row["max_containers_per_session"],
        owner=row["owner"] or "",
        policy=row["policy"] or "",
    )


# Keypairs must come first: the union takes its column types from the first select, and only
# keypairs have all columns.
_SELECTS: dict[str, sa.Select[Any]] = {
    ScopeKind.KEYPAIR: sa.select(
        keypairs.c.access_key.label("id"),
        keypairs.c.access_key.label("name"),
        keypair_policies.c.total_resource_slots,
        keypair_policies.c.max_concurrent_sessions,
        keypair_policies.c.default_for_unspecified,
        keypair_policies.c.max_pending_sessions,
        keypair_policies.c.max_pending_slots,
        keypair_policies.c.max_containers_per_session,
        users.c.username.label("owner"),
        keypairs.c.resource_policy.label("policy"),
    )
    .join_from(keypairs, keypair_policies, keypairs.c.resource_policy == keypair_policies.c.name)
    .join(users, users.c.id == keypairs.c.user_id),
    ScopeKind.DOMAIN: sa.select(
        domains.c.name.label("id"),
        domains.c.name,
        domains.c.total_resource_slots,
        domains.c.max_concurrent_sessions,
    ),
    ScopeKind.PROJECT: sa.select(
        projects.c.id,
        projects.c.name,
        projects.c.total_resource_slots,
        projects.c.max_concurrent_sessions,
    ),
    ScopeKind.USER: sa.select(
        users.c.id,
        users.c.username.label("name"),
        user_policies.c.total_resource_slots,
        user_policies.c.max_concurrent_sessions,
        user_policies.c.max_pending_sessions,
    ).join_from(users, user_policies, users.c.resource_policy == user_policies.c.name),
    ScopeKind.RESOURCE_GROUP: sa.select(
        resource_groups.c.name.label("id"),
        resource_groups.c.name,
        resource_groups.c.total_resource_slots,
        resource_groups.c.max_concurrent_sessions,
    ),
}
# Built once, at import, because these statements run for each session that is created or placed.
_IS_PENDING = sessions.c.status == Status.PENDING
_PENDING_COUNT = sa.select(sa.func.count()).where(
    _IS_PENDING, sessions.c.owner_id == sa.bindparam("owner")
)
_PENDING_SLOTS = sa.select(sessions.c.requested_slots, sessions.c.cluster_size).where(
    _IS_PENDING, sessions.c.access_key == sa.bindparam("access_key")
)
_USAGE_OF = sa.select(scope_usage).where(
    scope_usage.c.scope_id.in_(sa.bindparam("ids", expanding=True))
)
_ALL_NAMES = list(_SELECTS[ScopeKind.KEYPAIR].selected_columns.keys())


def _with_all_columns(kind: str, select: sa.Select[Any]) -> sa.Select[Any]:
    """Return the select of one kind of scope with the columns of all kinds.

    The bound parameter that is named after the kind holds the ids.
    """
    names = select.selected_columns
    # All kinds need the same column order, because a union matches columns by position.
    columns = [names[name] if name in names else sa.null().label(name) for name in _ALL_NAMES]
    return select.with_only_columns(
        *columns, sa.literal_column(f"'{kind}'").label("kind"), maintain_column_froms=True
    ).where(bulk.Among(names.id, kind))


# One statement for all kinds saves round trips.
_CAPS_OF = sa.union_all(*(_with_all_columns(kind, select) for kind, select in _SELECTS.items()))
