"""Servers of sessions in the Hub: created early, started in order, removed with the session."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from bai_services.core.errors import BaiError, NotFound, Unavailable
from bai_services.core.sessions.lifecycle import ENDED, LIVE, SESSION_ID_OPTION, Status
from bai_services.db.sessions.rows import SessionRow
from bai_services.db.sessions.store import SessionStore

from ..sessions.lifecycle import Lifecycle
from .client import Hub, HubBusy

T = TypeVar("T")

log = logging.getLogger(__name__)

SESSION_ID = SESSION_ID_OPTION
# Concurrent calls of the manager to the Hub; a start call lasts as long as the start.
PARALLEL = 16
PARALLEL_STARTS = 40
# A session that starts sooner than this needs no server beforehand: its start creates it.
CREATE_AFTER_SECONDS = 3.0
# Creating a server costs the Hub as much as starting one, so starts go first, for at most this
# time.
STARTS_FIRST_SECONDS = 5.0
FIRST_WAIT_SECONDS = 0.25
MAX_WAIT_SECONDS = 10.0
BEFORE_START = (Status.PENDING, Status.SCHEDULED, Status.PREPARING)
# Then the reconciler, which checks everything regularly, takes over.
TRIES = 12


class HubServers:
    """Background calls to the Hub, limited in number, retried with growing pauses."""

    def __init__(self, hub: Hub, sessions: SessionStore, lifecycle: Lifecycle) -> None:
        self.hub = hub
        self._sessions = sessions
        self._slots = asyncio.Semaphore(PARALLEL)
        self._start_slots = asyncio.Semaphore(PARALLEL_STARTS)
        self._making = asyncio.Lock()
        self._n_starting = 0
        self._calm = asyncio.Event()  # set while no start is in progress
        self._calm.set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        if hub.is_known:
            lifecycle.listen(self._on_change)

    async def stop(self) -> None:
        """Cancel the running calls and wait for them; they are repeated after the next start."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def remove(self, row: SessionRow) -> None:
        """Stop and remove the Hub's server of a session that is ending or has ended."""
        self._begin(f"remove-{row.id}", self._remove(row))

    async def create(self, row: SessionRow) -> None:
        """Create the user and the server in the Hub if they do not exist."""
        user, server, options = row.hub_user, row.hub_server, {SESSION_ID: row.id}
        if server:
            await self._with_user(
                user, lambda: self.hub.create_server(user, server, row.name, options)
            )
        else:
            await self.hub.ensure_user(user)

    async def begin_start(self, row: SessionRow) -> bool:
        """Request a start from the Hub; return True if the server is up already."""
        user, server, options = row.hub_user, row.hub_server, {SESSION_ID: row.id}
        self._n_starting += 1
        self._calm.clear()
        try:
            async with self._start_slots:
                return await self._with_user(
                    user, lambda: self.hub.start_server(user, server, options, row.name)
                )
        finally:
            self._n_starting -= 1
            if not self._n_starting:
                self._calm.set()

    async def _with_user(self, user: str, call: Callable[[], Awaitable[T]]) -> T:
        """Call the Hub; if it does not know the user, create the user and call again."""
        try:
            return await call()
        except NotFound:
            await self.hub.ensure_user(user)
            return await call()

    async def model(self, row: SessionRow) -> Mapping[str, Any] | None:
        return await self.hub.server_model(row.hub_user, row.hub_server)

    def _on_change(self, row: SessionRow) -> None:
        if row.status is Status.PENDING and row.started_by == "manager":
            self._begin(f"create-{row.id}", self._create_waiting(row))
        elif row.status is Status.TERMINATING or row.status in ENDED:
            self.remove(row)

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        running = self._tasks.get(name)
        if running is not None and not running.done():
            work.close()
            return
        task = asyncio.create_task(work, name=name)
        self._tasks[name] = task
        task.add_done_callback(lambda done: self._forget(name, done))

    def _forget(self, name: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(name) is task:
            del self._tasks[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", name, exc_info=error)

    async def _create_waiting(self, row: SessionRow) -> None:
        """Create the server of a session that remains pending, so that the Hub's page shows it."""
        await asyncio.sleep(CREATE_AFTER_SECONDS)
        await self._retried(row, self._create_once)

    async def _create_once(self, row: SessionRow) -> bool:
        async with self._making:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STARTS_FIRST_SECONDS):
                    await self._calm.wait()
            if (await self._sessions.find(row.id)).status in BEFORE_START:
                await self.create(row)
        return True

    async def _remove(self, row: SessionRow) -> None:
        await self._retried(row, self._stop_once)

    async def _stop_once(self, row: SessionRow) -> bool:
        """Request a stop; return whether the Hub has nothing of the session any more."""
        async with self._slots:
            model = await self.hub.server_model(row.hub_user, row.hub_server)
            if model is None or not await self._is_ours(row, model):
                return True
            is_active = bool(model.get("ready") or model.get("pending"))
            if not is_active and (not row.hub_server or await self._still_lives(row)):
                return True
            # With the id, because a newer session may have started the same server since the model
            # was read.
            return await self.hub.stop_server(row.hub_user, row.hub_server, session_id=row.id)

    async def _still_lives(self, row: SessionRow) -> bool:
        return (await self._sessions.find(row.id)).status not in ENDED

    async def _is_ours(self, row: SessionRow, model: Mapping[str, Any]) -> bool:
        """Return whether the server belongs to this session, not to a newer one with the same
        name.
        """
        of_server = await self._sessions.of_hub_servers([(row.hub_user, row.hub_server)])
        if any(other.id != row.id and other.status in LIVE for other in of_server):
            return False
        session_id = (model.get("user_options") or {}).get(SESSION_ID)
        return session_id in (None, row.id)

    async def _retried(self, row: SessionRow, call: Any) -> None:
        wait = FIRST_WAIT_SECONDS
        for _ in range(TRIES):
            try:
                if await call(row):
                    return
            except HubBusy as busy:
                await asyncio.sleep(busy.retry_after)
                continue
            except Unavailable:
                pass
            except BaiError as error:
                # For example a server that is still starting and cannot be stopped yet.
                log.info("the Hub's answer about the server of session %s: %s", row.id, error)
            await asyncio.sleep(wait)
            wait = min(wait * 2, MAX_WAIT_SECONDS)
