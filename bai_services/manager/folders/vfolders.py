"""Folders: create, change, clone, hand over, put in the trash, restore, purge."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bai_services.core.accounts.roles import Caller, Owner, Role, Target, reaches
from bai_services.core.errors import Conflict, Forbidden, InvalidRequest, NotFound
from bai_services.core.folders.vfolders import (
    Permission,
    UsageMode,
    VfolderEvent,
    VfolderStatus,
    check_name,
    is_auto_mounted,
)
from bai_services.core.listing import ListQuery, Page
from bai_services.db.accounts.projects import ProjectStore
from bai_services.db.folders.grants import GrantStore
from bai_services.db.folders.vfolders import VfolderRow, VfolderStore
from bai_services.storage.base import Location, Scope

from ..accounts import authorizer
from ..context import ManagerContext
from .access import (
    IN_TRASH,
    REMOVABLE,
    VFolderAccess,
    permission_of,
    require_manages,
    require_ready,
    seen_by,
)
from .quotas import Quotas
from .storage_hosts import StorageHosts
from .tasks import TaskView, VFolderTasks


@dataclass(frozen=True, slots=True)
class VFolder:
    """A folder as the caller sees it.

    ``permission`` is what the caller may do (None: only see it). ``mount_permission`` is that of a
    mount that requests none, and that of members in their project's folder.
    """

    id: str
    name: str
    host: str
    domain: str
    owner: str | None
    owner_id: str | None
    project: str | None
    project_id: str | None
    usage_mode: str
    permission: Permission | None
    mount_permission: Permission
    cloneable: bool
    is_owner: bool
    is_mounted: bool
    is_auto_mounted: bool
    status: VfolderStatus
    status_info: str
    status_changed_at: datetime
    created_at: datetime
    last_used_at: datetime | None
    used_files: int | None
    used_bytes: int | None
    counted_at: datetime | None
    unmanaged_path: str | None
    task: TaskView | None


class VFolders:
    """One method per verb; ``key`` is an id or a name, see ``VFolderAccess.find``."""

    def __init__(
        self, context: ManagerContext, hosts: StorageHosts, quotas: Quotas, tasks: VFolderTasks
    ) -> None:
        self._store = VfolderStore(context.database)
        self._grants = GrantStore(context.database)
        self._projects = ProjectStore(context.database)
        self._access = VFolderAccess(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._hosts = hosts
        self._quotas = quotas
        self._tasks = tasks

    async def start(self) -> None:
        """Initialize the storage hosts and continue interrupted work."""
        await self._hosts.start()
        await self._tasks.start()

    async def stop(self) -> None:
        """Wait for work that is nearly done; the rest continues at the next start."""
        await self._tasks.stop()
        await self._hosts.stop()

    async def page(self, caller: Caller, query: ListQuery) -> Page[VFolder]:
        page = await self._store.page(query, seen_by(caller))
        items = [self._described(caller, row) for row in page.items]
        return Page(items, page.total, page.limit, page.offset)

    async def get(self, caller: Caller, key: str) -> VFolder:
        return self._described(caller, await self._access.find(caller, key))

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> VFolder:
        """Create an empty folder: the caller's own, or one of ``project``.

        Raises
        ------
        AlreadyExists
            If its owner or project has an active folder of that name.
        QuotaExceeded
            If the policy allows no more folders.
        StorageFull
            If the host has no space for it.
        """
        name = check_name(spec["name"])
        host = self._hosts.get(spec.get("host") or self._hosts.default)
        place = await self._place(caller, spec.get("project"))
        await self._hosts.require(caller, host.name, "create-vfolder", place["project_id"])
        values = self._values(caller, spec, name, host.name, place)
        if values["unmanaged_path"] is not None:
            authorizer.require(caller, "vfolder.use-existing")
            await host.check_unmanaged(values["unmanaged_path"])
        entry = self._audit.entry(
            caller, "vfolder.create", values["id"], domain=place["domain"], name=name
        )
        # Directory first: a row without its directory would be a folder that fails at every use.
        location = Location(Scope.parse(place["scope"]), values["id"], values["unmanaged_path"])
        await host.create(location)
        try:
            await self._store.create(values, entry)
        except BaseException:
            await host.delete(location)
            raise
        await self._quotas.created(host.name, place["scope"])
        return await self.get(caller, values["id"])

    async def clone(self, caller: Caller, key: str, spec: Mapping[str, Any]) -> VFolder:
        """Start to copy a folder in the background; the copy is ready when all files are there.

        Raises
        ------
        Forbidden
            If the folder may not be cloned.
        """
        row, _ = await self._access.for_files(caller, key)
        if not row.cloneable:
            raise Forbidden(
                f"folder {row.name} may not be cloned; {row.owner or 'an administrator'} can "
                "make it cloneable"
            )
        name = check_name(spec["name"])
        host = self._hosts.get(spec.get("host") or row.host)
        place = await self._place(caller, spec.get("project"))
        await self._hosts.require(caller, row.host, "download-file", row.project_id)
        await self._hosts.require(caller, host.name, "create-vfolder", place["project_id"])
        values = self._values(caller, spec, name, host.name, place)
        entry = self._audit.entry(
            caller, "vfolder.clone", row.id, domain=row.domain, name=row.name, clone=values["id"]
        )
        await self._store.create({**values, "source_id": row.id}, entry, VfolderStatus.CLONING)
        await self._quotas.created(host.name, place["scope"])
        await self._tasks.begin(values["id"])
        return await self.get(caller, values["id"])

    async def hand_over(self, caller: Caller, key: str, user: str) -> VFolder:
        """Give a user's folder to another user; its files follow in the background.

        Raises
        ------
        InUse
            If a live session has it mounted.
        AlreadyExists
            If the new owner has a folder of that name.
        """
        authorizer.require(caller, "vfolder.hand-over")
        row = await self._access.find(caller, key)
        require_ready(row)
        if row.owner_id is None:
            raise InvalidRequest("a project's folder has no owner to change", field="user")
        person = None if "\0" in user else await self._grants.find_user_in_any_domain(user)
        if person is None or person["status"] != "active":
            raise NotFound(f"there is no active user {user!r}", user=user)
        if person["id"] == row.owner_id:
            raise InvalidRequest(f"folder {row.name} belongs to {user} already", field="user")
        if is_auto_mounted(row.name) and person["id"] != caller.user_id:
            raise InvalidRequest(
                f"folder {row.name} would be mounted into every session of {user} without "
                "their request; rename it first, to a name without a leading dot",
                field="user",
            )
        await self._store.require_name_free(f"user:{person['id']}", row.name)
        entry = self._entry(caller, "vfolder.hand-over", row, user=person["username"])
        await self._store.move(
            row.id, VfolderEvent.HANDED_OVER, self._clock(), entry,
            {"next_owner_id": person["id"]},
        )  # fmt: skip
        await self._tasks.begin(row.id)
        return await self.get(caller, row.id)

    async def update(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> VFolder:
        """Rename a folder or change its ``permission``, ``usage_mode`` or ``cloneable``.

        Raises
        ------
        InUse
            If it is to be renamed while a live session has it mounted.
        """
        row = await self._managed(caller, key)
        require_ready(row)
        await self._hosts.require(caller, row.host, "modify-vfolder", row.project_id)
        values: dict[str, Any] = {}
        if changes.get("name") is not None and changes["name"] != row.name:
            values["name"] = check_name(changes["name"])
            _refuse_planted(caller, row, values["name"])
        if changes.get("permission") is not None:
            values["permission"] = str(changes["permission"])
        for field in ("usage_mode", "cloneable"):
            if changes.get(field) is not None:
                values[field] = changes[field]
        if values:
            await self._store.update(
                row.id, values, self._entry(caller, "vfolder.update", row, **values)
            )
        return await self.get(caller, row.id)

    async def trash(self, caller: Caller, key: str) -> None:
        """Put a folder in the trash, where it keeps its files and its grants.

        Raises
        ------
        InUse
            If a live session has it mounted; the details name the sessions.
        """
        row = await self._managed(caller, key, REMOVABLE)
        await self._hosts.require(caller, row.host, "delete-vfolder", row.project_id)
        entry = self._entry(caller, "vfolder.trash", row)
        await self._store.move(row.id, VfolderEvent.TRASHED, self._clock(), entry)

    async def restore(self, caller: Caller, key: str) -> VFolder:
        """Restore a folder from the trash.

        Raises
        ------
        AlreadyExists
            If its name has been taken meanwhile.
        """
        row = await self._managed(caller, key, IN_TRASH)
        await self._hosts.require(caller, row.host, "delete-vfolder", row.project_id)
        entry = self._entry(caller, "vfolder.restore", row)
        await self._store.move(row.id, VfolderEvent.RESTORED, self._clock(), entry)
        return await self.get(caller, row.id)

    async def purge(self, caller: Caller, key: str) -> VFolder:
        """Delete a folder in the trash permanently; its files are deleted in the background."""
        row = await self._managed(caller, key, IN_TRASH)
        await self._hosts.require(caller, row.host, "delete-vfolder", row.project_id)
        entry = self._entry(caller, "vfolder.purge", row)
        await self._store.move(row.id, VfolderEvent.PURGED, self._clock(), entry)
        seen = await self.get(caller, row.id)
        await self._tasks.begin(row.id)
        return seen

    async def settled(self) -> None:
        """Wait until no background work on folders is running."""
        await self._tasks.settled()

    def _values(
        self, caller: Caller, spec: Mapping[str, Any], name: str, host: str, place: dict[str, Any]
    ) -> dict[str, Any]:
        return {
            "id": str(uuid.uuid4()),
            "created_at": self._clock(),
            "host": host,
            "name": name,
            "creator_id": caller.user_id or "",
            "usage_mode": spec.get("usage_mode") or UsageMode.GENERAL,
            "permission": str(spec.get("permission") or Permission.RW),
            "cloneable": bool(spec.get("cloneable")),
            "unmanaged_path": spec.get("unmanaged_path"),
            **place,
        }

    async def _place(self, caller: Caller, project: str | None) -> dict[str, Any]:
        authorizer.require(caller, "vfolder.create")
        if not project:
            if caller.user_id is None:
                raise InvalidRequest("a folder belongs to a user or a project", field="project")
            target = Target(domain=caller.domain, owner=Owner(caller.user_id, caller.role))
            authorizer.require(caller, "vfolder.create", target)
            return {
                "domain": caller.domain,
                "scope": f"user:{caller.user_id}",
                "owner_id": caller.user_id,
                "project_id": None,
            }
        visible = authorizer.visibility(caller, "project.read")
        found = await self._projects.named(project, visible.domain, visible.project_ids)
        found = [row for row in found if row["domain"] == caller.domain] or list(found)
        if not found:
            raise NotFound(f"there is no project {project!r}, or you may not see it")
        if len(found) > 1:
            names = ", ".join(f"{row['domain']}/{row['name']}" for row in found)
            raise Conflict(f"{project} may be any of {names}; add the domain, or use the id")
        row = found[0]
        if not reaches(caller, "vfolder.create", Target(row["domain"], row["id"])):
            raise Forbidden(
                f"only an administrator of domain {row['domain']} can create project folders",
                action="vfolder.create",
            )
        return {
            "domain": row["domain"],
            "scope": f"project:{row['id']}",
            "owner_id": None,
            "project_id": row["id"],
        }

    async def _managed(
        self, caller: Caller, key: str, statuses: frozenset[VfolderStatus] | None = None
    ) -> VfolderRow:
        found = self._access.find(caller, key, statuses) if statuses else None
        row = await (found or self._access.find(caller, key))
        require_manages(caller, row)
        return row

    def _entry(self, caller: Caller, action: str, row: VfolderRow, **details: Any) -> Any:
        facts = {"name": row.name, **details}
        return self._audit.entry(caller, action, row.id, domain=row.domain, **facts)

    def _described(self, caller: Caller, row: VfolderRow) -> VFolder:
        return describe(caller, row, self._tasks.view(row.id))


def _refuse_planted(caller: Caller, row: VfolderRow, name: str) -> None:
    """Raise ``Forbidden`` if a new name would mount another user's folder into all their
    sessions.
    """
    if is_auto_mounted(name) and row.owner_id not in (None, caller.user_id):
        raise Forbidden(
            f"a folder named {name} is mounted into every session of its owner: only {row.owner} "
            "may give it a name with a leading dot"
        )


def describe(caller: Caller, row: VfolderRow, task: TaskView | None) -> VFolder:
    return VFolder(
        id=row.id,
        name=row.name,
        host=row.host,
        domain=row.domain,
        owner=row.owner,
        owner_id=row.owner_id,
        project=row.project,
        project_id=row.project_id,
        usage_mode=row.usage_mode,
        permission=permission_of(caller, row),
        mount_permission=Permission(row.permission),
        cloneable=row.cloneable,
        is_owner=row.owner_id is not None and row.owner_id == caller.user_id,
        is_mounted=row.is_mounted,
        is_auto_mounted=is_auto_mounted(row.name),
        status=row.status,
        status_info=row.status_info,
        status_changed_at=row.status_changed_at,
        created_at=row.created_at,
        last_used_at=row.last_used_at,
        used_files=row.used_files,
        used_bytes=row.used_bytes,
        counted_at=row.counted_at,
        unmanaged_path=row.unmanaged_path if caller.role is Role.SUPERADMIN else None,
        task=task,
    )
