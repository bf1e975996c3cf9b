"""Routing table that the manager sends to gateways: endpoints, their replicas and tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Protocol(StrEnum):
    """Protocol of the server of a replica. ``grpc``: gRPC over HTTP/2 without TLS."""

    HTTP = "http"
    GRPC = "grpc"


@dataclass(frozen=True, slots=True)
class ReplicaRoute:
    id: str  # id of the session
    revision_id: str
    url: str  # http://host:port, reachable from the gateway
    # Sent to the replica in the header `Authorization: token SECRET`; "" if it needs none.
    secret: str = field(repr=False)
    is_draining: bool  # gets no new request; reported when its last one has ended
    # The health check of its revision: path ("": that of the endpoint), status, and time limit.
    health_path: str = ""
    health_status: int = 0  # 0: any below 400
    health_seconds: float = 0.0  # 0: that of the gateway
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
    is_public: bool
    is_paused: bool
    weights: Mapping[str, int]  # revision id -> share of new requests
    replicas: tuple[ReplicaRoute, ...]
    tokens: tuple[TokenRoute, ...]
    health_path: str
    max_queue: int  # requests that wait for a replica, in each gateway
    queue_seconds: int  # how long they wait (scale from zero), then 503 with Retry-After
    max_concurrent_per_replica: int
    request_seconds: int  # limit for the time to the first byte and between two chunks
    max_body_bytes: int
    # Requests whose prompts begin with the same characters go to the same replica; 0: not so.
    prefix_characters: int = 0
    # Protocol of the active revision: an endpoint without a replica has one, too.
    protocol: Protocol = Protocol.HTTP


@dataclass(frozen=True, slots=True)
class RoutingTable:
    version: str  # opaque; changes with the content
    endpoints: tuple[EndpointRoute, ...]
