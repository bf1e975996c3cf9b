"""Docker networks: one per user, and one per cluster session.

Sessions of different users cannot reach each other. The kernels of a cluster session find each
other by host names, which are the same in every cluster session.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import docker

from bai_services.core.cluster.egress import Source
from bai_services.core.errors import BaiError, InvalidRequest, Unavailable
from bai_services.core.names import check_username

from ..kernels import Cluster
from .calls import DockerCalls

PREFIX = "bai-u-"
CLUSTER_PREFIX = "bai-c-"
# The network of an ended cluster session is not reused; a start may take 15 minutes.
CLUSTER_UNUSED_SECONDS = 1200.0
LABEL = "bai.agent-id"
OWNER = "bai.owner"
BRIDGE_NAME = "com.docker.network.bridge.name"
# Docker's bridge on which each container of an overlay network has a second address.
SHARED_BRIDGE = "docker_gwbridge"
TRIES = 32
TAKEN = 409

Network = ipaddress.IPv4Network


@dataclass(frozen=True, slots=True)
class Attached:
    """The networks of this agent's sessions, and the sources of their packets."""

    names: frozenset[str]
    sources: frozenset[Source]


def network_name(user: str, agent_id: str) -> str:
    """Return the name of a user's network on one agent; user names need no escaping in it.

    The hash of the agent's id separates the agents of several installations on one engine.
    """
    return f"{PREFIX}{check_username(user)}-{hashlib.sha256(agent_id.encode()).hexdigest()[:6]}"


def free_subnets(pool: Network, prefix_length: int, used: Iterable[Network]) -> Iterator[Network]:
    """Yield the subnets of the pool that do not overlap with used ones, lowest first."""
    taken = [network for network in used if network.overlaps(pool)]
    for subnet in pool.subnets(new_prefix=prefix_length):
        if not any(subnet.overlaps(network) for network in taken):
            yield subnet


def read_pool(text: str, prefix_length: int) -> Network:
    """Return the parsed pool.

    Raises
    ------
    InvalidRequest
        If it is not an IPv4 network or smaller than one subnet.
    """
    try:
        pool = ipaddress.IPv4Network(text, strict=True)
    except ValueError as error:
        raise InvalidRequest(f"BAI_AGENT_NETWORK_POOL={text!r}: {error}") from error
    if not pool.prefixlen <= prefix_length <= 30:
        raise InvalidRequest(
            f"BAI_AGENT_NETWORK_POOL={text!r} is too small for a network of /{prefix_length}"
        )
    return pool


class Networks:
    """Creates networks with subnets of its own, because Docker's default pools end at about 30
    networks.
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
        self._making = asyncio.Lock()

    async def ensure(self, user: str) -> str:
        """Return the name of the user's network, which is created if missing.

        Raises
        ------
        Unavailable
            If the pool has no subnet left, or the engine does not answer.
        """
        name = network_name(user, self._agent_id)
        self._used_at[name] = self._clock()
        if await self._calls.run("look", lambda client: _find(client, name)):
            return name
        # One at a time: two would choose the same subnet.
        async with self._making:
            await self._calls.run("change", lambda client: self._make(client, name, user))
        return name

    async def ensure_cluster(self, cluster: Cluster, user: str) -> str:
        """Return the name of a cluster session's network, which is created if missing.

        Raises
        ------
        Unavailable
            If the session spans several machines and this one is in no Swarm, or as ``ensure``.
        """
        name = cluster.network
        if not name.startswith(CLUSTER_PREFIX):
            raise InvalidRequest(f"{name[:80]!r} is not the network of a cluster session")
        self._used_at[name] = self._clock()
        make = self._make_overlay if cluster.is_spread else self._make
        async with self._making:
            await self._calls.run("change", lambda client: make(client, name, user))
        return name

    async def attached(self, containers: Iterable[str]) -> Attached:
        """Return this agent's networks; ``containers`` are its containers on overlay networks.

        Raises
        ------
        Unavailable
            If the engine does not answer.
        """
        ids = frozenset(containers)
        return await self._calls.run("look", lambda client: self._attached(client, ids))

    async def tidy(self, unused_seconds: float) -> list[str]:
        """Remove our networks that have had no container for this time; return their names.

        Those of cluster sessions are removed after ``CLUSTER_UNUSED_SECONDS`` at most.
        """
        now = self._clock()
        try:
            found = await self._calls.run("look", self._mine)
        except (Unavailable, docker.errors.APIError):
            return []
        removed = []
        for name, is_used in found.items():
            if is_used:
                self._used_at[name] = now
            elif now - self._used_at.setdefault(name, now) >= _patience(name, unused_seconds):
                async with self._making:
                    if await self._calls.run("change", _remover(name)):
                        removed.append(name)
        self._used_at = {n: at for n, at in self._used_at.items() if n in found or now - at < 60}
        return removed

    def _make(self, client: docker.APIClient, name: str, user: str) -> None:
        if _find(client, name):
            return
        candidates = free_subnets(self._pool, self._prefix_length, _subnets(client))
        reason = "every subnet of it is in use"
        for subnet, _ in zip(candidates, range(TRIES), strict=False):
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
                if error.status_code == TAKEN and _find(client, name):
                    return
                reason = str(error.explanation or error)
                # It is used by something that Docker does not list; the next subnet may be free.
                if "overlap" not in reason.lower() and "conflict" not in reason.lower():
                    break
        raise _refused(name, self._pool, reason)

    def _make_overlay(self, client: docker.APIClient, name: str, user: str) -> None:
        """Create a network over all machines of the Swarm; only its managers can."""
        swarm = (client.info().get("Swarm") or {}) if not _find(client, name) else None
        if swarm is None:
            return
        if swarm.get("LocalNodeState") != "active":
            raise Unavailable(
                "the kernels of this session are on several machines, which needs a Docker Swarm, "
                "and this machine is in none; ask for cluster_mode single-node, or an "
                "administrator for a Swarm"
            )
        if not swarm.get("ControlAvailable"):
            return  # a worker sees it when its container joins it
        try:
            client.create_network(
                name,
                driver="overlay",
                attachable=True,
                scope="swarm",
                labels={LABEL: self._agent_id, OWNER: user},
            )
        except docker.errors.APIError as error:
            if error.status_code != TAKEN and not _find(client, name):
                raise

    def _attached(self, client: docker.APIClient, containers: frozenset[str]) -> Attached:
        found = client.networks(filters={"label": f"{LABEL}={self._agent_id}"})
        bridges = [n for n in found if n["Driver"] == "bridge"]
        sources = {Source(_interface(network)) for network in bridges}
        shared = client.networks(names=[SHARED_BRIDGE]) if containers else []
        for one in shared:
            about = client.inspect_network(one["Id"])
            sources |= {
                Source(_interface(about), endpoint["IPv4Address"].partition("/")[0])
                for container, endpoint in about["Containers"].items()
                if container in containers and endpoint.get("IPv4Address")
            }
        return Attached(frozenset(n["Name"] for n in bridges), frozenset(sources))

    def _mine(self, client: docker.APIClient) -> dict[str, bool]:
        found = client.networks(filters={"label": f"{LABEL}={self._agent_id}"})
        names = [n["Name"] for n in found if n["Name"].startswith((PREFIX, CLUSTER_PREFIX))]
        return {name: bool(client.inspect_network(name)["Containers"]) for name in names}


def _patience(name: str, unused_seconds: float) -> float:
    if name.startswith(CLUSTER_PREFIX):
        return min(CLUSTER_UNUSED_SECONDS, unused_seconds)
    return unused_seconds


def _interface(network: Mapping[str, Any]) -> str:
    """Return the interface name of a bridge network on the machine."""
    return str((network["Options"] or {}).get(BRIDGE_NAME) or f"br-{network['Id'][:12]}")


def _find(client: docker.APIClient, name: str) -> bool:
    # Docker's filter matches every name that contains this one.
    return any(network["Name"] == name for network in client.networks(names=[name]))


def _subnets(client: docker.APIClient) -> list[Network]:
    found = []
    for network in client.networks():
        for config in (network.get("IPAM") or {}).get("Config") or ():
            subnet = _parsed(config.get("Subnet"))
            if subnet is not None:
                found.append(subnet)
    return found


def _parsed(text: Any) -> Network | None:
    try:
        return ipaddress.IPv4Network(str(text), strict=False)
    except ValueError:
        return None


def _remover(name: str) -> Callable[[docker.APIClient], bool]:
    def remove(client: docker.APIClient) -> bool:
        try:
            client.remove_network(name)
        except docker.errors.APIError:
            # Already gone, or a container has just joined it.
            return False
        return True

    return remove


def _refused(name: str, pool: Network, reason: str) -> BaiError:
    return Unavailable(
        f"the session's network {name} cannot be created in {pool}: {reason[:300]}", pool=str(pool)
    )
