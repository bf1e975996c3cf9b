"""Find folders by id or name, and determine the caller's permission on them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from bai_services.core.accounts.roles import Caller, Owner, Role, Target
from bai_services.core.errors import Conflict, Forbidden, InvalidRequest, NotFound
from bai_services.core.folders.vfolders import Permission, VfolderStatus, manages, not_ready
from bai_services.db.database import Database
from bai_services.db.folders.rows import VfolderRow, VfolderVisibility
from bai_services.db.folders.vfolders import VfolderStore

from ..accounts import authorizer

USABLE = frozenset({VfolderStatus.READY})
# Statuses from which a folder can be put in the trash.
REMOVABLE = frozenset({VfolderStatus.READY, VfolderStatus.ERROR})
IN_TRASH = frozenset({VfolderStatus.DELETE_PENDING, VfolderStatus.DELETE_ERROR})


class VFolderAccess:
    """Finds folders among those that the caller may see."""

    def __init__(self, database: Database) -> None:
        self._store = VfolderStore(database)

    async def find(
        self, caller: Caller, key: str, statuses: Collection[VfolderStatus] = USABLE
    ) -> VfolderRow:
        """Return the folder with that id in any status, or with that name in one of ``statuses``.

        The caller's own folder takes precedence over others of the same name: otherwise another
        user could redirect the caller's operations by sharing a folder. Next come folders that are
        shared with the caller or belong to the caller's projects. Folders visible only through the
        caller's role come last. If two folders have the same precedence, the name is ambiguous.

        Raises
        ------
        NotFound
            If no visible folder matches.
        Conflict
            If the name is ambiguous; the details contain the ids.
        Forbidden
            If the caller's role may see no folders.
        InvalidRequest
            If ``key`` contains NUL.
        """
        rows = await self._store.named(_check_key(key), visible_to(caller), statuses)
        if not rows:
            place = " in the trash" if statuses == IN_TRASH else ""
            raise NotFound(f"there is no folder {key!r}{place}, or you may not see it", vfolder=key)
        return choose(key, rows, caller)

    async def for_files(
        self, caller: Caller, key: str, *, is_writing: bool = False
    ) -> tuple[VfolderRow, Permission]:
        """Return a ready folder and the caller's permission on its files.

        The permission includes reading; with ``is_writing``, also writing.

        Raises
        ------
        Forbidden
            If the caller may see the folder but lacks the permission.
        Conflict
            If the folder is not ready, for example in the trash.
        """
        row = await self.find(caller, key)
        permission = permission_of(caller, row)
        if permission is None:
            raise Forbidden(f"you may see folder {row.name}, but not read its files")
        if is_writing and not permission.is_writable:
            raise Forbidden(
                f"folder {row.name} is shared with you read-only", permission=str(permission)
            )
        require_ready(row)
        return row, permission


def visible_to(caller: Caller) -> VfolderVisibility:
    """Return the filter for the folders that a caller may see.

    Raises
    ------
    Forbidden
        If the caller's role may see no folders.
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
    """Return the row with the highest precedence; see ``VFolderAccess.find``."""
    ranks = [_rank(row, caller) for row in rows]
    best = [row for row, rank in zip(rows, ranks, strict=True) if rank == min(ranks)]
    if len(best) > 1:
        raise Conflict(
            f"there are {len(best)} folders named {key!r}; use the id of the one that you mean: "
            + ", ".join(f"{row.id} ({owner_text(row)}'s)" for row in best),
            candidates=[describe_candidate(row) for row in best],
        )
    return best[0]


def target_of(row: VfolderRow) -> Target:
    owner = None
    if row.owner_id is not None:
        assert row.owner_role is not None  # set whenever owner_id is set
        owner = Owner(row.owner_id, row.owner_role)
    return Target(domain=row.domain, project_id=row.project_id, owner=owner)


def manages_row(caller: Caller, row: VfolderRow) -> bool:
    return manages(caller, target_of(row))


def user_of(caller: Caller) -> Caller:
    """If the caller is a session, return its owner with the role USER; else return the caller.

    Programs in a session show the owner's permissions on a folder, because the token of the session
    itself permits much less.
    """
    return replace(caller, role=Role.USER) if caller.role is Role.SESSION else caller


def permission_of(caller: Caller, row: VfolderRow) -> Permission | None:
    """Return the caller's permission on a folder's files; None: no permission.

    Callers who manage the folder have all permissions. A grant takes precedence over the permission
    of project members.
    """
    if manages_row(caller, row):
        return Permission.WD
    if row.grant is not None:
        return Permission(row.grant)
    if row.project_id is not None and row.project_id in caller.projects:
        return Permission(row.permission)
    return None


def require_manages(caller: Caller, row: VfolderRow) -> None:
    """Raise an error if the caller may not rename, share or delete a visible folder.

    Raises
    ------
    Forbidden
        If the caller may only use the folder.
    """
    if not manages_row(caller, row):
        raise Forbidden(
            f"only {owner_text(row)} or an administrator may change folder {row.name}",
            action="vfolder.write",
        )


def require_ready(row: VfolderRow) -> None:
    """Raise ``Conflict`` if the folder is not ready, for example because it is in the trash."""
    if row.status is not VfolderStatus.READY:
        raise not_ready(row.name, row.id, row.status)


def owner_text(row: VfolderRow) -> str:
    return row.owner or f"project {row.project}"


def describe_candidate(row: VfolderRow) -> dict[str, Any]:
    return {"id": row.id, "name": row.name, "owner": row.owner, "project": row.project}


def _rank(row: VfolderRow, caller: Caller) -> int:
    if row.owner_id is not None and row.owner_id == caller.user_id:
        return 0
    return 1 if row.grant is not None or row.project_id in caller.projects else 2


def _check_key(key: str) -> str:
    if "\0" in key:
        raise InvalidRequest("the name or id of a folder cannot contain NUL", field="vfolder")
    return key
