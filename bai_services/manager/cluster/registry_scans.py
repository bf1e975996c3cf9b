"""Scan image registries in the background, on request and at their intervals."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from bai_services.core.accounts.roles import Role
from bai_services.core.cluster.image_labels import check_bounds, parse_new_labels
from bai_services.core.cluster.manifests import has_platform_labels
from bai_services.core.cluster.registries import (
    ImageRegistry,
    ScanEvent,
    is_scan_due,
    registry_host,
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
MAX_CONCURRENT_REQUESTS = 8
MAX_SCAN_SECONDS = 30 * 60.0
# Maximum number of tags in one transaction.
BATCH_SIZE = 32
# A registry is considered down after this number of consecutive failed tags.
MAX_FAILURES_IN_A_ROW = 2 * BATCH_SIZE
MAX_PROBLEM_CHARACTERS = 500


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
            scan = _Scan(self._store, row, self._client(row), self._blocking, self._clock)
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
    ) -> None:
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
        for start in range(0, len(tags), BATCH_SIZE):
            await self._check(tags[start : start + BATCH_SIZE], known)

    async def _check(self, tags: Sequence[tuple[str, str]], known: Mapping[str, str]) -> None:
        """Read some tags at the same time, and store their images."""
        turns = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)

        async def inspect(repository: str, tag: str) -> list[FoundImage] | SourceError:
            async with turns:
                try:
                    inspected: list[FoundImage] = await self._blocking(
                        self.client.inspect, repository, tag, known
                    )
                    return inspected
                except SourceError as error:
                    return error

        results = await asyncio.gather(*(inspect(*tag) for tag in tags))
        counts = Counter({"scan_checked": len(tags)})
        found: list[dict[str, Any]] = []
        for (repository, tag), result in zip(tags, results, strict=True):
            if isinstance(result, SourceError):
                counts["scan_skipped"] += 1
                self.problem = self.problem or f"{repository}:{tag}: {result}"
                self._failures += 1
                if self._failures >= MAX_FAILURES_IN_A_ROW:
                    raise SourceError(f"the registry fails for all tags: {result}")
                continue
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
