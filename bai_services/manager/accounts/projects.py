"""Projects: groups of users of one domain with shared limits."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from bai_services.core.accounts.records import Domain, Member, Project, User
from bai_services.core.accounts.roles import Caller, Owner, Role, Target, reaches
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import Conflict, Forbidden, InvalidRequest, NotFound
from bai_services.core.folders.storage_hosts import missing_permissions
from bai_services.core.listing import ListQuery, Page
from bai_services.core.names import check_slug
from bai_services.core.record_fields import fields_of
from bai_services.core.resources import Caps
from bai_services.db.accounts.checked_users import CheckedUser
from bai_services.db.accounts.policies import PolicyStore
from bai_services.db.accounts.projects import ProjectStore
from bai_services.db.accounts.users import UserStore

from ..context import ManagerContext
from . import authorizer
from .domains import DEFAULT_POLICY, Domains, parse_fields


class Projects:
    """Manage projects and their members; ``key`` is an id, a name, or ``DOMAIN/NAME``."""

    def __init__(self, context: ManagerContext, domains: Domains) -> None:
        self._store = ProjectStore(context.database)
        self._users = UserStore(context.database)
        self._policies = PolicyStore(context.database, "project")
        self._clock = context.clock
        self._audit = context.audit
        self._domains = domains
        self._capacity_changed = context.capacity_changed

    async def page(self, caller: Caller, query: ListQuery) -> Page[Project]:
        visible = authorizer.visibility(caller, "project.read")
        return await self._store.page(query, visible.domain, visible.project_ids)

    async def get(self, caller: Caller, key: str) -> Project:
        """Return the visible project that ``key`` identifies.

        If several projects have the name, the project of the caller's own domain takes precedence.

        Raises
        ------
        NotFound
            If no visible project matches.
        Conflict
            If several projects of other domains match; the message lists them.
        """
        visible = authorizer.visibility(caller, "project.read")
        matches = await self._store.named(key, visible.domain, visible.project_ids)
        if len(matches) > 1:
            matches = [project for project in matches if project.domain == caller.domain] or matches
        if not matches:
            raise NotFound(f"there is no project {key}, or you may not see it")
        if len(matches) > 1:
            names = ", ".join(sorted(f"{project.domain}/{project.name}" for project in matches))
            raise Conflict(f"project {key} is ambiguous: {names}; add the domain, or use the id")
        return matches[0]

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> Project:
        domain = spec.get("domain") or caller.domain or ""
        authorizer.require(caller, "project.write")
        authorizer.require(caller, "project.write", Target(domain=domain))
        parent = await self._domains.get(caller, domain)
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
            **parse_fields(spec),
            "domain": domain,
            "name": check_slug("project", spec["name"]),
        }
        _require_within_domain(caller, values, parent)
        await self._require_policy(values["resource_policy"])
        entry = self._audit.entry(
            caller, "project.create", project_id, domain=domain, name=values["name"]
        )
        await self._store.create(values, entry)
        return await self._one(project_id)

    async def update(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> Project:
        project = await self._require_writable(caller, key)
        values = parse_fields(changes)
        _require_within_domain(
            caller, values, await self._domains.get(caller, project.domain), project
        )
        if "name" in changes:
            values["name"] = check_slug("project", changes["name"])
        if "resource_policy" in values:
            await self._require_policy(values["resource_policy"])
        entry = self._audit.entry(
            caller,
            "project.update",
            project.id,
            domain=project.domain,
            name=project.name,
            **self._audit.changes(fields_of(project), values),
        )
        changed = await self._store.update(project.id, values, entry)
        self._capacity_changed()
        return changed

    async def delete(self, caller: Caller, key: str) -> None:
        project = await self._require_writable(caller, key)
        entry = self._audit.entry(
            caller, "project.delete", project.id, domain=project.domain, name=project.name
        )
        await self._store.delete(project.id, entry)

    async def members(self, caller: Caller, key: str, query: ListQuery) -> Page[Member]:
        """Return the members of a project, if the caller may read the users of its domain."""
        project = await self._require_writable(caller, key, "user.read")
        return await self._store.members(project.id, query)

    async def add_member(self, caller: Caller, key: str, user_key: str) -> None:
        """Add a user of the project's domain to the project; idempotent."""
        project, user = await self._project_and_user(caller, key, user_key)
        if user.domain != project.domain:
            raise InvalidRequest(
                f"{user.username} is in domain {user.domain}, but project {project.name} "
                f"is in {project.domain}; users can only be members of projects of their own domain"
            )
        if user.status == "deleted":
            raise InvalidRequest(f"{user.username} is deleted")
        entry = self._membership_entry(caller, "project.add-member", project, user)
        await self._store.add_member(project.id, _checked(user), entry)
        self._capacity_changed()

    async def remove_member(self, caller: Caller, key: str, user_key: str) -> None:
        """Remove a user from the project; pending sessions of the user there no longer start."""
        project, user = await self._project_and_user(caller, key, user_key)
        entry = self._membership_entry(caller, "project.remove-member", project, user)
        await self._store.remove_member(project.id, _checked(user), entry)
        self._capacity_changed()

    async def _project_and_user(
        self, caller: Caller, key: str, user_key: str
    ) -> tuple[Project, User]:
        project = await self._require_writable(caller, key)
        visible = authorizer.visibility(caller, "user.read")
        user = await self._users.find(user_key, visible.domain, visible.owner_id)
        if user is None:
            raise NotFound(f"there is no user {user_key}, or you may not see this user")
        owner = Owner(user.id, user.role)
        if not reaches(caller, "project.write", Target(project.domain, owner=owner)):
            raise Forbidden(
                f"{user.username} has the role {user.role}; a user with a lower role cannot "
                "change the project memberships of this user; ask a superadmin",
                action="project.write",
            )
        return project, user

    def _membership_entry(
        self, caller: Caller, action: str, project: Project, user: User
    ) -> AuditEntry:
        return self._audit.entry(
            caller,
            action,
            project.id,
            domain=project.domain,
            name=project.name,
            user=user.username,
        )

    async def _require_writable(
        self, caller: Caller, key: str, action: str = "project.write"
    ) -> Project:
        project = await self.get(caller, key)
        authorizer.require(caller, action, Target(domain=project.domain))
        return project

    async def _one(self, project_id: str) -> Project:
        (project,) = await self._store.named(project_id)
        return project

    async def _require_policy(self, name: str) -> None:
        if await self._policies.one(name) is None:
            raise NotFound(f"there is no project policy {name}", name=name)


def _checked(user: User) -> CheckedUser:
    return CheckedUser(user.id, {"role": user.role, "domain": user.domain, "status": user.status})


def _require_within_domain(
    caller: Caller, values: Mapping[str, Any], *current: Domain | Project
) -> None:
    """Raise ``Forbidden`` if a domain admin grants storage permissions that the domain lacks.

    ``current`` is the domain and, for an update, the project: permissions that the project already
    has are allowed.
    """
    permissions = values.get("allowed_vfolder_hosts")
    if not permissions or caller.role is Role.SUPERADMIN:
        return
    missing = missing_permissions(
        permissions, *(holder.allowed_vfolder_hosts or {} for holder in current)
    )
    if missing:
        named = "; ".join(f"{host}: {', '.join(names)}" for host, names in missing.items())
        raise Forbidden(
            f"domain {current[0].name} lacks these permissions on storage hosts: {named}; its "
            "administrators can grant projects only permissions of the domain; ask a superadmin",
            field="allowed_vfolder_hosts",
            missing=missing,
        )
