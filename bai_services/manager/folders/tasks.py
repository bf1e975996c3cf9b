"""What is done with folders in the background: copied, moved, deleted; also after a restart."""

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
from bai_services.storage.base import Copying, Location, Scope

from ..context import ManagerContext
from ..loop import Loop
from .quotas import Quotas, location_of
from .storage_hosts import StorageHosts

log = logging.getLogger(__name__)

TRASH_TICK_SECONDS = 600.0
# How long the end of the manager waits for what is being done; the rest goes on later.
STOP_SECONDS = 5.0

TaskKind = Literal["clone", "hand-over"]


@dataclass(frozen=True, slots=True)
class TaskView:
    """How far a clone or a hand-over is; totals are 0 until the source was counted."""

    kind: TaskKind
    files: int
    total_files: int
    bytes: int
    total_bytes: int


class VFolderTasks:
    """A folder's status says what is to be done with it; here it is done, once at a time."""

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
        self._copying: dict[str, tuple[TaskKind, Copying]] = {}
        self._loop = Loop("trash", self.empty_trash, TRASH_TICK_SECONDS)

    async def start(self) -> None:
        """Go on with what was cut off, and empty the trash from now on."""
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
        """Do what a folder's status says is to be done."""
        for row in await self._store.by_id(vfolder_id):
            self._run(row)

    async def settled(self) -> None:
        """Wait until nothing is being done any more."""
        await asyncio.gather(*self._running.values())

    def view(self, vfolder_id: str) -> TaskView | None:
        known = self._copying.get(vfolder_id)
        if known is None:
            return None
        kind, at = known
        return TaskView(kind, at.files, at.total_files, at.bytes, at.total_bytes)

    async def empty_trash(self) -> None:
        """Purge what has been in the trash for as long as it is kept."""
        now = self._clock()
        for row in await self._store.trashed_before(now - timedelta(days=self._trash_days)):
            facts = {"name": row.name, "reason": f"in the trash for {self._trash_days} days"}
            entry = self._audit.system("vfolder.purge", row.id, domain=row.domain, **facts)
            try:
                await self._store.move(row.id, VfolderEvent.PURGED, now, entry)
            except BaiError:
                continue  # somebody restored or purged it meanwhile
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
        progress = Copying()
        self._copying[row.id] = ("clone", progress)
        try:
            sources = await self._store.by_id(row.source_id or "")
            if not sources or sources[0].status is not VfolderStatus.READY:
                raise NotFound("the folder that it is cloned from is no longer there")
            await self._quotas.check_room(row, (await self._counted(sources[0])))
            host, target = self._hosts.get(sources[0].host), self._hosts.get(row.host)
            await host.copy_folder(location_of(sources[0]), target, location_of(row), progress)
        except Exception as error:
            if progress.is_cancelled:
                return  # the manager stops; the next start begins it again
            log.warning("folder %s cannot be cloned: %s", row.id, error)
            await self._end(row, VfolderEvent.BROKEN, {"status_info": _reason(error)})
            return
        finally:
            self._copying.pop(row.id, None)
        self._quotas.arrived(row, progress.bytes)
        await self._end(row, VfolderEvent.COPIED, {"source_id": None})

    async def _hand_over(self, row: VfolderRow) -> None:
        progress = Copying()
        self._copying[row.id] = ("hand-over", progress)
        try:
            await self._give_to(row, progress)
        except Exception as error:
            if progress.is_cancelled:
                return  # the manager stops; the next start goes on
            log.warning("folder %s cannot be handed over: %s", row.id, error)
            await self._take_back(row, _reason(error))
        finally:
            self._copying.pop(row.id, None)

    async def _give_to(self, row: VfolderRow, progress: Copying) -> None:
        person = await self._grants.anybody(row.next_owner_id or "")
        if person is None:
            raise NotFound("the new owner is gone")
        scope = f"user:{person['id']}"
        if row.unmanaged_path is None:
            await self._quotas.check_room_of(row.host, scope, await self._counted(row))
            target = Location(Scope.parse(scope), row.id)
            await self._hosts.get(row.host).move_folder(location_of(row), target, progress)
        await self._store.arrive(row.id, person["id"], person["domain"], self._clock())
        await self._quotas.created(row.host, scope)

    async def _take_back(self, row: VfolderRow, reason: str) -> None:
        """Bring files that may have moved back to where the row says that they are."""
        try:
            if row.unmanaged_path is None:
                there = Location(Scope("user", row.next_owner_id or ""), row.id)
                await self._hosts.get(row.host).move_folder(there, location_of(row), Copying())
        except Exception:
            # Its status is as before: the next start tries the whole again.
            log.exception("the files of folder %s cannot be brought back", row.id)
            return
        changes = {"next_owner_id": None, "status_info": reason}
        await self._end(row, VfolderEvent.BROKEN, changes)

    async def _counted(self, row: VfolderRow) -> int:
        return (await self._quotas.usage(row, is_fresh=False)).bytes

    async def _end(self, row: VfolderRow, event: VfolderEvent, changes: dict[str, Any]) -> None:
        try:
            await self._store.move(row.id, event, self._clock(), changes=changes)
        except Exception:
            # Its status is as before: the next start goes on with it.
            log.exception("the end of work on folder %s cannot be written", row.id)


_WORK: Mapping[VfolderStatus, str] = {
    VfolderStatus.DELETE_ONGOING: "_purge",
    VfolderStatus.CLONING: "_clone",
    VfolderStatus.PERFORMING: "_hand_over",
}


def _reason(error: Exception) -> str:
    return (error.message if isinstance(error, BaiError) else "internal error")[:255]
