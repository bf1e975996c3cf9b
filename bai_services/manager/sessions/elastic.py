"""Resize elastic sessions: grow while no session is waiting, and shrink when one is waiting."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from bai_services.core.errors import BaiError
from bai_services.core.scheduling.elastic.decision import decide, within_quotas
from bai_services.core.scheduling.elastic.sessions import ElasticSession
from bai_services.core.sessions.resizing import ResizeState
from bai_services.db.open_work import Work
from bai_services.db.sessions.elastic import ElasticGroup, ElasticStore
from bai_services.db.sessions.resizes import ResizeStore

from ..clock import Clock
from ..scheduling.lease import Lease
from .resizes import Resizes, changed_slots

log = logging.getLogger(__name__)

TICK_SECONDS = 5.0
# A resized session grows again if no session of its group has waited for this time.
GROW_AFTER = timedelta(seconds=30)
# Minimum time before a session grows again or, after a failed resize, shrinks.
COOLDOWN = timedelta(seconds=60)


class Elastic:
    """Resizes elastic sessions every few seconds while this manager holds the lease."""

    def __init__(
        self,
        store: ElasticStore,
        resize_store: ResizeStore,
        resizes: Resizes,
        clock: Clock,
        *,
        lease: Lease,
    ) -> None:
        self._store = store
        self._resize_store = resize_store
        self._resizes = resizes
        self._clock = clock
        self._lease = lease
        # By group: when a session last waited for capacity; for a new group, the current time.
        self._waited_at: dict[str, datetime] = {}
        self._loop = lease.loop("elastic sessions", self.step, TICK_SECONDS, Work.ELASTIC_SESSIONS)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def step(self) -> None:
        """Resize the elastic sessions of each group once."""
        if await self._lease.hold() is None:
            self._waited_at.clear()
            return
        now = self._clock()
        await self._resize_store.fail_ended(now)
        groups = [
            replace(g, waiting=within_quotas(g.sessions, g.headroom, g.waiting))
            for g in await self._store.groups(now)
        ]
        self._waited_at = {
            g.name: now if g.waiting else self._waited_at.get(g.name, now) for g in groups
        }
        for group in groups:
            await self._resize(group, now)

    async def _resize(self, group: ElasticGroup, now: datetime) -> None:
        may_grow = now - self._waited_at[group.name] >= GROW_AFTER
        sessions = [_with_permissions(one, group, now, may_grow=may_grow) for one in group.sessions]
        sizes: Mapping[str, ElasticSession] = {one.id: one for one in sessions}
        # Compute in a thread: in a large group, this takes too long for the event loop.
        changes = await asyncio.to_thread(
            decide, sessions, group.agents, group.headroom, group.waiting
        )
        for change in changes:
            try:
                await self._resizes.request(
                    change.session_id, changed_slots(sizes[change.session_id].size, change.size)
                )
            except BaiError as error:
                log.info("session %s is not resized: %s", change.session_id, error)


def _with_permissions(
    session: ElasticSession, group: ElasticGroup, now: datetime, *, may_grow: bool
) -> ElasticSession:
    last = group.resized.get(session.id)
    is_pending = last is not None and last.state is ResizeState.PENDING
    is_recent = last is not None and now - last.at < COOLDOWN
    has_failed = last is not None and last.state is ResizeState.FAILED
    return replace(
        session,
        # A session without an earlier resize may grow at once.
        may_grow=session.may_grow
        and (last is None or (may_grow and not is_pending and not is_recent)),
        may_shrink=not is_pending and not (has_failed and is_recent),
    )
