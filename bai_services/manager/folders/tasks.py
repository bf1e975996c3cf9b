"""Background tasks of folders (clone, change of owner, purge), resumed after a restart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from bai_services.core.errors import BaiError, NotFound
from bai_services.core.folders.vfolders import VfolderEvent, VfolderStatus
from bai_services.db.folders.grants import GrantStore
from bai_services.db.folders.rows import VfolderRow
from bai_services.db.folders.vfolders import VfolderStore
from bai_services.storage.base import CopyProgress, Location, Scope

from ..context import ManagerContext
from ..loop import Loop
from .folder_changes import FolderChanges
from .quotas import Quotas, headroom_bytes, location_of
from .storage_hosts import StorageHosts

log = logging.getLogger(__name__)

TRASH_TICK_SECONDS = 600.0
# On shutdown the manager waits at most this time for running tasks; the next start resumes
# unfinished ones.
STOP_TIMEOUT_SECONDS = 5.0

TaskKind = Literal["clone", "hand-over"]


@dataclass(frozen=True, slots=True)
class TaskView:
    """Progress of a clone or a change of owner; totals are 0 until the source has been counted.

    A change of owner renames the directory; it counts and copies the files only if that fails.
    """

    kind: TaskKind
    files: int
    total_files: int
    bytes: int
    total_bytes: int


class VFolderTasks:
    """Runs the task that the status of a folder requires, one per folder at a time."""

    def __init__(
        self,
        context: ManagerContext,
        hosts: StorageHosts,
        quotas: Quotas,
        changes: FolderChanges,
        trash_days: int,
    ) -> None:
        self._store = VfolderStore(context.database)
        self._grants = GrantStore(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._hosts = hosts
        self._quotas = quotas
        self._changes = changes
        self._trash_days = trash_days
        self._running: dict[str, asyncio.Task[None]] = {}
        self._copying: dict[str, tuple[TaskKind, CopyProgress]] = {}
        self._loop = Loop("trash", self.empty_trash, TRASH_TICK_SECONDS)

    async def start(self) -> None:
        """Resume interrupted tasks, and start the loop that purges expired folders."""
        for status in _TASKS:
            for row in await self._store.in_status(status):
                self._run(row)
        if self._trash_days:
            self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()
        for _, progress in self._copying.values():
            progress.is_cancelled = True
        if self._running:
            _, late = await asyncio.wait(self._running.values(), timeout=STOP_TIMEOUT_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def begin(self, vfolder_id: str) -> None:
        """Start the task that the status of a folder requires."""
        for row in await self._store.by_id(vfolder_id):
            self._run(row)

    async def delete(self, row: VfolderRow, reason: str) -> None:
        """Delete a ready folder permanently, as an action of the system.

        Raises
        ------
        InUse
            If a live session has the folder mounted.
        InvalidTransition
            If the folder is not ready.
        """
        facts = {"name": row.name, "reason": reason}
        for event, action in (
            (VfolderEvent.TRASHED, "vfolder.trash"),
            (VfolderEvent.PURGED, "vfolder.purge"),
        ):
            entry = self._audit.system(
                action, row.id, domain=row.domain, owner_id=row.owner_id, **facts
            )
            await self._store.apply_event(row.id, event, self._clock(), entry)
        await self._changes.folder_changed(row)
        await self.begin(row.id)

    async def wait(self) -> None:
        """Wait for all running tasks."""
        await asyncio.gather(*self._running.values())

    def purge_at(self, row: VfolderRow) -> datetime | None:
        """Return the time after which the folder is purged; None: no automatic purge."""
        if row.status != VfolderStatus.DELETE_PENDING or not self._trash_days:
            return None
        return row.status_changed_at + timedelta(days=self._trash_days)

    def view(self, vfolder_id: str) -> TaskView | None:
        """Return the progress of a folder's clone or change of owner; None if none is running."""
        known = self._copying.get(vfolder_id)
        if known is None:
            return None
        kind, at = known
        return TaskView(kind, at.files, at.total_files, at.bytes, at.total_bytes)

    async def empty_trash(self) -> None:
        """Purge the folders that have been in the trash for ``trash_days``."""
        now = self._clock()
        for row in await self._store.trashed_before(now - timedelta(days=self._trash_days)):
            facts = {"name": row.name, "reason": f"in the trash for {self._trash_days} days"}
            entry = self._audit.system(
                "vfolder.purge", row.id, domain=row.domain, owner_id=row.owner_id, **facts
            )
            try:
                await self._store.apply_event(row.id, VfolderEvent.PURGED, now, entry)
            except BaiError:
                continue  # the folder has been restored or purged since the query
            await self.begin(row.id)

    def _run(self, row: VfolderRow) -> None:
        method = _TASKS.get(row.status)
        if method is None or row.id in self._running:
            return
        task = asyncio.create_task(getattr(self, method)(row), name=f"{row.status} {row.id}")
        self._running[row.id] = task
        task.add_done_callback(lambda _: self._running.pop(row.id, None))

    async def _purge(self, row: VfolderRow) -> None:
        event, info = VfolderEvent.EMPTIED, ""
        try:
            await self._hosts.get(row.host).delete(location_of(row))
        except Exception as error:
            log.exception("the files of folder %s cannot be deleted", row.id)
            event, info = VfolderEvent.FAILED, _reason(error)
        await self._end(
            row,
            event,
            {"status_info": info, "used_bytes": None},
            sums_scope=event is VfolderEvent.EMPTIED and self._quotas.sums_scopes(row.host),
        )
        if event is VfolderEvent.EMPTIED:
            self._quotas.discard_received(row)
        self._quotas.wake()

    async def _clone(self, row: VfolderRow) -> None:
        progress = CopyProgress()
        self._copying[row.id] = ("clone", progress)
        try:
            sources = await self._store.by_id(row.source_id or "")
            if not sources or sources[0].status is not VfolderStatus.READY:
                raise NotFound("the source folder no longer exists")
            host, target = self._hosts.get(sources[0].host), self._hosts.get(row.host)
            with self._quotas.reservation(row) as space:
                if await self._quotas.remaining_bytes(row) is not None:
                    size = await self._used_bytes(sources[0], is_fresh=True)
                    await space.require(size, headroom_bytes(size))
                    progress.limit_bytes = space.size
                await host.copy_folder(location_of(sources[0]), target, location_of(row), progress)
                space.use(progress.bytes)
        except Exception as error:
            if progress.is_cancelled:
                return  # the manager is stopping; the next start repeats the clone
            log.warning("folder %s cannot be cloned: %s", row.id, error)
            await self._end(row, VfolderEvent.BROKEN, {"status_info": _reason(error)})
            return
        finally:
            self._copying.pop(row.id, None)
        await self._end(row, VfolderEvent.COPIED, {"source_id": None})

    async def _change_owner(self, row: VfolderRow) -> None:
        progress = CopyProgress()
        self._copying[row.id] = ("hand-over", progress)
        try:
            await self._move_to_new_owner(row, progress)
        except Exception as error:
            if progress.is_cancelled:
                return  # the manager is stopping; the next start resumes
            log.warning("the owner of folder %s cannot be changed: %s", row.id, error)
            await self._move_back(row, _reason(error))
        finally:
            self._copying.pop(row.id, None)

    async def _move_to_new_owner(self, row: VfolderRow, progress: CopyProgress) -> None:
        owner = await self._grants.find_user_in_any_domain(row.next_owner_id or "")
        if owner is None:
            raise NotFound("the new owner no longer exists")
        scope = f"user:{owner['id']}"
        sums_scopes = row.unmanaged_path is None and self._quotas.sums_scopes(row.host)
        with self._quotas.reservation(row, scope) as space:
            if row.unmanaged_path is None:
                await space.require(await self._used_bytes(row))
                target = Location(Scope.parse(scope), row.id)
                await self._hosts.get(row.host).move_folder(location_of(row), target, progress)
            excluded = await self._store.complete_transfer(
                row.id, owner["id"], self._clock(), sums_scopes=sums_scopes
            )
        self._quotas.discard_received(row)
        await self._quotas.enforce_new(row.host, scope)
        # Notify the administrators of the old domain and, if it differs, of the new domain.
        await self._changes.folder_changed(row)
        for moved in await self._store.by_id(row.id):
            if moved.domain != row.domain:
                await self._changes.folder_changed(moved)
        self._changes.folder_withdrawn({row.owner_id or "", *excluded})

    async def _move_back(self, row: VfolderRow, reason: str) -> None:
        """Move the files back to the old owner's path, if they are at the new owner's path."""
        try:
            if row.unmanaged_path is None:
                new_location = Location(Scope("user", row.next_owner_id or ""), row.id)
                await self._hosts.get(row.host).move_folder(
                    new_location, location_of(row), CopyProgress()
                )
        except Exception:
            # The status is unchanged, so the next start repeats the whole move.
            log.exception("the files of folder %s cannot be moved back", row.id)
            return
        changes = {"next_owner_id": None, "status_info": reason}
        await self._end(row, VfolderEvent.BROKEN, changes)

    async def _used_bytes(self, row: VfolderRow, is_fresh: bool = False) -> int:
        return (await self._quotas.usage(row, is_fresh)).bytes

    async def _end(
        self,
        row: VfolderRow,
        event: VfolderEvent,
        changes: dict[str, Any],
        *,
        sums_scope: bool = False,
    ) -> None:
        try:
            await self._store.apply_event(
                row.id, event, self._clock(), changes=changes, sums_scope=sums_scope
            )
            await self._changes.folder_changed(row)
        except Exception:
            # The status is unchanged, so the next start resumes the task.
            log.exception("the result of the task of folder %s cannot be stored", row.id)


_TASKS: Mapping[VfolderStatus, str] = {
    VfolderStatus.DELETE_ONGOING: "_purge",
    VfolderStatus.CLONING: "_clone",
    VfolderStatus.PERFORMING: "_change_owner",
}


def _reason(error: Exception) -> str:
    return (error.message if isinstance(error, BaiError) else "internal error")[:255]
