"""Store of invitations of agents, and of the credentials of agents that have joined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry
from bai_services.core.cluster.joining import AgentInvitation, AgentMembership
from bai_services.core.cluster.model import AgentStatus
from bai_services.core.errors import Conflict, Forbidden, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.sessions.lifecycle import OCCUPYING

from ..audit import record
from ..database import Database
from ..integrity import raise_on_violation
from ..listing import Listing
from ..records import first_record
from ..tables.cluster import agent_credentials, agent_invitations, agents, resource_groups
from ..tables.sessions import kernels, sessions
from .agents import remove_agent

_COLUMNS = [agent_invitations.c[name] for name in AgentInvitation.__dataclass_fields__]
_LISTING = Listing(
    columns={column.name: column for column in _COLUMNS}, default_sort=("-created_at", "id")
)
_KERNELS = (
    sa.select(sa.func.count())
    .select_from(kernels.join(sessions, kernels.c.session_id == sessions.c.id))
    .where(kernels.c.agent_id == agents.c.id, sessions.c.status.in_(sorted(OCCUPYING)))
    .scalar_subquery()
)


@dataclass(frozen=True, slots=True)
class JoinTerms:
    """The resource group ("": any) and the engine (None: any) that a joining machine expects."""

    resource_group: str = ""
    engine: str | None = None


@dataclass(frozen=True, slots=True)
class NewCredential:
    """The agent id of a joining machine, and the hash of its credential."""

    agent_id: str
    token_hash: str
    terms: JoinTerms = JoinTerms()


class AgentJoinStore:
    """Reads and writes invitations and credentials. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery) -> Page[AgentInvitation]:
        async with self._db.read() as tx:
            return await _LISTING.page(tx, sa.select(*_COLUMNS), query, AgentInvitation)

    async def invitation(self, invitation_id: str) -> AgentInvitation | None:
        select = sa.select(*_COLUMNS).where(agent_invitations.c.id == invitation_id)
        async with self._db.read() as tx:
            return first_record(AgentInvitation, await tx.execute(select))

    async def add_invitation(self, values: Mapping[str, Any], audit: AuditEntry) -> None:
        group = str(values["resource_group"])
        async with self._db.write() as tx:
            with raise_on_violation(NotFound(f"there is no resource group {group!r}", name=group)):
                await tx.execute(agent_invitations.insert().values(values))
            await record(tx, audit)

    async def remove_invitation(self, invitation_id: str, audit: AuditEntry) -> None:
        async with self._db.write() as tx:
            deleted = await tx.execute(
                agent_invitations.delete().where(agent_invitations.c.id == invitation_id)
            )
            if not deleted.rowcount:
                raise NotFound("there is no such invitation")
            await record(tx, audit)

    async def require_invitation(self, invitation_hash: str) -> None:
        """Raise ``Forbidden`` if the invitation is unknown."""
        select = sa.select(agent_invitations.c.id)
        async with self._db.read() as tx:
            if not await tx.scalar(select.where(agent_invitations.c.token_hash == invitation_hash)):
                raise _unusable()

    async def join(
        self, invitation_hash: str, new: NewCredential, now: datetime, audit: AuditEntry
    ) -> AgentMembership:
        """Use an invitation, and store the credential of the machine.

        The machine may repeat the call with the same credential.

        Raises
        ------
        Forbidden
            If the invitation is unknown, expired, used by another machine, or for another resource
            group.
        Conflict
            If there is an agent with that id, or the resource group has another engine.
        """
        rows = sa.select(agent_invitations).where(agent_invitations.c.token_hash == invitation_hash)
        async with self._db.write() as tx:
            invitation = (await tx.execute(rows.with_for_update())).one_or_none()
            if invitation is None:
                raise _unusable()
            if invitation.used_at is not None:
                if not await _is_holder(tx, new, invitation.id):
                    raise _unusable()
                return await _membership(tx, new.agent_id)
            if invitation.expires_at <= now:
                raise _unusable()
            await _check_terms(tx, new.terms, invitation.resource_group)
            taken = Conflict(
                f"there is an agent {new.agent_id}; delete it first, or choose another id with --id"
            )
            if await tx.scalar(sa.select(agents.c.id).where(agents.c.id == new.agent_id)):
                raise taken
            with raise_on_violation(taken):
                await tx.execute(
                    agent_credentials.insert().values(
                        agent_id=new.agent_id,
                        created_at=now,
                        token_hash=new.token_hash,
                        invitation_id=invitation.id,
                        resource_group=invitation.resource_group,
                    )
                )
            await tx.execute(
                agent_invitations.update()
                .where(agent_invitations.c.id == invitation.id)
                .values(used_at=now, agent_id=new.agent_id)
            )
            await record(tx, audit)
            return await _membership(tx, new.agent_id)

    async def agent_of(self, token_hash: str) -> str | None:
        """Return the id of the agent with this credential."""
        select = sa.select(agent_credentials.c.agent_id)
        async with self._db.read() as tx:
            found: str | None = await tx.scalar(
                select.where(agent_credentials.c.token_hash == token_hash)
            )
            return found

    async def engine_of(self, resource_group: str) -> str:
        select = sa.select(resource_groups.c.engine).where(resource_groups.c.name == resource_group)
        async with self._db.read() as tx:
            return str(await tx.scalar(select) or "")

    async def membership(self, agent_id: str) -> AgentMembership:
        """Return the state of an agent that has joined.

        Raises
        ------
        NotFound
            If no agent with that id has joined.
        """
        async with self._db.read() as tx:
            return await _membership(tx, agent_id)

    async def drain(self, agent_id: str, audit: AuditEntry) -> AgentMembership:
        """Exclude an agent from the placement of new sessions."""
        async with self._db.write() as tx:
            await tx.execute(
                agents.update().where(agents.c.id == agent_id).values(schedulable=False)
            )
            await record(tx, audit)
            return await _membership(tx, agent_id)

    async def leave(self, agent_id: str, audit: AuditEntry) -> None:
        """Delete an agent with its credential.

        Raises
        ------
        InUse
            If sessions have resources on the agent.
        """
        async with self._db.write() as tx:
            await remove_agent(tx, agent_id)
            await record(tx, audit)


async def _check_terms(tx: AsyncConnection, terms: JoinTerms, group: str) -> None:
    if terms.resource_group not in ("", group):
        raise Forbidden(f"the invitation is for the resource group {group}")
    engine = await tx.scalar(
        sa.select(resource_groups.c.engine).where(resource_groups.c.name == group)
    )
    if terms.engine not in (None, engine):
        raise Conflict(
            f"the resource group {group} runs sessions with the engine {engine}, not "
            f"{terms.engine}; use --engine {engine}, or an invitation for another group"
        )


def _unusable() -> Forbidden:
    return Forbidden(
        "the invitation is wrong, has expired or was used; create another with "
        "`bai admin agent invite`"
    )


async def _is_holder(tx: AsyncConnection, new: NewCredential, invitation_id: str) -> bool:
    found = await tx.scalar(
        sa.select(agent_credentials.c.agent_id).where(
            agent_credentials.c.agent_id == new.agent_id,
            agent_credentials.c.token_hash == new.token_hash,
            agent_credentials.c.invitation_id == invitation_id,
        )
    )
    return found is not None


async def _membership(tx: AsyncConnection, agent_id: str) -> AgentMembership:
    select = (
        sa.select(
            agent_credentials.c.resource_group,
            agents.c.resource_group.label("current_group"),
            agents.c.status,
            agents.c.schedulable,
            _KERNELS.label("kernels"),
        )
        .select_from(
            agent_credentials.outerjoin(agents, agents.c.id == agent_credentials.c.agent_id)
        )
        .where(agent_credentials.c.agent_id == agent_id)
    )
    row = (await tx.execute(select)).one_or_none()
    if row is None:
        raise NotFound(f"no agent {agent_id} has joined", agent=agent_id)
    return AgentMembership(
        agent_id,
        row.current_group or row.resource_group,
        AgentStatus(row.status) if row.status else "",
        bool(row.schedulable),
        row.kernels if row.status else 0,
    )
