"""Projects: groups of users of a domain that share limits."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from bai_services.core.accounts.roles import Caller, Owner, Role, Target, reaches
from bai_services.core.errors import Conflict, Forbidden, InvalidRequest, NotFound
from bai_services.core.folders.storage_hosts import missing_permissions
from bai_services.core.listing import ListQuery, Page
from bai_services.core.names import check_slug
from bai_services.core.resources import Caps
from bai_services.db.accounts.policies import PolicyStore
from bai_services.db.accounts.projects import ProjectStore, Row
from bai_services.db.accounts.users import UserStore

from ..context import ManagerContext
from . import authorizer
from .domains import DEFAULT_POLICY, Domains, checked


class Projects:
    """One method per verb; ``key`` is an id, a name, or ``DOMAIN/NAME``."""

    def __init__(self, context: ManagerContext, domains: Domains) -> None:
        self._store = ProjectStore(context.database)
        self._users = UserStore(context.database)
        self._policies = PolicyStore(context.database, "project")
        self._clock = context.clock
        self._audit = context.audit
        self._domains = domains
        self._capacity_changed = context.capacity_changed

    async def page(self, caller: Caller, query: ListQuery) -> Page[Row]:
        visible = authorizer.visibility(caller, "project.read")
        return await self._store.page(query, visible.domain, visible.project_ids)

    async def get(self, caller: Caller, key: str) -> Row:
        """Return the project that ``key`` names for the caller.

        Where several visible projects have the name, the one of the caller's own domain is
        returned.

        Raises
        ------
        NotFound
            If the caller can see none.
        Conflict
            If it is ambiguous; the details contain the ids.
        """
        visible = authorizer.visibility(caller, "project.read")
        found = await self._store.named(key, visible.domain, visible.project_ids)
        if len(found) > 1:
            found = [row for row in found if row["domain"] == caller.domain] or found
        if not found:
            raise NotFound(f"there is no project {key}, or you may not see it")
        if len(found) > 1:
            names = ", ".join(sorted(f"{row['domain']}/{row['name']}" for row in found))
            raise Conflict(f"{key} may be any of {names}; add the domain, or use the id")
        return found[0]

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> Row:
        domain = spec.get("domain") or caller.domain or ""
        authorizer.require(caller, "project.write")
        authorizer.require(caller, "project.write", Target(domain=domain))
        of_domain = await self._domains.get(caller, domain)
        project_id = str(uuid.uuid4())
        values = {
            "id": project_id,
            "created_at": self._clock(),
            "description": "",
            "is_active": True,
            "type": "general",
            "total_resource_slots": Caps(),
            "allowed_vfolder_hosts": {},
            "resource_policy": DEFAULT_POLICY,
            **checked(spec),
            "domain": domain,
            "name": check_slug("project", spec["name"]),
        }
        _refuse_beyond_domain(caller, values, of_domain)
        await self._require_policy(values["resource_policy"])
        entry = self._audit.entry(
            caller, "project.create", project_id, domain=domain, name=values["name"]
        )
        await self._store.create(values, entry)
        return await self._one(project_id)

    async def update(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> Row:
        row = await self._writable(caller, key)
        values = checked(changes)
        _refuse_beyond_domain(caller, values, await self._domains.get(caller, row["domain"]), row)
        if "name" in changes:
            values["name"] = check_slug("project", changes["name"])
        if "resource_policy" in values:
            await self._require_policy(values["resource_policy"])
        entry = self._audit.entry(
            caller,
            "project.update",
            row["id"],
            domain=row["domain"],
            name=row["name"],
            fields=sorted(changes),
        )
        changed = await self._store.update(row["id"], values, entry)
        self._capacity_changed()
        return changed

    async def delete(self, caller: Caller, key: str) -> None:
        row = await self._writable(caller, key)
        entry = self._audit.entry(
            caller, "project.delete", row["id"], domain=row["domain"], name=row["name"]
        )
        await self._store.delete(row["id"], entry)

    async def members(self, caller: Caller, key: str, query: ListQuery) -> Page[Row]:
        """Return the members of a project, for callers who may manage it."""
        row = await self._writable(caller, key, "user.read")
        return await self._store.members(row["id"], query)

    async def add_member(self, caller: Caller, key: str, user: str) -> None:
        """Add a user of the project's domain; idempotent."""
        row, person = await self._project_and_person(caller, key, user)
        if person["domain"] != row["domain"]:
            raise InvalidRequest(
                f"{person['username']} is in domain {person['domain']}, project {row['name']} in "
                f"{row['domain']}; users can only be members of projects of their own domain"
            )
        if person["status"] == "deleted":
            raise InvalidRequest(f"{person['username']} is deleted")
        entry = self._membership_entry(caller, "project.add-member", row, person)
        await self._store.add_member(row["id"], person["id"], entry)

    async def remove_member(self, caller: Caller, key: str, user: str) -> None:
        row, person = await self._project_and_person(caller, key, user)
        entry = self._membership_entry(caller, "project.remove-member", row, person)
        await self._store.remove_member(row["id"], person["id"], entry)

    async def _project_and_person(self, caller: Caller, key: str, user: str) -> tuple[Row, Row]:
        row = await self._writable(caller, key)
        visible = authorizer.visibility(caller, "user.read")
        person = await self._users.find(user, visible.domain, visible.owner_id)
        if person is None:
            raise NotFound(f"there is no user {user}, or you may not see them")
        owner = Owner(person["id"], Role(person["role"]))
        if not reaches(caller, "project.write", Target(row["domain"], owner=owner)):
            raise Forbidden(
                f"{person['username']} is {person['role']}; a user with a lower role cannot "
                "change their projects; ask a superadmin",
                action="project.write",
            )
        return row, person

    def _membership_entry(self, caller: Caller, action: str, row: Row, person: Row) -> Any:
        return self._audit.entry(
            caller,
            action,
            row["id"],
            domain=row["domain"],
            name=row["name"],
            user=person["username"],
        )

    async def _writable(self, caller: Caller, key: str, action: str = "project.write") -> Row:
        row = await self.get(caller, key)
        authorizer.require(caller, action, Target(domain=row["domain"]))
        return row

    async def _one(self, project_id: str) -> Row:
        (row,) = await self._store.named(project_id)
        return row

    async def _require_policy(self, name: str) -> None:
        if await self._policies.one(name) is None:
            raise NotFound(f"there is no project policy {name}", name=name)


def _refuse_beyond_domain(caller: Caller, values: Mapping[str, Any], *have: Row) -> None:
    """Refuse a domain admin permissions on storage hosts that the domain itself does not have.

    ``have`` are the current domain and project: what a superadmin granted the project may stay.
    """
    wanted = values.get("allowed_vfolder_hosts")
    if not wanted or caller.role is Role.SUPERADMIN:
        return
    missing = missing_permissions(wanted, *(row["allowed_vfolder_hosts"] or {} for row in have))
    if missing:
        named = "; ".join(f"{host}: {', '.join(names)}" for host, names in missing.items())
        raise Forbidden(
            f"domain {have[0]['name']} does not have these permissions on storage hosts: {named}; "
            "its administrators can grant projects only what it has; ask a superadmin for more",
            field="allowed_vfolder_hosts",
            missing=missing,
        )
