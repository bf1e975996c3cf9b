"""Base class of the loops that run imports."""

from __future__ import annotations

import asyncio
import functools
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Generic, Protocol, TypeVar

from bai_services.core.accounts.roles import Role
from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.errors import (
    BaiError,
    InvalidRequest,
    InvalidTransition,
    NotFound,
    QuotaExceeded,
    StorageFull,
    TooLarge,
    Unavailable,
)
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
# A limit for each owner: slow imports of a few users must not delay the imports of others.
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
        await self.clean_up()
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

    async def clean_up(self) -> None:
        """Remove the remains of ended imports."""

    def is_running(self, import_id: str) -> bool:
        """Return whether this manager runs an import, which may still write files."""
        return import_id in self._running

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
        self._owners += Counter()  # remove owners without running imports
        self._loop.wake()

    async def open(self) -> Sequence[Row]:
        """Return the imports of active users that are queued or running, the oldest first."""
        return await self._store.open()

    async def run(self, row: Row, transfer: Transfer) -> None:
        """Run or continue one import."""
        failure: Exception | None = None
        try:
            await self._store.apply(row.id, ImportEvent.BEGUN, self._clock())
            async with self._reported(row.id, transfer):
                await self.fetch(row, transfer)
        except (SourceError, BaiError) as error:
            if transfer.is_cancelled:
                return
            failure = error
        except Exception as error:
            log.exception("import %s has failed", row.id)
            failure = error
        event = ImportEvent.COMPLETED if failure is None else ImportEvent.BROKEN
        changes = {
            **_problem(failure),
            **_progress(transfer),
            **self.changes_at_end(failure, transfer),
        }
        with suppress(InvalidTransition, NotFound):  # cancelled during this step
            await self._store.apply(row.id, event, self._clock(), changes)
            if failure is None:
                await self.completed(row)
            else:
                await self.failed(row)

    async def failed(self, row: Row) -> None:
        """Clean up after a failure."""

    async def completed(self, row: Row) -> None:
        """React to the success of an import."""

    def changes_at_end(self, failure: Exception | None, transfer: Transfer) -> Mapping[str, Any]:
        """Return further columns to set at the end of an import."""
        return {}

    @asynccontextmanager
    async def _reported(self, import_id: str, transfer: Transfer) -> AsyncIterator[None]:
        """Report the progress of a running import."""
        report = asyncio.create_task(
            self._report(import_id, transfer), name=f"progress {import_id}"
        )
        try:
            yield
        finally:
            report.cancel()
            await asyncio.gather(report, return_exceptions=True)

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


def _problem(failure: Exception | None) -> dict[str, Any]:
    """Return the columns with the reason of a failure."""
    if failure is None:
        return {"problem": "", "problem_coded": None}
    coded = _coded(failure)
    text = str(failure) if coded is None else str(coded)
    return {
        "problem": text[:_MAX_PROBLEM],
        "problem_coded": None if coded is None else coded.as_json(),
    }


def _coded(failure: Exception) -> CodedText | None:
    """Return the reason of a failure; None if its message has no code."""
    if isinstance(failure, SourceError):
        return failure.coded
    if isinstance(failure, StorageFull):
        return TextTemplate.IMPORT_STORAGE_FULL.text()
    values = failure.details if isinstance(failure, BaiError) else {}
    if isinstance(failure, QuotaExceeded) and "asked" in values:
        limit, used, needed = values["limit"], values["used"], values["asked"]
        return TextTemplate.IMPORT_QUOTA.text(limit=limit, used=used, needed=needed)
    if isinstance(failure, InvalidRequest) and values.get("field") == "patterns":
        return TextTemplate.IMPORT_NO_MATCH.text()
    if isinstance(failure, TooLarge) and "size_bytes" in values:
        size, limit = values["size_bytes"], values["limit_bytes"]
        return TextTemplate.IMPORT_TOO_LARGE.text(size=size, limit=limit)
    return None if isinstance(failure, BaiError) else TextTemplate.IMPORT_INTERNAL_ERROR.text()


def _progress(transfer: Transfer) -> dict[str, int]:
    return {"files": transfer.files, "bytes": transfer.bytes}
