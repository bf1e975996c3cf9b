"""Base class of the loops that run imports."""

from __future__ import annotations

import asyncio
import functools
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from bai_services.core.accounts.roles import Role
from bai_services.core.errors import BaiError, InvalidTransition, NotFound, Unavailable
from bai_services.core.imports.lifecycle import IMPORTS_KEPT_FOR, ImportEvent, ImportStatus
from bai_services.db.imports.store import ImportStore
from bai_services.storage.workers import Workers

from ..context import ManagerContext
from ..loop import Loop
from ..scheduling.lease import Lease
from .transfer import SourceError, Transfer

log = logging.getLogger(__name__)
T = TypeVar("T")

TICK_SECONDS = 30.0
REPORT_SECONDS = 2.0
MAX_CONCURRENT = 8
# Slow imports of a few users must not delay the imports of others.
MAX_CONCURRENT_PER_USER = 2
_MAX_PROBLEM = 500


class AnyImport(Protocol):
    """Fields that the rows of all import tables have in common."""

    @property
    def id(self) -> str: ...
    @property
    def owner_id(self) -> str: ...
    @property
    def owner_role(self) -> Role: ...
    @property
    def status(self) -> ImportStatus: ...


Row = TypeVar("Row", bound=AnyImport)


class ImportLoop(ABC, Generic[Row]):
    """Runs imports while this manager holds the lease; after a restart, repeats unfinished ones."""

    # Columns to set at the end of an import.
    at_end: Mapping[str, Any] = {}

    def __init__(
        self, name: str, context: ManagerContext, store: ImportStore[Row], lease: Lease
    ) -> None:
        self._store = store
        self._clock = context.clock
        self._read_only = context.read_only
        self._lease = lease
        self._threads = Workers(name.replace(" ", "-"), MAX_CONCURRENT)
        self._running: dict[str, tuple[asyncio.Task[None], Transfer]] = {}
        self._owners: Counter[str] = Counter()  # running imports by owner
        self._loop = Loop(name, self.step, TICK_SECONDS)

    def start(self) -> None:
        self.start_threads()
        self._loop.start()

    def start_threads(self) -> None:
        """Start the threads that download."""
        self._threads.start()

    async def stop(self) -> None:
        """Interrupt running imports; the next start resumes them."""
        await self._loop.stop()
        running = list(self._running.values())
        for task, transfer in running:
            transfer.cancel()
            task.cancel()
        await asyncio.gather(*(task for task, _ in running), return_exceptions=True)
        await self._threads.stop()

    def wake(self) -> None:
        self._loop.wake()

    async def step(self) -> None:
        """Begin the oldest queued imports, and delete old import records."""
        if await self._lease.hold() is None:
            return
        for row in await self.open():
            if len(self._running) >= MAX_CONCURRENT:
                break
            if row.id not in self._running and self._may_begin(row):
                transfer = Transfer()
                task = asyncio.create_task(self.run(row, transfer), name=f"import {row.id}")
                self._running[row.id] = task, transfer
                self._owners[row.owner_id] += 1
                task.add_done_callback(functools.partial(self._ended, row.id, row.owner_id))
        await self._store.clean_up(self._clock() - IMPORTS_KEPT_FOR)

    async def wait(self) -> None:
        """Wait for the running imports."""
        await asyncio.gather(*(task for task, _ in self._running.values()))

    def _may_begin(self, row: Row) -> bool:
        if self._owners[row.owner_id] >= MAX_CONCURRENT_PER_USER:
            return False
        # During read-only maintenance, only imports that have begun continue.
        with suppress(Unavailable):
            if row.status is not ImportStatus.RUNNING:
                self._read_only.require_writable(row.owner_role)
            return True
        return False

    def _ended(self, key: str, owner_id: str, _: asyncio.Task[None]) -> None:
        self._running.pop(key, None)
        self._owners[owner_id] -= 1
        self._owners += Counter()  # without zeros
        self._loop.wake()

    async def open(self) -> Sequence[Row]:
        """Return the imports of active users that are queued or running, the oldest first."""
        return await self._store.open()

    async def run(self, row: Row, transfer: Transfer) -> None:
        """Run or continue one import."""
        report = asyncio.create_task(self._report(row.id, transfer), name=f"progress {row.id}")
        event, problem = ImportEvent.COMPLETED, ""
        try:
            await self._store.apply(row.id, ImportEvent.BEGUN, self._clock())
            await self.fetch(row, transfer)
        except (SourceError, BaiError) as error:
            if transfer.is_cancelled:
                return
            event, problem = ImportEvent.BROKEN, str(error)[:_MAX_PROBLEM]
        except Exception:
            log.exception("import %s has failed", row.id)
            event, problem = ImportEvent.BROKEN, "internal error"
        finally:
            report.cancel()
            await asyncio.gather(report, return_exceptions=True)
        changes = {"problem": problem, **_progress(transfer), **self.at_end}
        with suppress(InvalidTransition, NotFound):  # cancelled during this step
            await self._store.apply(row.id, event, self._clock(), changes)

    async def _report(self, import_id: str, transfer: Transfer) -> None:
        """Store the progress regularly; stop the import if it was cancelled or another manager runs
        it.
        """
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            try:
                is_running = await self._store.progress(import_id, _progress(transfer))
                if not is_running or await self._lease.hold() is None:
                    transfer.cancel()
                    return
            except BaiError as error:
                log.warning("the progress of import %s cannot be stored: %s", import_id, error)

    @abstractmethod
    async def fetch(self, row: Row, transfer: Transfer) -> None:
        """Fetch the files of one import into its folder."""

    async def blocking(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run blocking work in a thread, without a time limit."""
        return await self._threads.run(work, *arguments, seconds=None)


def _progress(transfer: Transfer) -> dict[str, int]:
    return {"files": transfer.files, "bytes": transfer.bytes}
