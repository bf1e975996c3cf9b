"""Scan image registries in the background, on request and at their intervals."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any, TypeVar

from bai_services.core.accounts.roles import Role
from bai_services.core.audit import AuditEntry
from bai_services.core.cluster.image_labels import check_bounds, parse_new_labels
from bai_services.core.cluster.manifests import has_platform_labels
from bai_services.core.cluster.registries import (
    ImageRegistry,
    ScanEvent,
    is_in_scope,
    is_scan_due,
    registry_host,
    repository_and_tag,
)
from bai_services.core.errors import BaiError, InvalidRequest, InvalidTransition, NotFound
from bai_services.core.sessions.callbacks import AllowedTargets
from bai_services.db.cluster.registries import RegistryStore, ScanRow
from bai_services.storage.workers import Workers

from ..accounts.keypair_secrets import KeypairSecrets
from ..context import ManagerContext
from ..imports.transfer import SourceError
from ..loop import Loop
from ..scheduling.lease import Lease
from .registry_client import FoundImage, RegistryAccess, RegistryClient

log = logging.getLogger(__name__)
T = TypeVar("T")

TICK_SECONDS = 30.0
WATCH_SECONDS = 1.0
MAX_CONCURRENT_SCANS = 2
# Maximum number of concurrent requests of one scan.
MAX_CONCURRENT_REQUESTS = 16
MAX_SCAN_SECONDS = 30 * 60.0
# Maximum number of tags in one transaction.
BATCH_SIZE = 32
# A registry is considered down after this number of consecutive failed tags.
MAX_FAILURES_IN_A_ROW = 2 * BATCH_SIZE
MAX_PROBLEM_CHARACTERS = 500

# Repository and tag.
_Tag = tuple[str, str]
# The result of a request, or its error.
_Result = tuple[_Tag, Any]


class RegistryScans:
    """Runs scans while this manager holds the lease; after a restart, repeats unfinished scans."""

    def __init__(
        self,
        context: ManagerContext,
        store: RegistryStore,
        cipher: KeypairSecrets,
        targets: AllowedTargets,
        lease: Lease,
        max_scan_seconds: float = MAX_SCAN_SECONDS,
    ) -> None:
        self._store = store
        self._cipher = cipher
        self._targets = targets
        self._lease = lease
        self._max_scan_seconds = max_scan_seconds
        self._clock = context.clock
        self._audit = context.audit
        self._read_only = context.read_only
        threads = MAX_CONCURRENT_SCANS * MAX_CONCURRENT_REQUESTS
        self._threads = Workers("registry-scans", threads)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._loop = Loop("registry scans", self.step, TICK_SECONDS)

    def start(self) -> None:
        self.start_threads()
        self._loop.start()

    def start_threads(self) -> None:
        self._threads.start()

    async def stop(self) -> None:
        """Interrupt running scans; the next start restarts them."""
        await self._loop.stop()
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._threads.stop()

    def wake(self) -> None:
        self._loop.wake()

    async def wait(self) -> None:
        """Wait for the running scans."""
        await asyncio.gather(*self._running.values())

    async def step(self) -> None:
        """Queue due scans, and begin queued scans."""
        if await self._lease.hold() is None:
            return
        try:
            self._read_only.require_writable(Role.USER)
        except BaiError:
            return  # scans wait for the end of a read-only period
        now = self._clock()
        for registry in await self._store.all():
            if is_scan_due(registry, now):
                with suppress(InvalidTransition, NotFound):  # concurrently requested or deleted
                    await self._store.request_scan(registry.name, "", now)
        for row in await self._store.open_scans():
            if len(self._running) >= MAX_CONCURRENT_SCANS:
                break
            if row.scan_id not in self._running:
                task = asyncio.create_task(self._run(row), name=f"scan {row.registry.name}")
                self._running[row.scan_id] = task
                task.add_done_callback(functools.partial(self._ended, row.scan_id))

    def _ended(self, scan_id: str, _: asyncio.Task[None]) -> None:
        self._running.pop(scan_id, None)
        self._loop.wake()

    async def _run(self, row: ScanRow) -> None:
        """Run one scan, and store its result."""
        event, problem = ScanEvent.COMPLETED, ""
        scan: _Scan | None = None
        try:
            # After a restart, images that have been stored count as new or changed only once.
            begun = {"scan_tags": 0, "scan_checked": 0, "scan_skipped": 0}
            await self._store.apply(row.registry.name, row.scan_id, ScanEvent.BEGUN, begun)
            scan = _Scan(
                self._store, row, self._client(row), self._blocking, self._clock, self._removal
            )
            async with asyncio.timeout(self._max_scan_seconds):
                await self._watched(scan, row)
            problem = scan.problem
        except TimeoutError:
            event, problem = ScanEvent.BROKEN, f"it took more than {self._max_scan_seconds:g} s"
        except (SourceError, BaiError) as error:
            if isinstance(error, InvalidTransition | NotFound):
                return  # cancelled, or the registry was deleted
            event, problem = ScanEvent.BROKEN, str(error)
        except Exception:
            log.exception("the scan of registry %s has failed", row.registry.name)
            event, problem = ScanEvent.BROKEN, "internal error"
        changes = {
            "scan_ended_at": self._clock(),
            "scan_problem": problem[:MAX_PROBLEM_CHARACTERS],
        }
        with suppress(InvalidTransition, NotFound):  # concurrently cancelled
            await self._store.apply(row.registry.name, row.scan_id, event, changes)

    async def _watched(self, scan: _Scan, row: ScanRow) -> None:
        """Run a scan; stop it if it was cancelled, or another manager has the lease.

        Raises
        ------
        InvalidTransition
            If the scan was stopped.
        """
        task = asyncio.create_task(scan.run(), name=f"tags of {row.registry.name}")
        try:
            while not (await asyncio.wait([task], timeout=WATCH_SECONDS))[0]:
                open_scans = await self._store.open_scans()
                is_open = any(other.scan_id == row.scan_id for other in open_scans)
                if not is_open or await self._lease.hold() is None:
                    raise InvalidTransition("the scan was cancelled")
            await task
        finally:
            # The threads of the scan end when its connections are closed.
            scan.client.close()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _client(self, row: ScanRow) -> RegistryClient:
        registry = row.registry
        password = self._cipher.decrypt(row.password_encrypted) if row.password_encrypted else ""
        access = RegistryAccess(
            registry.url, registry.host, registry.username, password, registry.ca_certificate
        )
        return RegistryClient(access, self._targets)

    def _removal(self, row: ScanRow, image: str) -> AuditEntry:
        reason = "the tag was deleted in the registry"
        return self._audit.system("image.delete", image, registry=row.registry.name, reason=reason)

    async def _blocking(self, work: Callable[..., T], *arguments: Any) -> T:
        return await self._threads.run(work, *arguments, seconds=None)


class _Scan:
    """One scan of a registry."""

    def __init__(
        self,
        store: RegistryStore,
        row: ScanRow,
        client: RegistryClient,
        blocking: Callable[..., Any],
        clock: Callable[[], Any],
        removal: Callable[[ScanRow, str], AuditEntry],
    ) -> None:
        self._removal = functools.partial(removal, row)
        self.client = client
        self.problem = ""  # of the first tag that could not be read
        self._store = store
        self._row = row
        self._blocking = blocking
        self._clock = clock
        self._failures = 0  # consecutive failures

    async def run(self) -> None:
        registry = self._row.registry
        tags = await self._blocking(self.client.tags, registry.repositories, registry.patterns)
        known = await self._store.known_digests(registry.host)
        await self._record([], {"scan_tags": len(tags)})
        inspect = functools.partial(self.client.inspect, known=known)
        await self._in_parallel(tags, inspect, self._store_images)
        await self._settle(set(tags))

    async def _settle(self, tags: Set[_Tag]) -> None:
        """Delete the images whose tags the registry no longer has."""
        registry = self._row.registry
        names = await self._store.scanned_names(registry.host)
        missing, existing = {}, []
        for name, problem in names.items():
            tag = repository_and_tag(registry.host, name)
            if tag not in tags and is_in_scope(registry, *tag):
                missing[tag] = name
            elif tag in tags and problem:
                existing.append(name)
        deleted: list[str] = []

        async def store(results: Sequence[_Result]) -> None:
            # A list may be incomplete: images whose tags cannot be checked remain.
            deleted.extend(missing[tag] for tag, is_deleted in results if is_deleted is True)

        await self._in_parallel(sorted(missing), self.client.is_deleted, store)
        if not deleted and not existing:
            return
        is_running = await self._store.settle_tags(
            registry.id, self._row.scan_id, sorted(deleted), existing, self._removal
        )
        if not is_running:
            raise InvalidTransition("the scan was cancelled")

    async def _in_parallel(
        self,
        tags: Sequence[_Tag],
        read: Callable[..., Any],
        store: Callable[[Sequence[_Result]], Awaitable[None]],
    ) -> None:
        """Call ``read`` for several tags at the same time, and ``store`` for each batch."""
        waiting = iter(tags)
        # Bounded, so that the requests wait for a slow database.
        results: asyncio.Queue[_Result] = asyncio.Queue(2 * BATCH_SIZE)

        async def work() -> None:
            for tag in waiting:
                try:
                    found = await self._blocking(read, *tag)
                except Exception as error:
                    found = error
                await results.put((tag, found))

        workers = [asyncio.create_task(work()) for _ in range(MAX_CONCURRENT_REQUESTS)]
        try:
            for start in range(0, len(tags), BATCH_SIZE):
                size = min(BATCH_SIZE, len(tags) - start)
                await store([await results.get() for _ in range(size)])
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _store_images(self, results: Sequence[_Result]) -> None:
        """Store the images that the client has found for some tags."""
        counts = Counter({"scan_checked": len(results)})
        found: list[dict[str, Any]] = []
        for (repository, tag), result in results:
            if isinstance(result, SourceError):
                counts["scan_skipped"] += 1
                self.problem = self.problem or f"{repository}:{tag}: {result}"
                self._failures += 1
                if self._failures >= MAX_FAILURES_IN_A_ROW:
                    raise SourceError(f"the registry fails for all tags: {result}")
                continue
            if isinstance(result, Exception):
                raise result
            self._failures = 0
            images = [self._columns(image) for image in result]
            found += [image for image in images if image is not None]
            counts["scan_skipped"] += bool(images) and not any(images)
        await self._record(found, counts)

    def _columns(self, image: FoundImage) -> dict[str, Any] | None:
        """Return the columns of a new image; None if it cannot be used."""
        registry: ImageRegistry = self._row.registry
        if registry.labelled_only and not has_platform_labels(image.labels):
            return None
        try:
            facts = parse_new_labels(image.labels)
            check_bounds(facts.min_slots, facts.max_slots)
        except InvalidRequest as error:
            self.problem = self.problem or f"{image.name}: {error.message}"
            return None
        return {
            "name": image.name,
            "registry": registry_host(image.name),
            "architecture": image.architecture,
            "description": "",
            "size_bytes": image.size_bytes,
            "labels": dict(image.labels),
            "min_slots": facts.min_slots,
            "max_slots": facts.max_slots,
            "is_active": registry.activates_images,
            "registry_digest": image.digest,
        }

    async def _record(self, found: Sequence[Mapping[str, Any]], counts: Mapping[str, int]) -> None:
        registry = self._row.registry
        is_running = await self._store.record_images(
            registry.id, self._row.scan_id, found, counts, self._clock()
        )
        if not is_running:
            raise InvalidTransition("the scan was cancelled")
