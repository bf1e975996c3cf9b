"""Process the heartbeats of agents, detect lost agents, and pass on kernel work and reports."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Protocol

from bai_services.core.accounts.roles import Caller, Reach, reach
from bai_services.core.cluster.devices import SHARES, part_slot, thousandths
from bai_services.core.cluster.heartbeats import batch_seconds, interval_seconds
from bai_services.core.cluster.model import AgentStatus, check_agent_id
from bai_services.core.cluster.protocol import check_agent
from bai_services.core.cluster.records import (
    Agent,
    AgentSummary,
    AgentTotals,
    Device,
    HeartbeatResponse,
    ListedDevice,
)
from bai_services.core.cluster.storage_checks import storage_problems
from bai_services.core.errors import BaiError, Forbidden, InvalidRequest, NotFound, Unavailable
from bai_services.core.listing import ListQuery, Page
from bai_services.core.record_fields import fields_of
from bai_services.core.resources import ResourceSlots, format_amount
from bai_services.db.cluster.agent_devices import NewDevice
from bai_services.db.cluster.agents import AgentHeartbeat, AgentRow, AgentStore, HeartbeatResult
from bai_services.db.cluster.device_rows import DeviceRow

from ..accounts import authorizer
from ..clock import monotonic_of
from ..context import ManagerContext
from ..folders.storage_hosts import StorageHosts
from ..loop import Loop
from ..settings import Settings
from .heartbeat_batches import HeartbeatBatches
from .heartbeat_times import HeartbeatTimes
from .joining import AgentJoins, require_own
from .resource_groups import visibility_filter

__all__ = ["Agents", "AgentHeartbeat", "NewDevice"]

log = logging.getLogger(__name__)

_SUMMARY_FIELDS = frozenset({"id", "status", "architecture", "resource_group", "schedulable"})
_CHANGEABLE_FIELDS = frozenset({"schedulable", "resource_group", "endpoint"})


class AgentWork(Protocol):
    """Interface to the kernels of agents; implemented in ``sessions/kernels.py``."""

    async def observe(self, reports: Mapping[str, Sequence[Mapping[str, Any]]]) -> object: ...

    async def work(self, agent_id: str, wait_seconds: float) -> Sequence[Mapping[str, Any]]: ...

    async def report(
        self, agent_id: str, reports: Sequence[Mapping[str, Any]]
    ) -> list[bool | BaiError]: ...


class WorkReports(Protocol):
    """Work items and their reports; see ``ImagePulls``, ``CustomImages``, ``ClusterDoctor``."""

    async def report(self, agent_id: str, report: Mapping[str, Any]) -> None: ...


class Agents:
    """Stores agents with their slots, devices and status; passes on kernel work and reports."""

    def __init__(
        self,
        context: ManagerContext,
        settings: Settings,
        kernels: AgentWork,
        reports: Mapping[str, WorkReports],
        joins: AgentJoins,
        times: HeartbeatTimes,
        hosts: StorageHosts,
    ) -> None:
        """``reports``: receivers of reports that belong to no kernel, by kind of work item."""
        self._reports = reports
        self._joins = joins
        self._hosts = hosts
        self._store = AgentStore(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._settings = settings
        self._kernels = kernels
        self._capacity_changed = context.capacity_changed
        self._times = times
        self._batches = HeartbeatBatches(
            self._store,
            kernels,
            lambda: batch_seconds(times.count),
            monotonic_of(context.clock),
        )
        self._loop = Loop(
            "agent deadlines", self.check_deadlines, settings.heartbeat_interval_seconds
        )

    def start(self) -> None:
        """Start checking heartbeat deadlines, the first time after one full deadline."""
        self._times.forget()
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()
        await self._batches.stop()

    async def check_deadlines(self) -> None:
        """Mark agents as LOST if they have sent no heartbeat for the time of the deadline.

        Only time in which this manager was running counts, because agents could not send heartbeats
        while no manager was running.
        """
        now, deadline = self._clock(), self._settings.heartbeat_deadline_seconds
        late = now - timedelta(seconds=2 * self._settings.heartbeat_interval_seconds)
        silent = await self._store.silent(late)
        lost = [
            agent_id
            for agent_id, at in silent.items()
            if self._times.silent_seconds(agent_id, at) > deadline
        ]
        self._times.clean_up(deadline)
        if lost:
            for agent_id in await self._store.mark_lost(lost, late, now):
                log.warning("agent %s is LOST: no heartbeat for %d s", agent_id, deadline)

    async def heartbeat(
        self,
        caller: Caller,
        agent_id: str,
        beat: AgentHeartbeat,
        kernels: Sequence[Mapping[str, Any]] | None,
        storage: Mapping[str, str] | None = None,
    ) -> HeartbeatResponse:
        """Process a heartbeat.

        ``kernels`` is None if the agent cannot list its kernels. ``storage`` is the agent's report
        about the storage hosts, None if it does not check them.

        Raises
        ------
        NotFound
            If the resource group of a new agent does not exist.
        InvalidRequest
            If the id is malformed, or ``beat.slots`` has slots other than cpu and mem.
        Forbidden
            If the caller has the credential of another agent.
        Conflict
            If this manager does not work with the agent's version of the protocol.
        """
        require_own(caller, agent_id)
        check_agent_id(agent_id)
        check_agent(beat.protocol)
        if invalid := sorted(set(beat.slots) - {"cpu", "mem"}):
            raise InvalidRequest(
                f"an agent cannot report the slots {', '.join(invalid)}: only cpu and mem are "
                "slots of an agent; report other resources as devices"
            )
        now, checks = self._clock(), self._hosts.checks()
        problems = storage_problems([check.name for check in checks], storage)
        beat = replace(beat, storage_problems=problems)
        result = await self._batches.process(agent_id, beat, kernels, now)
        self._times.receive(agent_id, now)
        _log(agent_id, result, beat)
        if result.capacity_increased or result.storage_changed or result.network_changed:
            self._capacity_changed()
        return HeartbeatResponse(
            deadline_seconds=self._settings.heartbeat_deadline_seconds,
            interval_seconds=interval_seconds(
                self._times.count,
                self._settings.heartbeat_interval_seconds,
                self._settings.heartbeat_deadline_seconds,
            ),
            hub_api_url=self._settings.hub_api_url,
            is_new=result.is_new,
            storage=checks,
        )

    async def work(
        self, caller: Caller, agent_id: str, wait_seconds: float
    ) -> Sequence[Mapping[str, Any]]:
        """Return an agent's work (long poll); an empty list after the timeout.

        Raises
        ------
        NotFound
            If the agent has never sent a heartbeat or was deleted.
        """
        require_own(caller, agent_id)
        await self._require_known(agent_id)
        return await self._kernels.work(agent_id, wait_seconds)

    async def report(
        self, caller: Caller, agent_id: str, reports: Sequence[Mapping[str, Any]]
    ) -> list[bool | BaiError]:
        """Process reports on work items, in order for each session; ignore outdated reports.

        Return for each report whether the agent may remove the kernel, because its session has
        ended; or the error of this report, which does not affect the others.
        """
        require_own(caller, agent_id)
        await self._require_known(agent_id)
        results: list[bool | BaiError] = [False] * len(reports)
        of_kernels: list[int] = []
        for number, report in enumerate(reports):
            receiver = self._reports.get(str(report.get("kind")))
            if receiver is None:
                of_kernels.append(number)
                continue
            try:
                await receiver.report(agent_id, report)
            except Unavailable:
                raise  # the agent sends all reports again
            except BaiError as error:
                results[number] = error
        if of_kernels:
            outcomes = await self._kernels.report(agent_id, [reports[n] for n in of_kernels])
            for number, outcome in zip(of_kernels, outcomes, strict=True):
                results[number] = outcome
        return results

    async def page(self, caller: Caller, query: ListQuery) -> Page[Agent]:
        authorizer.require(caller, "agent.read")
        page = await self._store.page(query)
        return page.with_items([_agent(row) for row in page.items])

    async def summaries(self, caller: Caller, query: ListQuery) -> Page[AgentSummary]:
        """Return the agents of the caller's resource groups, without facts about the machines.

        Raises
        ------
        Forbidden
            If the caller is a user and the installation does not show agents to users.
        InvalidRequest
            If the query contains a field that the summary does not have.
        """
        authorizer.require(caller, "agent.read-summary")
        if not self._settings.shows_agents and reach(caller.role, "agent.read") is Reach.NONE:
            raise Forbidden("this installation does not show agents to users")
        for name in (*query.filters, *(name.removeprefix("-") for name in query.sort)):
            if name.partition("__")[0] not in _SUMMARY_FIELDS:
                fields = ", ".join(sorted(_SUMMARY_FIELDS))
                raise InvalidRequest(
                    f"this list has no field {name!r}; its fields are {fields}", field=name
                )
        page = await self._store.page_for(query, visibility_filter(caller))
        return page.with_items([_summary(_agent(row)) for row in page.items])

    async def totals(self, caller: Caller) -> AgentTotals:
        """Return total and used amounts of all agents that are alive."""
        authorizer.require(caller, "agent.read")
        rows = await self._store.alive()
        slots: Counter[str] = Counter()
        used: Counter[str] = Counter()
        for agent in map(_agent, rows):
            slots.update(agent.slots)
            used.update(agent.used)
        return AgentTotals(
            agents=len(rows),
            schedulable_agents=sum(row.schedulable for row in rows),
            slots=ResourceSlots(slots),
            used=ResourceSlots(used),
        )

    async def get(self, caller: Caller, agent_id: str) -> Agent:
        authorizer.require(caller, "agent.read")
        return _agent(await self._store.one(agent_id))

    async def update(self, caller: Caller, agent_id: str, changes: Mapping[str, Any]) -> Agent:
        """Change the resource group of an agent, whether it accepts new sessions, or (only for an
        agent that has joined) its endpoint.
        """
        authorizer.require(caller, "agent.write")
        values = {name: value for name, value in changes.items() if name in _CHANGEABLE_FIELDS}
        before = fields_of(await self._store.one(agent_id))
        details = self._audit.changes(before, values)
        entry = self._audit.entry(caller, "agent.update", agent_id, **values, **details)
        row = await self._store.update(agent_id, values, entry)
        self._capacity_changed()
        return _agent(row)

    async def delete(self, caller: Caller, agent_id: str) -> None:
        """Delete an agent that is LOST or TERMINATED and has no allocations."""
        authorizer.require(caller, "agent.write")
        await self._store.delete(agent_id, self._audit.entry(caller, "agent.delete", agent_id))
        self._joins.forget(agent_id)

    async def devices(self, caller: Caller, query: ListQuery) -> Page[ListedDevice]:
        authorizer.require(caller, "agent.read")
        page = await self._store.devices(query)
        devices = [
            ListedDevice(
                **fields_of(_device(row)), resource_group=row.resource_group, status=row.status
            )
            for row in page.items
        ]
        return page.with_items(devices)

    async def _require_known(self, agent_id: str) -> None:
        if not await self._store.is_known(agent_id):
            raise NotFound(f"there is no agent {agent_id}; it must send a heartbeat first")


def _agent(row: AgentRow) -> Agent:
    """Return an agent; its slots include those of its devices."""
    capacity: Counter[str] = Counter(row.capacity)
    used: Counter[str] = Counter(row.used)
    for device in row.devices:
        slot = part_slot(device.family, device.facts) or f"{device.family}.{SHARES}"
        unit = thousandths(slot, 1)
        capacity[slot] += device.capacity // unit if device.is_healthy else 0
        used[slot] += device.used // unit
    return Agent(
        id=row.id,
        created_at=row.created_at,
        resource_group=row.resource_group,
        status=row.status,
        status_changed_at=row.status_changed_at,
        last_heartbeat_at=row.last_heartbeat_at,
        schedulable=row.schedulable,
        engine=row.engine,
        endpoint=row.endpoint,
        architecture=row.architecture,
        version=row.version,
        facts=row.facts,
        storage_problems=row.storage_problems,
        is_network_full=row.is_network_full,
        slots=ResourceSlots(capacity),
        used=ResourceSlots(used),
        free=ResourceSlots({slot: max(0, n - used[slot]) for slot, n in capacity.items()}),
        devices=[_device(device) for device in row.devices],
        kernels=row.kernels,
    )


def _summary(agent: Agent) -> AgentSummary:
    return AgentSummary(
        id=agent.id,
        status=agent.status,
        architecture=agent.architecture,
        resource_group=agent.resource_group,
        schedulable=agent.schedulable,
        slots=agent.slots,
        used=agent.used,
    )


def _device(row: DeviceRow) -> Device:
    slot, share = f"{row.family}.{SHARES}", row.share_in_force
    return Device(
        id=row.id,
        agent_id=row.agent_id,
        family=row.family,
        index=row.index,
        model=row.model,
        memory_bytes=row.memory_bytes,
        numa_node=row.numa_node,
        is_simulated=row.is_simulated,
        is_healthy=row.is_healthy,
        capacity=format_amount(slot, row.capacity),
        used=format_amount(slot, row.used),
        facts=row.facts,
        share_in_force=None if share is None else format_amount(slot, share),
    )


def _log(agent_id: str, result: HeartbeatResult, beat: AgentHeartbeat) -> None:
    if result.status is not result.before:
        log.info("agent %s: %s -> %s", agent_id, result.before or "new", result.status)
    if result.storage_changed:
        listed = ", ".join(
            f"{host} ({problem})" for host, problem in sorted(beat.storage_problems.items())
        )
        log.warning("agent %s: storage hosts that do not work: %s", agent_id, listed or "none")
    if result.network_changed:
        state = "no subnet is free" if beat.is_network_full else "subnets are free again"
        log.warning("agent %s: %s for networks of sessions", agent_id, state)
    if result.refused and result.before is not AgentStatus.ALIVE:
        log.warning(
            "agent %s reports devices that belong to another agent: %s",
            agent_id,
            ", ".join(result.refused),
        )
