"""The host's address on Docker's bridge, for the network data of different Docker versions."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from bai_services.engines.base import EngineError
from bai_services.engines.docker_bridge import NAME_OPTION, address_of, bridge_address

if TYPE_CHECKING:
    from tests.testbed.docker_engine import DockerEngine


def network(interface: str, **config: str) -> dict[str, Any]:
    return {"IPAM": {"Config": [{"Subnet": "127.0.0.0/8", **config}]},
            "Options": {NAME_OPTION: interface}}  # fmt: skip


def test_reported_gateway_is_returned() -> None:
    assert address_of(network("none", Gateway="172.30.0.1")) == "172.30.0.1"


def test_address_of_the_interface_is_returned_if_no_gateway_is_reported() -> None:
    assert address_of(network("lo")) == "127.0.0.1"


def test_bridge_that_is_not_on_this_machine_is_an_error() -> None:
    with pytest.raises(EngineError, match="nobr0 has no IPv4 address"):
        address_of(network("nobr0"))


def test_bridge_address_belongs_to_this_host(docker_engine: DockerEngine) -> None:
    with socket.socket() as listening:
        listening.bind((bridge_address(docker_engine.client), 0))
