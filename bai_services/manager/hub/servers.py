"""Hub servers of sessions: created for pending sessions, started, and removed at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from bai_services.core.errors import BaiError, NotFound, Unavailable
from bai_services.core.sessions.agent_launch import BY_AGENT, BY_MANAGER
from bai_services.core.sessions.lifecycle import ENDED, LIVE, SESSION_ID_OPTION, SessionType, Status
from bai_services.db.sessions.rows import SessionRow
from bai_services.db.sessions.store import SessionStore

from ..sessions.lifecycle import Lifecycle
from .client import Hub, HubBusy

T = TypeVar("T")

log = logging.getLogger(__name__)

# Limits of concurrent calls that stop servers and of calls that start servers. A start call lasts
# until the server is up, but at most about 10 s (the Hub's slow_spawn_timeout).
MAX_CONCURRENT_CALLS = 16
MAX_CONCURRENT_STARTS = 40
# A server is created in advance only for a session that has not been prepared after this time.
# Otherwise, the start of the session creates the server.
CREATE_AFTER_SECONDS = 3.0
# Maximum time for which the creation of a server waits for starts in progress, which are more
# urgent.
MAX_CREATE_DELAY_SECONDS = 5.0
FIRST_BACKOFF_SECONDS = 0.25
MAX_BACKOFF_SECONDS = 10.0
# Statuses in which the server of a session must not run.
_MUST_STOP = ENDED | {Status.TERMINATING, Status.SUSPENDED}
BEFORE_START = (Status.PENDING, Status.SCHEDULED, Status.PREPARING)
# Maximum number of attempts; after that, the reconciler repairs the server's state.
MAX_ATTEMPTS = 12


class HubServers:
    """Calls to the Hub that create, start, read and remove the servers of sessions."""

    def __init__(self, hub: Hub, sessions: SessionStore, lifecycle: Lifecycle) -> None:
        self.hub = hub
        self._sessions = sessions
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
        self._start_slots = asyncio.Semaphore(MAX_CONCURRENT_STARTS)
        self._create_lock = asyncio.Lock()
        self._starting_count = 0
        self._no_starts = asyncio.Event()  # set while no start is in progress
        self._no_starts.set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # Sessions without a Hub server of their own to which a server was attached.
        self._attached: set[str] = set()
        if hub.is_known:
            lifecycle.listen(self._on_change)

    async def stop(self) -> None:
        """Cancel the running calls and wait for them; the next manager process repeats them."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def remove(self, row: SessionRow) -> None:
        """Stop and remove the Hub's server of a session that is ending or has ended."""
        self._begin(f"remove-{row.id}", self._remove(row))

    async def create(self, row: SessionRow) -> None:
        """Create the user and the server in the Hub if they do not exist."""
        user, server, options = row.hub_user, row.hub_server, {SESSION_ID_OPTION: row.id}
        if server:
            await self._with_user(
                user, lambda: self.hub.create_server(user, server, row.name, options)
            )
        else:
            await self.hub.ensure_user(user)

    async def begin_start(self, row: SessionRow) -> bool:
        """Request a start; return True if the server is up, False if it is still starting."""
        user, server, options = row.hub_user, row.hub_server, {SESSION_ID_OPTION: row.id}
        if row.started_by == BY_AGENT:
            self._attached.add(row.id)
        self._starting_count += 1
        self._no_starts.clear()
        try:
            async with self._start_slots:
                return await self._with_user(
                    user, lambda: self.hub.start_server(user, server, options, row.name)
                )
        finally:
            self._starting_count -= 1
            if not self._starting_count:
                self._no_starts.set()

    async def _with_user(self, user: str, call: Callable[[], Awaitable[T]]) -> T:
        """Call the Hub; if the Hub has no such user, create the user and call again."""
        try:
            return await call()
        except NotFound:
            await self.hub.ensure_user(user)
            return await call()

    async def is_ready(self, row: SessionRow) -> bool:
        """Return whether the server of a session responds."""
        return bool((await self.server_model(row) or {}).get("ready"))

    async def server_model(self, row: SessionRow) -> Mapping[str, Any] | None:
        return await self.hub.server_model(row.hub_user, row.hub_server)

    def _on_change(self, row: SessionRow) -> None:
        # Create no server in advance for a batch session: it has no pages, and its agent may start
        # it without a server.
        has_pages = row.type != SessionType.BATCH
        if row.status is Status.PENDING and row.started_by == BY_MANAGER and has_pages:
            self._begin(f"create-{row.id}", self._create_if_not_started(row))
        elif row.started_by == BY_AGENT and row.id not in self._attached:
            # Nobody has opened the session through this manager. If another process has attached a
            # server, the reconciler removes it.
            return
        elif row.status is Status.TERMINATING or row.status in ENDED:
            self.remove(row)
            if row.status in ENDED:
                self._attached.discard(row.id)

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        running = self._tasks.get(name)
        if running is not None and not running.done():
            work.close()
            return
        task = asyncio.create_task(work, name=name)
        self._tasks[name] = task
        task.add_done_callback(lambda done: self._remove_task(name, done))

    def _remove_task(self, name: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(name) is task:
            del self._tasks[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", name, exc_info=error)

    async def _create_if_not_started(self, row: SessionRow) -> None:
        """Create the server of a session that starts slowly: the Hub's home page then lists it."""
        await asyncio.sleep(CREATE_AFTER_SECONDS)
        await self._retry(row, self._create_once)

    async def _create_once(self, row: SessionRow) -> bool:
        async with self._create_lock:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MAX_CREATE_DELAY_SECONDS):
                    await self._no_starts.wait()
            if (await self._sessions.find(row.id)).status in BEFORE_START:
                await self.create(row)
        return True

    async def _remove(self, row: SessionRow) -> None:
        await self._retry(row, self._stop_once)

    async def _stop_once(self, row: SessionRow) -> bool:
        """Request a stop if the session has a server; return False while it is still stopping."""
        async with self._slots:
            model = await self.hub.server_model(row.hub_user, row.hub_server)
            if model is None or not await self._belongs_to(row, model):
                return True
            # A suspended session may have been started again in the meantime.
            status = (await self._sessions.find(row.id)).status
            if status not in _MUST_STOP:
                return True
            is_active = bool(model.get("ready") or model.get("pending"))
            if not is_active and (not row.hub_server or await self._is_live(row)):
                return True
            # Keep the server of a session that will continue: removing a server in the Hub cancels
            # its session.
            # The server of a session that its agent has started is kept, too, because it may be
            # requeued.
            removes = status in ENDED or not (
                row.started_by == BY_AGENT or await self._sessions.is_suspending(row.id)
            )
            # Pass the session id: a newer session may have started the same server since the model
            # was read.
            return await self.hub.stop_server(
                row.hub_user, row.hub_server, removes, session_id=row.id
            )

    async def _is_live(self, row: SessionRow) -> bool:
        return (await self._sessions.find(row.id)).status not in ENDED

    async def _belongs_to(self, row: SessionRow, model: Mapping[str, Any]) -> bool:
        """Return whether the server belongs to this session, not to a newer session."""
        of_server = await self._sessions.of_hub_servers([(row.hub_user, row.hub_server)])
        if any(other.id != row.id and other.status in LIVE for other in of_server):
            return False
        session_id = (model.get("user_options") or {}).get(SESSION_ID_OPTION)
        return session_id in (None, row.id)

    async def _retry(self, row: SessionRow, call: Callable[[SessionRow], Awaitable[bool]]) -> None:
        """Repeat ``call`` with backoff until it returns True, at most ``MAX_ATTEMPTS`` times."""
        backoff = FIRST_BACKOFF_SECONDS
        for _ in range(MAX_ATTEMPTS):
            try:
                if await call(row):
                    return
            except HubBusy as busy:
                await asyncio.sleep(busy.retry_after)
                continue
            except Unavailable:
                pass
            except BaiError as error:
                # For example, a server that is still starting cannot be stopped yet.
                log.info("the Hub rejected a call for the server of session %s: %s", row.id, error)
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, MAX_BACKOFF_SECONDS)
