"""Callbacks (webhooks) of sessions: allowed targets, payload, signature and retries."""

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

from ..coded_text import refusal
from ..errors import InvalidRequest
from ..ip_addresses import Address, parse_address
from ..refusal_texts import RefusalText
from ..user_input import shown, without_user_info

MAX_URL = 2048
# With these values, the last attempt takes place about four minutes after the first.
MAX_ATTEMPTS = 8
FIRST_DELAY = timedelta(seconds=2)
MAX_DELAY = timedelta(minutes=2)

EVENT = "session.status"
SIGNATURE_HEADER = "Bai-Signature"
TIMESTAMP_HEADER = "Bai-Timestamp"
DELIVERY_HEADER = "Bai-Delivery"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_URL = re.compile(r"[!-~]+")
_HOST = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_SECRET_LABEL = b"bai callback secret"
# Global unicast addresses. Addresses in other ranges may contain an IPv4 address (NAT64).
_PUBLIC_IPV6 = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC = (
    ipaddress.IPv4Network("192.0.0.0/24"),  # metadata services of some clouds
    ipaddress.IPv4Network("192.88.99.0/24"),  # 6to4 relays
    ipaddress.IPv4Network("168.63.129.16/32"),  # metadata service of Azure
    ipaddress.IPv6Network("2001::/23"),  # Teredo and other protocols
    ipaddress.IPv6Network("2002::/16"),  # 6to4, contains an IPv4 address
)


def is_public(address: Address) -> bool:
    """Return whether an address belongs to the public internet."""
    if any(address in network for network in _NOT_PUBLIC if network.version == address.version):
        return False
    if isinstance(address, ipaddress.IPv6Address) and address not in _PUBLIC_IPV6:
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


@dataclass(frozen=True, slots=True)
class AllowedTargets:
    """Allowed targets of callbacks.

    Without ``hosts``: every public address, and addresses in ``networks``. With ``hosts``: only
    these host names (``*.example.org`` matches every subdomain), and addresses in ``networks``.
    ``is_off``: callbacks are disabled.
    """

    hosts: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()
    is_off: bool = False

    @classmethod
    def parse(cls, hosts: str, networks: str) -> AllowedTargets:
        """Parse two comma-separated lists; the host list ``none`` disables callbacks.

        Raises
        ------
        ValueError
            If an entry is not a valid host name or network.
        """
        names = tuple(part.strip().lower() for part in hosts.split(",") if part.strip())
        for name in names:
            if not _HOST.fullmatch(name):
                raise ValueError(f"{shown(name)!r} is not a host name, such as hooks.example.org")
        ranges = tuple(_network(part.strip()) for part in networks.split(",") if part.strip())
        return cls(names, ranges, is_off=names == ("none",))

    def allows_name(self, host: str) -> bool:
        """Return whether a callback URL may have this host; see also ``allows_address``."""
        address = parse_address(host)
        if address is not None and self._is_added(address):
            return True
        return not self.hosts or any(
            _is_below(host.lower().rstrip("."), name) for name in self.hosts
        )

    def allows_address(self, text: str) -> bool:
        """Return whether a callback may connect to this address."""
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


def check_url(url: str | None, targets: AllowedTargets, field: str = "callback_url") -> str | None:
    """Return a callback URL if it is valid; None if it is empty.

    ``field`` is the name of the field in errors. Host names are resolved later, before each
    delivery.

    Raises
    ------
    InvalidRequest
        If the URL is not a valid callback URL, or its host is not allowed.
    """
    if not url:
        return None

    def invalid(problem: RefusalText, **values: str | int) -> InvalidRequest:
        shown_url = without_user_info(url)[:200]
        text = refusal(problem, **values)
        text = refusal(RefusalText.URL_PROBLEM, text, field=field, url=shown_url)
        return InvalidRequest(text, field=field)

    if targets.is_off:
        raise invalid(RefusalText.URLS_DISABLED)
    if len(url) > MAX_URL:
        raise invalid(RefusalText.URL_TOO_LONG, size=len(url), limit=MAX_URL)
    if not _URL.fullmatch(url) or "\\" in url:
        raise invalid(RefusalText.URL_CHARACTERS)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise invalid(RefusalText.NOT_A_URL) from None
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise invalid(RefusalText.URL_SCHEME)
    if "@" in parts.netloc:
        raise invalid(RefusalText.URL_CREDENTIALS)
    if parts.fragment:
        raise invalid(RefusalText.URL_FRAGMENT)
    if not targets.allows_name(host):
        allowed = ", ".join([*targets.hosts, *map(str, targets.networks)])
        raise invalid(RefusalText.URL_TARGETS, names=allowed)
    if parse_address(host) is not None and not targets.allows_address(host):
        raise invalid(RefusalText.URL_ADDRESS)
    return url


def body_of(change: Mapping[str, Any]) -> bytes:
    """Return the request body for a status change: compact JSON with sorted keys."""
    content = {"event": EVENT, **change}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def secret_of(secret_key: str) -> str:
    """Derive the signing secret of callbacks from a keypair's secret key.

    The signing secret cannot be used to sign API requests.
    """
    return hmac.new(secret_key.encode(), _SECRET_LABEL, hashlib.sha256).hexdigest()


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """Return the value of the signature header, which covers the timestamp and the body."""
    text = f"{timestamp}.".encode() + body
    return "v1=" + hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


def retry_delay(attempts: int) -> timedelta | None:
    """Return the delay before the next attempt after ``attempts`` failures; None: give up."""
    if attempts >= MAX_ATTEMPTS:
        return None
    return min(FIRST_DELAY * (1 << (attempts - 1)), MAX_DELAY)
