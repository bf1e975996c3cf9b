"""Endpoints, revisions, replicas and tokens as shown to callers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

# Maximum number of stored revisions; the oldest are deleted, except revisions in use.
REVISIONS_KEPT = 10
# Time for which ended replicas are shown, and their maximum number per endpoint.
ENDED_REPLICAS_KEPT_FOR = timedelta(days=7)
ENDED_REPLICAS_KEPT = 50
# Number of latest phase changes that are kept per replica.
REPLICA_CHANGES_KEPT = 50
# Number of latest changes by a scaling rule that are kept per endpoint.
SCALINGS_KEPT = 50
# Interval and retention of load samples, for endpoints with a scaling rule.
LOAD_INTERVAL_SECONDS = 15
LOADS_KEPT_FOR = timedelta(hours=1)
MAX_LIVE_TRIALS = 3
# Time for which ended trials are shown, and their maximum number per user.
TRIALS_KEPT_FOR = timedelta(days=7)
TRIALS_KEPT = 20
EXPIRED_TOKENS_KEPT_FOR = timedelta(days=30)
MAX_TOKENS = 100
# Maximum number of unexpired chat-page tokens of a user for an endpoint.
MAX_CHAT_TOKENS = 20
# Gateways may report the usage of a token of the chat page after it has expired.
EXPIRED_CHAT_TOKENS_KEPT_FOR = timedelta(hours=1)
# Limited because each gateway stores all tokens, with their networks.
MAX_TOKENS_PER_USER = 500
MAX_ENDPOINTS_PER_USER = 100
# Time for which the name of a deleted endpoint is reserved, and the maximum number of reserved
# names per owner.
NAME_RESERVED_FOR = timedelta(days=30)
MAX_RESERVED_NAMES = 200
# Time without a report after which a gateway counts as stopped.
GATEWAY_TIMEOUT = timedelta(seconds=30)
GATEWAYS_KEPT_FOR = timedelta(days=1)

DEFAULT_MAX_QUEUE = 100
DEFAULT_QUEUE_SECONDS = 60
DEFAULT_MAX_CONCURRENT = 100
DEFAULT_REQUEST_SECONDS = 300
DEFAULT_MAX_BODY_BYTES = 128 * 2**20


class EndpointStatus(StrEnum):
    """Status of an endpoint. ``deploying``: a new revision replaces the former revision.
    ``scaling``: replicas start or end. ``failed``: the only revision was given up. ``stopping``:
    the endpoint is being deleted.
    """

    READY = "ready"
    DEPLOYING = "deploying"
    SCALING = "scaling"
    PAUSED = "paused"
    FAILED = "failed"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An endpoint. ``path``: its path at the Hub's host, also if ``url`` has another host name.
    ``problem``: the last problem of the target revision, "" if there is none. ``ready_replicas``,
    ``starting_replicas``: totals of all revisions. ``scaling``: the rule that sets ``replicas``,
    None for a fixed number; ``scaling_reason``: why the rule has set this number.
    """

    id: str
    created_at: datetime
    version: int
    name: str
    url: str
    path: str
    owner: str
    owner_id: str
    domain: str
    project: str
    project_id: str
    status: EndpointStatus
    problem: str
    problem_coded: Mapping[str, Any] | None
    is_public: bool
    is_paused: bool
    replicas: int
    scaling: Mapping[str, Any] | None
    scaling_reason: str
    scaling_reason_coded: Mapping[str, Any] | None
    ready_replicas: int
    starting_replicas: int
    active_revision: int | None
    target_revision: int
    is_promoted: bool
    weights: Mapping[str, int]
    max_queue: int
    queue_seconds: int
    max_concurrent_per_replica: int
    request_seconds: int
    max_body_bytes: int
    prefix_characters: int
    tags: Sequence[str]
    requests: int
    errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A revision. ``settings`` lacks the fields that the caller may not read (environment,
    command); ``hidden_fields`` names them. ``requests``, ``errors``: counts during the last
    rollout. ``p99_ms``: 99th percentile of the latency of these requests, None if unknown.
    """

    id: str
    created_at: datetime
    number: int
    settings: Mapping[str, Any]
    outcome: str | None
    reason: str
    reason_coded: Mapping[str, Any] | None
    requests: int
    errors: int
    p99_ms: int | None
    hidden_fields: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A replica. ``session_status`` is None if the session does not exist (yet). ``reason`` of a
    starting replica: why the session is pending, or why the health check must pass again.
    """

    id: str
    created_at: datetime
    revision: int | None
    phase: str
    session_status: str | None
    agent: str | None
    changed_at: datetime
    reason: str
    reason_coded: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaChange:
    """A change of the phase of a replica at ``at``."""

    id: int
    at: datetime
    phase: str
    reason: str
    reason_coded: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """A change of the number of replicas by the rule of the endpoint."""

    id: str
    created_at: datetime
    former: int
    replicas: int
    reason: str
    reason_coded: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointUsage:
    """Requests of one day (UTC) with one token. ``token``: its name; "" for the chat page, "*" for
    requests without a token.
    """

    id: int
    day: datetime
    token: str
    requests: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """A load sample of an endpoint with a scaling rule. ``load``: total of all replicas, None if
    unknown. ``replicas``: desired number of replicas. ``ready``: number of ready replicas.
    """

    at: datetime
    load: float | None
    replicas: int
    ready: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadHistory:
    """The load over time; ``load_per_replica``: target load of one replica, None without a rule."""

    interval_seconds: int
    load_per_replica: float | None
    points: Sequence[LoadPoint]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A trial replica of a definition, to which no gateway forwards requests.

    ``state``: a message about the progress or result. ``is_healthy``: None until the trial has
    ended. ``log``: last lines of the output, after the end. ``session``: the trial's session.
    """

    id: str
    created_at: datetime
    session: str
    session_status: str | None
    state: str
    state_coded: Mapping[str, Any]
    is_healthy: bool | None
    ended_at: datetime | None
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointToken:
    id: str
    created_at: datetime
    name: str
    networks: Sequence[str]
    expires_at: datetime | None
    requests_per_minute: int | None
    max_concurrent: int | None
    author: str
    requests: int
    input_tokens: int
    output_tokens: int
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A created token; ``token`` is shown only once."""

    id: str
    name: str
    token: str = field(repr=False)
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatToken:
    """A token for the chat page of one user."""

    token: str = field(repr=False)
    expires_at: datetime
