"""Reconcile sessions with the Hub's servers and with the agents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.errors import BaiError
from bai_services.core.sessions.agent_launch import BY_AGENT
from bai_services.core.sessions.lifecycle import (
    ENDED,
    SESSION_ID_OPTION,
    Event,
    Result,
    SessionType,
    Status,
)
from bai_services.db.sessions.rows import SessionRow
from bai_services.db.sessions.store import SessionStore

from ..clock import Clock
from ..loop import Loop
from ..scheduling.lease import Lease
from ..sessions.lifecycle import Lifecycle
from ..sessions.sessions import Sessions
from .servers import HubServers
from .starter import Starter

TICK_SECONDS = 5.0
STUCK_TIMEOUT = timedelta(minutes=15)
# A server that is missing in this many consecutive checks is restarted.
MAX_MISSED_CHECKS = 3
# A session that became RUNNING less than this time ago may still be missing from the server list.
MIN_RUNNING_TIME = timedelta(seconds=30)
# Stopped servers are removed from the Hub if their sessions ended at most LOOKBACK ago. The first
# check after the manager obtains the lease, or after an outage of the Hub, uses MAX_LOOKBACK.
MAX_LOOKBACK = timedelta(days=1)
LOOKBACK = timedelta(minutes=15)

HubKey = tuple[str, str]


class Reconciler:
    """Checks sessions every ``TICK_SECONDS`` while this manager holds the lease.

    All actions are idempotent.
    """

    def __init__(
        self,
        store: SessionStore,
        *,
        sessions: Sessions,
        servers: HubServers,
        starter: Starter,
        lifecycle: Lifecycle,
        clock: Clock,
        lease: Lease,
    ) -> None:
        self._lease = lease
        self._store = store
        self._sessions = sessions
        self._servers = servers
        self._starter = starter
        self._lifecycle = lifecycle
        self._clock = clock
        self._missed_checks: dict[str, int] = {}
        self._without_server: set[str] = set()
        self._lookback = MAX_LOOKBACK
        self._loop = Loop("reconciler", self.step, TICK_SECONDS)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def step(self) -> None:
        """Run all checks once."""
        if await self._lease.hold() is None:
            self._missed_checks.clear()
            self._lookback = MAX_LOOKBACK
            return
        now = self._clock()
        await self._end_stuck(now)
        await self._finish_unlaunched()
        if not self._servers.hub.is_known:
            return
        try:
            await self._compare_with_hub(now)
            await self._remove_stopped_servers(now)
        except BaiError:
            # The Hub is unavailable; check its servers when it responds again.
            self._missed_checks.clear()
            self._lookback = MAX_LOOKBACK

    async def _end_stuck(self, now: datetime) -> None:
        starting = (Status.SCHEDULED, Status.PREPARING, Status.PREPARED)
        for row in await self._store.in_status(*starting):
            if now - row.status_changed_at < STUCK_TIMEOUT:
                continue
            minutes = STUCK_TIMEOUT.seconds // 60
            reason = TextTemplate.STUCK.text(status=str(row.status), minutes=minutes)
            if row.status_info:
                reason = TextTemplate.LAST_MESSAGE.text(reason, message=row.status_info)
            event = Event.FAILED
            if row.status is Status.PREPARED:
                view = await self._store.view(row.id)
                if view.kernels[0].launched_at is not None:
                    event = Event.STOP_REQUESTED
            await self._apply_event(row.id, event, reason, result=Result.FAILURE)

    async def _apply_event(
        self, session_id: str, event: Event, reason: CodedText, **facts: Any
    ) -> None:
        # Check the lease again: if this process was suspended after it had read the rows, another
        # manager may hold the lease now.
        if await self._lease.hold() is not None:
            await self._lifecycle.try_apply(session_id, event, reason, **facts)

    async def _finish_unlaunched(self) -> None:
        for row in await self._store.in_status(Status.TERMINATING):
            await self._sessions.finish_unlaunched(row.id)

    async def _compare_with_hub(self, now: datetime) -> None:
        servers: dict[HubKey, Mapping[str, Any]] = {}
        async for user, model in self._servers.hub.active_servers():
            servers[user, str(model.get("name") or "")] = model
        running = await self._store.in_status(Status.RUNNING)
        await self._restart_missing(running, servers, now)
        for row in await self._store.in_status(Status.TERMINATING):
            if row.started_by != BY_AGENT or (row.hub_user, row.hub_server) in servers:
                self._servers.remove(row)
        # A server has at most one live session, which is its newest: only the others are read.
        live = {(row.hub_user, row.hub_server) for row in running}
        await self._stop_orphans({key: one for key, one in servers.items() if key not in live})

    async def _restart_missing(
        self, rows: list[SessionRow], servers: Mapping[HubKey, Any], now: datetime
    ) -> None:
        # A batch session without a server has not failed: its agent reports the end of the command.
        running = {row.id: row for row in rows if row.type != SessionType.BATCH}
        self._missed_checks = {key: n for key, n in self._missed_checks.items() if key in running}
        for row in running.values():
            if (
                row.hub_user,
                row.hub_server,
            ) in servers or now - row.status_changed_at < MIN_RUNNING_TIME:
                self._missed_checks.pop(row.id, None)
                continue
            self._missed_checks[row.id] = self._missed_checks.get(row.id, 0) + 1
            if self._missed_checks[row.id] >= MAX_MISSED_CHECKS:
                del self._missed_checks[row.id]
                await self._store.set_status_info(row.id, TextTemplate.SERVER_LOST.text())
                self._starter.begin(row)

    async def _stop_orphans(self, servers: Mapping[HubKey, Mapping[str, Any]]) -> None:
        """Stop servers whose newest session has ended.

        Servers without a session id are skipped, because their session may not exist yet.
        """
        with_session_id = [
            key for key, model in servers.items() if SESSION_ID_OPTION in _options(model)
        ]
        # Rows are sorted oldest first, so the newest of each server remains in the dict.
        newest = {
            (row.hub_user, row.hub_server): row
            for row in await self._store.of_hub_servers(with_session_id)
        }
        for row in newest.values():
            if row.status in ENDED:
                self._servers.remove(row)

    async def _remove_stopped_servers(self, now: datetime) -> None:
        """Delete the servers of ended sessions from the Hub; otherwise they would accumulate."""
        found = await self._store.ended_since(now - self._lookback)
        self._without_server &= {row.id for row in found}
        ended = [row for row in found if row.hub_server and row.id not in self._without_server]
        by_user: dict[str, list[SessionRow]] = defaultdict(list)
        for row in ended:
            by_user[row.hub_user].append(row)
        for user, rows in by_user.items():
            servers = await self._servers.hub.servers_of(user)
            for row in rows:
                if row.hub_server in servers:
                    self._servers.remove(row)
                else:
                    self._without_server.add(row.id)
        self._lookback = LOOKBACK


def _options(model: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = model.get("user_options") or {}
    return found
