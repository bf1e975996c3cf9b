"""Lookup of folders by id or name, and what a caller may do with them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from bai_services.core.accounts.roles import Caller, Owner, Target, reaches
from bai_services.core.errors import Conflict, Forbidden, InvalidRequest, NotFound
from bai_services.core.folders.vfolders import Permission, VfolderStatus
from bai_services.db.database import Database
from bai_services.db.folders.vfolders import VfolderRow, VfolderStore, VfolderVisibility

from ..accounts import authorizer

USABLE = frozenset({VfolderStatus.READY})
# Statuses from which a folder can be put in the trash.
REMOVABLE = frozenset({VfolderStatus.READY, VfolderStatus.ERROR})
IN_TRASH = frozenset({VfolderStatus.DELETE_PENDING, VfolderStatus.DELETE_ERROR})


class VFolderAccess:
    """Finds folders as their callers see them."""

    def __init__(self, database: Database) -> None:
        self._store = VfolderStore(database)

    async def find(
        self, caller: Caller, key: str, statuses: Collection[VfolderStatus] = USABLE
    ) -> VfolderRow:
        """Return the folder with that id, in whatever status, or the one of that name.

        Of several folders with the name, the caller's own comes first, so that sharing a folder
        with somebody cannot redirect what they do by name. Folders shared with the caller or of the
        caller's projects come next, then those that only the caller's role shows. Two at the same
        level are ambiguous.

        Raises
        ------
        NotFound
            If the caller can see none.
        Conflict
            If the name is ambiguous; the details contain the ids.
        """
        rows = await self._store.named(_checked(key), seen_by(caller), statuses)
        if not rows:
            where = " in the trash" if statuses == IN_TRASH else ""
            raise NotFound(f"there is no folder {key!r}{where}, or you may not see it", vfolder=key)
        return choose(key, rows, caller)

    async def for_files(
        self, caller: Caller, key: str, *, is_writing: bool = False
    ) -> tuple[VfolderRow, Permission]:
        """Return a ready folder whose files the caller may read, or write.

        Raises
        ------
        Forbidden
            If the caller sees the folder but does not have that permission.
        Conflict
            If the folder is in the trash or being deleted.
        """
        row = await self.find(caller, key)
        permission = permission_of(caller, row)
        if permission is None:
            raise Forbidden(f"you may see folder {row.name}, but not its files")
        if is_writing and not permission.is_writable:
            raise Forbidden(
                f"folder {row.name} is shared with you read-only", permission=str(permission)
            )
        require_ready(row)
        return row, permission


def seen_by(caller: Caller) -> VfolderVisibility:
    """Return which folders a caller sees.

    Raises
    ------
    Forbidden
        If the caller's role sees none at all.
    """
    visible = authorizer.visibility(caller, "vfolder.read")
    by_role = visible.owner_id is None and visible.project_ids is None
    return VfolderVisibility(
        user_id=caller.user_id,
        hidden_roles=visible.hidden_roles,
        project_ids=caller.projects,
        domain=visible.domain,
        sees_all=by_role and visible.domain is None,
    )


def choose(key: str, rows: list[VfolderRow], caller: Caller) -> VfolderRow:
    """Return the row that ``key`` names; see ``VFolderAccess.find``."""
    ranks = [_rank(row, caller) for row in rows]
    best = [row for row, rank in zip(rows, ranks, strict=True) if rank == min(ranks)]
    if len(best) > 1:
        raise Conflict(
            f"there are {len(best)} folders named {key!r}; use the id of the one that you mean: "
            + ", ".join(f"{row.id} ({whose(row)}'s)" for row in best),
            candidates=[describe_candidate(row) for row in best],
        )
    return best[0]


def target_of(row: VfolderRow) -> Target:
    owner = None
    if row.owner_id is not None:
        assert row.owner_role is not None  # both are read together, see VfolderRow
        owner = Owner(row.owner_id, row.owner_role)
    return Target(domain=row.domain, project_id=row.project_id, owner=owner)


def permission_of(caller: Caller, row: VfolderRow) -> Permission | None:
    """Return what the caller may do with a folder's files; None is nothing.

    Managers of a folder may do everything. A grant takes precedence over membership of the folder's
    project.
    """
    if reaches(caller, "vfolder.write", target_of(row)):
        return Permission.WD
    if row.grant is not None:
        return Permission(row.grant)
    if row.project_id is not None and row.project_id in caller.projects:
        return Permission(row.permission)
    return None


def require_manages(caller: Caller, row: VfolderRow) -> None:
    """Return if the caller may rename, share and delete a folder that they see.

    Raises
    ------
    Forbidden
        If they may only use it.
    """
    if not reaches(caller, "vfolder.write", target_of(row)):
        raise Forbidden(
            f"only {whose(row)} or an administrator may change folder {row.name}",
            action="vfolder.write",
        )


def require_ready(row: VfolderRow) -> None:
    """Raise ``Conflict`` unless the folder is usable."""
    if row.status is not VfolderStatus.READY:
        raise Conflict(
            f"folder {row.name} is {row.status}, not ready; a folder in the trash can be restored",
            vfolder=row.id,
            status=row.status,
        )


def whose(row: VfolderRow) -> str:
    return row.owner or f"project {row.project}"


def describe_candidate(row: VfolderRow) -> dict[str, Any]:
    return {"id": row.id, "name": row.name, "owner": row.owner, "project": row.project}


def _rank(row: VfolderRow, caller: Caller) -> int:
    if row.owner_id is not None and row.owner_id == caller.user_id:
        return 0
    return 1 if row.grant is not None or row.project_id in caller.projects else 2


def _checked(key: str) -> str:
    if "\0" in key:
        raise InvalidRequest("a folder's name or id cannot contain NUL", field="vfolder")
    return key
