"""Routing table that the manager sends to gateways: endpoints, their replicas and tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

# Requests without a token are reported with this prefix and the id of the endpoint as the token.
ANONYMOUS = "anonymous:"


class Protocol(StrEnum):
    """Protocol of a replica's server. ``grpc``: gRPC over HTTP/2 without TLS."""

    HTTP = "http"
    GRPC = "grpc"


@dataclass(frozen=True, slots=True)
class ReplicaRoute:
    id: str  # id of the session
    revision_id: str
    url: str  # http://host:port, reachable from the gateway
    # Sent to the replica in the header `Authorization: token SECRET`; "": no header.
    secret: str = field(repr=False)
    is_draining: bool  # gets no new requests; the gateway reports the end of its last request
    # The health check of the revision: path ("": the path of the endpoint), expected status, and
    # time limit.
    health_path: str = ""
    health_status: int = 0  # 0: any below 400
    health_seconds: float = 0.0  # 0: the time limit of the gateway
    protocol: Protocol = Protocol.HTTP


@dataclass(frozen=True, slots=True)
class TokenRoute:
    id: str
    # SHA-256 of the token in hex. Tokens are 256-bit random numbers, so no salt is needed.
    digest: str = field(repr=False)
    networks: tuple[str, ...]  # CIDR of permitted client addresses; empty: all
    expires_at: float | None  # seconds since the epoch
    requests_per_minute: int | None
    max_concurrent: int | None


@dataclass(frozen=True, slots=True)
class EndpointRoute:
    id: str
    name: str  # URL /services/bai-serve/NAME/…
    owner_id: str  # the limits of the gateway apply to all endpoints of an owner together
    is_public: bool
    is_paused: bool
    weights: Mapping[str, int]  # revision id -> share of new requests
    replicas: tuple[ReplicaRoute, ...]
    tokens: tuple[TokenRoute, ...]
    health_path: str
    max_queue: int  # requests that wait for a replica, in each gateway
    queue_seconds: int  # maximum wait (scale from zero), then 503 with Retry-After
    max_concurrent_per_replica: int
    request_seconds: int  # limit for the time to the first byte and between two chunks
    max_body_bytes: int
    # Requests with the same first characters of the prompt go to one replica; 0: disabled.
    prefix_characters: int = 0
    # Protocol of the active revision, also while the endpoint has no replica.
    protocol: Protocol = Protocol.HTTP


@dataclass(frozen=True, slots=True)
class RoutingTable:
    version: str  # opaque; changes with the content
    endpoints: tuple[EndpointRoute, ...]
