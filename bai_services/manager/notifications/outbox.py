"""Raise events, and create their notifications, mails and deliveries."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path

from bai_services.core.coded_text import TextTemplate
from bai_services.core.notifications.catalogue import EventName
from bai_services.core.notifications.conditions import FREE_DISK_PERCENT, Condition
from bai_services.core.notifications.events import ADMINISTRATORS, Event
from bai_services.db.notifications.events import EventStore
from bai_services.db.notifications.fan_out import FanOutStore
from bai_services.db.notifications.observations import ObservationStore
from bai_services.storage.base import HostStatus

from ..context import ManagerContext
from ..events import NOTIFICATION
from ..folders.storage_hosts import StorageHosts
from ..loop import Loop
from .mails import NotificationMails

TICK_SECONDS = 5.0
CONDITIONS_INTERVAL = timedelta(seconds=30)
CLEANUP_INTERVAL = timedelta(hours=1)
# Maximum time until a transaction that wrote to the status history is committed.
SETTLED_AFTER = timedelta(seconds=30)


class Outbox:
    """Loop that works only while this manager holds the lease.

    Each step raises the events of status changes and of conditions, creates the notifications and
    deliveries of new events, and puts due mails into the queue. Each of these actions is one
    transaction, so a killed manager loses and repeats nothing.
    """

    def __init__(
        self,
        context: ManagerContext,
        hosts: StorageHosts,
        mails: NotificationMails,
        home: Path,
        hold_lease: Callable[[], Awaitable[int | None]],
        deliveries_due: Callable[[], None],
    ) -> None:
        self._events = EventStore(context.database)
        self._fan_out = FanOutStore(context.database)
        self._observations = ObservationStore(context.database)
        self._clock = context.clock
        self._stream = context.events
        self._hosts = hosts
        self._mails = mails
        self._home = home
        self._hold_lease = hold_lease
        self._deliveries_due = deliveries_due
        self._observed_at: datetime | None = None
        self._is_warning_due = False
        # Keys of the warnings before stops at the last step between two observations.
        self._warned: frozenset[str] = frozenset()
        # Storage hosts that were unreachable at the last observation.
        self._gone: set[str] = set()
        self._cleaned_at: datetime | None = None
        self._loop = Loop("notifications", self.step, TICK_SECONDS)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def raise_event(self, event: Event) -> None:
        """Store an event to be delivered; ignore it if its key is already stored.

        A store that raises an event together with a change calls ``raise_events`` in the
        transaction of the change instead (``db.notifications.events``).
        """
        await self._events.add([event])
        self._loop.wake()

    def warn_of_stops(self) -> None:
        """Raise the due warnings before stops at once, not at the next observation."""
        self._is_warning_due = True
        self._loop.wake()

    async def step(self) -> None:
        if await self._hold_lease() is None:
            return
        now = self._clock()
        await self._events.raise_status_changes(now - SETTLED_AFTER)
        if self._observed_at is None or now - self._observed_at >= CONDITIONS_INTERVAL:
            self._is_warning_due = False
            await self.observe()
            self._observed_at = now
        else:
            await self._raise_warnings(now)
        while await self._fan_out.has_open():
            if await self._hold_lease() is None:
                return
            users = await self._fan_out.fan_out(
                self._clock(), sends_mails=self._mails.is_configured
            )
            self._stream.publish_only_to_users(users, NOTIFICATION)
            self._deliveries_due()
        await self._mails.enqueue_due()
        if self._cleaned_at is None or now - self._cleaned_at >= CLEANUP_INTERVAL:
            await self._fan_out.remove_old(now)
            self._cleaned_at = now

    async def observe(self) -> None:
        """Raise events for conditions that have become true."""
        now = self._clock()
        conditions = await self._observations.conditions(now)
        conditions += self._host_conditions()
        conditions += await asyncio.to_thread(_disk_conditions, self._home)
        await self._events.update_conditions(conditions, now)

    async def _raise_warnings(self, now: datetime) -> None:
        """Raise new warnings before stops between two observations.

        The last warning of a short limit begins only some seconds before the stop.
        """
        stops = await self._observations.stops(now)
        keys = frozenset(stop.key for stop in stops)
        if self._is_warning_due or not keys <= self._warned:
            self._is_warning_due = False
            await self._events.update_conditions(stops, now)
        self._warned = keys

    def _host_conditions(self) -> list[Condition]:
        """Return storage host conditions; a host is unreachable after two failed observations."""
        before, self._gone = self._gone, set()
        found = []
        for host in self._hosts.all():
            health = host.health
            if health.status is not HostStatus.GONE:
                found += _disk(host.name, health.free_bytes, health.total_bytes)
                continue
            self._gone.add(host.name)
            if host.name in before:
                name = EventName.STORAGE_HOST_UNREACHABLE
                text = TextTemplate.NOTICE_STORAGE_HOST.text(name=host.name, message=health.message)
                found.append(
                    Condition(f"{name}:{host.name}", name, ADMINISTRATORS, text, "storage")
                )
        return found


def _disk_conditions(home: Path) -> list[Condition]:
    try:
        usage = shutil.disk_usage(home)
    except OSError:
        return []
    return _disk("BAI_HOME", usage.free, usage.total)


def _disk(name: str, free: int, total: int) -> list[Condition]:
    percent = free * 100 // max(total, 1)
    if total <= 0 or percent >= FREE_DISK_PERCENT:
        return []
    text = TextTemplate.NOTICE_DISK_FULL.text(name=name, percent=percent)
    key = f"{EventName.DISK_FULL}:{name}"
    return [Condition(key, EventName.DISK_FULL, ADMINISTRATORS, text, "storage")]
