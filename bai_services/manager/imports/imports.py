"""Request and cancel imports of repositories, archives and files into folders."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from bai_services.core.accounts.roles import Caller, Owner, Target
from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import refusal
from bai_services.core.errors import AlreadyExists, BaiError, InvalidRequest, NotFound
from bai_services.core.folders.vfolders import check_name
from bai_services.core.imports.lifecycle import ImportEvent, ImportStatus
from bai_services.core.imports.records import FolderImport, ImportPreview
from bai_services.core.imports.sources import (
    ImportSource,
    SourceKind,
    check_source,
    check_token,
    file_name,
    open_path,
)
from bai_services.core.listing import ListQuery, Page
from bai_services.core.record_fields import fields_of
from bai_services.core.refusal_texts import RefusalText
from bai_services.core.sessions.callbacks import AllowedTargets
from bai_services.db.imports.folder_imports import FolderImportRow, FolderImportStore

from ..accounts import authorizer
from ..accounts.keypair_secrets import KeypairSecrets
from ..context import ManagerContext
from ..folders.files import Files
from ..folders.vfolders import VFolders
from .source_queries import check_filters, source_for

# Maximum number of attempts to find an unused name for a new folder.
MAX_NAMES = 20


class FolderImports:
    """Imports into new or existing folders; each runs with the permissions of its owner."""

    def __init__(
        self,
        context: ManagerContext,
        store: FolderImportStore,
        targets: AllowedTargets,
        max_bytes: int,
        cipher: KeypairSecrets,
        *,
        folders: VFolders,
        files: Files,
        wake: Callable[[], None],
    ) -> None:
        """``wake`` wakes the loop that runs imports."""
        self._store = store
        self._targets = targets
        self._max_bytes = max_bytes
        self._cipher = cipher
        self._clock = context.clock
        self._audit = context.audit
        self._folders = folders
        self._files = files
        self._wake = wake

    async def page(self, caller: Caller, query: ListQuery) -> Page[FolderImport]:
        visible = authorizer.visibility(caller, "folder-import.read")
        check_filters(caller, query)
        page = await self._store.page(query, visible)
        return page.with_items([_record(row, caller) for row in page.items])

    async def get(self, caller: Caller, key: str) -> FolderImport:
        return _record(await self._find(caller, key), caller)

    def preview(self, caller: Caller, spec: Mapping[str, Any]) -> ImportPreview:
        """Return a preview of an import, without connecting to another host."""
        authorizer.require(caller, "folder-import.create")
        source = check_source(spec, self._targets)
        return ImportPreview(
            kind=source.kind,
            source=source.url,
            host=source.host,
            branch=source.branch,
            path=file_name(source.url) if source.kind is SourceKind.FILE else source.path,
            folder=source.name,
            max_bytes=self._max_bytes,
        )

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> FolderImport:
        """Import into a new folder, or into the directory of an existing one.

        Raises
        ------
        InvalidRequest
            If a value is not valid.
        AlreadyExists
            If the caller has a folder of the requested name.
        QuotaExceeded
            If the caller has too many imports that have not ended, or too many folders.
        """
        authorizer.require(caller, "folder-import.create")
        source = check_source(spec, self._targets)
        token = check_token(spec.get("token") or "", source)
        directory = _directory(spec)
        # Report an invalid path before creating a folder.
        open_path(source, "folder", directory, spec.get("urlpath") or "")
        await self._store.check_count(caller.user_id or "")
        if existing := spec.get("into"):
            if spec.get("folder") or spec.get("host") or spec.get("project"):
                raise InvalidRequest(refusal(RefusalText.IMPORT_TARGET), field="into")
            row = await self._files.find_writable(caller, existing, 0)
            folder_id, folder, is_new = row.id, row.name, False
        else:
            made = await self._new_folder(caller, spec, source)
            folder_id, folder, is_new = made[0], made[1], True
        now = self._clock()
        values: dict[str, Any] = {
            "id": str(uuid.uuid4()),
            "created_at": now,
            "changed_at": now,
            "owner_id": caller.user_id,
            "vfolder_id": folder_id,
            "folder": folder,
            "is_new_folder": is_new,
            "directory": directory,
            "kind": source.kind,
            "source": source.url,
            "branch": source.branch,
            "commit_id": "",
            "open_path": open_path(source, folder, directory, spec.get("urlpath") or ""),
            "token": self._cipher.encrypt(token) if token else "",
            "status": ImportStatus.QUEUED,
            "files": 0,
            "total_files": 0,
            "bytes": 0,
            "total_bytes": 0,
            "skipped": {},
            "problem": "",
            "problem_coded": None,
        }
        entry = self._audit.entry(
            caller,
            "folder-import.create",
            values["id"],
            domain=caller.domain,
            owner_id=caller.user_id,
            name=folder,
            # The query of a URL may contain a signature that gives access to the file.
            source=source.url.partition("?")[0][:200],
        )
        try:
            await self._store.create(values, entry)
        except BaiError:
            if is_new:
                await self._folders.trash(caller, folder_id)
            raise
        self._wake()
        return await self.get(caller, values["id"])

    async def cancel(self, caller: Caller, key: str) -> FolderImport:
        """Stop an import; its folder remains.

        Raises
        ------
        InvalidTransition
            If the import has ended.
        """
        row = await self._find(caller, key)
        authorizer.require(
            caller,
            "folder-import.cancel",
            Target(row.domain, owner=Owner(row.owner_id, row.owner_role)),
        )
        await self._store.apply(
            row.id,
            ImportEvent.CANCELLED,
            self._clock(),
            {"token": ""},
            self._entry(caller, "cancel", row),
        )
        self._wake()
        return await self.get(caller, key)

    async def _new_folder(
        self, caller: Caller, spec: Mapping[str, Any], source: ImportSource
    ) -> tuple[str, str]:
        """Create a folder. Without a requested name, append a number if the default is in use."""
        given = spec.get("folder") or ""
        if given.startswith("."):
            # Folders with a leading dot are mounted into the home of every session, so foreign
            # files must not be imported into a new one.
            raise InvalidRequest(refusal(RefusalText.IMPORT_HIDDEN_FOLDER), field="folder")
        base = check_name(given or source.name)
        names = [base] if given else [base, *(f"{base}_{n}" for n in range(2, MAX_NAMES + 1))]
        for name in names:
            wanted = {"name": name, "host": spec.get("host"), "project": spec.get("project")}
            try:
                made = await self._folders.create(
                    caller, {key: value for key, value in wanted.items() if value}
                )
            except AlreadyExists:
                if name == names[-1]:
                    raise
                continue
            return made.id, made.name
        raise AssertionError("there is at least one name")

    async def _find(self, caller: Caller, key: str) -> FolderImportRow:
        visible = authorizer.visibility(caller, "folder-import.read")
        if "\0" in key:
            raise NotFound(refusal(RefusalText.NO_SUCH_IMPORT))
        return await self._store.find(key, visible)

    def _entry(self, caller: Caller, verb: str, row: FolderImportRow) -> AuditEntry:
        return self._audit.entry(
            caller,
            f"folder-import.{verb}",
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.folder,
        )


def _directory(spec: Mapping[str, Any]) -> str:
    return str(spec.get("directory") or "").strip("/")


def _record(row: FolderImportRow, caller: Caller) -> FolderImport:
    values = fields_of(row)
    values["source"] = source_for(caller, row.source)
    for name in ("owner_role", "token", "is_new_folder"):
        del values[name]
    folder_id = values.pop("vfolder_id")
    return FolderImport(**values, folder_id=folder_id)
