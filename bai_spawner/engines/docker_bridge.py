"""This machine's address on Docker's default bridge, as seen from containers."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

import docker
import psutil

from .base import EngineError

NAME_OPTION = "com.docker.network.bridge.name"


def bridge_address(client: docker.DockerClient) -> str:
    """Return the IPv4 address of this machine on the network ``bridge``.

    Raises
    ------
    EngineError
        If the engine's bridge is not on this machine.
    """
    return address_of(client.networks.get("bridge").attrs)


def address_of(network: Mapping[str, Any]) -> str:
    """Return the gateway address in the output of ``docker network inspect``.

    Older engines (seen with 20.10) report no gateway after the start that created the bridge, so
    the interface is queried instead.
    """
    for config in network["IPAM"]["Config"]:
        if gateway := config.get("Gateway"):
            return str(gateway)
    interface = network["Options"].get(NAME_OPTION, "docker0")
    for address in psutil.net_if_addrs().get(interface, []):
        if address.family == socket.AF_INET:
            return str(address.address)
    raise EngineError(
        f"Docker names no gateway of its network bridge, and {interface} has no IPv4 address on "
        "this machine; restart Docker, or set c.JupyterHub.hub_ip by hand"
    )
