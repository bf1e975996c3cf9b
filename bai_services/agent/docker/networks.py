"""Docker networks: one per user, and one per cluster session.

Sessions of different users cannot reach each other. The kernels of a cluster session reach each
other by host name; each cluster session has its own network, because all use the same host names.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import docker

from bai_services.core.cluster.egress import Source
from bai_services.core.errors import BaiError, InvalidRequest, Unavailable
from bai_services.core.names import check_username
from bai_services.single_flight import SingleFlight

from ..kernels import Cluster
from .calls import DockerCalls

PREFIX = "bai-u-"
CLUSTER_PREFIX = "bai-c-"
# Maximum time for which an unused network of a cluster session is kept. The network is created
# before the containers, and the start of a session may take 15 minutes.
CLUSTER_UNUSED_SECONDS = 1200.0
LABEL = "bai.agent-id"
OWNER = "bai.owner"
BRIDGE_NAME = "com.docker.network.bridge.name"
# Docker's bridge on which each container of an overlay network has an additional address.
SHARED_BRIDGE = "docker_gwbridge"
MAX_SUBNET_ATTEMPTS = 32
CONFLICT = 409

Network = ipaddress.IPv4Network


@dataclass(frozen=True, slots=True)
class SessionNetworks:
    """Names of this agent's bridge networks, and packet sources that egress rules apply to."""

    names: frozenset[str]
    sources: frozenset[Source]


def network_name(user: str, agent_id: str) -> str:
    """Return the name of a user's network on one agent.

    The hash of the agent's id distinguishes agents of several installations on one engine.
    """
    return f"{PREFIX}{check_username(user)}-{hashlib.sha256(agent_id.encode()).hexdigest()[:6]}"


def free_subnets(pool: Network, prefix_length: int, used: Iterable[Network]) -> Iterator[Network]:
    """Yield the subnets of the pool that do not overlap with ``used``, lowest first."""
    taken = [network for network in used if network.overlaps(pool)]
    for subnet in pool.subnets(new_prefix=prefix_length):
        if not any(subnet.overlaps(network) for network in taken):
            yield subnet


def read_pool(text: str, prefix_length: int) -> Network:
    """Parse the setting of the network pool; ``prefix_length`` is the length of subnet prefixes.

    Raises
    ------
    InvalidRequest
        If the setting is not an IPv4 network or is smaller than one subnet.
    """
    try:
        pool = ipaddress.IPv4Network(text, strict=True)
    except ValueError as error:
        raise InvalidRequest(f"BAI_AGENT_NETWORK_POOL={text!r}: {error}") from error
    if pool.prefixlen > prefix_length:
        raise InvalidRequest(
            f"BAI_AGENT_NETWORK_POOL={text!r} is too small for a network of /{prefix_length}"
        )
    return pool


class NoFreeSubnet(Unavailable):
    """No subnet of the pool is free; the session may start on another machine, or later."""


class Networks:
    """Creates, lists and removes Docker networks.

    The subnets of bridge networks are chosen here, because Docker's default pools allow only about
    30 networks.
    """

    def __init__(
        self,
        calls: DockerCalls,
        agent_id: str,
        pool: Network,
        prefix_length: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._calls = calls
        self._agent_id = agent_id
        self._pool = pool
        self._prefix_length = prefix_length
        self._clock = clock
        self._used_at: dict[str, float] = {}
        self._create_lock = asyncio.Lock()
        self._creations: SingleFlight[str, None] = SingleFlight()

    async def ensure(self, user: str) -> str:
        """Create the user's network if it is missing, and return its name.

        Raises
        ------
        NoFreeSubnet
            If all subnets of the pool are in use.
        Unavailable
            If the network cannot be created for another reason, or if the engine does not respond.
        """
        name = network_name(user, self._agent_id)
        self._used_at[name] = self._clock()
        if await self._calls.run("query", lambda client: _find(client, name)):
            return name
        await self._create_once(name, user, self._create)
        return name

    async def ensure_cluster(self, cluster: Cluster, user: str) -> str:
        """Create a cluster session's network if it is missing, and return its name.

        Raises
        ------
        Unavailable
            If the session spans several machines and this machine is not in a Docker Swarm, or for
            the reasons of ``ensure``.
        InvalidRequest
            If the name is not valid for the network of a cluster session.
        """
        name = cluster.network
        if not name.startswith(CLUSTER_PREFIX):
            raise InvalidRequest(f"{name[:80]!r} is not a valid network name of a cluster session")
        self._used_at[name] = self._clock()
        make = self._create_overlay if cluster.is_spread else self._create
        await self._create_once(name, user, make)
        return name

    async def _create_once(
        self, name: str, user: str, create: Callable[[docker.APIClient, str, str], None]
    ) -> None:
        """Run ``create`` to its end, even if the caller is cancelled.

        The lock must be held until its end: Docker would otherwise create a second network with the
        same name, and could then start no container in either network.
        """

        async def run() -> None:
            # Hold the lock, because concurrent calls would choose the same subnet.
            async with self._create_lock:
                await self._calls.run("change", lambda client: create(client, name, user))

        await self._creations(name, run)

    async def session_networks(self, containers: Iterable[str]) -> SessionNetworks:
        """Return this agent's bridge networks and packet sources.

        ``containers`` are the ids of the agent's containers on overlay networks.

        Raises
        ------
        Unavailable
            If the engine does not respond.
        """
        ids = frozenset(containers)
        return await self._calls.run("query", lambda client: self._session_networks(client, ids))

    async def is_full(self) -> bool:
        """Return whether no subnet of the pool is free.

        Raises
        ------
        Unavailable
            If the engine does not respond.
        """
        used = await self._calls.run("query", _subnets)
        return await asyncio.to_thread(self._is_full, used)

    def _is_full(self, used: Sequence[Network]) -> bool:
        subnets = 2 ** (self._prefix_length - self._pool.prefixlen)
        size = self._pool.num_addresses // subnets
        # Count first, because a search takes a second if most of 1,024 subnets are used.
        overlapping = [network for network in used if network.overlaps(self._pool)]
        covered = sum(max(1, network.num_addresses // size) for network in overlapping)
        if covered < subnets:
            return False
        return next(free_subnets(self._pool, self._prefix_length, used), None) is None

    async def remove_unused(self, unused_seconds: float) -> list[str]:
        """Remove this agent's networks that were unused for ``unused_seconds``; return their names.

        The limit for the network of a cluster session is at most ``CLUSTER_UNUSED_SECONDS``,
        because no other session uses that network.
        """
        now = self._clock()
        try:
            networks = await self._calls.run("query", self._list_own)
        except (Unavailable, docker.errors.APIError):
            return []
        removed = []
        for name, is_used in networks.items():
            if is_used:
                self._used_at[name] = now
            elif now - self._used_at.setdefault(name, now) >= _unused_timeout(name, unused_seconds):
                async with self._create_lock:
                    if await self._calls.run("change", _remover(name)):
                        removed.append(name)
        self._used_at = {n: at for n, at in self._used_at.items() if n in networks or now - at < 60}
        return removed

    def _create(self, client: docker.APIClient, name: str, user: str) -> None:
        if _find(client, name):
            return
        used = _subnets(client)
        if self._is_full(used):
            raise NoFreeSubnet(
                f"all subnets of {self._pool}, the network pool of the machine, are in use",
                pool=str(self._pool),
            )
        candidates = free_subnets(self._pool, self._prefix_length, used)
        reason = "all of its subnets are in use outside of Docker"
        for subnet, _ in zip(candidates, range(MAX_SUBNET_ATTEMPTS), strict=False):
            pool = docker.types.IPAMPool(subnet=str(subnet))
            try:
                client.create_network(
                    name,
                    driver="bridge",
                    ipam=docker.types.IPAMConfig(pool_configs=[pool]),
                    check_duplicate=True,
                    labels={LABEL: self._agent_id, OWNER: user},
                )
                return
            except docker.errors.APIError as error:
                if error.status_code == CONFLICT and _find(client, name):
                    return
                reason = str(error.explanation or error)
                # In case of an overlap, the machine uses this range outside of Docker. Try the next
                # subnet.
                if "overlap" not in reason.lower() and "conflict" not in reason.lower():
                    break
        raise _unavailable(name, self._pool, reason)

    def _create_overlay(self, client: docker.APIClient, name: str, user: str) -> None:
        """Create an overlay network of the Docker Swarm; do nothing on a Swarm worker."""
        swarm = (client.info().get("Swarm") or {}) if not _find(client, name) else None
        if swarm is None:
            return
        if swarm.get("LocalNodeState") != "active":
            raise Unavailable(
                "the kernels of this session are on several machines, which requires a Docker "
                "Swarm, but this machine is not part of one; request cluster_mode single-node, or "
                "ask an administrator to set up a Swarm"
            )
        if not swarm.get("ControlAvailable"):
            return  # a Swarm worker gets the network when a container joins it
        try:
            client.create_network(
                name,
                driver="overlay",
                attachable=True,
                scope="swarm",
                labels={LABEL: self._agent_id, OWNER: user},
            )
        except docker.errors.APIError as error:
            if error.status_code != CONFLICT and not _find(client, name):
                raise

    def _session_networks(
        self, client: docker.APIClient, containers: frozenset[str]
    ) -> SessionNetworks:
        own = client.networks(filters={"label": f"{LABEL}={self._agent_id}"})
        bridges = [n for n in own if n["Driver"] == "bridge"]
        sources = {Source(_interface(network)) for network in bridges}
        shared = client.networks(names=[SHARED_BRIDGE]) if containers else []
        for bridge in shared:
            info = client.inspect_network(bridge["Id"])
            sources |= {
                Source(_interface(info), endpoint["IPv4Address"].partition("/")[0])
                for container, endpoint in info["Containers"].items()
                if container in containers and endpoint.get("IPv4Address")
            }
        return SessionNetworks(frozenset(n["Name"] for n in bridges), frozenset(sources))

    def _list_own(self, client: docker.APIClient) -> dict[str, bool]:
        """Return the names of this agent's networks, and whether each has a container."""
        own = client.networks(filters={"label": f"{LABEL}={self._agent_id}"})
        names = [n["Name"] for n in own if n["Name"].startswith((PREFIX, CLUSTER_PREFIX))]
        return {name: bool(client.inspect_network(name)["Containers"]) for name in names}


def _unused_timeout(name: str, unused_seconds: float) -> float:
    if name.startswith(CLUSTER_PREFIX):
        return min(CLUSTER_UNUSED_SECONDS, unused_seconds)
    return unused_seconds


def _interface(network: Mapping[str, Any]) -> str:
    """Return the name of a bridge network's interface on this machine."""
    return str((network["Options"] or {}).get(BRIDGE_NAME) or f"br-{network['Id'][:12]}")


def _find(client: docker.APIClient, name: str) -> bool:
    # Compare exactly: Docker's filter matches every name that contains this name.
    return any(network["Name"] == name for network in client.networks(names=[name]))


def _subnets(client: docker.APIClient) -> list[Network]:
    subnets = []
    for network in client.networks():
        for config in (network.get("IPAM") or {}).get("Config") or ():
            subnet = _parse_subnet(config.get("Subnet"))
            if subnet is not None:
                subnets.append(subnet)
    return subnets


def _parse_subnet(text: Any) -> Network | None:
    try:
        return ipaddress.IPv4Network(str(text), strict=False)
    except ValueError:
        return None


def _remover(name: str) -> Callable[[docker.APIClient], bool]:
    def remove(client: docker.APIClient) -> bool:
        try:
            client.remove_network(name)
        except docker.errors.APIError:
            # The network was already removed, or a container has just joined it.
            return False
        return True

    return remove


def _unavailable(name: str, pool: Network, reason: str) -> BaiError:
    return Unavailable(
        f"the session's network {name} cannot be created in {pool}: {reason[:300]}", pool=str(pool)
    )
