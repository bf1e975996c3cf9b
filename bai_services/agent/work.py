"""Execution of work items: prepare a kernel, remove it, or read its log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

from bai_services import tracing
from bai_services.core.cluster.image_probe import PARTS
from bai_services.core.errors import BaiError, Conflict, NotFound, Unavailable
from bai_services.core.resources import format_amount
from bai_services.core.sessions.agent_launch import Marker, may_prepare
from bai_services.core.sessions.launch_plan import Mount
from bai_services.core.sessions.logs import MAX_LOG_BYTES, truncated
from bai_services.core.sessions.setup import SETUP_FILE, SETUP_FILE_VARIABLE
from bai_services.span_content import Attribute, Span

from .devices.base import GrantedDevice
from .devices.device_grants import DeviceGrants
from .devices.machine_devices import MachineDevices
from .devices.memory_watchdog import Watchdog
from .devices.nvidia.cuda import limit_environ
from .docker.networks import NoFreeSubnet
from .engine import Engine, Parts
from .fence import Fence
from .folders.bind_mounts import StorageUnavailable, check_sources
from .folders.kernel_folders import Folders, KernelFolder, folder_error
from .folders.setup_files import write_dotfiles, write_setup_file
from .injection import RESOURCE_FILE, make_injection, resolve_devices, resource_file
from .kernels import Task
from .launches import Launches
from .link import Link

log = logging.getLogger(__name__)

PROGRESS_INTERVAL_SECONDS = 0.5
# Timeout for access to a session's folders, whose network storage may hang.
MOUNT_TIMEOUT_SECONDS = 10.0
# A read of a log gets a span if it takes at least this time.
SLOW_LOG = timedelta(seconds=1)
# Kinds of items that create or delete the folder and the container of a kernel.
_EXCLUSIVE = frozenset({"prepare", "launch", "terminate", "remove", "stop"})
# Kinds of items that delete the output of a kernel that has ended before.
_WITH_EARLIER_LOG = frozenset({"prepare", "terminate", "remove", "stop"})
T = TypeVar("T")


class _Failure(Span):
    """Stores the reason of a failure for a span that is recorded later."""

    reason = ""

    def fail(self, reason: str, code: str = "") -> None:
        self.reason = reason


def _attributes(task: Task) -> dict[str, Attribute]:
    return {
        "bai.work.kind": task.kind,
        "bai.session.id": task.session_id,
        "bai.kernel.id": task.kernel_id,
    }


class WorkExecutor:
    """Executes work items, and sends one final report for each."""

    def __init__(
        self,
        link: Link,
        engine: Engine,
        devices: MachineDevices,
        folders: Folders,
        grants: DeviceGrants,
        watchdog: Watchdog,
        send_heartbeat: Callable[[], Awaitable[None]],
        launches: Launches,
        fence: Fence,
    ) -> None:
        self._launches = launches
        fence.on_fenced(self.fence)
        self._link = link
        self._engine = engine
        self._devices = devices
        self._folders = folders
        self._grants = grants
        self._watchdog = watchdog
        self._send_heartbeat = send_heartbeat
        launches.on_removable(self.remove_ended)
        # A session may restart while its last run is being removed, so items of a kernel are
        # serialized. A lock exists while an item holds it or waits for it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def execute(self, task: Task) -> None:
        """Execute one work item and report its result; raises only if it is cancelled."""
        if task.kind == "logs":
            await self._execute_short(task)
            return
        hidden = (task.user,)
        with tracing.span(
            f"agent {task.kind}", parent=task.trace, attributes=_attributes(task), hidden=hidden
        ) as span:
            await self._execute(task, span)

    async def _execute_short(self, task: Task) -> None:
        """Execute an item, with a span only if it fails or is slow.

        A log that a client follows is read twice a second: a span for each read would hide the
        other spans.
        """
        started_at, failure = datetime.now(UTC), _Failure()
        await self._execute(task, failure)
        ended_at = datetime.now(UTC)
        if failure.reason or ended_at - started_at >= SLOW_LOG:
            tracing.record(
                f"agent {task.kind}",
                parent=task.trace,
                started_at=started_at,
                ended_at=ended_at,
                attributes=_attributes(task),
                hidden=(task.user,),
                error=failure.reason or None,
            )

    async def _execute(self, task: Task, span: Span) -> None:
        handlers = {
            "prepare": self._prepare,
            "launch": self._launches.launch,
            "terminate": self._launches.terminate,
            "resize": self._resize,
            "remove": self._remove,
            "stop": self._stop,
            "logs": self._log,
        }
        handler = handlers.get(task.kind)
        earlier_log = None
        try:
            if handler is None:
                raise NotFound(f"this agent does not support work items of kind {task.kind!r}")
            if task.kind in _EXCLUSIVE:
                lock = self._locks.setdefault(task.kernel_id, asyncio.Lock())
                async with lock:
                    if task.kind in _WITH_EARLIER_LOG:
                        earlier_log = await asyncio.to_thread(self._earlier_log, task)
                    facts = await handler(task)
            else:
                facts = await handler(task)
        except BaiError as error:
            log.info("%s of session %s failed: %s", task.kind, task.session_id, error)
            facts = {"error": {"code": error.code, "message": error.message}}
            if isinstance(error, StorageUnavailable):
                facts["error"]["is_of_storage"] = True
            if isinstance(error, NoFreeSubnet):
                facts["error"]["is_of_network"] = True
                # Report this at once, because the manager must know it before it places the session
                # again.
                with contextlib.suppress(BaiError):
                    await self._send_heartbeat()
        except Exception:
            log.exception("%s of session %s failed", task.kind, task.session_id)
            text = "internal error of the session's agent; see the agent's log"
            facts = {"error": {"code": "internal", "message": text}}
        if "error" in facts:
            span.fail(facts["error"]["message"], facts["error"]["code"])
        facts["attempt"] = task.attempt
        if earlier_log is not None:
            facts["earlier_log"] = earlier_log
        state = "failed" if "error" in facts else "done"
        is_removable = await self._link.deliver(task.to_report(state, **facts))
        if is_removable:
            await self.remove_ended(task)
        if task.kind == "launch" and state == "done":
            # Begin to watch only now, because the end must not be reported before the start.
            self._launches.watch(task.kernel_id)

    async def _prepare(self, task: Task) -> dict[str, Any]:
        granted = resolve_devices(task.devices, self._devices.by_id)
        marker, has_folder = await asyncio.to_thread(self._remains, task)
        if not may_prepare(marker, task.attempt):
            raise Conflict(f"attempt {task.attempt} of session {task.session_id} has begun")
        if has_folder:
            # The session resumes here, or this item is a repetition. The earlier preparation may
            # have had other devices, so undo it.
            await self._clear(task)
        with tracing.step("check folders"):
            if task.mounts:
                await with_mount_timeout(check_sources, task.mounts)
        with tracing.step("prepare image and network"):
            async with ProgressReporter(self._link, task) as reporter:
                prepared = await self._engine.prepare(task, reporter.report)
        with tracing.step("create home"):
            home = await asyncio.to_thread(self._folders.create, task, prepared.uid, prepared.gid)
        # Store the grants before the injection, so that a removal always finds the devices to
        # release.
        if granted:
            await asyncio.to_thread(self._grants.add, task, granted)
        kinds, engine = self._devices.kinds, self._engine.name
        try:
            with tracing.step("prepare devices"):
                injection = await asyncio.to_thread(
                    make_injection, granted, kinds, engine, home, prepared.network
                )
        except Exception:
            await self._devices.release(self._grants.remove(task.kernel_id))
            raise
        mounts = list(injection.mounts)
        if granted and engine == "docker":
            mounts += await asyncio.to_thread(self._write_resource_file, task, injection.environ)
        if task.mounts or has_folder:
            # Without mounts in the task, bind mounts of an earlier preparation can exist only if
            # its folder exists.
            mounts += map(Mount.from_json, await with_mount_timeout(self._folders.bind, task))
        environ = dict(injection.environ)
        parts = prepared.parts
        if parts is not None:
            mounts += await asyncio.to_thread(self._write_accounts, task, parts)
            environ |= parts.environ
        if task.setup:
            owner = (prepared.uid, prepared.gid)
            mount = await asyncio.to_thread(self._write_setup, task, environ, owner)
            mounts.append(mount)
            environ[SETUP_FILE_VARIABLE] = mount.target
        injection = replace(
            injection,
            environ=environ,
            address=prepared.address,
            script_seconds=task.setup.script_seconds,
            layer_limit_bytes=prepared.layer_limit_bytes or 0,
            entrypoint=parts.entrypoint if parts is not None else (),
            volumes={parts.volume: PARTS} if parts is not None else {},
            mounts=tuple(mounts),
            notices=(*injection.notices, *prepared.notices),
        )
        await asyncio.to_thread(self._folders.begin_attempt, task.folder, task.attempt)
        return {
            "injection": injection.to_json(),
            "can_launch": self._launches.is_offered,
            "fence_seconds": task.fence_seconds,
        }

    def _remains(self, task: Task) -> tuple[Marker | None, bool]:
        """Return the marker of an earlier preparation, and whether its folder exists."""
        path = self._folders.path(task.folder)
        return self._folders.marker(task.folder), path.exists()

    def _write_resource_file(self, task: Task, environ: Mapping[str, str]) -> list[Mount]:
        """Write the session's resource variables to a file and return the mount of the file.

        Without resource variables, return [].
        """
        text = resource_file(environ)
        if not text:
            return []
        path = self._folders.path(task.folder) / "resource.txt"
        path.write_text(text)
        path.chmod(0o644)
        return [Mount(str(path), RESOURCE_FILE, read_only=True)]

    def _write_accounts(self, task: Task, parts: Parts) -> list[Mount]:
        """Write the account files of a session whose image lacks its user; return their mounts."""
        folder, mounts = self._folders.path(task.folder), []
        for name, text in (("passwd", parts.passwd), ("group", parts.group)):
            path = folder / name
            try:
                path.write_text(text)
                path.chmod(0o644)
            except OSError as error:
                raise folder_error(error) from error
            mounts.append(Mount(str(path), f"/etc/{name}", read_only=True))
        return mounts

    async def _resize(self, task: Task) -> dict[str, Any]:
        """Apply new limits to a running kernel; its previous limits remain if this fails."""
        granted = resolve_devices(task.devices, self._devices.by_id)
        used = {use["id"]: use for use in self._watchdog.usage(task.session_id).get("devices", ())}
        for grant in granted:
            memory, limit = used.get(grant.device.id, {}).get("memory_bytes"), grant.memory_bytes
            if memory is not None and limit is not None and memory > limit:
                raise Conflict(
                    f"the session uses {memory} bytes of device {grant.device.id}, more than "
                    f"{limit} bytes, its memory with the new share",
                    device=grant.device.id,
                )
        await self._engine.resize(task)
        await asyncio.to_thread(self._grants.add, task, granted)
        await asyncio.to_thread(self._update_resource_file, task, granted)
        shares = [
            {
                "id": grant.device.id,
                "share": format_amount(f"{grant.device.family}.shares", grant.amount),
                "memory_bytes": grant.memory_bytes,
            }
            for grant in granted
        ]
        return {"devices": shares}

    def _update_resource_file(self, task: Task, granted: Sequence[GrantedDevice]) -> None:
        """Write the new limits into the resource file, if the kernel has one.

        The file is not replaced, because the container has a mount of it.
        """
        path = self._folders.path(task.folder) / "resource.txt"
        if granted and path.exists():
            environ = limit_environ([g for g in granted if g.device.family == "cuda"])
            path.write_text(resource_file(environ))

    def _write_setup(
        self, task: Task, environ: Mapping[str, str], owner: tuple[int | None, int | None]
    ) -> Mount:
        """Write the dotfiles and the setup file of a session; return the mount of that file.

        Variables of the devices take precedence over those of the setup.
        """
        variables = {k: v for k, v in task.setup.variables.items() if k not in environ}
        path = self._folders.path(task.folder) / "setup.json"
        try:
            write_dotfiles(self._folders.home(task.folder), task.setup.files, *owner)
            write_setup_file(path, replace(task.setup, variables=variables), *owner)
        except OSError as error:
            raise folder_error(error) from error
        # Without a sandbox, the process engine cannot mount a file, so the path remains the same.
        target = SETUP_FILE if self._engine.name == "docker" else str(path)
        return Mount(str(path), target, read_only=True, is_own=True)

    async def _stop(self, task: Task) -> dict[str, Any]:
        """Stop a kernel and keep its home, because the session will run again."""
        await self._clear(task)
        name = await asyncio.to_thread(self._folder_of, task)
        if not await asyncio.to_thread(self._folders.keep_home, name):
            log.warning("files of session %s could not be deleted", task.session_id)
        await self._send_heartbeat()
        return {}

    async def _clear(self, task: Task) -> None:
        """Remove everything that remains of a kernel, except its folder."""
        await self._launches.forget(task)
        await self._watchdog.detach_session(task.session_id)
        await self._engine.remove(task)
        await self._devices.release(self._grants.remove(task.kernel_id))

    async def _remove(self, task: Task) -> dict[str, Any]:
        await self._clear(task)
        name = await asyncio.to_thread(self._folder_of, task)
        if not await asyncio.to_thread(self._folders.remove, name):
            log.warning("files of session %s could not be deleted", task.session_id)
        # Report the removal before the manager sends the same work item again.
        await self._send_heartbeat()
        return {}

    async def fence(self, folder: KernelFolder) -> None:
        """Stop a kernel that must not run while the manager cannot be reached.

        Raises
        ------
        Unavailable
            If the kernel still runs.
        """
        task = Task(
            id=f"fence-{folder.kernel_id}",
            kind="fence",
            session_id=folder.session_id,
            kernel_id=folder.kernel_id,
            hostname=folder.hostname,
            attempt=folder.attempt,
        )
        async with self._locks.setdefault(task.kernel_id, asyncio.Lock()):
            await self._launches.refuse(task)
            # This sends SIGTERM first, so that the command can save its state.
            await self._engine.stop(task)
            # A later work item reports the stored output to the manager (``_earlier_log``).
            output = await self._engine.log(task)
            if output and await asyncio.to_thread(self._folders.log, folder.name) is None:
                await asyncio.to_thread(self._folders.write_log, folder.name, output)
            await self._clear(task)
            observed = await self._engine.observe()
            running = {kernel.kernel_id for kernel in observed or () if kernel.is_running}
            if observed is None or task.kernel_id in running:
                raise Unavailable("its processes do not end")
            await asyncio.to_thread(self._folders.mark_fenced, folder.name)

    async def remove_ended(self, task: Task) -> None:
        """Remove a kernel whose engine has no process of it, and whose session has ended."""
        async with self._locks.setdefault(task.kernel_id, asyncio.Lock()):
            await self._watchdog.detach_session(task.session_id)
            await self._devices.release(self._grants.remove(task.kernel_id))
            await self._launches.forget(task)
            if not await asyncio.to_thread(self._folders.remove, task.folder):
                log.warning("files of session %s could not be deleted", task.session_id)

    def _earlier_log(self, task: Task) -> dict[str, Any] | None:
        """Return the output of a kernel that was stopped without the manager, or that ran before
        the attempt that is being prepared; None if there is none.

        The work item then deletes this output.
        """
        folder = self._folders.find(self._folder_of(task))
        if folder is None or folder.kernel_id != task.kernel_id:
            return None
        is_before = task.kind == "prepare" and folder.attempt < task.attempt
        text = self._folders.log(folder.name) if folder.is_fenced or is_before else None
        if not text:
            return None
        return {"attempt": folder.attempt, "log": truncated(text, MAX_LOG_BYTES // 2)}

    def _folder_of(self, task: Task) -> str:
        """Return the name of a kernel's folder.

        The work item of a removal may have no host name: its folder is found by the kernel's id.
        """
        folder = self._folders.find(task.folder)
        if task.kind not in ("remove", "stop") or (folder and folder.kernel_id == task.kernel_id):
            return task.folder
        names = [f.name for f in self._folders.all() if f.kernel_id == task.kernel_id]
        return names[0] if names else task.folder

    async def _log(self, task: Task) -> dict[str, Any]:
        text = await self._engine.log(task)
        if text is None:
            raise NotFound(f"session {task.session_id} has no output on this machine yet")
        return {"log": text}


async def with_mount_timeout(work: Callable[..., T], *arguments: Any) -> T:
    """Run a file operation in a separate thread, and return its result.

    A dead mount could block the operation forever.

    Raises
    ------
    StorageUnavailable
        If the operation takes longer than ``MOUNT_TIMEOUT_SECONDS``; its thread is abandoned.
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
        with contextlib.suppress(RuntimeError):  # the event loop is closed: the agent has ended
            loop.call_soon_threadsafe(finish, *outcome)

    threading.Thread(target=run, name="mounts", daemon=True).start()
    try:
        async with asyncio.timeout(MOUNT_TIMEOUT_SECONDS):
            return await done
    except TimeoutError:
        raise StorageUnavailable(
            "the storage of one of the session's folders does not respond on the chosen agent "
            f"within {MOUNT_TIMEOUT_SECONDS:g} s"
        ) from None


class ProgressReporter:
    """Sends the latest progress of a work item, at most twice a second."""

    def __init__(self, link: Link, task: Task) -> None:
        self._link = link
        self._task = task
        self._latest: Mapping[str, Any] | None = None
        self._has_news = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ProgressReporter:
        self._sender = asyncio.create_task(self._send())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)

    def report(self, stage: str, message: str, percent: int | None) -> None:
        self._latest = {"stage": stage, "message": message, "percent": percent}
        self._has_news.set()

    async def _send(self) -> None:
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            await self._link.report(self._task.to_report("progress", progress=self._latest))
            await asyncio.sleep(PROGRESS_INTERVAL_SECONDS)
