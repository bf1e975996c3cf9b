"""Resolve requested folders into mounts of a session."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.errors import BaiError, Conflict, Forbidden, InvalidRequest, NotFound
from bai_services.core.folders.mounts import (
    MAX_MOUNTS,
    MountRequest,
    ResolvedMount,
    check_no_overlap,
    check_subpath,
    mount_path,
)
from bai_services.core.folders.vfolders import Permission, effective_permission, is_auto_mounted
from bai_services.core.sessions.launch_plan import Mount
from bai_services.core.sessions.options import OfferedFolder
from bai_services.db.folders.rows import VfolderRow
from bai_services.db.folders.vfolders import VfolderStore

from ..context import ManagerContext
from .access import describe_candidate, manages_row, owner_text
from .quotas import location_of
from .storage_hosts import StorageHosts

log = logging.getLogger(__name__)

# Maximum time that the start of a session waits for a storage mount.
REACH_TIMEOUT_SECONDS = 5.0
MOUNT_PERMISSION = "mount-in-session"


class Mounts:
    """Resolves mounts with the permissions of the session's owner.

    An administrator who creates a session for another user can mount only folders that the
    administrator manages: the owner may also have access to folders of users with a higher role.
    """

    def __init__(self, context: ManagerContext, hosts: StorageHosts) -> None:
        self._store = VfolderStore(context.database)
        self._hosts = hosts

    async def mountable(
        self, caller: Caller, owner_id: str, project_id: str
    ) -> list[OfferedFolder]:
        """Return the folders that the caller may mount in a session of an owner, for forms."""
        return [
            OfferedFolder(
                id=row.id,
                name=row.name,
                owner=owner_text(row),
                permission=_mount_mode(_permission_of_owner(owner_id, row)),
                is_auto_mounted=_is_auto(owner_id, row),
            )
            for row in await self._store.mountable(owner_id, project_id)
            if _is_within_reach(caller, owner_id, row)
            and await self._may_mount(owner_id, project_id, row)
        ]

    async def resolve_mounts(
        self, caller: Caller, owner_id: str, project_id: str, mounts: Sequence[MountRequest]
    ) -> list[ResolvedMount]:
        """Return the mounts in the order of ``mounts``, then the mounts of auto-mounted folders.

        The default permission is the folder's permission, limited to the owner's permission.

        Raises
        ------
        NotFound
            If a folder does not exist or is not accessible to the owner in this project.
        Conflict
            If a folder is not ready, for example in the trash, or a name is ambiguous.
        Forbidden
            If a requested permission exceeds the owner's permission, if the owner may not mount
            folders of the storage host, or if the caller creates the session for another user and
            does not manage the folder.
        InvalidRequest
            If a path is invalid, if two mounts overlap, or if there are too many mounts.
        """
        if len(mounts) > MAX_MOUNTS:
            raise InvalidRequest(
                f"{len(mounts)} mounts are too many; a session can have at most {MAX_MOUNTS}",
                field="mounts",
            )
        keys = [_check_key(request.vfolder) for request in mounts]
        rows = await self._store.mountable(owner_id, project_id, keys) if keys else []
        resolved = []
        for request in mounts:
            row = _choose(request.vfolder, rows, owner_id, project_id)
            if row is None:
                raise await self._missing(owner_id, project_id, request.vfolder)
            if not _is_within_reach(caller, owner_id, row):
                raise Forbidden(
                    f"folder {row.name} can be mounted only by the owner of the session, because "
                    "you do not manage the folder",
                    vfolder=row.id,
                )
            if not await self._may_mount(owner_id, project_id, row):
                raise Forbidden(
                    f"folder {row.name} cannot be mounted: you do not have the permission "
                    f"{MOUNT_PERMISSION} on storage host {row.host}",
                    host=row.host,
                    permission=MOUNT_PERMISSION,
                )
            resolved.append(self._mount(owner_id, row, request))
        check_no_overlap((mount.path, mount.vfolder) for mount in resolved)
        return [*resolved, *await self._auto_mounts(caller, owner_id, project_id, resolved)]

    async def sources(self, owner_id: str, mounts: Sequence[Mapping[str, Any]]) -> list[Mount]:
        """Convert the mounts of a session's row to the mounts of its launch plan.

        With a ``subpath``, the agent mounts only that directory of the folder. Permissions are
        checked again, because a grant may have been revoked since the session was created.
        Auto-mounted folders that cannot be mounted now are left out.

        Raises
        ------
        Forbidden
            If the owner no longer has the permission of a requested mount.
        """
        folder_ids = [mount["vfolder_id"] for mount in mounts]
        rows = await self._store.mountable(owner_id, None, folder_ids) if folder_ids else []
        known = {row.id: row for row in rows}
        checks = [self._source(owner_id, known.get(m["vfolder_id"]), m) for m in mounts]
        results = await asyncio.gather(*checks, return_exceptions=True)
        sources = []
        for mount, result in zip(mounts, results, strict=True):
            if isinstance(result, BaseException):
                if mount.get("is_auto") and isinstance(result, BaiError):
                    # The user has not requested this auto-mounted folder, so its error must not
                    # prevent the start.
                    log.warning(
                        "auto-mounted folder %s is left out: %s", mount["vfolder"], result.message
                    )
                    continue
                raise result
            sources.append(result)
        return sources

    async def notices(self, owner_id: str, mounts: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return notices for the owner about auto-mounted folders that are left out."""
        autos = [mount for mount in mounts if mount.get("is_auto")]
        available = {source.target for source in await self.sources(owner_id, autos)}
        return [
            f"folder {mount['vfolder']}, which is mounted into all your sessions, is not available "
            "now and is missing in this session"
            for mount in autos
            if mount["path"] not in available
        ]

    async def _source(
        self, owner_id: str, row: VfolderRow | None, mount: Mapping[str, Any]
    ) -> Mount:
        permission = Permission(mount["permission"])
        if row is None or not _permission_of_owner(owner_id, row).allows(permission):
            raise Forbidden(
                f"folder {mount['vfolder']} is no longer shared with the session's owner "
                f"as {permission}",
                vfolder=mount["vfolder_id"],
            )
        host = self._hosts.get(row.host)
        await host.check_access(location_of(row), REACH_TIMEOUT_SECONDS)
        return Mount(
            host.source_path(location_of(row)),
            mount["path"],
            read_only=not permission.is_writable,
            is_own=row.owner_id == owner_id,
            subpath=mount.get("subpath") or "",
        )

    async def _auto_mounts(
        self, caller: Caller, owner_id: str, project_id: str, requested: Sequence[ResolvedMount]
    ) -> list[ResolvedMount]:
        """Return the owner's auto-mounted folders; folders that cannot be mounted are left out."""
        resolved: list[ResolvedMount] = []
        requested_ids = {mount.vfolder_id for mount in requested}
        for row in await self._store.auto_mounted(owner_id):
            if not _is_auto(owner_id, row) or row.id in requested_ids:
                continue
            if not _is_within_reach(caller, owner_id, row):
                continue
            mount = replace(self._mount(owner_id, row, MountRequest(row.id)), is_auto=True)
            paths = [(m.path, m.vfolder) for m in (*requested, *resolved, mount)]
            try:
                check_no_overlap(paths)
            except InvalidRequest:
                continue  # it overlaps a requested or an earlier mount
            is_full = len(requested) + len(resolved) >= MAX_MOUNTS
            if not is_full and await self._may_mount(owner_id, project_id, row):
                resolved.append(mount)
        return resolved

    async def _may_mount(self, owner_id: str, project_id: str, row: VfolderRow) -> bool:
        projects = {row.project_id or project_id}
        return MOUNT_PERMISSION in await self._hosts.granted(owner_id, None, projects, row.host)

    def _mount(self, owner_id: str, row: VfolderRow, request: MountRequest) -> ResolvedMount:
        granted = _permission_of_owner(owner_id, row)
        requested = request.permission
        if requested is not None and not granted.allows(requested):
            raise Forbidden(
                f"you can mount folder {row.name} as {granted}, not as {requested}; "
                f"ask {owner_text(row)} for a higher permission",
                vfolder=row.id,
                granted=str(granted),
                asked=str(requested),
            )
        permission = effective_permission(granted, requested or Permission(row.permission))
        return ResolvedMount(
            vfolder_id=row.id,
            vfolder=row.name,
            host=row.host,
            path=mount_path(row.name, request.path),
            permission=_mount_mode(permission),
            subpath=check_subpath(request.subpath),
        )

    async def _missing(self, owner_id: str, project_id: str, key: str) -> Exception:
        not_ready = await self._store.not_ready(owner_id, project_id, [key])
        unusable = [row for row in not_ready if row.owner_id == owner_id or row.id == key]
        if unusable:
            return Conflict(
                f"folder {key!r} cannot be mounted because it is {unusable[0].status}; "
                "restore it or leave it out",
                vfolder=unusable[0].id,
                status=unusable[0].status,
            )
        return NotFound(
            f"there is no folder {key!r} that you may mount in a session of this project",
            vfolder=key,
        )


def _choose(
    key: str, rows: Sequence[VfolderRow], owner_id: str, project_id: str
) -> VfolderRow | None:
    by_id = [row for row in rows if row.id == key]
    named = [row for row in rows if row.name == key]
    # The owner's folder takes precedence; see VFolderAccess.find. Folders of model stores come
    # last: a new model must not change the result of earlier requests.
    own = [row for row in named if row.owner_id == owner_id]
    best = by_id or own or [row for row in named if row.project_id in (None, project_id)] or named
    if len(best) > 1:
        raise Conflict(
            f"there are {len(best)} folders named {key!r}; use the id of the one that you mean: "
            + ", ".join(f"{row.id} ({owner_text(row)}'s)" for row in best),
            candidates=[describe_candidate(row) for row in best],
        )
    return best[0] if best else None


def _permission_of_owner(owner_id: str, row: VfolderRow) -> Permission:
    if row.owner_id == owner_id:
        return Permission.WD
    return Permission(row.grant) if row.grant is not None else Permission(row.permission)


def _is_within_reach(caller: Caller, owner_id: str, row: VfolderRow) -> bool:
    """Return whether the caller may mount the folder in a session of the owner."""
    return caller.role is Role.HUB or caller.user_id == owner_id or manages_row(caller, row)


def _is_auto(owner_id: str, row: VfolderRow) -> bool:
    return row.owner_id == owner_id and is_auto_mounted(row.name)


def _mount_mode(permission: Permission) -> Permission:
    """Return ``ro`` or ``rw``: a mount has no other modes."""
    return effective_permission(permission, Permission.RW)


def _check_key(key: str) -> str:
    if "\0" in key:
        raise InvalidRequest("the name or id of a folder cannot contain NUL", field="mounts")
    return key
