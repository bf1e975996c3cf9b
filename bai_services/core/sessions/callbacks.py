"""Callbacks of sessions: allowed targets, content, signature and retries."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from ..client_address import Address, parse_address
from ..errors import InvalidRequest
from ..user_input import shown

MAX_URL = 2048
# A delivery is abandoned after this many attempts, over about four minutes.
TRIES = 8
FIRST_WAIT = timedelta(seconds=2)
LONGEST_WAIT = timedelta(minutes=2)

EVENT = "session.status"
SIGNATURE_HEADER = "Bai-Signature"
TIMESTAMP_HEADER = "Bai-Timestamp"
DELIVERY_HEADER = "Bai-Delivery"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_URL = re.compile(r"[!-~]+")
_HOST = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_SECRET_OF = b"bai callback secret"
# Everything routed on the public internet; other ranges may embed an IPv4 address (NAT64).
_PUBLIC_IPV6 = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC = (
    ipaddress.IPv4Network("192.0.0.0/24"),  # metadata of some clouds
    ipaddress.IPv4Network("192.88.99.0/24"),
    ipaddress.IPv4Network("168.63.129.16/32"),  # metadata of Azure, in a public range
    ipaddress.IPv6Network("2001::/23"),
    ipaddress.IPv6Network("2002::/16"),  # carries an IPv4 address
)


def is_public(address: Address) -> bool:
    """Return whether an address is reachable from the public internet."""
    if any(address in network for network in _NOT_PUBLIC if network.version == address.version):
        return False
    if isinstance(address, ipaddress.IPv6Address) and address not in _PUBLIC_IPV6:
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


@dataclass(frozen=True, slots=True)
class Reach:
    """Allowed targets: public addresses, and the networks that an administrator adds.

    With ``hosts`` only these names (``*.example.org``: any name below it) and addresses in
    ``networks``.
    """

    hosts: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()
    is_off: bool = False

    @classmethod
    def parse(cls, hosts: str, networks: str) -> Reach:
        """Parse two comma separated lists; ``none`` for the hosts turns callbacks off.

        Raises
        ------
        ValueError
            If a part is neither a host name nor a network.
        """
        names = tuple(part.strip().lower() for part in hosts.split(",") if part.strip())
        for name in names:
            if not _HOST.fullmatch(name):
                raise ValueError(f"{shown(name)!r} is not a host name, such as hooks.example.org")
        ranges = tuple(_network(part.strip()) for part in networks.split(",") if part.strip())
        return cls(names, ranges, is_off=names == ("none",))

    def allows_name(self, host: str) -> bool:
        """Return whether a callback may name that host; its addresses are checked separately."""
        address = parse_address(host)
        if address is not None and self._is_added(address):
            return True
        return not self.hosts or any(
            _is_below(host.lower().rstrip("."), name) for name in self.hosts
        )

    def allows_address(self, text: str) -> bool:
        """Return whether a callback may connect to that address."""
        address = parse_address(text)
        return address is not None and (is_public(address) or self._is_added(address))

    def _is_added(self, address: Address) -> bool:
        return any(
            address in network for network in self.networks if network.version == address.version
        )


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(f"{shown(text)!r} is not a network, such as 10.0.0.0/8") from None


def _is_below(host: str, pattern: str) -> bool:
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def check_url(url: str | None, reach: Reach) -> str | None:
    """Return a callback's URL, None for none; names are resolved at each call.

    Raises
    ------
    InvalidRequest
        If it is not a valid URL of a callback.
    """
    if not url:
        return None

    def refused(why: str) -> InvalidRequest:
        return InvalidRequest(f"callback_url {url[:200]!r}: {why}", field="callback_url")

    if reach.is_off:
        raise refused("callbacks are turned off on this hub; follow /events instead")
    if len(url) > MAX_URL:
        raise refused(f"it has {len(url)} characters, at most {MAX_URL} are allowed")
    if not _URL.fullmatch(url) or "\\" in url:
        raise refused("only printable ASCII is allowed; write anything else as %XX")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise refused("it is not a URL such as https://hooks.example.org/sessions") from None
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise refused("it must begin with http:// or https:// and a host")
    if "@" in parts.netloc:
        raise refused("it must not contain a name or a password; check the signature instead")
    if parts.fragment:
        raise refused("it must not have a fragment (#)")
    if not reach.allows_name(host):
        raise refused(f"this hub calls only {', '.join(reach.hosts)}")
    if parse_address(host) is not None and not reach.allows_address(host):
        raise refused("that address is not public; an administrator can allow its network")
    return url


def body_of(change: Mapping[str, Any]) -> bytes:
    """Return the body for a change: compact JSON with sorted keys."""
    content = {"event": EVENT, **change}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def secret_of(secret_key: str) -> str:
    """Return the signing secret of a keypair's callbacks; it grants no access."""
    return hmac.new(secret_key.encode(), _SECRET_OF, hashlib.sha256).hexdigest()


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """Return the value of the signature header; the timestamp is signed too."""
    text = f"{timestamp}.".encode() + body
    return "v1=" + hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


def wait_after(tries: int) -> timedelta | None:
    """Return the delay after that many failed attempts; None: give up."""
    if tries >= TRIES:
        return None
    return min(FIRST_WAIT * (1 << (tries - 1)), LONGEST_WAIT)
