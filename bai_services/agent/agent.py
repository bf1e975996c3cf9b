"""Main loops of the agent: heartbeats, work, cleaning up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bai_services import __version__
from bai_services.core.errors import BaiError, InvalidRequest, NotFound, Unavailable
from bai_services.core.resources import ResourceSlots

from .devices.device_grants import DeviceGrants
from .devices.inventory import Inventory
from .devices.memory_watchdog import Watchdog
from .engine import Engine
from .folders.disk import DiskWatch
from .folders.kernel_folders import Folders
from .kernels import Kernel, Task
from .link import FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, Link
from .machine import machine_facts
from .preparation import Work

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 5.0
OBSERVE_SECONDS = 10.0
SLOW_FACTS_SECONDS = 60.0
TIDY_SECONDS = 300.0
LEAVE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the agent is and what it offers."""

    agent_id: str
    resource_group: str
    architecture: str
    slots: ResourceSlots


class Agent:
    """Keeps the manager informed and does its work items.

    Items run concurrently. What is expensive (Docker calls, threads) has its own limits, so that a
    pull that takes an hour blocks nothing else.
    """

    def __init__(
        self,
        identity: Identity,
        link: Link,
        engine: Engine,
        inventory: Inventory,
        folders: Folders,
        holdings: DeviceGrants,
        watchdog: Watchdog,
        disk: DiskWatch,
    ) -> None:
        self._identity = identity
        self._link = link
        self._engine = engine
        self._inventory = inventory
        self._folders = folders
        self._holdings = holdings
        self._watchdog = watchdog
        self._disk = disk
        self._work = Work(link, engine, inventory, folders, holdings, watchdog, self.beat)
        self._doing: dict[str, asyncio.Task[None]] = {}
        self._interval_seconds = INTERVAL_SECONDS
        self._beating = asyncio.Lock()
        self._is_registered = asyncio.Event()
        self._slow: tuple[float, Mapping[str, Any], Sequence[str]] | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set; then report the end and release everything."""
        await asyncio.to_thread(self._holdings.restore)
        await self._inventory.reconcile(self._holdings.all())
        await asyncio.to_thread(self._folders.tidy)
        loops = [
            asyncio.create_task(self._beat_for_ever(), name="heartbeats"),
            asyncio.create_task(self._work_for_ever(), name="work"),
            asyncio.create_task(self._tidy_for_ever(), name="tidying"),
            asyncio.create_task(self._watchdog.run(), name="watchdog"),
            asyncio.create_task(self._disk.run(), name="disk"),
            asyncio.create_task(self._inventory.tend(), name="devices"),
        ]
        ended = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([ended, *loops], return_when=asyncio.FIRST_COMPLETED)
            for loop in loops:
                if loop.done():
                    # The loops never return, so a loop that is done has failed, and the agent with
                    # it.
                    loop.result()
        finally:
            tasks = [ended, *loops, *self._doing.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._leave()
            await self._engine.close()
            await self._inventory.close()

    async def beat(self) -> None:
        """Read the state of everything and send one heartbeat.

        Raises
        ------
        BaiError
            If the manager is unavailable, or refuses.
        """
        async with self._beating:
            answer = await self._link.heartbeat(await self._content())
            self._engine.allow_url(str(answer.get("hub_api_url") or ""))
            self._interval_seconds = float(answer.get("interval_seconds") or INTERVAL_SECONDS)
        if not self._is_registered.is_set():
            log.info("agent %s is known to the manager", self._identity.agent_id)
            self._is_registered.set()

    async def _content(self) -> dict[str, Any]:
        devices, kernels = await asyncio.gather(self._inventory.look(), self._kernels())
        for device in devices:
            device["facts"] = {**device["facts"], "held": self._holdings.facts(device["id"])}
        facts, images = await self._slow_facts()
        return {
            "resource_group": self._identity.resource_group,
            "engine": self._engine.name,
            "endpoint": self._engine.endpoint,
            "architecture": self._identity.architecture,
            "version": __version__,
            "facts": {**facts, **self._inventory.facts(), **self._disk.facts()},
            "slots": self._identity.slots.format(),
            "devices": devices,
            "kernels": None if kernels is None else [kernel.to_report() for kernel in kernels],
            "images": list(images),
        }

    async def _kernels(self) -> list[Kernel] | None:
        """Return all kernels that run or have a folder here; None if the engine does not answer."""
        try:
            seen = await asyncio.wait_for(self._engine.observe(), OBSERVE_SECONDS)
        except TimeoutError:
            seen = None
        if seen is None:
            return None
        self._disk.follow(seen)
        seen = [self._with_uses(kernel) for kernel in seen]
        return [*seen, *await asyncio.to_thread(self._left_over, {k.kernel_id for k in seen})]

    def _with_uses(self, kernel: Kernel) -> Kernel:
        held = self._watchdog.usage(kernel.session_id) | self._disk.usage(kernel.kernel_id)
        return replace(kernel, usage={**(kernel.usage or {}), **held}) if held else kernel

    def _left_over(self, seen: set[str]) -> list[Kernel]:
        return [
            Kernel(
                kernel_id=folder.kernel_id,
                session_id=folder.session_id,
                exit_code=self._folders.exit_code(folder.name),
            )
            for folder in self._folders.all()
            if folder.kernel_id not in seen
        ]

    async def _slow_facts(self) -> tuple[Mapping[str, Any], Sequence[str]]:
        """Return facts and images, which change rarely and are read once a minute."""
        now = asyncio.get_running_loop().time()
        if self._slow is None or now - self._slow[0] > SLOW_FACTS_SECONDS:
            facts, images, folders = await asyncio.gather(
                self._engine.facts(),
                self._engine.images(),
                asyncio.to_thread(self._folders.facts),
            )
            self._slow = (now, {**machine_facts(), **folders, **facts}, images)
        return self._slow[1], self._slow[2]

    async def _beat_for_ever(self) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            try:
                await self.beat()
                backoff = FIRST_BACKOFF_SECONDS
                await asyncio.sleep(self._interval_seconds)
                continue
            except Unavailable as error:
                log.info("the manager is unavailable, next try in %g s: %s", backoff, error)
            except BaiError as error:
                log.error("the manager refuses this agent, next try in %g s: %s", backoff, error)
            except Exception:
                log.exception("a heartbeat failed, next try in %g s", backoff)
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)

    async def _work_for_ever(self) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            await self._is_registered.wait()
            try:
                for item in await self._link.work():
                    self._begin(item)
                backoff = FIRST_BACKOFF_SECONDS
                continue
            except NotFound:
                # Deleted by an administrator, or another database: register again.
                self._is_registered.clear()
            except Unavailable as error:
                log.debug("work cannot be fetched at the moment: %s", error)
            except BaiError as error:
                log.error("work is refused, next try in %g s: %s", backoff, error)
            except Exception:
                log.exception("waiting for work failed, next try in %g s", backoff)
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)

    def _begin(self, item: Mapping[str, Any]) -> None:
        """Start an item, unless it is in progress: the manager repeats items that take long."""
        try:
            task = Task.of(item)
        except InvalidRequest as error:
            log.error("%s", error)
            return
        if task.id not in self._doing:
            doing = asyncio.create_task(self._work.do(task), name=task.id)
            self._doing[task.id] = doing
            doing.add_done_callback(lambda _: self._doing.pop(task.id, None))

    async def _tidy_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TIDY_SECONDS)
            try:
                await self._engine.tidy()
            except Exception:
                log.exception("tidying failed")

    async def _leave(self) -> None:
        """Tell the manager to place nothing new here; running sessions continue."""
        if not self._is_registered.is_set():
            return
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._link.heartbeat({**await self._content(), "is_leaving": True})
        except (BaiError, TimeoutError) as error:
            log.info("the manager could not be told that this agent stops: %s", error)
