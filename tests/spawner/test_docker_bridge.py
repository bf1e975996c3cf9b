"""This machine's address as seen from containers, as reported by different engine versions."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from bai_spawner.engines.base import EngineError
from bai_spawner.engines.docker_bridge import NAME_OPTION, address_of, bridge_address

if TYPE_CHECKING:
    from tests.testbed.docker_engine import DockerEngine


def network(interface: str, **config: str) -> dict[str, Any]:
    return {"IPAM": {"Config": [{"Subnet": "127.0.0.0/8", **config}]},
            "Options": {NAME_OPTION: interface}}  # fmt: skip


def test_an_engine_that_names_its_gateway_is_believed() -> None:
    assert address_of(network("none", Gateway="172.30.0.1")) == "172.30.0.1"


def test_where_it_names_none_the_interface_is_asked() -> None:
    assert address_of(network("lo")) == "127.0.0.1"


def test_bridge_on_another_machine_is_reported() -> None:
    with pytest.raises(EngineError, match="nobr0 has no IPv4 address"):
        address_of(network("nobr0"))


def test_what_listens_there_is_on_this_machine(docker_engine: DockerEngine) -> None:
    with socket.socket() as listening:
        listening.bind((bridge_address(docker_engine.client), 0))
