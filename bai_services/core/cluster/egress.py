"""Network policy of session containers, and its iptables rules.

The egress policy limits the networks that sessions may reach. If ports of sessions are published on
their machine, only the clients (Hub, proxy, managers, gateways) may connect to them.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..user_input import shown

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

DNS_PORT = 53
TCP, UDP = "tcp", "udp"
# ICMPv6 types of Neighbor Discovery (RFC 4861), which IPv6 needs to find a gateway.
_NEIGHBOUR_DISCOVERY = ("133", "134", "135", "136")
_ESTABLISHED = "-m conntrack --ctstate RELATED,ESTABLISHED -j RETURN"
_REJECT = {4: "icmp-admin-prohibited", 6: "icmp6-adm-prohibited"}

# Networks that are not part of the public internet, and addresses of cloud metadata services.
BLOCKED: tuple[Network, ...] = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's metadata
        "169.254.0.0/16",  # link-local, most clouds' metadata
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/96",
        "::ffff:0:0/96",
        "64:ff9b:1::/48",
        "100::/64",
        "2001:db8::/32",
        "2002::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
)


class Policy(StrEnum):
    """Networks that sessions may reach besides the Hub, the manager and the allowed targets."""

    DEFAULT = "default"  # the internet
    OPEN = "open"  # everything
    CLOSED = "closed"  # nothing


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """A network, or one port of it, that sessions may reach."""

    network: str
    port: int = 0  # 0: every port and protocol
    protocols: tuple[str, ...] = (TCP, UDP)

    @property
    def version(self) -> int:
        return ipaddress.ip_network(self.network).version

    def matches(self) -> Iterator[str]:
        """Yield iptables options that match packets to this target, one string per rule."""
        if not self.port:
            yield f"-d {self.network}"
            return
        for protocol in self.protocols:
            yield f"-d {self.network} -p {protocol} --dport {self.port}"


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """Source of packets from session containers: a bridge, or one address on a shared bridge."""

    interface: str
    address: str = ""

    def match(self) -> str:
        return f"-i {self.interface}" + (f" -s {self.address}" if self.address else "")

    def match_destination(self) -> str:
        return f"-o {self.interface}" + (f" -d {self.address}" if self.address else "")


@dataclass(frozen=True, slots=True)
class Chains:
    """Names of an agent's iptables chains; agents on the same machine share the tables."""

    forwarded: str
    forwarded_rules: str
    local: str
    local_rules: str
    published: str

    @classmethod
    def of(cls, agent_id: str) -> Chains:
        key = "BAI-" + hashlib.sha256(agent_id.encode()).hexdigest()[:8]
        return cls(f"{key}-FWD", f"{key}-FWD-P", f"{key}-IN", f"{key}-IN-P", f"{key}-PUB")

    def all(self) -> tuple[str, ...]:
        # In the order of deletion: a chain must be deleted before the chains to which it refers.
        return (
            self.forwarded, self.local, self.forwarded_rules, self.local_rules, self.published
        )  # fmt: skip


def parse_targets(text: str) -> tuple[Target, ...]:
    """Parse a list of targets such as ``10.1.0.0/16, 10.2.0.3:443, [fd00::1]:443``.

    Raises
    ------
    ValueError
        If an entry is malformed.
    """
    return tuple(_target(part.strip()) for part in text.split(",") if part.strip())


def _target(text: str) -> Target:
    host, port = text, ""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    try:
        network = str(ipaddress.ip_network(host, strict=False))
        number = int(port) if port else 0
    except ValueError:
        raise ValueError(f"{shown(text)!r} is not NETWORK or NETWORK:PORT") from None
    if not 0 <= number < 65536 or (port and not number):
        raise ValueError(f"{shown(text)!r}: the port must be 1 to 65535")
    return Target(network, number)


def ruleset(
    version: int,
    policy: Policy,
    chains: Chains,
    sources: Iterable[Source],
    targets: Sequence[Target],
    clients: Sequence[str] | None = None,
) -> str:
    """Return the input of ``iptables-restore --noflush`` that sets the agent's chains atomically.

    ``clients`` are the networks from which connections to the containers are allowed. None: no port
    is published, so Docker allows no connection.

    The rules RETURN an allowed packet to Docker's own rules, which must also allow it.
    Containers of one bridge may reach each other, except on a shared bridge.
    """
    lines = ["*filter", *(f":{chain} - [0:0]" for chain in chains.all())]
    for source in sorted(set(sources)):
        if source.address and ipaddress.ip_address(source.address).version != version:
            continue
        if not source.address:
            lines.append(
                f"-A {chains.forwarded} -i {source.interface} -o {source.interface} -j RETURN"
            )
        if clients is not None:
            new = f"{source.match_destination()} -m conntrack --ctstate NEW"
            lines.append(f"-A {chains.forwarded} {new} -j {chains.published}")
        if policy is not Policy.OPEN:
            lines.append(f"-A {chains.forwarded} {source.match()} -j {chains.forwarded_rules}")
            lines.append(f"-A {chains.local} {source.match()} -j {chains.local_rules}")
    allowed = [
        f"{match} -j RETURN"
        for target in sorted(set(targets))
        if target.version == version
        for match in target.matches()
    ]
    reject = f"-j REJECT --reject-with {_REJECT[version]}"
    blocked = [reject]
    if policy is Policy.DEFAULT:
        blocked = [f"-d {net} {reject}" for net in BLOCKED if net.version == version]
    discovery = _NEIGHBOUR_DISCOVERY if version == 6 else ()
    neighbours = [f"-p ipv6-icmp --icmpv6-type {kind} -j RETURN" for kind in discovery]
    for chain, last in ((chains.forwarded_rules, blocked), (chains.local_rules, [reject])):
        lines += [f"-A {chain} {rule}" for rule in (_ESTABLISHED, *neighbours, *allowed, *last)]
    for network in sorted(set(clients or ())):
        if ipaddress.ip_network(network).version == version:
            lines.append(f"-A {chains.published} -s {network} -j RETURN")
    lines.append(f"-A {chains.published} {reject}")
    return "\n".join([*lines, "COMMIT", ""])
