"""Desired state of HAProxy: the entries of its maps and the states of its servers."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bai_services.core.serving.gateway_records import ANONYMOUS, EndpointRoute, TokenRoute

from .configuration import SHARES, UNDECIDED

State = Literal["ready", "drain", "maint"]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
# Texts that need no quotes in HAProxy commands.
_WORD = re.compile(r"[A-Za-z0-9._~:/+=-]*")


def is_word(text: str) -> bool:
    return _WORD.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Server:
    """State of a server slot."""

    address: str
    port: int
    max_connections: int
    state: State


FREE = Server("127.0.0.1", 1, 1, "maint")


@dataclass(slots=True)
class Wanted:
    """Entries of each map by its name, and servers by pool and slot."""

    maps: dict[str, dict[str, str]] = field(default_factory=dict)
    servers: dict[tuple[str, str], Server] = field(default_factory=dict)


def token_entries(endpoint: EndpointRoute, now: float) -> Iterator[tuple[str, str]]:
    """Yield keys and values of the map of tokens; the longest matching key applies to a request.

    Keys are NAME/DIGEST/DIGITS:ADDRESS, where ADDRESS is the beginning of an address in hex. Values
    are EXPIRES/OWNER, or `UNDECIDED`. The owner is the id of the token, or `ANONYMOUS`.
    """
    if endpoint.is_public:
        yield f"{endpoint.name}/", f"0/{ANONYMOUS}{endpoint.id}"
    for token in endpoint.tokens:
        if not is_word(token.id):
            continue
        key = f"{endpoint.name}/{token.digest.upper()}/"
        if is_limited(token) or is_expired(token, now):
            yield key, UNDECIDED
            continue
        value = f"{int(token.expires_at or 0)}/{token.id}"
        if not token.networks:
            yield key, value
            continue
        yield key, UNDECIDED
        for network in map(ipaddress.ip_network, token.networks):
            for prefix in address_prefixes(network):
                yield key + prefix, value


def is_limited(token: TokenRoute) -> bool:
    """Return whether requests of the token must be counted by one process."""
    return token.requests_per_minute is not None or token.max_concurrent is not None


def is_expired(token: TokenRoute, now: float) -> bool:
    return token.expires_at is not None and token.expires_at <= now


def address_prefixes(network: Network) -> list[str]:
    """Return the beginnings of all addresses of a network, in hex after the number of digits.

    >>> address_prefixes(ipaddress.ip_network("10.0.0.0/8"))
    ['8:0A']
    >>> address_prefixes(ipaddress.ip_network("10.64.0.0/10"))
    ['8:0A4', '8:0A5', '8:0A6', '8:0A7']
    """
    digits = network.max_prefixlen // 4
    length = -(-network.prefixlen // 4)
    first = int(network.network_address) >> (network.max_prefixlen - 4 * length)
    count = 1 << (4 * length - network.prefixlen)
    if not length:
        return [f"{digits}:"]
    return [f"{digits}:{number:0{length}X}" for number in range(first, first + count)]


def shares(weights: Sequence[float]) -> list[int]:
    """Return multiples of one hundredth in proportion to the weights; their sum is `SHARES`.

    >>> shares([4, 1])
    [80, 20]
    >>> shares([1, 1, 1])
    [34, 33, 33]
    """
    total = sum(weights)
    exact = [weight * SHARES / total for weight in weights]
    found = [int(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda index: found[index] - exact[index])
    for index in by_remainder[: SHARES - sum(found)]:
        found[index] += 1
    return found


def changes_of_map(
    file: str, before: Mapping[str, str], wanted: Mapping[str, str]
) -> Iterator[str]:
    """Yield the commands that change the entries of a map."""
    if before == wanted:
        return
    for key in before.keys() - wanted.keys():
        yield f"del map {file} {key}"
    for key, value in wanted.items():
        if key not in before:
            yield f"add map {file} {key} {value}"
        elif before[key] != value:
            yield f"set map {file} {key} {value}"


def changes_of_server(name: str, before: Server | None, wanted: Server) -> Iterator[str]:
    """Yield the commands that change a server; ``before`` is None if its state is unknown."""
    if before == wanted:
        return
    if before is None or (before.address, before.port) != (wanted.address, wanted.port):
        yield f"set server {name} state maint"
        yield f"set server {name} addr {wanted.address} port {wanted.port}"
    if before is None or before.max_connections != wanted.max_connections:
        yield f"set maxconn server {name} {wanted.max_connections}"
    yield f"set server {name} state {wanted.state}"


def is_address(host: str) -> bool:
    """Return whether a host is an IP address: HAProxy resolves no names at run time."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    # An IPv6 address may end with the name of a network interface, which is arbitrary text.
    return is_word(host)


def owners(endpoints: Iterable[EndpointRoute], now: float) -> set[str]:
    """Return the owners of requests that are permitted: ids of tokens, or `ANONYMOUS`."""
    endpoints = list(endpoints)
    public = {ANONYMOUS + endpoint.id for endpoint in endpoints if endpoint.is_public}
    return public | {
        token.id
        for endpoint in endpoints
        for token in endpoint.tokens
        if not is_expired(token, now)
    }
