"""Egress policies as iptables rules."""

from __future__ import annotations

import ipaddress
import re

import pytest

from bai_services.core.cluster.egress import (
    BLOCKED,
    Chains,
    Policy,
    Source,
    Target,
    parse_targets,
    ruleset,
)

CHAINS = Chains.of("m1")
BRIDGE, OVERLAY = Source("br-1"), Source("docker_gwbridge", "172.18.0.2")


@pytest.mark.parametrize("policy", Policy)
def test_only_clients_open_connections_to_published_ports(policy: Policy) -> None:
    clients = ["10.0.0.5/32", "fd00::5/128"]
    lines = ruleset(4, policy, CHAINS, [BRIDGE, OVERLAY], [], clients).splitlines()
    jumps = [line for line in lines if line.endswith(f"-j {CHAINS.published}")]
    new = f"-m conntrack --ctstate NEW -j {CHAINS.published}"
    assert jumps == [
        f"-A {CHAINS.forwarded} -o br-1 {new}",
        f"-A {CHAINS.forwarded} -o docker_gwbridge -d 172.18.0.2 {new}",
    ]
    # Containers of the same bridge reach each other, so this rule comes first.
    same = f"-A {CHAINS.forwarded} -i br-1 -o br-1 -j RETURN"
    assert lines.index(same) < lines.index(jumps[0])
    assert [line for line in lines if line.startswith(f"-A {CHAINS.published} ")] == [
        f"-A {CHAINS.published} -s 10.0.0.5/32 -j RETURN",
        f"-A {CHAINS.published} -j REJECT --reject-with icmp-admin-prohibited",
    ]
    restricts_egress = any(line.endswith(f"-j {CHAINS.forwarded_rules}") for line in lines)
    assert restricts_egress == (policy is not Policy.OPEN)


@pytest.mark.parametrize(
    "text, targets",
    [
        pytest.param("", (), id="empty list"),
        pytest.param("10.1.2.3/16", (Target("10.1.0.0/16"),), id="network with host bits"),
        pytest.param(
            "10.1.2.3:443, [fd00::3]:53,fd00::/8",
            (Target("10.1.2.3/32", 443), Target("fd00::3/128", 53), Target("fd00::/8")),
            id="ports and both IP versions",
        ),
    ],
)
def test_egress_targets_are_parsed(text: str, targets: tuple[Target, ...]) -> None:
    assert parse_targets(text) == targets


@pytest.mark.parametrize("text", ["hub", "10.1.0.0/33", "10.1.2.3:0", "10.1.2.3:65536"])
def test_error_names_an_invalid_target(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        parse_targets(text)


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "168.63.129.16",
        "169.254.169.254",
        "172.31.0.1",
        "192.168.1.1",
        "255.255.255.255",
        "::1",
        "::ffff:10.0.0.1",
        "fd00:ec2::254",
        "fe80::1",
    ],
)
def test_private_or_metadata_address_is_blocked(address: str) -> None:
    ip = ipaddress.ip_address(address)
    assert any(ip.version == net.version and ip in net for net in BLOCKED)


@pytest.mark.parametrize("address", ["1.1.1.1", "172.32.0.1", "2606:4700::1111"])
def test_public_address_is_not_blocked(address: str) -> None:
    ip = ipaddress.ip_address(address)
    assert not any(ip.version == net.version and ip in net for net in BLOCKED)


def test_only_allowed_ports_of_the_machine_are_open() -> None:
    targets = [Target("172.17.0.1/32", 8081, ("tcp",)), Target("fd00::1/128", 53)]
    text = ruleset(4, Policy.DEFAULT, CHAINS, [Source("br-1")], targets)
    local = [line for line in text.splitlines() if line.startswith(f"-A {CHAINS.local_rules} ")]
    assert local[1].endswith("-d 172.17.0.1/32 -p tcp --dport 8081 -j RETURN")
    assert local[-1].endswith("-j REJECT --reject-with icmp-admin-prohibited")
    assert len(local) == 3
    assert "fd00" not in text


def test_rules_on_shared_bridge_apply_to_one_address() -> None:
    text = ruleset(4, Policy.CLOSED, CHAINS, [Source("docker_gwbridge", "172.18.0.3")], [])
    assert "-i docker_gwbridge -s 172.18.0.3" in text
    assert "-i docker_gwbridge -j" not in text and "-o docker_gwbridge" not in text
    assert "docker_gwbridge" not in ruleset(
        6, Policy.CLOSED, CHAINS, [Source("docker_gwbridge", "172.18.0.3")], []
    )


def test_chain_names_fit_the_iptables_limit() -> None:
    assert all(len(name) <= 28 for name in Chains.of("x" * 64).all())
    assert Chains.of("m1") != Chains.of("m2")
