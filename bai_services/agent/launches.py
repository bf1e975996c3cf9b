"""Sessions without a Hub server: start, watch and stop their kernels on this machine."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bai_services import tracing
from bai_services.core.coded_text import TextTemplate
from bai_services.core.errors import Conflict, InvalidRequest, Unavailable
from bai_services.core.sessions.agent_launch import Marker, Phase, Step, launch_step
from bai_services.core.sessions.end_reason import BOOTSTRAP_FAILED_EXIT_CODE, EndReason
from bai_services.core.sessions.launch_plan import LaunchPlan
from bai_services.core.sessions.logs import MAX_LOG_BYTES, truncated, without_times
from bai_services.engines.base import Engine, EngineError, EngineUnreachable, Exit, Running

from .folders.kernel_folders import Folders
from .kernels import Task
from .link import Link

log = logging.getLogger(__name__)

FIRST_POLL_SECONDS = 0.02
MAX_POLL_SECONDS = 1.0
# Lines of the output of a failed bootstrap script in the reason for the end of the session.
REASON_LINES = 3
MAX_REASON_CHARACTERS = 1000
# Variables of this process that a session gets; the Hub passes the same variables to its sessions.
PASSED = ("LANG", "LC_ALL", "VIRTUAL_ENV")


@dataclass(slots=True)
class _Watched:
    """A started kernel; the task ends when the end of the kernel is reported."""

    task: Task
    running: Running
    watch: asyncio.Task[None] | None = None


class Launches:
    """Executes launch orders at most once for each attempt, and reports the ends of kernels.

    The marker in a kernel's folder is stored before and after each start. Therefore a restarted
    agent knows which kernels it has started, and an outdated order starts nothing.
    """

    def __init__(
        self,
        link: Link,
        engine: Engine,
        folders: Folders,
        *,
        is_offered: bool,
        manager_url: str,
        endpoint: str = "",
    ) -> None:
        """``is_offered``: whether the manager may order launches at this agent. ``endpoint``: the
        URL of the container engine for this process.
        """
        self.is_offered = is_offered
        self._link = link
        self._engine = engine
        self._folders = folders
        self._manager_url = manager_url
        self._endpoint = endpoint
        self._watched: dict[str, _Watched] = {}
        self._remove: Callable[[Task], Awaitable[None]] | None = None

    def on_removable(self, remove: Callable[[Task], Awaitable[None]]) -> None:
        """Set the function that removes an ended kernel once the manager has recorded its end."""
        self._remove = remove

    async def restore(self) -> None:
        """Watch the kernels that an earlier process of this agent has started."""
        for folder in await asyncio.to_thread(self._folders.all):
            marker = await asyncio.to_thread(self._folders.marker, folder.name)
            if marker is None or marker.phase is not Phase.STARTED or folder.is_kept:
                continue
            task = Task(
                id=f"exit-{folder.kernel_id}",
                kind="exit",
                session_id=folder.session_id,
                kernel_id=folder.kernel_id,
                hostname=folder.hostname,
                attempt=marker.attempt,
            )
            self._watched[task.kernel_id] = _Watched(task, Running.from_state(marker.running))
            self.watch(folder.kernel_id)

    async def close(self) -> None:
        """Stop watching; the kernels continue."""
        watches = [one.watch for one in self._watched.values() if one.watch is not None]
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)

    async def launch(self, task: Task) -> dict[str, Any]:
        """Start the kernel of a launch order, unless it was started; return its container.

        Return the ``error`` of a failed start, after which this attempt is over.

        Raises
        ------
        Conflict
            If the order is outdated.
        """
        if task.plan is None:
            raise InvalidRequest("a launch order has no plan")
        marker = await asyncio.to_thread(self._folders.marker, task.folder)
        step = launch_step(marker, task.attempt)
        if step is Step.REFUSE or marker is None:
            raise Conflict(f"the order to start session {task.session_id} is outdated")
        if step is Step.REPORT:
            return {"container_id": Running.from_state(marker.running).container_id}
        plan = replace(task.plan, endpoint=self._endpoint)
        named, running = Running.named(plan), None
        try:
            if step is Step.RESOLVE:
                running = await self._engine.find(named)
            if running is None:
                await self._mark(task, marker.moved(Phase.INTENDED, named.to_state()))
                with tracing.step("start kernel"):
                    running = await self._engine.start(plan, self._environ(plan), ())
        except EngineError as error:
            await self._mark(task, marker.moved(Phase.CLOSED, named.to_state()))
            return {"error": {"code": error.reason, "message": _first_line(str(error))}}
        await self._mark(task, marker.moved(Phase.STARTED, running.to_state()))
        self._watched[task.kernel_id] = _Watched(task, running)
        return {"container_id": running.container_id}

    def watch(self, kernel_id: str) -> None:
        """Report the end of a started kernel when it has ended; idempotent."""
        watched = self._watched.get(kernel_id)
        if watched is not None and watched.watch is None:
            watched.watch = asyncio.create_task(self._watch(watched), name=f"watch-{kernel_id}")

    async def terminate(self, task: Task) -> dict[str, Any]:
        """Stop a kernel; return its end and its output. A later launch order starts nothing.

        Raises
        ------
        Unavailable
            If the engine does not respond; the order is repeated.
        """
        marker = await asyncio.to_thread(self._folders.marker, task.folder)
        if marker is None or marker.attempt != task.attempt:
            return {"end": _end_of(_STOPPED)}
        running = Running.from_state(marker.running) if marker.running else None
        try:
            if running is not None and marker.phase is not Phase.STARTED:
                running = await self._engine.find(running)
            ended = _STOPPED if running is None else await self._engine.stop(running)
        except EngineUnreachable as error:
            raise Unavailable(str(error)) from error
        self._cancel_watch(task.kernel_id)
        await self._mark(
            task, marker.moved(Phase.CLOSED, running.to_state() if running is not None else None)
        )
        end = _end_of(replace(_STOPPED, code=ended.code))
        if running is None:
            return {"end": end}
        return {"end": end, "log": truncated(await self._engine.read_log(running, MAX_LOG_BYTES))}

    async def refuse(self, task: Task) -> None:
        """Stop watching a kernel; a later launch order of this attempt starts nothing."""
        self._cancel_watch(task.kernel_id)
        marker = await asyncio.to_thread(self._folders.marker, task.folder)
        if marker is not None:
            await self._mark(task, marker.moved(Phase.CLOSED))

    async def forget(self, task: Task) -> None:
        """Remove a kernel from the engine, and stop watching it."""
        self._cancel_watch(task.kernel_id)
        marker = await asyncio.to_thread(self._folders.marker, task.folder)
        running = Running.from_state(marker.running) if marker and marker.running else None
        if running is not None and running.container_id:
            try:
                await self._engine.remove(running)
            except EngineError as error:
                log.info("session %s is not removed yet: %s", task.session_id, error)

    def _cancel_watch(self, kernel_id: str) -> None:
        watched = self._watched.pop(kernel_id, None)
        if watched is not None and watched.watch is not None:
            watched.watch.cancel()

    async def _mark(self, task: Task, marker: Marker) -> None:
        await asyncio.to_thread(self._folders.set_marker, task.folder, marker)

    def _environ(self, plan: LaunchPlan) -> dict[str, str]:
        own = {name: os.environ[name] for name in PASSED if name in os.environ}
        return {
            **(own if self._engine.is_local else {}),
            "BAI_MANAGER_URL": self._manager_url,
            "JUPYTERHUB_USER": plan.user,
        }

    async def _watch(self, watched: _Watched) -> None:
        """Poll a kernel until it has ended, and report its end until the manager receives it.

        If the report is lost, the exit code in the heartbeats ends the session.
        """
        pause, task, running = FIRST_POLL_SECONDS, watched.task, watched.running
        while (ended := await self._poll(running)) is None:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, MAX_POLL_SECONDS)
        output = await self._engine.read_log(running, MAX_LOG_BYTES)
        end = _end_of(_with_bootstrap(ended, watched.task.plan, output))
        facts = {"end": end, "log": truncated(output), "attempt": task.attempt}
        report = replace(task, id=f"exit-{task.kernel_id}", kind="exit").to_report("done", **facts)
        is_removable = await self._link.deliver(report)
        # ``_remove`` cancels the watching task of the kernel; it must not cancel this task.
        watched.watch = None
        if is_removable and self._remove is not None:
            await self._remove(task)

    async def _poll(self, running: Running) -> Exit | None:
        try:
            return await self._engine.poll(running)
        except EngineUnreachable as error:
            log.info("session %s is assumed to be running: %s", running.session_id, error)
            return None


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""


_STOPPED = Exit(None, EndReason.STOPPED, TextTemplate.STOPPED.value)


def _with_bootstrap(ended: Exit, plan: LaunchPlan | None, output: str) -> Exit:
    """Return the end of a kernel; if its bootstrap script has failed, with that reason."""
    has_scripts = plan is not None and plan.injection.script_seconds > 0
    if not has_scripts or ended.code != BOOTSTRAP_FAILED_EXIT_CODE:
        return ended
    lines = without_times(output).strip().splitlines()[-REASON_LINES:]
    return Exit(None, EndReason.BOOTSTRAP_FAILED, "; ".join(lines))


def _end_of(ended: Exit) -> Mapping[str, Any]:
    return {
        "exit_code": ended.code,
        "reason_code": ended.reason,
        "reason": ended.text[:MAX_REASON_CHARACTERS],
    }
