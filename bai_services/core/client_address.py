"""Parse and normalize IP addresses."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def parse_address(text: str) -> Address | None:
    """Return the IP address in a text, without its zone; None for any other text.

    An IPv4 address that a dual-stack listener shows as ``::ffff:192.0.2.1`` is returned as IPv4.
    """
    try:
        address = ipaddress.ip_address(text.strip().partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def normal_address(text: str) -> str:
    """Return an IP address in its normal form, and any other text unchanged."""
    address = parse_address(text)
    return text if address is None else str(address)
