"""Create, update, clone, trash, restore and purge folders, and change their owners."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from bai_services.core.accounts.roles import Caller, Owner, Role, Target, reaches
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import Forbidden, InvalidRequest, NotFound
from bai_services.core.folders.vfolders import (
    FolderRelation,
    Permission,
    UsageMode,
    VfolderEvent,
    VfolderStatus,
    check_name,
    is_auto_mounted,
)
from bai_services.core.listing import ListQuery, Page
from bai_services.core.record_fields import fields_of
from bai_services.db.folders.grants import GrantStore
from bai_services.db.folders.rows import VfolderRow
from bai_services.db.folders.vfolders import VfolderStore
from bai_services.storage.base import Location, Scope

from ..accounts import authorizer
from ..accounts.projects import Projects
from ..context import ManagerContext
from .access import (
    IN_TRASH,
    REMOVABLE,
    USABLE,
    VFolderAccess,
    manages_row,
    permission_of,
    require_manages,
    require_ready,
    user_of,
    visible_to,
)
from .folder_changes import FolderChanges
from .quotas import Quotas
from .storage_hosts import StorageHosts
from .tasks import TaskView, VFolderTasks


@dataclass(frozen=True, slots=True)
class VFolder:
    """A folder in the API.

    ``permission`` is the caller's permission on the files (None: the caller may only see the
    folder). ``is_managed``: whether the caller may rename, share, delete and restore the folder.
    If the caller is a session, both apply to its owner.
    ``mount_permission`` is the default permission of a mount, and the permission of project members
    in a project folder. ``purge_at``: the time after which the manager permanently deletes the
    folder from the trash (None: not in the trash, or ``BAI_TRASH_DAYS`` is 0).
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
    is_managed: bool
    relation: FolderRelation
    is_mounted: bool
    is_auto_mounted: bool
    status: VfolderStatus
    status_info: str
    status_changed_at: datetime
    purge_at: datetime | None
    created_at: datetime
    last_used_at: datetime | None
    used_files: int | None
    used_bytes: int | None
    counted_at: datetime | None
    unmanaged_path: str | None
    task: TaskView | None


@dataclass(frozen=True, slots=True)
class _Ownership:
    """Columns that identify the owner of a folder: either a user or a project."""

    domain: str
    scope: str
    owner_id: str | None
    project_id: str | None


class VFolders:
    """Manage folders; ``key`` is an id or a name, see ``VFolderAccess.find``."""

    def __init__(
        self,
        context: ManagerContext,
        hosts: StorageHosts,
        quotas: Quotas,
        tasks: VFolderTasks,
        projects: Projects,
        changes: FolderChanges,
    ) -> None:
        self._store = VfolderStore(context.database)
        self._grants = GrantStore(context.database)
        self._projects = projects
        self._access = VFolderAccess(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._changes = changes
        self._hosts = hosts
        self._quotas = quotas
        self._tasks = tasks

    async def start(self) -> None:
        """Start the storage hosts and resume interrupted tasks."""
        await self._hosts.start()
        await self._tasks.start()

    async def stop(self) -> None:
        """Wait a few seconds for running tasks; the next start resumes unfinished ones."""
        await self._tasks.stop()
        await self._hosts.stop()

    async def page(self, caller: Caller, query: ListQuery) -> Page[VFolder]:
        page = await self._store.page(query, visible_to(caller))
        return page.with_items([self._to_view(caller, row) for row in page.items])

    async def get(self, caller: Caller, key: str) -> VFolder:
        return self._to_view(caller, await self._access.find(caller, key))

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> VFolder:
        """Create a folder of the caller or of ``project``: empty, or from ``unmanaged_path``.

        Raises
        ------
        AlreadyExists
            If the owner or project has an active folder of that name.
        QuotaExceeded
            If the maximum number of folders of the policy is reached.
        StorageFull
            If the host has no free space.
        Forbidden
            If the caller may not create folders on the host or in the project.
        InvalidRequest
            If the name or ``unmanaged_path`` is not valid.
        """
        name = check_name(spec["name"])
        host = self._hosts.get(spec.get("host") or self._hosts.default)
        ownership = await self._ownership_of_new(caller, spec.get("project"))
        await self._hosts.require(caller, host.name, "create-vfolder", ownership.project_id)
        values = self._values(caller, spec, name, host.name, ownership)
        if values["unmanaged_path"] is not None:
            authorizer.require(caller, "vfolder.use-existing")
            await host.check_unmanaged(values["unmanaged_path"])
        entry = self._audit.entry(
            caller,
            "vfolder.create",
            values["id"],
            domain=ownership.domain,
            owner_id=values["owner_id"],
            name=name,
        )
        # Create the directory first, because every use of a folder without a directory would fail.
        location = Location(Scope.parse(ownership.scope), values["id"], values["unmanaged_path"])
        await host.create(location)
        try:
            await self._store.create(values, entry)
        except BaseException:
            await host.delete(location)
            raise
        await self._quotas.enforce_new(host.name, ownership.scope)
        return await self._notified(caller, values["id"])

    async def clone(self, caller: Caller, key: str, spec: Mapping[str, Any]) -> VFolder:
        """Clone a folder in the background; the clone is usable when all files are copied.

        Raises
        ------
        Forbidden
            If the folder is not cloneable, or the caller may not read it or create the clone.
        AlreadyExists, QuotaExceeded
            As for ``create``.
        """
        row, _ = await self._access.for_files(caller, key)
        if not row.cloneable:
            raise Forbidden(
                f"folder {row.name} is not cloneable; {row.owner or 'an administrator'} can "
                "change that"
            )
        name = check_name(spec["name"])
        host = self._hosts.get(spec.get("host") or row.host)
        ownership = await self._ownership_of_new(caller, spec.get("project"))
        await self._hosts.require(caller, row.host, "download-file", row.project_id)
        await self._hosts.require(caller, host.name, "create-vfolder", ownership.project_id)
        values = self._values(caller, spec, name, host.name, ownership)
        entry = self._audit.entry(
            caller,
            "vfolder.clone",
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.name,
            clone=values["id"],
        )
        await self._store.create({**values, "source_id": row.id}, entry, VfolderStatus.CLONING)
        await self._quotas.enforce_new(host.name, ownership.scope)
        await self._tasks.begin(values["id"])
        return await self._notified(caller, values["id"])

    async def change_owner(self, caller: Caller, key: str, user_key: str) -> VFolder:
        """Change the owner of a user's folder; the files are moved in the background.

        Raises
        ------
        InUse
            If a live session has the folder mounted.
        AlreadyExists
            If the new owner has a folder of that name.
        NotFound
            If there is no such folder or active user.
        InvalidRequest
            If the folder belongs to a project or already to the user, or would be auto-mounted.
        """
        authorizer.require(caller, "vfolder.hand-over")
        row = await self._access.find(caller, key)
        require_ready(row)
        if row.owner_id is None:
            raise InvalidRequest(
                "a project folder belongs to the project and has no owner to change", field="user"
            )
        user = None if "\0" in user_key else await self._grants.find_user_in_any_domain(user_key)
        if user is None or user["status"] != "active":
            raise NotFound(f"there is no active user {user_key!r}", user=user_key)
        if user["id"] == row.owner_id:
            raise InvalidRequest(f"folder {row.name} already belongs to {user_key}", field="user")
        if is_auto_mounted(row.name) and user["id"] != caller.user_id:
            raise InvalidRequest(
                f"folder {row.name} would be mounted into every session of {user_key} without a "
                "request; rename it first, to a name without a leading dot",
                field="user",
            )
        await self._store.require_name_free(f"user:{user['id']}", row.name)
        entry = self._entry(caller, "vfolder.hand-over", row, user=user["username"])
        await self._store.apply_event(
            row.id, VfolderEvent.HANDED_OVER, self._clock(), entry,
            {"next_owner_id": user["id"]},
        )  # fmt: skip
        await self._tasks.begin(row.id)
        return await self._notified(caller, row.id)

    async def update(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> VFolder:
        """Update the name, ``permission``, ``usage_mode`` or ``cloneable`` of a folder.

        Raises
        ------
        InUse
            If ``changes`` has a new name and a live session has the folder mounted.
        AlreadyExists
            If the owner or project has another folder of the new name.
        Forbidden
            If the caller may not change the folder, or may not give it a name that auto-mounts it.
        """
        row = await self._find_managed(caller, key)
        require_ready(row)
        await self._hosts.require(caller, row.host, "modify-vfolder", row.project_id)
        values: dict[str, Any] = {}
        if changes.get("name") is not None and changes["name"] != row.name:
            values["name"] = check_name(changes["name"])
            _refuse_auto_mount_for_owner(caller, row, values["name"])
        if changes.get("permission") is not None:
            values["permission"] = str(changes["permission"])
        for field in ("usage_mode", "cloneable"):
            if changes.get(field) is not None:
                values[field] = changes[field]
        if values:
            details = self._audit.changes(fields_of(row), values)
            entry = self._entry(caller, "vfolder.update", row, **{**values, **details})
            await self._store.update(row.id, values, entry)
        return await self._notified(caller, row.id)

    async def trash(self, caller: Caller, key: str) -> None:
        """Move a folder to the trash; it keeps its files and grants.

        Raises
        ------
        InUse
            If a live session has the folder mounted; the details list the sessions.
        """
        row = await self._find_managed(caller, key, REMOVABLE)
        await self._hosts.require(caller, row.host, "delete-vfolder", row.project_id)
        entry = self._entry(caller, "vfolder.trash", row)
        await self._store.apply_event(row.id, VfolderEvent.TRASHED, self._clock(), entry)
        await self._changes.folder_changed(row)

    async def restore(self, caller: Caller, key: str) -> VFolder:
        """Restore a folder from the trash. A failed clone remains unusable.

        Raises
        ------
        AlreadyExists
            If another folder has the name now.
        """
        row = await self._find_managed(caller, key, IN_TRASH)
        await self._hosts.require(caller, row.host, "delete-vfolder", row.project_id)
        entry = self._entry(caller, "vfolder.restore", row)
        # Only clones that are incomplete have a ``source_id``; they remain unusable.
        event = VfolderEvent.RESTORED
        if row.source_id is not None:
            event = VfolderEvent.RESTORED_INCOMPLETE
        await self._store.apply_event(row.id, event, self._clock(), entry)
        return await self._notified(caller, row.id)

    async def purge(self, caller: Caller, key: str) -> VFolder:
        """Delete a trashed folder permanently; its files are deleted in the background."""
        row = await self._find_managed(caller, key, IN_TRASH)
        await self._hosts.require(caller, row.host, "delete-vfolder", row.project_id)
        entry = self._entry(caller, "vfolder.purge", row)
        await self._store.apply_event(row.id, VfolderEvent.PURGED, self._clock(), entry)
        view = await self._notified(caller, row.id)
        await self._tasks.begin(row.id)
        return view

    async def _notified(self, caller: Caller, vfolder_id: str) -> VFolder:
        """Notify the users of a changed folder, and return the folder."""
        row = await self._access.find(caller, vfolder_id)
        await self._changes.folder_changed(row)
        return self._to_view(caller, row)

    async def wait_for_tasks(self) -> None:
        """Wait for all running background tasks of folders."""
        await self._tasks.wait()

    def _values(
        self, caller: Caller, spec: Mapping[str, Any], name: str, host: str, ownership: _Ownership
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
            **asdict(ownership),
        }

    async def _ownership_of_new(self, caller: Caller, project_key: str | None) -> _Ownership:
        """Return the ownership of a new folder.

        Raise an error if the caller may not create the folder.
        """
        authorizer.require(caller, "vfolder.create")
        if not project_key:
            if caller.user_id is None:
                raise InvalidRequest("a folder must belong to a user or a project", field="project")
            target = Target(domain=caller.domain, owner=Owner(caller.user_id, caller.role))
            authorizer.require(caller, "vfolder.create", target)
            return _Ownership(
                domain=caller.domain or "",
                scope=f"user:{caller.user_id}",
                owner_id=caller.user_id,
                project_id=None,
            )
        project = await self._projects.get(caller, project_key)
        if not reaches(caller, "vfolder.create", Target(project.domain, project.id)):
            raise Forbidden(
                f"only an administrator of domain {project.domain} can create project folders",
                action="vfolder.create",
            )
        return _Ownership(
            domain=project.domain,
            scope=f"project:{project.id}",
            owner_id=None,
            project_id=project.id,
        )

    async def _find_managed(
        self, caller: Caller, key: str, statuses: frozenset[VfolderStatus] = USABLE
    ) -> VfolderRow:
        row = await self._access.find(caller, key, statuses)
        require_manages(caller, row)
        return row

    def _entry(self, caller: Caller, action: str, row: VfolderRow, **details: Any) -> AuditEntry:
        facts = {"name": row.name, **details}
        return self._audit.entry(
            caller, action, row.id, domain=row.domain, owner_id=row.owner_id, **facts
        )

    def _to_view(self, caller: Caller, row: VfolderRow) -> VFolder:
        return to_vfolder(caller, row, self._tasks)


def _refuse_auto_mount_for_owner(caller: Caller, row: VfolderRow, name: str) -> None:
    """Raise ``Forbidden`` if ``name`` would auto-mount a folder that belongs to another user."""
    if is_auto_mounted(name) and row.owner_id not in (None, caller.user_id):
        raise Forbidden(
            f"a folder named {name} is mounted into every session of its owner; only {row.owner} "
            "may choose a name with a leading dot"
        )


def _relation(caller: Caller, row: VfolderRow) -> FolderRelation:
    if row.owner_id is not None and row.owner_id == caller.user_id:
        return FolderRelation.OWN
    if row.project_id in caller.projects:
        return FolderRelation.PROJECT
    return FolderRelation.ROLE if row.grant is None else FolderRelation.SHARED


def to_vfolder(caller: Caller, row: VfolderRow, tasks: VFolderTasks) -> VFolder:
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
        permission=permission_of(user_of(caller), row),
        mount_permission=Permission(row.permission),
        cloneable=row.cloneable,
        is_owner=row.owner_id is not None and row.owner_id == caller.user_id,
        is_managed=manages_row(user_of(caller), row),
        relation=_relation(caller, row),
        is_mounted=row.is_mounted,
        is_auto_mounted=is_auto_mounted(row.name),
        status=row.status,
        status_info=row.status_info,
        status_changed_at=row.status_changed_at,
        purge_at=tasks.purge_at(row),
        created_at=row.created_at,
        last_used_at=row.last_used_at,
        used_files=row.used_files,
        used_bytes=row.used_bytes,
        counted_at=row.counted_at,
        unmanaged_path=row.unmanaged_path if caller.role is Role.SUPERADMIN else None,
        task=tasks.view(row.id),
    )
