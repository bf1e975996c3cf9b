"""The host's address on Docker's default bridge network, at which containers reach the host."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

import docker
import psutil

from .base import EngineError

DEFAULT_INTERFACE = "docker0"
NAME_OPTION = "com.docker.network.bridge.name"


def bridge_address(client: docker.DockerClient) -> str:
    """Return the IPv4 address of this host on Docker's network ``bridge``.

    Raises
    ------
    EngineError
        If Docker reports no gateway, and the bridge has no IPv4 address on this host.
    """
    return address_of(client.networks.get("bridge").attrs)


def interface_address(interface: str = DEFAULT_INTERFACE) -> str:
    """Return the IPv4 address of a network interface of this host; "" if it has none."""
    for address in psutil.net_if_addrs().get(interface, []):
        if address.family == socket.AF_INET:
            return str(address.address)
    return ""


def address_of(network: Mapping[str, Any]) -> str:
    """Return the gateway address from the result of ``docker network inspect``.

    Older engines (seen with 20.10) that have just created the bridge report no gateway until they
    are restarted. In this case, return the address of the network interface.
    """
    for config in network["IPAM"]["Config"]:
        if gateway := config.get("Gateway"):
            return str(gateway)
    interface = network["Options"].get(NAME_OPTION, DEFAULT_INTERFACE)
    if found := interface_address(interface):
        return found
    raise EngineError(
        f"Docker reports no gateway for its network bridge, and the interface {interface} has no "
        "IPv4 address on this machine; restart Docker, or set c.JupyterHub.hub_ip"
    )
