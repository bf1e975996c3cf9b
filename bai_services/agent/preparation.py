"""Execution of one work item, up to its final report."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from bai_services.core.errors import BaiError, NotFound, Unavailable
from bai_services.core.sessions.launch_plan import Mount

from .devices.device_grants import DeviceGrants
from .devices.inventory import Inventory
from .devices.memory_watchdog import Watchdog
from .engine import Engine
from .folders.kernel_folders import Folders
from .injection import RESOURCE_FILE, granted_of, make_injection, resource_file
from .kernels import Task
from .link import Link

log = logging.getLogger(__name__)

PROGRESS_SECONDS = 0.5
# A session waits this long for its folders on this machine.
MOUNT_SECONDS = 10.0
T = TypeVar("T")


class Work:
    """Prepares, removes and reads logs; every item ends with exactly one report."""

    def __init__(
        self,
        link: Link,
        engine: Engine,
        inventory: Inventory,
        folders: Folders,
        holdings: DeviceGrants,
        watchdog: Watchdog,
        beat: Callable[[], Awaitable[None]],
    ) -> None:
        """``beat`` sends a heartbeat now."""
        self._link = link
        self._engine = engine
        self._inventory = inventory
        self._folders = folders
        self._holdings = holdings
        self._watchdog = watchdog
        self._beat = beat

    async def do(self, task: Task) -> None:
        """Execute one item and report on it; only raises when cancelled."""
        steps = {"prepare": self._prepare, "remove": self._remove, "logs": self._log}
        step = steps.get(task.kind)
        try:
            if step is None:
                raise NotFound(f"this agent does not know work of the kind {task.kind!r}")
            facts = await step(task)
        except BaiError as error:
            log.info("%s of session %s failed: %s", task.kind, task.session_id, error)
            facts = {"error": {"code": error.code, "message": error.message}}
        except Exception:
            log.exception("%s of session %s failed", task.kind, task.session_id)
            text = "the session's agent failed; its log shows why"
            facts = {"error": {"code": "internal", "message": text}}
        state = "failed" if "error" in facts else "done"
        await self._link.deliver(task.to_report(state, **facts))

    async def _prepare(self, task: Task) -> dict[str, Any]:
        granted = granted_of(task.devices, self._inventory.devices)
        await in_time(_check_mounts, task)
        async with ProgressReporter(self._link, task) as telling:
            prepared = await self._engine.prepare(task, telling.tell)
        home = await asyncio.to_thread(self._folders.make, task, prepared.uid, prepared.gid)
        # First of all, so that a removal knows what to undo, whatever happens next.
        await asyncio.to_thread(self._holdings.add, task, granted)
        kinds, engine = self._inventory.kinds, self._engine.name
        try:
            injection = await asyncio.to_thread(
                make_injection, granted, kinds, engine, home, prepared.network
            )
        except Exception:
            await self._inventory.release(self._holdings.remove(task.kernel_id))
            raise
        mounts = list(injection.mounts)
        if granted and engine == "docker":
            mounts += await asyncio.to_thread(self._tell, task, injection.environ)
        mounts += map(Mount.from_json, await in_time(self._folders.bind, task))
        injection = replace(
            injection,
            layer_limit_bytes=prepared.layer_limit_bytes or 0,
            mounts=tuple(mounts),
            notices=(*injection.notices, *prepared.notices),
        )
        return {"injection": injection.to_json()}

    def _tell(self, task: Task, environ: Mapping[str, str]) -> list[Mount]:
        """Write the session's resource variables into a file, and return its mount."""
        text = resource_file(environ)
        if not text:
            return []
        place = self._folders.path(task.folder) / "resource.txt"
        place.write_text(text)
        place.chmod(0o644)
        return [Mount(str(place), RESOURCE_FILE, read_only=True)]

    async def _remove(self, task: Task) -> dict[str, Any]:
        await self._watchdog.let_go(task.session_id)
        await self._engine.remove(task)
        await self._inventory.release(self._holdings.remove(task.kernel_id))
        name = await asyncio.to_thread(self._folder_of, task)
        if not await asyncio.to_thread(self._folders.remove, name):
            log.warning("files of session %s could not be deleted", task.session_id)
        # So that the manager knows before it could offer the same work again.
        await self._beat()
        return {}

    def _folder_of(self, task: Task) -> str:
        """Return the folder of a kernel; a removal may know no more than the kernel's id."""
        mine = [f.name for f in self._folders.all() if f.kernel_id == task.kernel_id]
        return mine[0] if mine else task.folder

    async def _log(self, task: Task) -> dict[str, Any]:
        text = await self._engine.log(task)
        if text is None:
            raise NotFound(f"session {task.session_id} has printed nothing on this machine yet")
        return {"log": text}


async def in_time(work: Callable[..., T], *arguments: Any) -> T:
    """Run file work that a dead mount may block for ever, in a thread of its own.

    Raises
    ------
    Unavailable
        If it takes longer than MOUNT_SECONDS; the thread is abandoned.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast("T", result))

    def run() -> None:
        outcome: tuple[T | None, BaseException | None]
        try:
            outcome = work(*arguments), None
        except Exception as error:
            outcome = None, error
        with contextlib.suppress(RuntimeError):  # the agent has ended meanwhile
            loop.call_soon_threadsafe(finish, *outcome)

    threading.Thread(target=run, name="mounts", daemon=True).start()
    try:
        async with asyncio.timeout(MOUNT_SECONDS):
            return await done
    except TimeoutError:
        raise Unavailable(
            "the storage of a folder of the session does not answer on the chosen agent "
            f"within {MOUNT_SECONDS:g} s"
        ) from None


class ProgressReporter:
    """Reports progress at most twice a second, the newest only."""

    def __init__(self, link: Link, task: Task) -> None:
        self._link = link
        self._task = task
        self._newest: Mapping[str, Any] | None = None
        self._come = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ProgressReporter:
        self._sender = asyncio.create_task(self._send())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)

    def tell(self, stage: str, message: str, percent: int | None) -> None:
        self._newest = {"stage": stage, "message": message, "percent": percent}
        self._come.set()

    async def _send(self) -> None:
        while True:
            await self._come.wait()
            self._come.clear()
            await self._link.report(self._task.to_report("progress", progress=self._newest))
            await asyncio.sleep(PROGRESS_SECONDS)


def _check_mounts(task: Task) -> None:
    for mount in task.mounts:
        if not os.path.exists(str(mount["source"])):
            raise NotFound(
                f"the folder for {mount['target']} does not exist on the chosen agent; "
                "its storage may not be mounted",
                target=mount["target"],
            )
