"""Resolution of requested folders into mounts that an engine can make."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bai_services.core.accounts.roles import Caller
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
from bai_services.db.folders.vfolders import VfolderRow, VfolderStore

from ..context import ManagerContext
from .access import describe_candidate, whose
from .quotas import location_of
from .storage_hosts import StorageHosts

log = logging.getLogger(__name__)

# The longest that the start of a session waits for a mount that may not respond.
REACH_SECONDS = 5.0
MOUNT = "mount-in-session"


class Mounts:
    """Decides by the session's owner and project, not by the caller, who may be the Hub."""

    def __init__(self, context: ManagerContext, hosts: StorageHosts) -> None:
        self._store = VfolderStore(context.database)
        self._hosts = hosts

    async def mountable(self, owner_id: str, project_id: str) -> list[dict[str, Any]]:
        """Return the folders that a user may mount in a session of a project, for forms."""
        return [
            {
                "id": row.id,
                "name": row.name,
                "owner": whose(row),
                "permission": str(_mounted_as(_granted(owner_id, row))),
                "is_auto_mounted": _is_auto(owner_id, row),
            }
            for row in await self._store.mountable(owner_id, project_id)
            if await self._may_mount(owner_id, project_id, row)
        ]

    async def resolve_mounts(
        self, caller: Caller, owner_id: str, project_id: str, mounts: Sequence[MountRequest]
    ) -> list[ResolvedMount]:
        """Return the requested mounts, in the same order.

        A mount without a requested permission gets the folder's own, or less if less was granted.

        Raises
        ------
        NotFound
            If a folder is unknown, or belongs to another user or project.
        Conflict
            If a folder is in the trash or being deleted, or a name is ambiguous.
        Forbidden
            If more is requested than was granted.
        InvalidRequest
            If a path is invalid, or two mounts overlap.
        """
        if len(mounts) > MAX_MOUNTS:
            raise InvalidRequest(
                f"{len(mounts)} folders are too many; a session mounts at most {MAX_MOUNTS}",
                field="mounts",
            )
        keys = [_checked(request.vfolder) for request in mounts]
        rows = await self._store.mountable(owner_id, project_id, keys) if keys else []
        found = []
        for request in mounts:
            row = _choose(request.vfolder, rows, owner_id)
            if row is None:
                raise await self._missing(owner_id, project_id, request.vfolder)
            if not await self._may_mount(owner_id, project_id, row):
                raise Forbidden(
                    f"folder {row.name} cannot be mounted: you do not have the permission {MOUNT} "
                    f"on storage host {row.host}",
                    host=row.host,
                    permission=MOUNT,
                )
            found.append(self._mount(owner_id, row, request))
        check_no_overlap((mount.path, mount.vfolder) for mount in found)
        return [*found, *await self._auto_mounts(owner_id, project_id, found)]

    async def sources(self, owner_id: str, mounts: Sequence[Mapping[str, Any]]) -> list[Mount]:
        """Return the mounts of a session's row as its launch plan has them.

        A mount with a ``subpath`` is a directory in its folder; the agent makes that bind mount.
        ``mounts`` is what ``ResolvedMount.as_row`` returned at creation. It is checked again,
        because a grant may have been revoked since.

        Raises
        ------
        Forbidden
            If the owner no longer has a folder, or has a lower permission.
        """
        wanted = [mount["vfolder_id"] for mount in mounts]
        rows = await self._store.mountable(owner_id, None, wanted) if wanted else []
        known = {row.id: row for row in rows}
        checks = [self._source(owner_id, known.get(m["vfolder_id"]), m) for m in mounts]
        found = await asyncio.gather(*checks, return_exceptions=True)
        sources = []
        for mount, result in zip(mounts, found, strict=True):
            if isinstance(result, BaseException):
                if mount.get("is_auto") and isinstance(result, BaiError):
                    # The owner did not request it, so it must not stop the session.
                    log.warning("folder %s is left out: %s", mount["vfolder"], result.message)
                    continue
                raise result
            sources.append(result)
        return sources

    async def notices(self, owner_id: str, mounts: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return notices for the owner about mounts that were left out."""
        autos = [mount for mount in mounts if mount.get("is_auto")]
        there = {source.target for source in await self.sources(owner_id, autos)}
        return [
            f"the folder {mount['vfolder']} is mounted into all your sessions, but it is not "
            "available at the moment: this session does not have it"
            for mount in autos
            if mount["path"] not in there
        ]

    async def _source(
        self, owner_id: str, row: VfolderRow | None, mount: Mapping[str, Any]
    ) -> Mount:
        permission = Permission(mount["permission"])
        if row is None or not _granted(owner_id, row).allows(permission):
            raise Forbidden(
                f"folder {mount['vfolder']} is no longer shared with the session's owner "
                f"as {permission}",
                vfolder=mount["vfolder_id"],
            )
        host = self._hosts.get(row.host)
        await host.check_access(location_of(row), REACH_SECONDS)
        return Mount(
            host.source_path(location_of(row)),
            mount["path"],
            read_only=not permission.is_writable,
            is_own=row.owner_id == owner_id,
            subpath=mount.get("subpath") or "",
        )

    async def _auto_mounts(
        self, owner_id: str, project_id: str, asked: Sequence[ResolvedMount]
    ) -> list[ResolvedMount]:
        """Return the owner's folders that are mounted into every session of theirs; never an
        error.
        """
        found: list[ResolvedMount] = []
        taken = {mount.vfolder_id for mount in asked}
        for row in await self._store.mountable(owner_id, project_id):
            if not _is_auto(owner_id, row) or row.id in taken:
                continue
            mount = replace(self._mount(owner_id, row, MountRequest(row.id)), is_auto=True)
            places = [(m.path, m.vfolder) for m in (*asked, *found, mount)]
            try:
                check_no_overlap(places)
            except InvalidRequest:
                continue  # a requested mount has its path
            full = len(asked) + len(found) >= MAX_MOUNTS
            if not full and await self._may_mount(owner_id, project_id, row):
                found.append(mount)
        return found

    async def _may_mount(self, owner_id: str, project_id: str, row: VfolderRow) -> bool:
        projects = {row.project_id or project_id}
        return MOUNT in await self._hosts.granted(owner_id, None, projects, row.host)

    def _mount(self, owner_id: str, row: VfolderRow, request: MountRequest) -> ResolvedMount:
        granted = _granted(owner_id, row)
        asked = request.permission
        if asked is not None and not granted.allows(asked):
            raise Forbidden(
                f"folder {row.name} can be mounted by you as {granted}, not as {asked}; "
                f"ask {whose(row)} to share it with more",
                vfolder=row.id,
                granted=str(granted),
                asked=str(asked),
            )
        permission = effective_permission(granted, asked or Permission(row.permission))
        return ResolvedMount(
            vfolder_id=row.id,
            vfolder=row.name,
            host=row.host,
            path=mount_path(row.name, request.path),
            permission=_mounted_as(permission),
            subpath=check_subpath(request.subpath),
        )

    async def _missing(self, owner_id: str, project_id: str, key: str) -> Exception:
        not_ready = await self._store.not_ready(owner_id, project_id, [key])
        mine = [row for row in not_ready if row.owner_id == owner_id or row.id == key]
        if mine:
            return Conflict(
                f"folder {key!r} cannot be mounted, it is {mine[0].status}; "
                "restore it or leave it out",
                vfolder=mine[0].id,
                status=mine[0].status,
            )
        return NotFound(
            f"there is no folder {key!r} that you may mount in a session of this project",
            vfolder=key,
        )


def _choose(key: str, rows: Sequence[VfolderRow], owner_id: str) -> VfolderRow | None:
    by_id = [row for row in rows if row.id == key]
    named = [row for row in rows if row.name == key]
    # The owner's folder takes precedence over others of its name; see VFolderAccess.find.
    best = by_id or [row for row in named if row.owner_id == owner_id] or named
    if len(best) > 1:
        raise Conflict(
            f"there are {len(best)} folders named {key!r}; use the id of the one that you mean: "
            + ", ".join(f"{row.id} ({whose(row)}'s)" for row in best),
            candidates=[describe_candidate(row) for row in best],
        )
    return best[0] if best else None


def _granted(owner_id: str, row: VfolderRow) -> Permission:
    if row.owner_id == owner_id:
        return Permission.WD
    return Permission(row.grant) if row.grant is not None else Permission(row.permission)


def _is_auto(owner_id: str, row: VfolderRow) -> bool:
    return row.owner_id == owner_id and is_auto_mounted(row.name)


def _mounted_as(permission: Permission) -> Permission:
    """Return ``ro`` or ``rw``: file systems have no other modes."""
    return effective_permission(permission, Permission.RW)


def _checked(key: str) -> str:
    if "\0" in key:
        raise InvalidRequest("a folder's name or id cannot contain NUL", field="mounts")
    return key
