"""Invitations of agents, and the credentials of machines that have joined."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ..errors import InvalidRequest

DEFAULT_MINUTES = 60
MAX_MINUTES = 7 * 24 * 60
# Prefix of every agent credential: other tokens are rejected without a database query.
CREDENTIAL_PREFIX = "bai-agent-"
# The prefix, followed by 32 random bytes in URL-safe base64.
_CREDENTIAL = re.compile(CREDENTIAL_PREFIX + r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInvitation:
    """Permission for one machine to join; ``used_at`` and ``agent_id`` are None while unused."""

    id: str
    created_at: datetime
    created_by: str
    resource_group: str
    expires_at: datetime
    used_at: datetime | None
    agent_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedAgentInvitation(AgentInvitation):
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SwarmJoin:
    """The information with which a machine joins the Swarm as a worker."""

    token: str = field(repr=False)
    addresses: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class StoragePath:
    """A storage host and its directory, which must be mounted at the same path on each machine."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class AgentJoin:
    """Response to a machine that joins; ``swarm`` is None if the installation has no Swarm."""

    agent_id: str
    resource_group: str
    engine: str
    swarm: SwarmJoin | None
    storage: Sequence[StoragePath]


@dataclass(frozen=True, slots=True)
class AgentMembership:
    """A joined agent; ``status`` is "" before its first heartbeat."""

    agent_id: str
    resource_group: str
    status: str
    schedulable: bool
    kernels: int


def check_credential(text: str) -> str:
    """Return ``text`` if its form is valid for an agent's credential.

    Raises
    ------
    InvalidRequest
        If the form is not valid. The message does not contain ``text``.
    """
    if not _CREDENTIAL.fullmatch(text):
        raise InvalidRequest(
            f"credential must be {CREDENTIAL_PREFIX} and 32 random bytes in URL-safe base64",
            field="credential",
        )
    return text
