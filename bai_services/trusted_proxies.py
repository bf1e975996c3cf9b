"""Client addresses behind reverse proxies: which ``X-Forwarded-For`` entries to trust."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import psutil

from bai_services.core.ip_addresses import Address, normal_address, parse_address

# Stands for the addresses of this machine in a list of trusted proxies.
OWN = "own"
OWN_CACHE_SECONDS = 5.0

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def interface_addresses() -> frozenset[Address]:
    """Return the addresses of this machine's network interfaces."""
    parsed = (
        parse_address(item.address) for items in psutil.net_if_addrs().values() for item in items
    )
    return frozenset(address for address in parsed if address is not None)


@dataclass
class TrustedProxies:
    """Proxies whose ``X-Forwarded-For`` is trusted.

    A proxy on this machine may connect from any address of the machine: for a connection to a
    container, Docker replaces the source address by the address of its bridge. A container cannot
    forge such an address: the kernel drops packets from outside with a source address of this
    machine.
    """

    networks: tuple[Network, ...] = ()
    trusts_own: bool = False
    read_addresses: Callable[[], frozenset[Address]] = interface_addresses
    _own: frozenset[Address] = frozenset()
    _read_at: float = field(default=float("-inf"))

    @classmethod
    def parse(cls, texts: Iterable[str]) -> TrustedProxies:
        """Return the proxies in a list of networks and addresses.

        The entry ``own`` stands for this machine's addresses.

        Raises
        ------
        ValueError
            If an entry is invalid.
        """
        entries = {text.strip() for text in texts if text.strip()}
        networks = tuple(ipaddress.ip_network(text, strict=False) for text in entries - {OWN})
        return cls(networks, trusts_own=OWN in entries)

    def client_address(self, peer: str, forwarded: str) -> str:
        """Return the client's address from the TCP peer and ``X-Forwarded-For``.

        The header is ignored unless the peer is trusted. Each proxy appends the address of its own
        peer, so the client is the last entry that is not in ``networks``, or else the first entry.
        If that entry is not an address, return the peer. ``own`` applies only to the peer: an entry
        with an address of this machine may be a session of the process engine, that is, the client.
        """
        if not forwarded.strip() or not self._is_trusted_peer(peer):
            return normal_address(peer)
        entries = [entry.strip() for entry in forwarded.split(",")]
        while len(entries) > 1 and self._is_named(entries[-1]):
            entries.pop()
        # For example, "unknown" and an address with a port are not addresses.
        client = parse_address(entries[-1])
        return normal_address(peer) if client is None else str(client)

    def own_networks(self) -> frozenset[str]:
        """Return this machine's addresses if they are trusted, and the loopback networks."""
        if not self.trusts_own:
            return frozenset()
        return frozenset({"127.0.0.0/8", "::1", *map(str, self._own_addresses())})

    def _is_trusted_peer(self, peer: str) -> bool:
        if self._is_named(peer):
            return True
        address = parse_address(peer)
        if not self.trusts_own or address is None:
            return False
        return address.is_loopback or address in self._own_addresses()

    def _is_named(self, text: str) -> bool:
        address = parse_address(text)
        return address is not None and any(
            address.version == network.version and address in network for network in self.networks
        )

    def _own_addresses(self) -> frozenset[Address]:
        now = time.monotonic()
        if now - self._read_at > OWN_CACHE_SECONDS:
            self._own, self._read_at = self.read_addresses(), now
        return self._own
