"""Parse and normalize IP addresses."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def parse_address(text: str) -> Address | None:
    """Parse an IP address and drop its zone; return None if the text is not an address.

    An IPv4-mapped IPv6 address (``::ffff:192.0.2.1``) is returned as IPv4.
    """
    try:
        address = ipaddress.ip_address(text.strip().partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def normal_address(text: str) -> str:
    """Return an IP address in its canonical form, and any other text unchanged."""
    address = parse_address(text)
    return text if address is None else str(address)
