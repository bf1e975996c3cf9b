"""Request, approve and cancel imports of models into stores."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from bai_services.core.accounts.records import Project
from bai_services.core.accounts.roles import Caller, Owner, Role, Target, reaches
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import BaiError, Conflict, InvalidRequest, NotFound
from bai_services.core.folders.vfolders import Permission, UsageMode, VfolderStatus, check_name
from bai_services.core.imports.lifecycle import ImportEvent, ImportStatus, next_status
from bai_services.core.listing import ListQuery, Page
from bai_services.core.models.imports import check_source
from bai_services.core.models.records import ModelImport
from bai_services.core.record_fields import fields_of
from bai_services.core.sessions.callbacks import AllowedTargets
from bai_services.db.folders.vfolders import VfolderStore
from bai_services.db.models.cards import STORE
from bai_services.db.models.imports import ImportRow, ModelImportStore

from ..accounts import authorizer
from ..accounts.projects import Projects
from ..context import ManagerContext
from ..folders.vfolders import VFolders
from ..imports.source_queries import check_filters, source_for


class Imports:
    """Manages imports of models. An administrator's import begins at once. A member's import waits
    for approval by an administrator, unless the project policy permits it.
    """

    def __init__(
        self,
        context: ManagerContext,
        store: ModelImportStore,
        targets: AllowedTargets,
        *,
        projects: Projects,
        folders: VFolders,
        wake: Callable[[], None],
    ) -> None:
        """``wake`` wakes the loop that runs imports."""
        self._store = store
        self._folder_rows = VfolderStore(context.database)
        self._targets = targets
        self._clock = context.clock
        self._audit = context.audit
        self._projects = projects
        self._folders = folders
        self._wake = wake

    async def page(self, caller: Caller, query: ListQuery) -> Page[ModelImport]:
        visible = authorizer.visibility(caller, "model-import.read")
        check_filters(caller, query)
        page = await self._store.page(query, visible)
        return page.with_items([_record(row, caller) for row in page.items])

    async def get(self, caller: Caller, key: str) -> ModelImport:
        return _record(await self._find(caller, key), caller)

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> ModelImport:
        """Import a model into a new folder of a store.

        Raises
        ------
        InvalidRequest
            If the source or the name of the folder is not valid, or the project is not a store.
        AlreadyExists
            If the store has a folder of that name.
        QuotaExceeded
            If the caller has too many imports that have not ended.
        """
        authorizer.require(caller, "model-import.request")
        source = check_source(spec, self._targets)
        folder = check_name(spec.get("folder") or source.folder)
        project = await self._project(caller, spec.get("project"))
        authorizer.require(caller, "model-import.request", Target(project.domain, project.id))
        owner = Owner(caller.user_id or "", caller.role)
        approver = await self._approver(caller, Target(project.domain, project.id, owner))
        # Check before the folder is created; otherwise it would remain in the trash of the store.
        await self._store.check_count(owner.id)
        now = self._clock()
        values: dict[str, Any] = {
            "id": str(uuid.uuid4()),
            "created_at": now,
            "changed_at": now,
            "project_id": project.id,
            "owner_id": caller.user_id,
            "vfolder_id": None,
            "folder": folder,
            "kind": source.kind,
            "source": source.name,
            "revision": source.revision,
            "commit_id": "",
            "patterns": list(source.patterns),
            "sha256": source.sha256,
            "status": ImportStatus.REQUESTED,
            "files": 0,
            "total_files": 0,
            "bytes": 0,
            "total_bytes": 0,
            "problem": "",
            "problem_coded": None,
            "kept_until": None,
        }
        entry = self._audit.entry(
            caller,
            "model-import.create",
            values["id"],
            domain=project.domain,
            owner_id=caller.user_id,
            name=folder,
            project=project.name,
        )
        if approver is not None:
            values["vfolder_id"] = await self._create_folder(approver, project.id, folder)
            values["status"] = ImportStatus.QUEUED
        try:
            await self._store.create(values, entry)
        except BaiError:
            await self._remove_folder(approver or caller, values["vfolder_id"])
            raise
        self._wake()
        return await self.get(caller, values["id"])

    async def approve(self, caller: Caller, key: str) -> ModelImport:
        """Create the folder of a requested import, and begin the import.

        Raises
        ------
        Conflict
            If the import runs or has ended.
        AlreadyExists
            If the store has a folder of that name.
        """
        row = await self._find(caller, key)
        authorizer.require(caller, "model-import.approve", _target(row))
        if row.status is ImportStatus.QUEUED:
            return _record(row, caller)  # already approved
        if row.status is not ImportStatus.REQUESTED:
            raise Conflict(f"the import is {row.status}; it needs no approval")
        folder_id = await self._create_folder(caller, row.project_id, row.folder)
        try:
            await self._store.apply(
                row.id,
                ImportEvent.APPROVED,
                self._clock(),
                {"vfolder_id": folder_id},
                self._entry(caller, "approve", row),
            )
        except BaiError:
            await self._remove_folder(caller, folder_id)
            raise
        self._wake()
        return await self.get(caller, key)

    async def cancel(self, caller: Caller, key: str) -> ModelImport:
        """Reject or stop an import; its folder is deleted.

        Raises
        ------
        InvalidTransition
            If the import has ended.
        """
        row = await self._find(caller, key)
        authorizer.require(caller, "model-import.cancel", _target(row))
        entry = self._entry(caller, "cancel", row)
        await self._store.apply(row.id, ImportEvent.CANCELLED, self._clock(), audit=entry)
        self._wake()
        return await self.get(caller, key)

    async def retry(self, caller: Caller, key: str) -> ModelImport:
        """Restart a failed import. It continues with the first incomplete file if its folder still
        exists. Otherwise it gets a new folder, which needs the same approval as a new import: the
        content of its source may have changed since the first approval.

        Raises
        ------
        AlreadyExists
            If the store has another folder of that name.
        InvalidTransition
            If the import has not failed.
        QuotaExceeded
            If the owner has too many imports that have not ended.
        """
        row = await self._find(caller, key)
        authorizer.require(caller, "model-import.retry", _target(row))
        # The owner may have left the store, so check this permission again.
        authorizer.require(caller, "model-import.request", Target(row.domain, row.project_id))
        next_status(row.status, ImportEvent.RETRIED)
        await self._store.check_count(row.owner_id)
        changes: dict[str, Any] = {"kept_until": None}
        made, event = None, ImportEvent.RETRIED
        approver = await self._approver(caller, _target(row))
        if not await self._has_folder(row):
            if approver is None:
                event = ImportEvent.RESUBMITTED
            else:
                made = await self._create_folder(approver, row.project_id, row.folder)
            changes["vfolder_id"] = made
        entry = self._entry(caller, "retry", row)
        try:
            await self._store.retry(row.id, row.owner_id, self._clock(), changes, entry, event)
        except BaiError:
            await self._remove_folder(approver or caller, made)
            raise
        self._wake()
        return await self.get(caller, key)

    async def _approver(self, caller: Caller, target: Target) -> Caller | None:
        """Return the caller who may create the folder of an import; None: it needs an approval."""
        if reaches(caller, "model-import.approve", target):
            return caller
        if await self._store.allows_member_imports(target.project_id or ""):
            # The policy of the project permits the import without an approval, so it gets the
            # permissions of a domain admin, who could have approved it.
            return replace(caller, role=Role.ADMIN, domain=target.domain)
        return None

    async def _project(self, caller: Caller, key: str | None) -> Project:
        if key:
            project = await self._projects.get(caller, key)
            if project.type != STORE:
                raise InvalidRequest(
                    f"project {project.name} is not a model store (type {STORE})", field="project"
                )
            return project
        page = await self._projects.page(caller, ListQuery(limit=2, filters={"type": STORE}))
        if not page.items:
            raise NotFound("you are not a member of a model store; ask an administrator")
        if len(page.items) > 1:
            raise InvalidRequest(
                "there are several model stores; choose a project", field="project"
            )
        return page.items[0]

    async def _create_folder(self, caller: Caller, project_id: str, name: str) -> str:
        made = await self._folders.create(
            caller,
            {
                "name": name,
                "project": project_id,
                "usage_mode": UsageMode.MODEL,
                "permission": Permission.RO,
                "cloneable": True,
            },
        )
        return made.id

    async def _has_folder(self, row: ImportRow) -> bool:
        found = await self._folder_rows.by_id(row.vfolder_id or "")
        return any(
            folder.status is VfolderStatus.READY and folder.project_id == row.project_id
            for folder in found
        )

    async def _remove_folder(self, caller: Caller, folder_id: str | None) -> None:
        if folder_id is not None:
            await self._folders.trash(caller, folder_id)

    async def _find(self, caller: Caller, key: str) -> ImportRow:
        visible = authorizer.visibility(caller, "model-import.read")
        if "\0" in key:
            raise NotFound("there is no such import")
        return await self._store.find(key, visible)

    def _entry(self, caller: Caller, verb: str, row: ImportRow) -> AuditEntry:
        return self._audit.entry(
            caller,
            f"model-import.{verb}",
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.folder,
        )


def _target(row: ImportRow) -> Target:
    return Target(row.domain, row.project_id, Owner(row.owner_id, row.owner_role))


def _record(row: ImportRow, caller: Caller) -> ModelImport:
    values = fields_of(row)
    values["source"] = source_for(caller, row.source)
    for name in ("owner_role", "sha256"):
        del values[name]
    folder_id = values.pop("vfolder_id")
    return ModelImport(**values, folder_id=folder_id)
