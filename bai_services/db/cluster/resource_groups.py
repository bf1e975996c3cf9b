"""Store of resource groups, and of the links that grant access to groups that are not public."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry
from bai_services.core.cluster.group_options import FIELD, check_options, merged_options
from bai_services.core.cluster.model import AgentStatus, LinkKind
from bai_services.core.cluster.records import GroupLink, ResourceGroup
from bai_services.core.errors import AlreadyExists, InUse, InvalidRequest, NotFound
from bai_services.core.listing import ListQuery, Page

from ..audit import record
from ..database import Database
from ..integrity import insert_ignoring, raise_on_violation, require_unused
from ..listing import Listing
from ..records import first_record
from ..tables.accounts import domains, keypairs, projects, users
from ..tables.cluster import agents, presets, resource_group_links, resource_groups
from ..tables.sessions import sessions

_groups, _links = resource_groups.c, resource_group_links.c
_JSON_COLUMNS = {"scheduler_opts", "allowed_session_types", "total_resource_slots"}
_PROJECT_HINT = "; name a project by its id or as DOMAIN/NAME"

_LISTING = Listing(
    columns={c.name: c for c in resource_groups.columns if c.name not in _JSON_COLUMNS},
    default_sort=("-is_default", "name"),
)
_LINK_LISTING = Listing(
    columns={"kind": _links.kind, "target": _links.target}, default_sort=("kind", "target")
)


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """Selects the groups that a user may use.

    With ``is_domain_wide``, it selects the groups that any user of the domain may use; then
    ``project_ids`` and ``user_id`` are ignored.
    """

    domain: str | None = None
    project_ids: frozenset[str] = frozenset()
    user_id: str | None = None
    is_domain_wide: bool = False


def usable_by(user: GroupFilter) -> sa.ColumnElement[bool]:
    """Return the condition on ``resource_groups`` for the groups that a user may use.

    These are public groups, and groups that are linked to the user or to the user's domain,
    projects or keypairs. Inactive groups are included.
    """
    domain_projects = sa.select(projects.c.id).where(projects.c.domain == user.domain)
    domain_users = sa.select(users.c.id).where(users.c.domain == user.domain)
    user_ids = domain_users if user.is_domain_wide else sa.select(sa.literal(user.user_id))
    links = sa.or_(
        sa.and_(_links.kind == LinkKind.DOMAIN, _links.target == user.domain),
        sa.and_(
            _links.kind == LinkKind.PROJECT,
            _links.target.in_(domain_projects if user.is_domain_wide else sorted(user.project_ids)),
        ),
        sa.and_(_links.kind == LinkKind.USER, _links.target.in_(user_ids)),
        sa.and_(
            _links.kind == LinkKind.KEYPAIR,
            _links.target.in_(
                sa.select(keypairs.c.access_key).where(keypairs.c.user_id.in_(user_ids))
            ),
        ),
    )
    linked = sa.exists().where(_links.resource_group == _groups.name, links)
    return sa.or_(_groups.is_public, linked)


class GroupStore:
    """Reads and writes resource groups.

    Each public method is one transaction. If ``user`` is None, all groups are selected.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery, user: GroupFilter | None = None) -> Page[ResourceGroup]:
        async with self._db.read() as tx:
            return await _LISTING.page(tx, _visible(user), query, ResourceGroup)

    async def one(self, name: str, user: GroupFilter | None = None) -> ResourceGroup:
        """Return a group.

        Raises
        ------
        NotFound
            If there is no group with that name, or ``user`` may not use it.
        """
        async with self._db.read() as tx:
            return await _one(tx, name, user)

    async def create(self, values: Mapping[str, Any], audit: AuditEntry) -> ResourceGroup:
        """Insert a group and return it; a new default group replaces the previous one.

        Raises
        ------
        AlreadyExists
            If the name is taken.
        InvalidRequest
            If a name in the fair-share weights is unknown or ambiguous, or has two weights.
        """
        name = values["name"]
        async with self._db.write() as tx:
            values = await _resolve_weights(tx, values)
            with raise_on_violation(AlreadyExists(f"resource group {name} already exists")):
                await tx.execute(resource_groups.insert().values(values))
            row = await _finish_change(tx, name, bool(values.get("is_default")))
            await record(tx, audit)
            return row

    async def update(
        self,
        name: str,
        changes: Mapping[str, Any],
        audit: AuditEntry,
        *,
        option_changes: Mapping[str, Any] = MappingProxyType({}),
    ) -> ResourceGroup:
        """Update a group and return it; a new default group replaces the previous one.

        ``option_changes`` are merged with the stored scheduler options.

        Raises
        ------
        InUse
            If a live agent of the group does not have the new engine. Lost agents do not count,
            because they report their engine when they reconnect.
        NotFound
            If the group does not exist.
        InvalidRequest
            If a name in the fair-share weights is unknown or ambiguous, or has two weights.
        """
        async with self._db.write() as tx:
            changes = await _resolve_weights(tx, changes)
            if option_changes:
                changes = {**changes, FIELD: await _merged(tx, name, option_changes)}
            if "engine" in changes:
                await require_unused(
                    tx,
                    f"the engine of resource group {name}",
                    {
                        "agents": sa.and_(
                            agents.c.resource_group == name,
                            agents.c.engine != changes["engine"],
                            agents.c.status == AgentStatus.ALIVE,
                        )
                    },
                )
            if changes:
                await tx.execute(
                    resource_groups.update().where(_groups.name == name).values(changes)
                )
            row = await _finish_change(tx, name, bool(changes.get("is_default")))
            await record(tx, audit)
            return row

    async def delete(self, name: str, audit: AuditEntry) -> None:
        """Delete a group with its links.

        Raises
        ------
        InUse
            If the group has agents, presets or sessions, including ended sessions.
        NotFound
            If the group does not exist.
        """
        uses = {
            "agents": agents.c.resource_group == name,
            "presets": presets.c.resource_group == name,
            "sessions": sessions.c.resource_group == name,
        }
        async with self._db.write() as tx:
            await require_unused(tx, f"resource group {name}", uses)
            await tx.execute(resource_group_links.delete().where(_links.resource_group == name))
            with raise_on_violation(InUse(f"resource group {name} is now in use; try again")):
                deleted = await tx.execute(resource_groups.delete().where(_groups.name == name))
            if not deleted.rowcount:
                raise _no_group(name)
            await record(tx, audit)

    async def links(self, name: str, query: ListQuery) -> Page[GroupLink]:
        """Return a page of a group's links, each with ``kind``, ``target`` (an id) and ``name``."""
        rows = sa.select(_links.kind, _links.target, _links.target.label("name")).where(
            _links.resource_group == name
        )
        async with self._db.read() as tx:
            await _one(tx, name)
            page = await _LINK_LISTING.page(tx, rows, query, GroupLink)
            named = [
                replace(link, name=await _name_of(tx, link.kind, link.target))
                for link in page.items
            ]
            return page.with_items(named)

    async def link(self, name: str, kind: LinkKind, target: str, audit: AuditEntry) -> GroupLink:
        """Grant a domain, project, user or keypair access to a group; idempotent.

        Raises
        ------
        NotFound
            If the group does not exist, or ``target`` (an id or a name of that kind) is unknown or
            ambiguous.
        """
        async with self._db.write() as tx:
            await _one(tx, name)
            target_id = await _resolve(tx, kind, target)
            if target_id is None:
                hint = _PROJECT_HINT if kind is LinkKind.PROJECT else ""
                raise NotFound(
                    f"{target} matches no {kind}, or more than one{hint}", kind=kind, target=target
                )
            await tx.execute(
                insert_ignoring(tx, resource_group_links).values(
                    resource_group=name, kind=kind, target=target_id
                )
            )
            await record(tx, audit)
            return GroupLink(kind, target_id, await _name_of(tx, kind, target_id))

    async def unlink(self, name: str, kind: LinkKind, target: str, audit: AuditEntry) -> None:
        """Delete a link, even if its target was deleted.

        Raises
        ------
        NotFound
            If the link does not exist.
        """
        async with self._db.write() as tx:
            target_id = await _resolve(tx, kind, target) or target
            deleted = await tx.execute(
                resource_group_links.delete().where(
                    _links.resource_group == name, _links.kind == kind, _links.target == target_id
                )
            )
            if not deleted.rowcount:
                raise NotFound(f"resource group {name} has no link to the {kind} {target}")
            await record(tx, audit)


def _visible(user: GroupFilter | None) -> sa.Select[Any]:
    rows = sa.select(resource_groups)
    return rows if user is None else rows.where(usable_by(user))


async def _one(tx: AsyncConnection, name: str, user: GroupFilter | None = None) -> ResourceGroup:
    rows = await tx.execute(_visible(user).where(_groups.name == name))
    group = first_record(ResourceGroup, rows)
    if group is None:
        raise _no_group(name)
    return group


def _no_group(name: str) -> NotFound:
    return NotFound(f"there is no resource group {name!r}, or you may not use it", name=name)


async def _finish_change(tx: AsyncConnection, name: str, is_default: bool) -> ResourceGroup:
    if is_default:
        others = sa.and_(_groups.name != name, _groups.is_default)
        await tx.execute(resource_groups.update().where(others).values(is_default=False))
    return await _one(tx, name)


async def _merged(tx: AsyncConnection, name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Lock a group; return its scheduler options with the changes."""
    # The names in weights are resolved first, because the stored weights have ids.
    resolved = await _resolve_weights(tx, {FIELD: changes})
    stored = await tx.scalar(
        sa.select(_groups.scheduler_opts).where(_groups.name == name).with_for_update()
    )
    return check_options(merged_options(stored or {}, resolved[FIELD]))


async def _resolve_weights(tx: AsyncConnection, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a group's values with the names in its fair-share weights replaced by ids.

    Raises
    ------
    InvalidRequest
        If a name is unknown or ambiguous, or has two weights.
    """
    options = values.get("scheduler_opts") or {}
    weights = (options.get("fair_share") or {}).get("weights") or {}
    if not weights:
        return values
    by_id: dict[str, dict[str, Any]] = {kind: {} for kind in weights}
    for kind, of_kind in weights.items():
        field = f"scheduler_opts.fair_share.weights.{kind}"
        for key, weight in of_kind.items():
            target = await _resolve(tx, LinkKind(kind), key)
            if target is None:
                raise InvalidRequest(
                    f"the weight for {kind} {key[:80]!r} matches no {kind}, or more than one"
                    + (_PROJECT_HINT if kind == LinkKind.PROJECT else ""),
                    field=field,
                )
            if target in by_id[kind]:
                raise InvalidRequest(f"{kind} {key[:80]!r} has two weights", field=field)
            by_id[kind][target] = weight
    fair_share = {**options["fair_share"], "weights": by_id}
    return {**values, "scheduler_opts": {**options, "fair_share": fair_share}}


async def _resolve(tx: AsyncConnection, kind: LinkKind, key: str) -> str | None:
    """Return the id for ``key`` (an id or a name); None if the key is unknown or ambiguous."""
    domain, slash, name = key.partition("/")
    if kind is LinkKind.PROJECT:
        by_name = (
            sa.and_(projects.c.domain == domain, projects.c.name == name)
            if slash
            else projects.c.name == key
        )
        select = sa.select(projects.c.id).where(sa.or_(projects.c.id == key, by_name))
    elif kind is LinkKind.USER:
        by_name = users.c.username == key.lower()
        select = sa.select(users.c.id).where(sa.or_(users.c.id == key, by_name))
    elif kind is LinkKind.KEYPAIR:
        select = sa.select(keypairs.c.access_key).where(keypairs.c.access_key == key)
    else:
        select = sa.select(domains.c.name).where(domains.c.name == key)
    ids = list((await tx.execute(select)).scalars())
    return str(ids[0]) if len(ids) == 1 else None


async def _name_of(tx: AsyncConnection, kind: str, target: str) -> str:
    """Return the name of a link's target, or its id if the target was deleted or has no name."""
    if kind == LinkKind.PROJECT:
        select = sa.select(projects.c.domain + "/" + projects.c.name).where(projects.c.id == target)
    elif kind == LinkKind.USER:
        select = sa.select(users.c.username).where(users.c.id == target)
    else:
        return target
    return str(await tx.scalar(select) or target)
