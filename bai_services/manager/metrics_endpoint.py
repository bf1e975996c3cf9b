"""The metrics that Prometheus scrapes: counters of the manager, and the current state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from bai_services import __version__
from bai_services.core.accounts.roles import Caller
from bai_services.core.cluster.model import AgentStatus
from bai_services.core.resources import MEM, SHARE_UNIT, slot_type
from bai_services.core.sessions.lifecycle import LIVE, Status
from bai_services.db.database import Database
from bai_services.db.operations.metrics import (
    AgentFacts,
    AgentSlot,
    DeviceFacts,
    MetricsFacts,
    MetricsStore,
)
from bai_services.storage.base import HostStatus
from bai_services.storage.host import StorageHost

from .accounts import authorizer
from .clock import Clock
from .metrics import Metrics
from .scheduling.lease import Lease
from .scheduling.wait_states import WaitStates

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Measurements of machines (_LOAD) and devices (_USAGE): (name in the agent's facts, metric name,
# help text).
_LOAD = (
    ("cpu_percent", "bai_agent_cpu_percent", "CPU usage of the machine."),
    ("memory_used_bytes", "bai_agent_memory_used_bytes", "Used memory of the machine."),
    ("memory_bytes", "bai_agent_memory_bytes", "Memory of the machine."),
    ("disk_used_bytes", "bai_agent_disk_used_bytes", "Used space on the disk of the agent."),
    ("disk_bytes", "bai_agent_disk_bytes", "Size of the disk of the agent."),
    (
        "network_received_bytes_per_second",
        "bai_agent_network_received_bytes_per_second",
        "Bytes that the machine receives.",
    ),
    (
        "network_sent_bytes_per_second",
        "bai_agent_network_sent_bytes_per_second",
        "Bytes that the machine sends.",
    ),
)
_USAGE = (
    ("utilization_percent", "bai_device_utilization_percent", "Utilization of a device."),
    ("memory_used_bytes", "bai_device_memory_used_bytes", "Used memory of a device."),
    ("temperature_celsius", "bai_device_temperature_celsius", "Temperature of a device."),
    ("power_watts", "bai_device_power_watts", "Power of a device."),
)

Families = Iterator[GaugeMetricFamily]
Rows = Iterable[tuple[Sequence[str], Any]]


class MetricsEndpoint:
    """Returns all metrics as text.

    Label values are names of objects that administrators create, so users cannot increase the
    cardinality.
    """

    def __init__(
        self,
        database: Database,
        metrics: Metrics,
        clock: Clock,
        *,
        lease: Lease,
        wait_states: WaitStates,
        hosts: Callable[[], Sequence[StorageHost]],
    ) -> None:
        self._database = database
        self._store = MetricsStore(database)
        self._metrics = metrics
        self._clock = clock
        self._lease = lease
        self._wait_states = wait_states
        self._hosts = hosts

    async def text(self, caller: Caller) -> bytes:
        """Return all metrics.

        Only the manager with the lease returns the current state of the cluster. If a standby
        manager did so too, sums over all managers would count everything twice.
        """
        authorizer.require(caller, "metrics.read")
        families = [*self._families_of_manager()]
        if self._lease.is_held:
            facts = await self._store.facts()
            families += state_families(facts, self._clock())
        registry = CollectorRegistry()
        registry.register(_Families(families))
        # Run in a thread: a large cluster has tens of thousands of lines.
        state = await asyncio.to_thread(generate_latest, registry)
        return generate_latest(self._metrics.registry) + state

    def _families_of_manager(self) -> Families:
        yield _family("bai_info", "Version of the manager.", ["version"], [((__version__,), 1)])
        yield _family(
            "bai_scheduler_lease_held",
            "1 if this manager holds the lease of the scheduler, 0 on standby.",
            [],
            [((), self._lease.is_held)],
        )
        yield _family(
            "bai_pending_sessions",
            "Pending sessions by the first admission check that fails; reported only by the "
            "manager that holds the lease.",
            ["check"],
            [((check,), count) for check, count in self._wait_states.counts().items()],
        )
        connections = self._database.connection_counts()
        yield _family(
            "bai_database_connections",
            'Database connections by state; state="limit" is the maximum.',
            ["state"],
            [((state,), count) for state, count in connections.items()],
        )
        hosts = self._hosts()
        yield _family(
            "bai_storage_host_available",
            "1 if the storage host responds and accepts data.",
            ["host"],
            [((host.name,), host.health.status in _WRITABLE) for host in hosts],
        )
        for name, text in (("total_bytes", "Size"), ("free_bytes", "Free space")):
            yield _family(
                f"bai_storage_host_{name}",
                f"{text} of a storage host.",
                ["host"],
                [((host.name,), getattr(host.health, name)) for host in hosts],
            )


_WRITABLE = (HostStatus.READY, HostStatus.SLOW)


class _Families(Collector):
    def __init__(self, families: Sequence[GaugeMetricFamily]) -> None:
        self._families = families

    def collect(self) -> Iterable[GaugeMetricFamily]:
        return self._families


def state_families(facts: MetricsFacts, now: datetime) -> Families:
    """Yield the metrics of the current state in the database."""
    yield from _session_families(facts, now)
    yield from _agent_families(facts.agents, now)
    yield from _slot_families(facts.slots)
    yield from _device_families(facts.devices, {agent.id: agent for agent in facts.agents})
    yield _family("bai_mails_waiting", "Mails in the queue.", [], [((), facts.mails)])


def _session_families(facts: MetricsFacts, now: datetime) -> Families:
    # A status without sessions gets the value 0 and an empty group, so that sums always exist.
    empty = {(status, "", ""): 0 for status in LIVE}
    yield _family(
        "bai_sessions",
        "Live sessions, by status, resource group and type.",
        ["status", "resource_group", "type"],
        (empty | dict(facts.sessions)).items(),
    )
    groups = {agent.resource_group: 0.0 for agent in facts.agents}
    groups |= {
        group: max(0.0, (now - since).total_seconds())
        for group, since in facts.waiting_since.items()
    }
    yield _family(
        "bai_longest_wait_seconds",
        f"Time since the longest waiting session of a resource group became {Status.PENDING}.",
        ["resource_group"],
        [((group,), seconds) for group, seconds in groups.items()],
    )


def _agent_families(agents: Sequence[AgentFacts], now: datetime) -> Families:
    counts = {(str(status), ""): 0 for status in (AgentStatus.ALIVE, AgentStatus.LOST)}
    for agent in agents:
        key = (agent.status, agent.resource_group)
        counts[key] = counts.get(key, 0) + 1
    yield _family(
        "bai_agents",
        "Agents, by status and resource group.",
        ["status", "resource_group"],
        counts.items(),
    )
    yield _family(
        "bai_agent_schedulable",
        "1 if the agent is alive and accepts new sessions.",
        ["agent"],
        [((a.id,), a.schedulable and a.status == AgentStatus.ALIVE) for a in agents],
    )
    yield _family(
        "bai_agent_heartbeat_age_seconds",
        "Time since the last heartbeat of the agent.",
        ["agent"],
        [((a.id,), max(0.0, (now - a.last_heartbeat_at).total_seconds())) for a in agents],
    )
    # The load of a lost agent is unknown.
    alive = [agent for agent in agents if agent.status == AgentStatus.ALIVE]
    for name, metric, text in _LOAD:
        rows = (((agent.id,), _measured(agent.facts, "load", name)) for agent in alive)
        yield _family(metric, text, ["agent"], rows)


def _slot_families(slots: Sequence[AgentSlot]) -> Families:
    for name, text in (("capacity", "Capacity"), ("used", "Allocated amount")):
        yield _family(
            f"bai_agent_slot_{name}",
            f"{text} of a resource slot of an agent, in cores, bytes or devices.",
            ["agent", "slot"],
            [((s.agent_id, s.slot), _natural(s.slot, getattr(s, name))) for s in slots],
        )


def _device_families(devices: Sequence[DeviceFacts], agents: Mapping[str, AgentFacts]) -> Families:
    names = ["agent", "device"]
    groups = {agent_id: agent.resource_group for agent_id, agent in agents.items()}
    yield _family(
        "bai_device_info",
        "Index, family and model of a device, and the resource group of its agent.",
        [*names, "index", "family", "model", "resource_group"],
        [
            ((d.agent_id, d.id, str(d.index), d.family, d.model, groups.get(d.agent_id, "")), 1)
            for d in devices
        ],
    )
    facts: Sequence[tuple[str, str, Callable[[DeviceFacts], float | None]]] = (
        ("healthy", "1 if the device is healthy.", lambda d: d.is_healthy),
        (
            "capacity",
            "Allocatable capacity of the device (1 = the whole device).",
            lambda d: d.capacity / SHARE_UNIT,
        ),
        (
            "used",
            "Allocated fraction of the device (1 = the whole device).",
            lambda d: d.used / SHARE_UNIT,
        ),
        ("memory_bytes", "Memory of the device.", lambda d: d.memory_bytes),
    )
    for metric, text, value in facts:
        rows = [((d.agent_id, d.id), value(d)) for d in devices]
        yield _family(f"bai_device_{metric}", text, names, rows)
    alive = {key for key, agent in agents.items() if agent.status == AgentStatus.ALIVE}
    for name, metric, text in _USAGE:
        measured = (
            ((d.agent_id, d.id), _measured(d.facts, "usage", name))
            for d in devices
            if d.agent_id in alive
        )
        yield _family(metric, text, names, measured)


def _family(name: str, text: str, labels: Sequence[str], rows: Rows) -> GaugeMetricFamily:
    """Return a gauge; rows with the value None are omitted."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in rows:
        if value is not None:
            family.add_metric(values, float(value))
    return family


def _measured(facts: Mapping[str, Any], group: str, name: str) -> float | None:
    """Return a number in the facts that an agent has reported; None if it is missing."""
    values = facts.get(group)
    value = values.get(name) if isinstance(values, Mapping) else None
    return value if isinstance(value, int | float) else None


def _natural(slot: str, amount: int) -> float:
    """Return an amount in cores, bytes or devices."""
    return amount if slot == MEM else amount / slot_type(slot).unit
