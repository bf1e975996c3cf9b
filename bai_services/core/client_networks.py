"""Networks from which an account or an app share may be used."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from .errors import InvalidRequest
from .ip_addresses import parse_address
from .user_input import shown

# Length in bits of the prefix of IPv4-mapped addresses.
_MAPPED_BITS = 96

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Networks = tuple[list[ipaddress.IPv4Network], list[ipaddress.IPv6Network]]


def check_networks(texts: Sequence[str], field: str = "allowed_client_ip") -> list[str]:
    """Return networks in canonical CIDR form; single addresses are also accepted.

    Bits after the prefix are cleared: ``192.0.2.7/24`` is ``192.0.2.0/24``. Errors name ``field``
    as the field of the request.

    A network of IPv4-mapped addresses is returned as IPv4, because ``is_inside`` also converts such
    addresses to IPv4.

    Raises
    ------
    InvalidRequest
        If a text is neither a network nor an address.
    """
    networks = []
    for text in texts:
        try:
            networks.append(str(unmapped(ipaddress.ip_network(text.strip(), strict=False))))
        except ValueError:
            raise InvalidRequest(
                f"{shown(text)!r} is not a network, such as 10.0.0.0/8 or 2001:db8::/32",
                field=field,
            ) from None
    return networks


def unmapped(network: _Network) -> _Network:
    """Return a network of IPv4-mapped addresses (``::ffff:0:0/96``) as IPv4.

    Any other network is returned unchanged.
    """
    mapped = network.network_address
    if not isinstance(mapped, ipaddress.IPv6Address) or network.prefixlen < _MAPPED_BITS:
        return network
    address = mapped.ipv4_mapped
    if address is None:
        return network
    return ipaddress.IPv4Network((address, network.prefixlen - _MAPPED_BITS))


def excludes_addresses(before: Sequence[str] | None, after: Sequence[str] | None) -> bool:
    """Return whether ``before`` contains an address that ``after`` does not contain.

    None means every address.

    >>> excludes_addresses(None, ["10.0.0.0/8"]), excludes_addresses(["10.0.0.0/8"], None)
    (True, False)
    >>> excludes_addresses(["10.1.0.0/16"], ["10.0.0.0/8"])
    False
    """
    if before is None or after is None:
        return before is None and after is not None
    # Merged networks are disjoint and as large as possible, so a network is covered only if one of
    # them contains it.
    (v4_before, v6_before), (v4_after, v6_after) = _by_version(before), _by_version(after)
    return not (
        all(any(network.subnet_of(wider) for wider in v4_after) for network in v4_before)
        and all(any(network.subnet_of(wider) for wider in v6_after) for network in v6_before)
    )


def _by_version(texts: Sequence[str]) -> _Networks:
    """Return the merged IPv4 networks and the merged IPv6 networks."""
    networks = [ipaddress.ip_network(text) for text in texts]
    v4 = [network for network in networks if isinstance(network, ipaddress.IPv4Network)]
    v6 = [network for network in networks if isinstance(network, ipaddress.IPv6Network)]
    return list(ipaddress.collapse_addresses(v4)), list(ipaddress.collapse_addresses(v6))


def is_inside(address: str, networks: list[str] | None) -> bool:
    """Return whether an address is in one of the networks; True if ``networks`` is None.

    An empty or malformed address is in no network.
    """
    if networks is None:
        return True
    ip = parse_address(address)
    return ip is not None and any(
        ip.version == network.version and ip in network
        for network in map(ipaddress.ip_network, networks)
    )
