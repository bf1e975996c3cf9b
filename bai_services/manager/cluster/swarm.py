"""Client for a manager of the installation's Docker Swarm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import docker

from bai_services.core.cluster.joining import SwarmJoin
from bai_services.core.errors import Unavailable
from bai_services.docker_clients import DockerClients, EngineUnavailable

TIMEOUT_SECONDS = 5.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SwarmNode:
    """A node; ``state`` is ``ready`` if it responds."""

    state: str
    address: str


class Swarm:
    """A Swarm manager at a Docker URL; the URL is "" if the installation has no Swarm."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._clients = DockerClients(TIMEOUT_SECONDS)

    async def join_information(self) -> SwarmJoin | None:
        """Return the worker token and the addresses of the Swarm's managers.

        Raises
        ------
        Unavailable
            If the engine does not respond, or is not a manager of a Swarm.
        """
        return await self._call(_join_information) if self._host else None

    async def nodes(self) -> dict[str, SwarmNode] | None:
        """Return the nodes by their ids; None without a Swarm.

        Raises
        ------
        Unavailable
            If the engine does not respond, or is not a manager of a Swarm.
        """
        return await self._call(_nodes) if self._host else None

    def close(self) -> None:
        self._clients.close()

    async def _call(self, call: Callable[[docker.APIClient], T]) -> T:
        try:
            return await asyncio.to_thread(self._clients.call, self._host, call)
        except EngineUnavailable:
            raise Unavailable(
                "the Docker engine at BAI_SWARM_HOST does not respond; try again shortly"
            ) from None
        except docker.errors.APIError as error:
            raise Unavailable(
                f"the Docker engine at BAI_SWARM_HOST rejected the request: {error.explanation}"
            ) from None


def _join_information(client: docker.APIClient) -> SwarmJoin:
    token = client.inspect_swarm()["JoinTokens"]["Worker"]
    managers: list[dict[str, Any]] = client.info()["Swarm"]["RemoteManagers"] or []
    return SwarmJoin(str(token), [str(manager["Addr"]) for manager in managers])


def _nodes(client: docker.APIClient) -> dict[str, SwarmNode]:
    nodes = {}
    for node in client.nodes():
        status = node.get("Status") or {}
        # Prefer the address in the manager status: the node status of a manager may contain
        # 0.0.0.0.
        managed = str((node.get("ManagerStatus") or {}).get("Addr") or "")
        address = managed.rpartition(":")[0].strip("[]") or str(status.get("Addr") or "")
        nodes[str(node["ID"])] = SwarmNode(str(status.get("State") or "unknown"), address)
    return nodes
