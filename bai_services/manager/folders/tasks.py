"""Background work on folders (clone, hand-over, purge), continued after a restart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from bai_services.core.errors import BaiError, NotFound
from bai_services.core.folders.vfolders import VfolderEvent, VfolderStatus
from bai_services.db.folders.grants import GrantStore
from bai_services.db.folders.vfolders import VfolderRow, VfolderStore
from bai_services.storage.base import CopyProgress, Location, Scope

from ..context import ManagerContext
from ..loop import Loop
from .quotas import Quotas, location_of
from .storage_hosts import StorageHosts

log = logging.getLogger(__name__)

TRASH_TICK_SECONDS = 600.0
# On shutdown, the manager waits this long for running work; the rest continues at the next start.
STOP_SECONDS = 5.0

TaskKind = Literal["clone", "hand-over"]


@dataclass(frozen=True, slots=True)
class TaskView:
    """Progress of a clone or a hand-over; totals are 0 until the source has been counted."""

    kind: TaskKind
    files: int
    total_files: int
    bytes: int
    total_bytes: int


class VFolderTasks:
    """Does the work that a folder's status calls for, one task per folder at a time."""

    def __init__(
        self, context: ManagerContext, hosts: StorageHosts, quotas: Quotas, trash_days: int
    ) -> None:
        self._store = VfolderStore(context.database)
        self._grants = GrantStore(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._hosts = hosts
        self._quotas = quotas
        self._trash_days = trash_days
        self._running: dict[str, asyncio.Task[None]] = {}
        self._copying: dict[str, tuple[TaskKind, CopyProgress]] = {}
        self._loop = Loop("trash", self.empty_trash, TRASH_TICK_SECONDS)

    async def start(self) -> None:
        """Continue interrupted work, and start to purge expired folders of the trash."""
        for status in _WORK:
            for row in await self._store.in_status(status):
                self._run(row)
        if self._trash_days:
            self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()
        for _, progress in self._copying.values():
            progress.is_cancelled = True
        if self._running:
            _, late = await asyncio.wait(self._running.values(), timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def begin(self, vfolder_id: str) -> None:
        """Start the work that a folder's status calls for."""
        for row in await self._store.by_id(vfolder_id):
            self._run(row)

    async def settled(self) -> None:
        """Wait until no work is running."""
        await asyncio.gather(*self._running.values())

    def view(self, vfolder_id: str) -> TaskView | None:
        known = self._copying.get(vfolder_id)
        if known is None:
            return None
        kind, at = known
        return TaskView(kind, at.files, at.total_files, at.bytes, at.total_bytes)

    async def empty_trash(self) -> None:
        """Purge the folders whose time in the trash is over."""
        now = self._clock()
        for row in await self._store.trashed_before(now - timedelta(days=self._trash_days)):
            facts = {"name": row.name, "reason": f"in the trash for {self._trash_days} days"}
            entry = self._audit.system("vfolder.purge", row.id, domain=row.domain, **facts)
            try:
                await self._store.move(row.id, VfolderEvent.PURGED, now, entry)
            except BaiError:
                continue  # it was restored or purged meanwhile
            await self.begin(row.id)

    def _run(self, row: VfolderRow) -> None:
        work = _WORK.get(row.status)
        if work is None or row.id in self._running:
            return
        task = asyncio.create_task(getattr(self, work)(row), name=f"{row.status} {row.id}")
        self._running[row.id] = task
        task.add_done_callback(lambda _: self._running.pop(row.id, None))

    async def _purge(self, row: VfolderRow) -> None:
        event, info = VfolderEvent.EMPTIED, ""
        try:
            await self._hosts.get(row.host).delete(location_of(row))
        except Exception as error:
            log.exception("the files of folder %s cannot be deleted", row.id)
            event, info = VfolderEvent.FAILED, _reason(error)
        await self._end(row, event, {"status_info": info, "used_bytes": None})
        self._quotas.wake()

    async def _clone(self, row: VfolderRow) -> None:
        progress = CopyProgress()
        self._copying[row.id] = ("clone", progress)
        try:
            sources = await self._store.by_id(row.source_id or "")
            if not sources or sources[0].status is not VfolderStatus.READY:
                raise NotFound("the folder that it is cloned from no longer exists")
            await self._quotas.check_room(row, (await self._counted(sources[0])))
            host, target = self._hosts.get(sources[0].host), self._hosts.get(row.host)
            await host.copy_folder(location_of(sources[0]), target, location_of(row), progress)
        except Exception as error:
            if progress.is_cancelled:
                return  # the manager is stopping; the next start begins the clone again
            log.warning("folder %s cannot be cloned: %s", row.id, error)
            await self._end(row, VfolderEvent.BROKEN, {"status_info": _reason(error)})
            return
        finally:
            self._copying.pop(row.id, None)
        self._quotas.arrived(row, progress.bytes)
        await self._end(row, VfolderEvent.COPIED, {"source_id": None})

    async def _hand_over(self, row: VfolderRow) -> None:
        progress = CopyProgress()
        self._copying[row.id] = ("hand-over", progress)
        try:
            await self._give_to(row, progress)
        except Exception as error:
            if progress.is_cancelled:
                return  # the manager is stopping; the next start continues
            log.warning("folder %s cannot be handed over: %s", row.id, error)
            await self._move_back(row, _reason(error))
        finally:
            self._copying.pop(row.id, None)

    async def _give_to(self, row: VfolderRow, progress: CopyProgress) -> None:
        person = await self._grants.find_user_in_any_domain(row.next_owner_id or "")
        if person is None:
            raise NotFound("the new owner no longer exists")
        scope = f"user:{person['id']}"
        if row.unmanaged_path is None:
            await self._quotas.check_room_of(row.host, scope, await self._counted(row))
            target = Location(Scope.parse(scope), row.id)
            await self._hosts.get(row.host).move_folder(location_of(row), target, progress)
        await self._store.complete_transfer(row.id, person["id"], person["domain"], self._clock())
        await self._quotas.created(row.host, scope)

    async def _move_back(self, row: VfolderRow, reason: str) -> None:
        """Move files that may have been moved already back to the path that the row names."""
        try:
            if row.unmanaged_path is None:
                there = Location(Scope("user", row.next_owner_id or ""), row.id)
                await self._hosts.get(row.host).move_folder(there, location_of(row), CopyProgress())
        except Exception:
            # Its status is unchanged, so the next start tries the whole move again.
            log.exception("the files of folder %s cannot be moved back", row.id)
            return
        changes = {"next_owner_id": None, "status_info": reason}
        await self._end(row, VfolderEvent.BROKEN, changes)

    async def _counted(self, row: VfolderRow) -> int:
        return (await self._quotas.usage(row, is_fresh=False)).bytes

    async def _end(self, row: VfolderRow, event: VfolderEvent, changes: dict[str, Any]) -> None:
        try:
            await self._store.move(row.id, event, self._clock(), changes=changes)
        except Exception:
            # Its status is unchanged, so the next start continues the work.
            log.exception("the result of the work on folder %s cannot be stored", row.id)


_WORK: Mapping[VfolderStatus, str] = {
    VfolderStatus.DELETE_ONGOING: "_purge",
    VfolderStatus.CLONING: "_clone",
    VfolderStatus.PERFORMING: "_hand_over",
}


def _reason(error: Exception) -> str:
    return (error.message if isinstance(error, BaiError) else "internal error")[:255]
