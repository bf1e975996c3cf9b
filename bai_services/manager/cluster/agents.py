"""Agents: heartbeats with a deadline, their inventory, and their work."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from bai_services.core.accounts.roles import Caller
from bai_services.core.cluster.devices import SHARES, thousandths
from bai_services.core.cluster.model import AgentStatus, check_agent_id
from bai_services.core.errors import InvalidRequest, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.resources import ResourceSlots, format_amount
from bai_services.db.cluster.agent_devices import NewDevice
from bai_services.db.cluster.agents import AgentHeartbeat, AgentStore, HeartbeatResult, Row

from ..accounts import authorizer
from ..context import ManagerContext
from ..loop import Loop
from ..settings import Settings

__all__ = ["Agents", "AgentHeartbeat", "NewDevice"]

log = logging.getLogger(__name__)

_PATCHED = frozenset({"schedulable", "resource_group"})


class AgentWork(Protocol):
    """What agents report about kernels and are asked to do with them; see ``kernels.py``."""

    async def observe(
        self, agent_id: str, reported: Sequence[Mapping[str, Any]] | None
    ) -> object: ...

    async def work(self, agent_id: str, wait_seconds: float) -> Sequence[Mapping[str, Any]]: ...

    async def report(self, agent_id: str, report: Mapping[str, Any]) -> object: ...


class Agents:
    """Stores agents, their slots, devices and status; passes on what concerns kernels."""

    def __init__(
        self,
        context: ManagerContext,
        settings: Settings,
        kernels: AgentWork,
    ) -> None:
        self._store = AgentStore(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._settings = settings
        self._kernels = kernels
        self._capacity_changed = context.capacity_changed
        self._started_at: datetime | None = None
        self._loop = Loop(
            "agent deadlines", self.check_deadlines, settings.heartbeat_interval_seconds
        )

    def start(self) -> None:
        """Watch deadlines; the deadline of a silent agent starts anew from here."""
        self._started_at = self._clock()
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def check_deadlines(self) -> None:
        """Mark agents as LOST whose last heartbeat is older than the deadline."""
        now = self._clock()
        deadline = timedelta(seconds=self._settings.heartbeat_deadline_seconds)
        # Agents cannot reach a manager that is not running, so silence from before its start is
        # ignored.
        if self._started_at is not None and now - self._started_at < deadline:
            return
        if not await self._store.has_lost_agents(now - deadline):
            return
        for agent_id in await self._store.mark_lost(now - deadline, now):
            log.warning("agent %s is LOST: no heartbeat for %s", agent_id, deadline)

    async def heartbeat(
        self,
        caller: Caller,
        agent_id: str,
        beat: AgentHeartbeat,
        kernels: Sequence[Mapping[str, Any]] | None,
    ) -> Row:
        """Store what an agent reports about itself and its kernels (None: it cannot list them).

        Raises
        ------
        NotFound
            If a new agent names a resource group that does not exist.
        InvalidRequest
            If the id is malformed, or slots are given that are counted per device.
        """
        authorizer.require(caller, "agent.report")
        check_agent_id(agent_id)
        if wrong := sorted(set(beat.slots) - {"cpu", "mem"}):
            raise InvalidRequest(f"{', '.join(wrong)}: only cpu and mem are counted per agent")
        result = await self._store.record_heartbeat(agent_id, beat, self._clock())
        _log(agent_id, result)
        if not beat.is_leaving:
            await self._kernels.observe(agent_id, kernels)
        if result.capacity_increased:
            self._capacity_changed()
        return {
            "deadline_seconds": self._settings.heartbeat_deadline_seconds,
            "interval_seconds": self._settings.heartbeat_interval_seconds,
            "hub_api_url": self._settings.hub_api_url,
        }

    async def work(
        self, caller: Caller, agent_id: str, wait_seconds: float
    ) -> Sequence[Mapping[str, Any]]:
        """Return an agent's work as soon as there is some, or an empty list after the timeout.

        Raises
        ------
        NotFound
            If the agent never sent a heartbeat, or was deleted.
        """
        authorizer.require(caller, "agent.report")
        await self._require_known(agent_id)
        return await self._kernels.work(agent_id, wait_seconds)

    async def report(self, caller: Caller, agent_id: str, report: Mapping[str, Any]) -> None:
        """Record the progress of one work item; a late report is harmless."""
        authorizer.require(caller, "agent.report")
        await self._require_known(agent_id)
        await self._kernels.report(agent_id, report)

    async def page(self, caller: Caller, query: ListQuery) -> Page[Row]:
        authorizer.require(caller, "agent.read")
        return await _shown_page(self._store.page(query), _shown)

    async def get(self, caller: Caller, agent_id: str) -> Row:
        authorizer.require(caller, "agent.read")
        return _shown(await self._store.one(agent_id))

    async def update(self, caller: Caller, agent_id: str, changes: Mapping[str, Any]) -> Row:
        """Change whether new sessions may be placed there, or the resource group."""
        authorizer.require(caller, "agent.write")
        values = {name: value for name, value in changes.items() if name in _PATCHED}
        entry = self._audit.entry(caller, "agent.update", agent_id, **values)
        row = await self._store.update(agent_id, values, entry)
        self._capacity_changed()
        return _shown(row)

    async def delete(self, caller: Caller, agent_id: str) -> None:
        """Delete an agent that is LOST or TERMINATED and on which no session has allocations."""
        authorizer.require(caller, "agent.write")
        await self._store.delete(agent_id, self._audit.entry(caller, "agent.delete", agent_id))

    async def devices(self, caller: Caller, query: ListQuery) -> Page[Row]:
        authorizer.require(caller, "agent.read")
        return await _shown_page(self._store.devices(query), _shown_device)

    async def _require_known(self, agent_id: str) -> None:
        if not await self._store.is_known(agent_id):
            raise NotFound(f"there is no agent {agent_id}; it must send a heartbeat first")


async def _shown_page(page: Awaitable[Page[Row]], shown: Callable[[Row], Row]) -> Page[Row]:
    found = await page
    return Page([shown(row) for row in found.items], found.total, found.limit, found.offset)


def _shown(row: Row) -> Row:
    """Return an agent in the format of the REST API, with amounts as texts."""
    capacity: Counter[str] = Counter(row["capacity"])
    used: Counter[str] = Counter(row["used"])
    for device in row["devices"]:
        slot = device["facts"].get("slot") or f"{device['family']}.{SHARES}"
        unit = thousandths(slot, 1)
        capacity[slot] += device["capacity"] // unit if device["is_healthy"] else 0
        used[slot] += device["used"] // unit
    shown = {name: value for name, value in row.items() if name != "capacity"}
    return {
        **shown,
        "slots": ResourceSlots(capacity),
        "used": ResourceSlots(used),
        "devices": [_shown_device(device) for device in row["devices"]],
    }


def _shown_device(row: Row) -> Row:
    slot, share = f"{row['family']}.{SHARES}", row["share_in_force"]
    return {
        **row,
        "capacity": format_amount(slot, row["capacity"]),
        "used": format_amount(slot, row["used"]),
        "share_in_force": None if share is None else format_amount(slot, share),
    }


def _log(agent_id: str, result: HeartbeatResult) -> None:
    if result.status is not result.before:
        log.info("agent %s: %s -> %s", agent_id, result.before or "new", result.status)
    if result.refused and result.before is not AgentStatus.ALIVE:
        log.warning(
            "agent %s reports devices that another agent has: %s",
            agent_id,
            ", ".join(result.refused),
        )
