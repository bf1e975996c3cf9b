"""Endpoints, replicas and tokens of the current routing table, with their running requests."""

from __future__ import annotations

import hmac
import ipaddress
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol
from urllib.parse import urlsplit

from bai_services.core.ip_addresses import parse_address
from bai_services.core.serving.balancing import WeightedTurns, by_prefix, least_outstanding
from bai_services.core.serving.gateway_records import (
    EndpointRoute,
    ReplicaRoute,
    RoutingTable,
    TokenRoute,
)
from bai_services.core.serving.token_limits import MAX_TOKEN_CHARACTERS, RequestRate, digest_of

from .heads import Refusal
from .replica_connection import ReplicaConnection

_NEEDS_TOKEN = "send a token of this endpoint as Authorization: Bearer TOKEN"


class RunningRequest(Protocol):
    """A request that has a token or waits in a queue."""

    queued_at: float
    prefix: bytes

    def start(self, replica: Replica) -> None: ...
    def refuse(self, refusal: Refusal) -> None: ...


@dataclass(frozen=True, slots=True)
class Load:
    """Numbers of an endpoint's running requests and of requests that wait for a replica."""

    in_flight: int = 0
    queued: int = 0


class Replica:
    """A replica and the requests that it has from this gateway.

    ``elsewhere``: the number of requests that HAProxy has forwarded to it directly.
    """

    __slots__ = (
        "authorization", "base_path", "elsewhere", "failures", "host", "id", "idle", "is_gone",
        "is_ready", "outstanding", "port", "probed_at", "route",
    )  # fmt: skip

    def __init__(self, route: ReplicaRoute) -> None:
        self.id = route.id
        self.outstanding = 0
        self.elsewhere = 0
        self.failures = 0
        self.probed_at = float("-inf")
        self.is_ready = False
        self.is_gone = False
        self.idle: list[ReplicaConnection] = []
        self.update(route)

    def update(self, route: ReplicaRoute) -> None:
        self.route = route
        url = urlsplit(route.url)
        self.host = url.hostname or ""
        self.port = url.port or 80
        self.base_path = url.path.rstrip("/").encode()
        self.authorization = (
            b"Authorization: token %b\r\n" % route.secret.encode("latin-1") if route.secret else b""
        )

    @property
    def is_drained(self) -> bool:
        return self.route.is_draining and not self.outstanding and not self.elsewhere

    def is_available(self, limit: int) -> bool:
        return self.is_ready and not self.route.is_draining and self.outstanding < limit

    def close_idle(self) -> None:
        idle, self.idle = self.idle, []
        for connection in idle:
            connection.close()


class Token:
    """A token of an endpoint with its running requests."""

    __slots__ = ("networks", "rate", "route", "running")

    def __init__(self, route: TokenRoute) -> None:
        self.running: set[RunningRequest] = set()
        self.rate: RequestRate | None = None
        self.update(route)

    def update(self, route: TokenRoute) -> None:
        self.route = route
        self.networks = tuple(ipaddress.ip_network(text) for text in route.networks)
        limit = route.requests_per_minute
        if limit is None:
            self.rate = None
        elif self.rate is None or self.rate.per_minute != limit:
            self.rate = RequestRate(limit)

    @property
    def has_limits(self) -> bool:
        return self.route.requests_per_minute is not None or self.route.max_concurrent is not None

    def has_expired(self) -> bool:
        expires_at = self.route.expires_at
        return expires_at is not None and expires_at <= time.time()

    def check(self, client: str) -> None:
        """Raise ``Refusal`` if a client may not send a request now; otherwise count the request."""
        if self.has_expired():
            raise _unauthorized("the token has expired")
        if self.networks and not self._contains(client):
            raise Refusal(
                HTTPStatus.FORBIDDEN, "forbidden", "the token may not be used from this address"
            )
        limit = self.route.max_concurrent
        if limit is not None and len(self.running) >= limit:
            raise Refusal(
                HTTPStatus.TOO_MANY_REQUESTS,
                "rate-limited",
                f"the token has {limit} running requests, which is its limit",
                retry_after=1,
            )
        if self.rate is not None and (wait := self.rate.take(time.monotonic())):
            raise Refusal(
                HTTPStatus.TOO_MANY_REQUESTS,
                "rate-limited",
                f"the token allows {self.rate.per_minute} requests per minute",
                retry_after=wait,
            )

    def _contains(self, client: str) -> bool:
        address = parse_address(client)
        return address is not None and any(
            address.version == network.version and address in network for network in self.networks
        )


class Owner:
    """The usage that counts towards the common limits of one owner's endpoints.

    A user may have many endpoints, so limits of single endpoints would not protect other users.
    """

    __slots__ = ("held_bytes", "requests")

    def __init__(self) -> None:
        self.requests = 0  # running, waiting, or with an incomplete head
        self.held_bytes = 0  # bytes of bodies that are buffered for requests without a replica


class Endpoint:
    """An endpoint with its replicas, tokens and waiting requests."""

    def __init__(self, route: EndpointRoute, owner: Owner | None = None) -> None:
        self.route = route
        self.owner = owner or Owner()
        self.replicas: dict[str, Replica] = {}
        self.tokens: dict[str, Token] = {}
        self.queue: deque[RunningRequest] = deque()
        # Requests without a token, while the endpoint is public.
        self.anonymous: set[RunningRequest] = set()
        self.in_flight = 0
        # Requests in HAProxy, if it is in front of the gateway.
        self.elsewhere = Load()
        # Replicas that are no longer in the table, but still have requests. If such a replica is in
        # the table again (after failed health checks), it counts as drained only when these
        # requests have also ended.
        self._leaving: dict[str, Replica] = {}
        self._turns = WeightedTurns()
        self._turn = 0
        self.update(route)

    def update(self, route: EndpointRoute) -> None:
        self.route = route
        self._update_replicas(route)
        tokens = {token.route.id: token for token in self.tokens.values()}
        self.tokens = {}
        for token_route in route.tokens:
            token = tokens.pop(token_route.id, None)
            if token is not None and token.route.digest != token_route.digest:
                self._end_requests_of(token)
                token = None
            if token is None:
                token = Token(token_route)
            else:
                token.update(token_route)
            self.tokens[token_route.digest] = token
        for token in tokens.values():
            self._end_requests_of(token)
        if not route.is_public:
            self._refuse_all(self.anonymous, _unauthorized(_NEEDS_TOKEN))

    def _end_requests_of(self, token: Token) -> None:
        self._refuse_all(token.running, _unauthorized("the token is no longer valid"))

    def _refuse_all(self, requests: Iterable[RunningRequest], refusal: Refusal) -> None:
        """Refuse all requests; waiting requests must not start when running ones end."""
        ended = set(requests)
        if not ended:
            return
        self.queue = deque(each for each in self.queue if each not in ended)
        for request in ended:
            request.refuse(refusal)

    def _update_replicas(self, route: EndpointRoute) -> None:
        before, self.replicas = {**self._leaving, **self.replicas}, {}
        for replica_route in route.replicas:
            replica = before.get(replica_route.id)
            if replica is None or replica.route.url != replica_route.url:
                self.replicas[replica_route.id] = Replica(replica_route)
                continue
            del before[replica_route.id]
            if replica.is_gone:
                replica.is_gone = replica.is_ready = False
                replica.failures, replica.probed_at = 0, float("-inf")
            replica.update(replica_route)
            self.replicas[replica_route.id] = replica
            if replica_route.is_draining:
                replica.close_idle()
        for replica in before.values():
            replica.is_gone = True
            replica.close_idle()
        self._leaving = {
            key: each for key, each in before.items() if each.outstanding or each.elsewhere
        }

    @property
    def load(self) -> Load:
        return Load(
            self.in_flight + self.elsewhere.in_flight, len(self.queue) + self.elsewhere.queued
        )

    def authorize(self, authorization: bytes, client: str) -> Token | None:
        """Return the token of a request; None for a public endpoint without a token.

        Raises
        ------
        Refusal
            If the request has no valid token, or may not be sent now.
        """
        scheme, _, text = authorization.decode("latin-1").partition(" ")
        text = text.strip()
        if scheme.lower() != "bearer" or not 0 < len(text) <= MAX_TOKEN_CHARACTERS:
            if self.route.is_public:
                return None
            raise _unauthorized(_NEEDS_TOKEN)
        digest = digest_of(text)
        token = self.tokens.get(digest)
        if token is None or not hmac.compare_digest(token.route.digest, digest):
            # Clients of a public endpoint may send any token, because libraries require an API key.
            if self.route.is_public:
                return None
            raise _unauthorized("the token is not valid for this endpoint")
        token.check(client)
        return token

    def choose(self, prefix: bytes = b"") -> Replica | None:
        """Return the replica for the next request; None if none is available."""
        limit, weights = self.route.max_concurrent_per_replica, self.route.weights
        found = [
            replica
            for replica in self.replicas.values()
            if replica.is_available(limit) and weights.get(replica.route.revision_id, 0) > 0
        ]
        revisions = {replica.route.revision_id for replica in found}
        if len(revisions) > 1:
            chosen = self._turns.next(sorted(revisions), weights)
            found = [replica for replica in found if replica.route.revision_id == chosen]
        if not found:
            return None
        if len(found) == 1:
            return found[0]
        if prefix:
            return by_prefix(found, prefix)
        self._turn += 1
        return least_outstanding(found, self._turn)

    def enqueue(self, request: RunningRequest) -> None:
        """Let a request wait for a replica.

        Raises
        ------
        Refusal
            If the queue is full.
        """
        if len(self.queue) >= self.route.max_queue:
            raise busy("no replica is free, and too many requests wait already")
        self.queue.append(request)

    def dispatch(self) -> None:
        """Start waiting requests while replicas are available."""
        while self.queue and (replica := self.choose(self.queue[0].prefix)) is not None:
            self.queue.popleft().start(replica)

    def sweep(self, now: float) -> None:
        """Refuse requests that have waited too long, and end requests with expired tokens."""
        while self.queue and self.queue[0].queued_at + self.route.queue_seconds <= now:
            self.queue.popleft().refuse(
                busy(f"no replica was free within {self.route.queue_seconds} s")
            )
        for token in self.tokens.values():
            if token.running and token.has_expired():
                self._end_requests_of(token)

    def remove(self) -> None:
        """End all requests."""
        running = (token.running for token in self.tokens.values())
        self._refuse_all(self.anonymous.union(*running), not_found())
        for replica in self.replicas.values():
            replica.is_gone = True
            replica.close_idle()


class Routes:
    """The current routing table; ``apply`` replaces it and keeps running requests."""

    def __init__(self) -> None:
        self.by_name: dict[bytes, Endpoint] = {}
        self.version = ""
        self.on_change: Callable[[], None] = lambda: None

    @property
    def is_known(self) -> bool:
        """Return whether the manager has sent a table."""
        return bool(self.version)

    def apply(self, table: RoutingTable) -> None:
        before = {endpoint.route.id: endpoint for endpoint in self.by_name.values()}
        owners = {endpoint.route.owner_id: endpoint.owner for endpoint in before.values()}
        by_name = {}
        for route in table.endpoints:
            endpoint = before.pop(route.id, None)
            if endpoint is None:
                endpoint = Endpoint(route, owners.setdefault(route.owner_id, Owner()))
            else:
                endpoint.update(route)
            by_name[route.name.encode()] = endpoint
        self.by_name, self.version = by_name, table.version
        for endpoint in before.values():
            endpoint.remove()
        for endpoint in by_name.values():
            endpoint.dispatch()
        self.on_change()

    def endpoint(self, name: bytes) -> Endpoint:
        """Return an endpoint that serves requests.

        Raises
        ------
        Refusal
            If there is no such endpoint, it is paused, or no table has arrived yet.
        """
        if not self.is_known:
            raise Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "unavailable",
                "the gateway has not reached the manager yet",
                retry_after=2,
            )
        endpoint = self.by_name.get(name)
        if endpoint is None:
            raise not_found()
        return endpoint


def not_found() -> Refusal:
    return Refusal(HTTPStatus.NOT_FOUND, "not-found", "there is no such endpoint")


def _unauthorized(message: str) -> Refusal:
    return Refusal(HTTPStatus.UNAUTHORIZED, "not-signed-in", message)


def busy(message: str) -> Refusal:
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", message, retry_after=5)
