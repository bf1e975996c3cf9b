"""Main loops of the agent: heartbeats, work items, cleanup."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bai_services import __version__, tracing
from bai_services.core.cluster.custom_images import CommitRequest
from bai_services.core.cluster.image_store import PruneRequest
from bai_services.core.cluster.protocol import (
    FIRST_PROTOCOL,
    PROTOCOL,
    IncompatibleManager,
    check_manager,
)
from bai_services.core.cluster.sbom import SbomRequest, pack_sbom
from bai_services.core.cluster.storage_checks import StorageCheck
from bai_services.core.errors import BaiError, InvalidRequest, NotFound, Unavailable
from bai_services.core.resources import ResourceSlots

from .checks import CHECK, CheckRequest, MachineChecks
from .commits import COMMIT, DISCARD, CommitExecutor
from .devices.device_grants import DeviceGrants
from .devices.machine_devices import MachineDevices
from .devices.memory_watchdog import Watchdog
from .engine import Engine
from .fence import TICK_SECONDS, Fence
from .folders.disk import DiskWatch
from .folders.kernel_folders import Folders
from .folders.storage_watch import StorageWatch
from .image_pulls import PRUNE, PULL, SBOM, PullExecutor, PullTask
from .kernels import Kernel, Task
from .launches import Launches
from .link import FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, Link
from .machine import machine_facts
from .machine_load import MachineLoad
from .work import WorkExecutor

log = logging.getLogger(__name__)

DEFAULT_HEARTBEAT_SECONDS = 5.0  # used until the manager has set an interval
OBSERVE_TIMEOUT_SECONDS = 10.0
SLOW_FACTS_SECONDS = 60.0
CLEANUP_INTERVAL_SECONDS = 300.0
SIGN_OFF_TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Identity:
    """The agent's id, resource group, architecture, capacity, and settings to report."""

    agent_id: str
    resource_group: str
    architecture: str
    slots: ResourceSlots
    settings: Sequence[Mapping[str, Any]] = ()


class Agent:
    """Sends heartbeats to the manager and executes its work items.

    Work items run concurrently. Docker calls run in bounded thread pools. Image pulls have a
    separate pool, so that a pull of one hour does not delay the other Docker calls.
    """

    def __init__(
        self,
        identity: Identity,
        link: Link,
        engine: Engine,
        devices: MachineDevices,
        folders: Folders,
        grants: DeviceGrants,
        watchdog: Watchdog,
        disk: DiskWatch,
        load: MachineLoad,
        checks: MachineChecks,
        launches: Launches,
        fence: Fence,
        start_guard: Callable[[], None],
    ) -> None:
        """``start_guard`` starts a process that calls ``guard`` and outlives this process."""
        self._start_guard = start_guard
        self._launches = launches
        self._fence = fence
        self._identity = identity
        self._link = link
        self._engine = engine
        self._devices = devices
        self._folders = folders
        self._grants = grants
        self._watchdog = watchdog
        self._disk = disk
        self._load = load
        self._checks = checks
        self._executor = WorkExecutor(
            link, engine, devices, folders, grants, watchdog, self.send_heartbeat, launches, fence
        )
        self._pulls = PullExecutor(link, engine)
        self._commits = CommitExecutor(link, engine)
        self._running_items: dict[str, asyncio.Task[None]] = {}
        self._interval_seconds = DEFAULT_HEARTBEAT_SECONDS
        # Set to send the next heartbeat without delay.
        self._is_beat_due = asyncio.Event()
        self._storage = StorageWatch(self._is_beat_due.set)
        self._heartbeat_lock = asyncio.Lock()
        self._is_registered = asyncio.Event()
        # Whether the manager has received this agent's settings.
        self._has_reported_settings = False
        # Cached facts that take long to read: time of the last read, machine facts, digests of
        # images by name.
        self._slow_facts_cache: tuple[float, Mapping[str, Any], Mapping[str, str]] | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set or a loop fails.

        Then sign off at the manager, and close the engine and the devices.
        """
        await asyncio.to_thread(self._grants.restore)
        await self._devices.reconcile(self._grants.all())
        await asyncio.to_thread(self._folders.remove_stale_mount_points)
        await asyncio.to_thread(self._fence.restore)
        await self._launches.restore()
        loops = [
            asyncio.create_task(self._heartbeat_loop(), name="heartbeats"),
            asyncio.create_task(self._work_loop(), name="work"),
            asyncio.create_task(self._cleanup_loop(), name="cleanup"),
            asyncio.create_task(self._fence.run(), name="fence"),
            asyncio.create_task(self._watchdog.run(), name="watchdog"),
            asyncio.create_task(self._disk.run(), name="disk"),
            asyncio.create_task(self._storage.run(), name="storage hosts"),
            asyncio.create_task(self._devices.maintain(), name="devices"),
        ]
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([stopped, *loops], return_when=asyncio.FIRST_COMPLETED)
            for loop in loops:
                if loop.done():
                    # A loop never returns, so a finished loop has failed: end the agent with its
                    # exception.
                    loop.result()
        finally:
            tasks = [stopped, *loops, *self._running_items.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._launches.close()
            await self._sign_off()
            await self._leave_guard()
            await self._engine.close()
            await self._devices.close()

    async def guard(self, stop: asyncio.Event) -> None:
        """Stop kernels when their lease expires, after an agent has ended without a sign-off.

        Devices are released by the next process of the agent.
        """
        await asyncio.to_thread(self._fence.begin_guard)
        log.info("agent %s has not signed off: its lease is guarded", self._identity.agent_id)
        while not stop.is_set():
            try:
                if not await self._fence.keep_guard():
                    return
            except Exception:
                log.exception("kernels could not be stopped; next try in %g s", TICK_SECONDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), TICK_SECONDS)

    async def send_heartbeat(self) -> None:
        """Read the current state of the machine and send one heartbeat.

        Raises
        ------
        BaiError
            If the manager is unavailable or rejects the heartbeat.
        """
        async with self._heartbeat_lock:
            content = await self._heartbeat_content()
            if not self._has_reported_settings:
                content["settings"] = list(self._identity.settings)
            await self._fence.check()
            sent_at = self._fence.now()
            await self._fence.begin(sent_at)
            response = await self._link.heartbeat(content)
            await self._fence.renew(sent_at)
            check_manager(int(response.get("protocol", FIRST_PROTOCOL)))
            # If the agent was deleted in the meantime, the manager treats it as new.
            self._has_reported_settings = "settings" in content or not response.get("is_new")
            self._engine.allow_url(str(response.get("hub_api_url") or ""))
            self._storage.set_hosts(
                [StorageCheck.from_json(item) for item in response.get("storage") or ()]
            )
            interval = response.get("interval_seconds")
            self._interval_seconds = float(interval or DEFAULT_HEARTBEAT_SECONDS)
        if not self._is_registered.is_set():
            log.info("agent %s is registered with the manager", self._identity.agent_id)
            self._is_registered.set()

    async def _heartbeat_content(self) -> dict[str, Any]:
        devices, kernels = await asyncio.gather(self._devices.refresh(), self._kernels())
        for device in devices:
            device["facts"] = {**device["facts"], "held": self._grants.facts(device["id"])}
        facts, images = await self._slow_facts()
        return {
            "resource_group": self._identity.resource_group,
            "engine": self._engine.name,
            "endpoint": self._engine.endpoint,
            "architecture": self._identity.architecture,
            "version": __version__,
            "protocol": PROTOCOL,
            "facts": {
                **facts,
                "image_digests": {name: digest for name, digest in images.items() if digest},
                **self._devices.facts(),
                **self._disk.facts(),
                **await asyncio.to_thread(self._load.facts),
            },
            "slots": self._identity.slots.format(),
            "devices": devices,
            "kernels": None if kernels is None else [kernel.to_report() for kernel in kernels],
            "images": list(images),
            "storage": self._storage.states(),
            "is_network_full": await self._engine.is_network_full(),
        }

    async def _kernels(self) -> list[Kernel] | None:
        """Return all kernels that the engine reports or that have a folder on this machine.

        Return None if the engine does not respond.
        """
        try:
            observed = await asyncio.wait_for(self._engine.observe(), OBSERVE_TIMEOUT_SECONDS)
        except TimeoutError:
            observed = None
        if observed is None:
            return None
        self._disk.set_kernels(observed)
        observed = [self._with_usage(kernel) for kernel in observed]
        known_ids = {kernel.kernel_id for kernel in observed}
        return [*observed, *await asyncio.to_thread(self._kernels_with_folder_only, known_ids)]

    def _with_usage(self, kernel: Kernel) -> Kernel:
        """Return the kernel with the usage of its devices and disk added."""
        usage = self._watchdog.usage(kernel.session_id) | self._disk.usage(kernel.kernel_id)
        return replace(kernel, usage={**(kernel.usage or {}), **usage}) if usage else kernel

    def _kernels_with_folder_only(self, known_ids: set[str]) -> list[Kernel]:
        """Return the kernels with a folder on this machine that the engine did not report."""
        return [
            Kernel(
                kernel_id=folder.kernel_id,
                session_id=folder.session_id,
                exit_code=self._folders.exit_code(folder.name),
                is_kept=folder.is_kept,
                fenced_attempt=folder.attempt if folder.is_fenced else None,
            )
            for folder in self._folders.all()
            if folder.kernel_id not in known_ids
        ]

    async def _slow_facts(self) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        """Return machine facts and images, cached for ``SLOW_FACTS_SECONDS``."""
        now = asyncio.get_running_loop().time()
        cache = self._slow_facts_cache
        if cache is None or now - cache[0] > SLOW_FACTS_SECONDS:
            facts, images, folders = await asyncio.gather(
                self._engine.facts(),
                self._engine.images(),
                asyncio.to_thread(self._folders.facts),
            )
            cache = self._slow_facts_cache = (
                now,
                {**machine_facts(), **folders, **facts},
                images,
            )
        return cache[1], cache[2]

    async def _heartbeat_loop(self) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            try:
                await self.send_heartbeat()
                backoff = FIRST_BACKOFF_SECONDS
                await self._wait_for_next_beat()
                continue
            except IncompatibleManager:
                # End this agent. It signs off, so that no sessions are placed here.
                raise
            except Unavailable as error:
                log.info("the manager is unavailable, retrying in %g s: %s", backoff, error)
            except BaiError as error:
                log.error("the manager rejects this agent, retrying in %g s: %s", backoff, error)
            except Exception:
                log.exception("a heartbeat failed, retrying in %g s", backoff)
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)

    async def _wait_for_next_beat(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_beat_due.wait(), self._interval_seconds)
        self._is_beat_due.clear()

    async def _work_loop(self) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            await self._is_registered.wait()
            try:
                for item in await self._link.work():
                    self._start_item(item)
                backoff = FIRST_BACKOFF_SECONDS
                continue
            except NotFound:
                # An administrator has deleted this agent, or the manager has a new database. The
                # next heartbeat registers the agent again.
                self._is_registered.clear()
            except Unavailable as error:
                log.debug("work items cannot be fetched at the moment: %s", error)
            except BaiError as error:
                log.error("the manager denies work items, retrying in %g s: %s", backoff, error)
            except Exception:
                log.exception("fetching work items failed, retrying in %g s", backoff)
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)

    def _start_item(self, item: Mapping[str, Any]) -> None:
        """Start a work item unless it is running: the manager sends unfinished items again."""
        work_id = str(item.get("id"))
        if work_id in self._running_items:
            return
        try:
            if item.get("kind") == CHECK:
                work = self._check(item)
            elif item.get("kind") == PULL:
                work = self._pull(PullTask.from_json(item))
            elif item.get("kind") == PRUNE:
                work = self._prune(PruneRequest.from_json(item))
            elif item.get("kind") == SBOM:
                work = self._read_sbom(SbomRequest.from_json(item))
            elif item.get("kind") == DISCARD:
                work = self._discard(str(item.get("image")))
            elif item.get("kind") == COMMIT:
                work = self._commit(CommitRequest.from_json(item))
            else:
                work = self._executor.execute(Task.from_json(item))
        except InvalidRequest as error:
            log.error("%s", error)
            return
        running = asyncio.create_task(work, name=work_id)
        self._running_items[work_id] = running
        running.add_done_callback(lambda _: self._running_items.pop(work_id, None))

    async def _check(self, item: Mapping[str, Any]) -> None:
        """Check this machine for `bai admin cluster doctor`, and report the findings."""
        with tracing.span(f"agent {CHECK}", attributes={"bai.work.kind": CHECK}):
            result = await asyncio.to_thread(self._checks.run, CheckRequest.from_json(item))
            await self._link.deliver(
                {"work_id": item["id"], "kind": CHECK, "state": "done", "check": result.to_json()}
            )

    async def _pull(self, task: PullTask) -> None:
        await self._pulls.execute(task)
        # Read the facts again, because the next heartbeat must list the new image.
        self._slow_facts_cache = None

    async def _prune(self, request: PruneRequest) -> None:
        """List or remove unused images, and report them."""
        report: dict[str, Any] = {"work_id": request.id, "kind": PRUNE, "state": "done"}
        with tracing.span(f"agent {PRUNE}", attributes={"bai.work.kind": PRUNE}) as span:
            try:
                report["pruned"] = list(await self._engine.prune_images(request))
            except BaiError as error:
                span.fail(error.message, error.code)
                report |= {"state": "failed", "error": {"message": error.message}}
            # Read the facts again, because the next heartbeat must not list the removed images.
            self._slow_facts_cache = None
            await self._link.deliver(report)

    async def _read_sbom(self, request: SbomRequest) -> None:
        """Read the SBOM of an image, and report it."""
        report: dict[str, Any] = {"work_id": request.id, "kind": SBOM, "state": "done"}
        with tracing.span(f"agent {SBOM}", attributes={"bai.work.kind": SBOM}) as span:
            try:
                content = await self._engine.image_sbom(request.image)
                report["sbom"] = await asyncio.to_thread(pack_sbom, content)
            except BaiError as error:
                span.fail(error.message, error.code)
                report |= {"state": "failed", "error": {"message": error.message}}
            await self._link.deliver(report)

    async def _commit(self, request: CommitRequest) -> None:
        await self._commits.execute(request)
        # Read the facts again, because the next heartbeat must list the new image.
        self._slow_facts_cache = None

    async def _discard(self, image: str) -> None:
        """Remove an image that the manager no longer knows.

        No report is sent: the manager repeats the item as long as heartbeats list the image.
        """
        with tracing.span(f"agent {DISCARD}", attributes={"bai.work.kind": DISCARD}) as span:
            try:
                await self._engine.discard_image(image)
            except BaiError as error:
                log.warning("%s", error.message)
                span.fail(error.message, error.code)
        self._slow_facts_cache = None

    async def _cleanup_loop(self) -> None:
        while True:
            await asyncio.sleep(CLEANUP_INTERVAL_SECONDS)
            try:
                await self._engine.remove_unused()
            except Exception:
                log.exception("the cleanup of the engine failed")

    async def _sign_off(self) -> None:
        """Sign off: the manager then places no new sessions here; running ones continue."""
        if not self._is_registered.is_set():
            return
        try:
            async with asyncio.timeout(SIGN_OFF_TIMEOUT_SECONDS):
                await self._link.heartbeat({**await self._heartbeat_content(), "is_leaving": True})
                await self._fence.sign_off()
        except (BaiError, TimeoutError) as error:
            log.info("this agent could not sign off at the manager: %s", error)

    async def _leave_guard(self) -> None:
        """Start a guard if kernels must stop when the lease expires.

        The manager starts their sessions elsewhere if this agent stays down.
        """
        try:
            if await self._fence.has_work():
                await asyncio.to_thread(self._start_guard)
        except Exception:
            log.exception("batch sessions continue without a guard")
