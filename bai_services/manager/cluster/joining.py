"""Invite machines, admit them with the token of an invitation, and let them leave."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.audit import AuditEntry
from bai_services.core.cluster.joining import (
    CREDENTIAL_PREFIX,
    DEFAULT_MINUTES,
    AgentInvitation,
    AgentJoin,
    AgentMembership,
    CreatedAgentInvitation,
    StoragePath,
    check_credential,
)
from bai_services.core.cluster.model import check_agent_id
from bai_services.core.errors import Forbidden, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.record_fields import fields_of
from bai_services.db.cluster.joining import AgentJoinStore, JoinTerms, NewCredential

from ..accounts import authorizer
from ..accounts.sign_ups import hash_of_token
from ..context import ManagerContext
from ..settings import Settings
from .swarm import Swarm

__all__ = ["AgentJoins", "JoinTerms", "require_own"]

# Other managers may accept a revoked credential for this time.
CACHE_TTL_SECONDS = 10.0
MAX_CACHED = 10_000
# Without the prefix, a token could begin with a dash, and a command line would parse it as an
# option.
TOKEN_PREFIX = "bai-join-"


class AgentJoins:
    """Manages invitations and credentials; a token is returned once, and only its hash stored."""

    def __init__(self, context: ManagerContext, settings: Settings, swarm: Swarm) -> None:
        self._store = AgentJoinStore(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._settings = settings
        self._swarm = swarm
        # By the hash of a credential: its agent, and the monotonic time when the entry expires.
        self._agents: dict[str, tuple[float, str]] = {}

    async def page(self, caller: Caller, query: ListQuery) -> Page[AgentInvitation]:
        authorizer.require(caller, "agent.read")
        return await self._store.page(query)

    async def get(self, caller: Caller, invitation_id: str) -> AgentInvitation:
        authorizer.require(caller, "agent.read")
        found = await self._store.invitation(invitation_id)
        if found is None:
            raise NotFound("there is no such invitation")
        return found

    async def invite(self, caller: Caller, spec: Mapping[str, Any]) -> CreatedAgentInvitation:
        """Create an invitation for one machine; only this response contains its token.

        Raises
        ------
        NotFound
            If the resource group does not exist.
        """
        authorizer.require(caller, "agent.write")
        group, invitation_id = spec.get("resource_group") or "default", str(uuid.uuid4())
        entry = self._audit.entry(
            caller, "agent-invitation.create", invitation_id, resource_group=group
        )
        valid = timedelta(minutes=spec.get("valid_minutes", DEFAULT_MINUTES))
        return await self._create(
            invitation_id, caller.username or caller.role, group, valid, entry
        )

    async def invite_machine(
        self, machine_id: str, group: str, valid: timedelta
    ) -> CreatedAgentInvitation:
        """Create an invitation for a machine that the manager starts."""
        invitation_id = str(uuid.uuid4())
        entry = self._audit.system(
            "agent-invitation.create", invitation_id, resource_group=group, machine=machine_id
        )
        return await self._create(invitation_id, "manager", group, valid, entry)

    async def _create(
        self,
        invitation_id: str,
        created_by: str,
        group: str,
        valid: timedelta,
        entry: AuditEntry,
    ) -> CreatedAgentInvitation:
        now, token = self._clock(), TOKEN_PREFIX + secrets.token_urlsafe(32)
        invitation = AgentInvitation(
            id=invitation_id,
            created_at=now,
            created_by=created_by,
            resource_group=group,
            expires_at=now + valid,
            used_at=None,
            agent_id=None,
        )
        values = {**fields_of(invitation), "token_hash": hash_of_token(token)}
        await self._store.add_invitation(values, entry)
        return CreatedAgentInvitation(**fields_of(invitation), token=token)

    async def delete(self, caller: Caller, invitation_id: str) -> None:
        """Delete an invitation: it can no longer be used. An agent that has joined remains."""
        authorizer.require(caller, "agent.write")
        entry = self._audit.entry(caller, "agent-invitation.delete", invitation_id)
        await self._store.remove_invitation(invitation_id, entry)

    async def join(
        self, token: str, agent_id: str, credential: str, terms: JoinTerms, client_ip: str
    ) -> AgentJoin:
        """Admit a machine that has an invitation; it then reports with ``credential``.

        Raises
        ------
        Forbidden
            If the invitation cannot be used.
        Conflict
            If there is an agent with that id, or its resource group has another engine.
        Unavailable
            If the Swarm does not respond; the invitation is not used.
        """
        check_agent_id(agent_id)
        new = NewCredential(agent_id, hash_of_token(check_credential(credential)), terms)
        # Only requests with an invitation may cause calls of the Docker engine.
        await self._store.require_invitation(hash_of_token(token))
        swarm = await self._swarm.join_information()
        caller = Caller(Role.AGENT, username=agent_id, client_ip=client_ip, agent_id=agent_id)
        entry = self._audit.entry(caller, "agent.join", agent_id)
        joined = await self._store.join(hash_of_token(token), new, self._clock(), entry)
        return AgentJoin(
            agent_id,
            joined.resource_group,
            await self._store.engine_of(joined.resource_group),
            swarm,
            storage_paths(self._settings),
        )

    async def agent_of(self, credential: str) -> str | None:
        """Return the id of the agent with a credential; None if it is unknown or revoked."""
        if not credential.startswith(CREDENTIAL_PREFIX):
            return None
        key, now = hash_of_token(credential), time.monotonic()
        cached = self._agents.get(key)
        if cached is not None and cached[0] > now:
            return cached[1]
        self._agents.pop(key, None)
        agent_id = await self._store.agent_of(key)
        if agent_id is not None:
            if len(self._agents) >= MAX_CACHED:
                self._agents.clear()
            self._agents[key] = now + CACHE_TTL_SECONDS, agent_id
        return agent_id

    def forget(self, agent_id: str) -> None:
        """Remove the credential of a deleted agent from the cache."""
        self._agents = {key: each for key, each in self._agents.items() if each[1] != agent_id}

    async def membership(self, caller: Caller, agent_id: str) -> AgentJoin:
        """Return how an agent joined, with the information for joining the Swarm again."""
        require_own(caller, agent_id)
        joined = await self._store.membership(agent_id)
        return AgentJoin(
            agent_id,
            joined.resource_group,
            await self._store.engine_of(joined.resource_group),
            await self._swarm.join_information(),
            storage_paths(self._settings),
        )

    async def state(self, caller: Caller, agent_id: str) -> AgentMembership:
        require_own(caller, agent_id)
        return await self._store.membership(agent_id)

    async def drain(self, caller: Caller, agent_id: str) -> AgentMembership:
        """Exclude an agent that will leave from the placement of new sessions."""
        require_own(caller, agent_id)
        entry = self._audit.entry(_named(caller), "agent.drain", agent_id)
        return await self._store.drain(agent_id, entry)

    async def leave(self, caller: Caller, agent_id: str) -> None:
        """Delete an agent that leaves, and revoke its credential."""
        require_own(caller, agent_id)
        await self._store.leave(
            agent_id, self._audit.entry(_named(caller), "agent.leave", agent_id)
        )
        self.forget(agent_id)


def storage_paths(settings: Settings) -> list[StoragePath]:
    if not settings.storage_hosts:
        return [StoragePath("local", str(settings.storage_root))]
    return [StoragePath(host.name, str(host.path)) for host in settings.storage_hosts]


def require_own(caller: Caller, agent_id: str) -> None:
    """Raise ``Forbidden`` unless the caller is that agent, or has the secret of all agents."""
    authorizer.require(caller, "agent.report")
    if caller.agent_id not in (None, agent_id):
        raise Forbidden(f"this credential is for the agent {caller.agent_id}")


def _named(caller: Caller) -> Caller:
    return replace(caller, username=caller.agent_id or "")
