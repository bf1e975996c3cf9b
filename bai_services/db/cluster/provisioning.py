"""Store of provisioned machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry
from bai_services.core.cluster.group_options import PROVISIONING, GroupOptions
from bai_services.core.cluster.model import AgentStatus
from bai_services.core.cluster.provisioning import (
    COMING,
    ENDED,
    OFF,
    MachineEvent,
    MachineReason,
    MachineState,
    MachineStatus,
    ProvisionedMachine,
    ProvisioningOptions,
    next_status,
)
from bai_services.core.errors import InUse
from bai_services.core.listing import ListQuery, Page

from ..audit import record
from ..database import Database
from ..listing import Listing
from ..records import first_record, records
from ..tables.cluster import agent_credentials, agent_invitations, agents, resource_groups
from ..tables.provisioning import provisioned_machines as machines
from ..tables.sessions import allocations
from .agents import remove_agent

# Rows of ended machines are deleted after this time. It must be longer than the hour of
# ``ProvisionedGroup.recent_starts``.
KEPT = timedelta(days=7)

_COLUMNS = [machines.c[field.name] for field in fields(ProvisionedMachine)]
_LISTING = Listing(
    columns={c.name: c for c in _COLUMNS if c.name != "slots"},
    default_sort=("-created_at", "id"),
)
_HAS_SESSIONS = sa.exists().where(
    allocations.c.agent_id == machines.c.agent_id, allocations.c.freed_at.is_(None)
)


@dataclass(frozen=True, slots=True)
class ProvisionedGroup:
    """A resource group with its options, its machines that have not ended, and recent starts.

    ``recent_starts``: starts within the last hour. ``last_failure_at``: time of the last status
    change of a machine that was given up before it joined.
    """

    name: str
    engine: str
    options: ProvisioningOptions
    machines: Sequence[MachineState]
    recent_starts: int
    last_failure_at: datetime | None


class ProvisioningStore:
    """Reads and writes provisioned machines. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery) -> Page[ProvisionedMachine]:
        async with self._db.read() as tx:
            return await _LISTING.page(tx, sa.select(*_COLUMNS), query, _machine)

    async def find(self, machine_id: str) -> ProvisionedMachine | None:
        select = sa.select(*_COLUMNS).where(machines.c.id == machine_id)
        async with self._db.read() as tx:
            return first_record(_machine, await tx.execute(select))

    async def groups(self, now: datetime) -> list[ProvisionedGroup]:
        """Return the groups that provision machines or have provisioned machines.

        Before that, record which agents belong to joined machines, and since when machines are
        idle.
        """
        async with self._db.write() as tx:
            await _observe(tx, now)
            found = await tx.execute(
                sa.select(
                    resource_groups.c.name,
                    resource_groups.c.engine,
                    resource_groups.c.is_active,
                    resource_groups.c.scheduler_opts,
                )
            )
            known = {row.name: row for row in found}
            states = await _states(tx)
            hour = now - timedelta(hours=1)
            starts = await tx.execute(
                sa.select(machines.c.resource_group, sa.func.count())
                .where(machines.c.created_at > hour)
                .group_by(machines.c.resource_group)
            )
            recent = {name: count for name, count in starts}
            failures = await tx.execute(
                sa.select(machines.c.resource_group, sa.func.max(machines.c.status_changed_at))
                .where(
                    machines.c.status.in_((MachineStatus.STOPPING, MachineStatus.FAILED)),
                    machines.c.joined_at.is_(None),
                    machines.c.reason != MachineReason.STOP_REQUESTED,
                )
                .group_by(machines.c.resource_group)
            )
            failed = {name: at for name, at in failures}
        names = {name for name, row in known.items() if PROVISIONING in (row.scheduler_opts or {})}
        names |= {one.machine.resource_group for one in states}
        groups = []
        for name in sorted(names):
            row = known.get(name)
            options = OFF
            if row is not None and row.is_active:
                options = GroupOptions.of(row.scheduler_opts or {}).provisioning
            groups.append(
                ProvisionedGroup(
                    name=name,
                    engine="" if row is None else row.engine,
                    options=options,
                    machines=[one for one in states if one.machine.resource_group == name],
                    recent_starts=recent.get(name, 0),
                    last_failure_at=failed.get(name),
                )
            )
        return groups

    async def add(self, machine: ProvisionedMachine, audit: AuditEntry) -> None:
        values = {field.name: getattr(machine, field.name) for field in fields(machine)}
        async with self._db.write() as tx:
            await tx.execute(machines.insert().values(values))
            await record(tx, audit)

    async def apply(
        self,
        machine_id: str,
        event: MachineEvent,
        at: datetime,
        audit: AuditEntry | None,
        **facts: Any,
    ) -> MachineStatus:
        """Apply an event to a machine, store ``facts``, and return the new status.

        DRAINED closes the agent for new sessions, and RESUMED opens it again. After GIVEN_UP, the
        machine can no longer join.

        Raises
        ------
        InvalidTransition
            If the machine has another status in the meantime.
        InUse
            If the event stops the machine, but sessions use it.
        """
        async with self._db.write() as tx:
            row = (
                await tx.execute(
                    sa.select(
                        machines.c.status,
                        machines.c.agent_id,
                        machines.c.invitation_id,
                        _HAS_SESSIONS.label("used"),
                    )
                    .where(machines.c.id == machine_id)
                    .with_for_update(of=machines)
                )
            ).one()
            status = next_status(MachineStatus(row.status), event)
            if event is MachineEvent.EMPTIED and row.used:
                raise InUse("the machine has sessions")
            if event in (MachineEvent.DRAINED, MachineEvent.RESUMED):
                await tx.execute(
                    agents.update()
                    .where(agents.c.id == row.agent_id)
                    .values(schedulable=event is MachineEvent.RESUMED)
                )
            if event is MachineEvent.GIVEN_UP:
                await _revoke(tx, row.invitation_id)
            await tx.execute(
                machines.update()
                .where(machines.c.id == machine_id)
                .values(status=status, status_changed_at=at, **facts)
            )
            if audit is not None:
                await record(tx, audit)
        return status

    async def set(self, machine_id: str, **facts: Any) -> None:
        async with self._db.write() as tx:
            await tx.execute(machines.update().where(machines.c.id == machine_id).values(**facts))

    async def clean_up(self, now: datetime) -> list[str]:
        """Delete the agents of stopped machines, and machines that ended long ago.

        Return the ids of the deleted agents. An agent that still sends heartbeats remains.
        """
        async with self._db.write() as tx:
            found = await tx.execute(
                sa.select(agents.c.id)
                .join_from(agents, machines, machines.c.agent_id == agents.c.id)
                .where(
                    machines.c.status.in_(sorted(ENDED)),
                    agents.c.status != AgentStatus.ALIVE,
                    ~_HAS_SESSIONS,
                )
            )
            deleted = list(found.scalars())
            for agent_id in deleted:
                await remove_agent(tx, agent_id)
            await tx.execute(
                machines.delete().where(
                    machines.c.status.in_(sorted(ENDED)), machines.c.status_changed_at < now - KEPT
                )
            )
        return deleted


def _machine(**row: Any) -> ProvisionedMachine:
    return ProvisionedMachine(**{**row, "status": MachineStatus(row["status"])})


async def read_machines_since(tx: AsyncConnection) -> Mapping[str, datetime]:
    """Return when the oldest start in progress began, by resource group."""
    found = await tx.execute(
        sa.select(machines.c.resource_group, sa.func.min(machines.c.created_at))
        .where(machines.c.status.in_(sorted(COMING)))
        .group_by(machines.c.resource_group)
    )
    return {name: at for name, at in found}


async def _revoke(tx: AsyncConnection, invitation_id: str | None) -> None:
    """Delete an invitation, and the credential that it was exchanged for."""
    for table, key in (
        (agent_credentials, agent_credentials.c.invitation_id),
        (agent_invitations, agent_invitations.c.id),
    ):
        await tx.execute(table.delete().where(key == invitation_id))


async def _observe(tx: AsyncConnection, now: datetime) -> None:
    joined = await tx.execute(
        sa.select(machines.c.id, agent_invitations.c.agent_id)
        .join_from(machines, agent_invitations, machines.c.invitation_id == agent_invitations.c.id)
        .where(machines.c.agent_id.is_(None), agent_invitations.c.agent_id.is_not(None))
    )
    for machine_id, agent_id in joined.all():
        await tx.execute(
            machines.update().where(machines.c.id == machine_id).values(agent_id=agent_id)
        )
    is_running = machines.c.joined_at.is_not(None) & machines.c.status.not_in(sorted(ENDED))
    await tx.execute(
        machines.update()
        .where(is_running, machines.c.idle_since.is_(None), ~_HAS_SESSIONS)
        .values(idle_since=now)
    )
    await tx.execute(
        machines.update()
        .where(is_running, machines.c.idle_since.is_not(None), _HAS_SESSIONS)
        .values(idle_since=None)
    )


async def _states(tx: AsyncConnection) -> list[MachineState]:
    rows = await tx.execute(
        sa.select(*_COLUMNS)
        .where(machines.c.status.not_in(sorted(ENDED)))
        .order_by(machines.c.created_at, machines.c.id)
    )
    found = {one.id: MachineState(one) for one in records(_machine, rows)}
    facts = await tx.execute(
        sa.select(machines.c.id, machines.c.idle_since, agents.c.status)
        .join_from(machines, agents, machines.c.agent_id == agents.c.id)
        .where(machines.c.status.not_in(sorted(ENDED)))
    )
    for machine_id, idle_since, status in facts:
        found[machine_id] = replace(
            found[machine_id], idle_since=idle_since, agent_status=AgentStatus(status)
        )
    return list(found.values())
