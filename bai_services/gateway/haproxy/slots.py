"""Assignment of HAProxy's pools and server slots to replicas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from bai_services.core.serving.gateway_records import EndpointRoute, Protocol

from ..routes import Endpoint, Replica
from .configuration import BY_SHARE, grpc_name, pool_name, slot_name
from .wanted import FREE, Server, State, Wanted, is_address, is_word, shares, token_entries

# Endpoint, revision, and the secret that HAProxy sends to all replicas of the pool.
PoolKey = tuple[str, str, str]


@dataclass(slots=True)
class Slot:
    """A server of HAProxy; a replica keeps its slot until it has no requests in the slot."""

    name: str
    replica: Replica | None = None
    address: str = ""
    port: int = 0
    is_ready: bool = False
    # Remaining requests after HAProxy has stopped sending new ones; None: not reported yet.
    running: int | None = 0
    # The part of ``replica.elsewhere``; see ``count``.
    counted: int = 0

    def holds(self, replica: Replica) -> bool:
        return (
            self.replica is not None
            and self.replica.id == replica.id
            and (self.address, self.port) == (replica.host, replica.port)
        )

    def assign(self, replica: Replica) -> None:
        if self.replica is not replica:
            counted = self.counted
            self.count(0)
            self.replica = replica
            self.count(counted)

    def count(self, requests: int) -> None:
        """Set the number of requests of this slot.

        A replica has several slots after a change of its address or secret, until the requests in
        the previous slot have ended.
        """
        if self.replica is not None:
            self.replica.elsewhere += requests - self.counted
            self.counted = requests

    def free(self) -> None:
        self.count(0)
        self.replica, self.is_ready, self.running = None, False, 0


@dataclass(slots=True)
class Pool:
    name: str
    slots: list[Slot]
    key: PoolKey | None = None
    protocol: Protocol = Protocol.HTTP
    max_connections: int = 1

    @property
    def backend(self) -> str:
        """Return HAProxy's backend with the replicas."""
        return grpc_name(self.name) if self.protocol is Protocol.GRPC else self.name

    def is_unused(self) -> bool:
        return all(slot.replica is None for slot in self.slots)

    @property
    def has_ready_slot(self) -> bool:
        return any(slot.is_ready for slot in self.slots)

    def server(self, slot: Slot) -> Server:
        if slot.replica is None:
            return FREE
        # A pool without a ready replica is in no map, but requests may wait in its queue. Its
        # servers stay ready, because HAProxy refuses waiting requests if all servers are drained.
        is_ready = slot.is_ready or not self.has_ready_slot
        state: State = "ready" if is_ready else "drain"
        return Server(slot.address, slot.port, self.max_connections, state)


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The map entries for the tokens of an endpoint; they are valid before the time ``until``."""

    route: EndpointRoute
    until: float
    entries: dict[str, str]

    def are_those_of(self, route: EndpointRoute, now: float) -> bool:
        is_same = self.route is route or (
            self.route.name == route.name
            and self.route.is_public == route.is_public
            and self.route.tokens == route.tokens
        )
        return is_same and now < self.until


@dataclass
class Slots:
    """Assigns pools to revisions and slots to replicas; both are kept while they are in use."""

    pools: list[Pool]
    by_key: dict[PoolKey, Pool] = field(default_factory=dict)
    # Cached by endpoint, because many entries may be needed several times per second.
    _tokens: dict[str, _Tokens] = field(default_factory=dict)

    @classmethod
    def create(cls, pools: int, slots: int) -> Slots:
        names = [slot_name(number) for number in range(1, slots + 1)]
        return cls(
            [Pool(pool_name(number), [Slot(name) for name in names]) for number in range(pools)]
        )

    def wanted(self, endpoints: Iterable[Endpoint], now: float) -> Wanted:
        """Return the desired entries of HAProxy's maps and states of its servers.

        The gateway itself serves an endpoint if one of its ready replicas has no slot.
        """
        maps: dict[str, dict[str, str]] = {
            name: {} for name in ("tokens", "pools", "secrets", "limits", "owners")
        }
        ready: dict[int, Slot] = {}
        endpoints = list(endpoints)
        self._release(endpoints)
        live = {endpoint.route.id for endpoint in endpoints}
        self._tokens = {key: each for key, each in self._tokens.items() if key in live}
        for endpoint in endpoints:
            maps["tokens"].update(self._token_entries(endpoint.route, now))
            if is_word(endpoint.route.name):
                maps["owners"][endpoint.route.name] = endpoint.route.owner_id
            groups = ready_groups(endpoint)
            placed = {key: self._place(key, replicas) for key, replicas in groups.items()}
            for key, found in placed.items():
                if (pool := self.by_key.get(key)) is not None:
                    pool.max_connections = endpoint.route.max_concurrent_per_replica
                ready.update((id(slot), slot) for slot in found if slot is not None)
            if placed and all(None not in found for found in placed.values()):
                self._add_pools(maps, endpoint, groups)
        for pool in self.pools:
            for slot in pool.slots:
                is_ready = id(slot) in ready
                if slot.is_ready != is_ready:
                    slot.is_ready = is_ready
                    slot.running = None
        return Wanted(maps, self._servers())

    def _token_entries(self, route: EndpointRoute, now: float) -> dict[str, str]:
        known = self._tokens.get(route.id)
        if known is None or not known.are_those_of(route, now):
            ends = [token.expires_at for token in route.tokens if token.expires_at is not None]
            until = min((end for end in ends if end > now), default=inf)
            known = _Tokens(route, until, dict(token_entries(route, now)))
        elif known.route is not route:
            known = replace(known, route=route)
        self._tokens[route.id] = known
        return known.entries

    def _servers(self) -> dict[tuple[str, str], Server]:
        return {
            (name, slot.name): pool.server(slot) if name == pool.backend else FREE
            for pool in self.pools
            for name in (pool.name, grpc_name(pool.name))
            for slot in pool.slots
        }

    def _release(self, endpoints: list[Endpoint]) -> None:
        """Free the slots of replicas that get no more requests and have no running requests."""
        usable = {
            id(replica)
            for endpoint in endpoints
            for replica in endpoint.replicas.values()
            if not replica.route.is_draining
        }
        for pool in self.pools:
            for slot in pool.slots:
                replica = slot.replica
                if replica is None or slot.is_ready or slot.running != 0:
                    continue
                if id(replica) not in usable or not slot.holds(replica):
                    slot.free()
            if pool.key is not None and pool.is_unused():
                del self.by_key[pool.key]
                pool.key = None

    def _place(self, key: PoolKey, replicas: list[Replica]) -> list[Slot | None]:
        pool = self.by_key.get(key)
        if pool is None:
            pool = next((pool for pool in self.pools if pool.key is None), None)
            if pool is None:
                return [None for _ in replicas]
            pool.key, self.by_key[key] = key, pool
            pool.protocol = replicas[0].route.protocol
        return [self._slot(pool, replica) for replica in replicas]

    def _slot(self, pool: Pool, replica: Replica) -> Slot | None:
        for slot in pool.slots:
            if slot.holds(replica):
                slot.assign(replica)
                return slot
        for slot in pool.slots:
            if slot.replica is None:
                slot.assign(replica)
                slot.address, slot.port = replica.host, replica.port
                # Assume one request until HAProxy reports the number: the slot must not be freed.
                slot.running = None
                slot.count(1)
                return slot
        return None

    def _add_pools(
        self,
        maps: Mapping[str, dict[str, str]],
        endpoint: Endpoint,
        groups: Mapping[PoolKey, list[Replica]],
    ) -> None:
        route = endpoint.route
        limits = f"{route.max_queue}/{route.request_seconds * 1000}/{route.max_body_bytes}"
        names = []
        for key in groups:
            name = self.by_key[key].backend
            names.append(name)
            maps["limits"][name] = limits
            if secret := key[2]:
                maps["secrets"][name] = secret
        if len(names) == 1:
            maps["pools"][route.name] = names[0]
            return
        maps["pools"][route.name] = BY_SHARE
        number = 0
        for name, share in zip(names, shares(_weights(endpoint, groups)), strict=True):
            for _ in range(share):
                maps["pools"][f"{route.name}/:{number}"] = name
                number += 1


def ready_groups(endpoint: Endpoint) -> dict[PoolKey, list[Replica]]:
    """Return the replicas that may get requests; {} if the gateway itself serves the endpoint."""
    route = endpoint.route
    groups: dict[PoolKey, list[Replica]] = defaultdict(list)
    if route.is_paused or not is_word(route.name):
        return groups
    if route.prefix_characters and route.protocol is not Protocol.GRPC:
        return groups
    for replica in endpoint.replicas.values():
        weight = route.weights.get(replica.route.revision_id, 0)
        if not replica.is_ready or replica.route.is_draining or weight <= 0:
            continue
        if replica.base_path or not is_address(replica.host) or not is_word(replica.route.secret):
            return {}
        groups[route.id, replica.route.revision_id, replica.route.secret].append(replica)
    return groups


def _weights(endpoint: Endpoint, groups: Mapping[PoolKey, list[Replica]]) -> list[float]:
    """Return the weight of each group: the revision's weight times its share of the replicas."""
    replicas: dict[str, int] = defaultdict(int)
    for (_, revision, _), members in groups.items():
        replicas[revision] += len(members)
    return [
        endpoint.route.weights[revision] * len(members) / replicas[revision]
        for (_, revision, _), members in groups.items()
    ]
