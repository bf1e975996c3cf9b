"""Validation of user names, e-mail addresses, names of projects and policies, and IP networks."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from .client_address import parse_address
from .errors import InvalidRequest
from .user_input import shown

MAX_NAME = 64
MAX_EMAIL = 64

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# A slug needs no escaping in a Hub group, a path or a label.
_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9_.-]*[a-z0-9])?")
_USERNAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_EMAIL = re.compile(r"[^@\s<>(),;:\\\"\[\]\x00-\x1f]+@[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")


def check_slug(what: str, name: str) -> str:
    """Return ``name`` if it is a valid name of a domain, project or policy.

    A valid name has at most 64 lower-case letters, digits and ``-_.``, and begins and ends with a
    letter or digit. ``--`` and ``..`` are not allowed, because they separate parts of longer names.

    Raises
    ------
    InvalidRequest
        If the name is not valid. ``what`` is the kind of object in the message.
    """
    is_short = len(name) <= MAX_NAME
    if not (is_short and _SLUG.fullmatch(name)) or ".." in name or "--" in name:
        raise InvalidRequest(
            f"{shown(name)!r} cannot be the name of a {what}: use 1 to {MAX_NAME} lower-case "
            "letters, digits, and single - _ . between them",
            field="name",
        )
    return name


def check_username(name: str) -> str:
    """Return the user name in lower case, as the Hub stores it.

    Raises
    ------
    InvalidRequest
        If the name does not begin with a letter or digit, contains ``..`` or a character that is
        not a letter, a digit or one of ``_.-``, or has more than 64 characters.
    """
    lower = name.strip().lower()
    if len(lower) > MAX_NAME or _USERNAME.fullmatch(lower) is None or ".." in lower:
        raise InvalidRequest(
            f"{shown(name)!r} cannot be a user name: use 1 to {MAX_NAME} letters, digits, - _ and "
            "single dots, and begin with a letter or digit",
            field="username",
        )
    return lower


def check_email(email: str) -> str:
    """Return the e-mail address in lower case.

    Raises
    ------
    InvalidRequest
        If the address does not have the form ``name@host`` or has more than 64 characters.
    """
    lower = email.strip().lower()
    if len(lower) > MAX_EMAIL or _EMAIL.fullmatch(lower) is None or ".." in lower:
        raise InvalidRequest(
            f"{shown(email)!r} is not an e-mail address of at most {MAX_EMAIL} characters",
            field="email",
        )
    return lower


def check_networks(texts: list[str]) -> list[str]:
    """Return networks in canonical CIDR form; a single address is also accepted.

    Raises
    ------
    InvalidRequest
        If a text is neither a network nor an address.
    """
    found = []
    for text in texts:
        try:
            found.append(str(ipaddress.ip_network(text.strip(), strict=False)))
        except ValueError:
            raise InvalidRequest(
                f"{shown(text)!r} is not a network, such as 10.0.0.0/8 or 2001:db8::/32",
                field="allowed_client_ip",
            ) from None
    return found


def excludes_addresses(before: Sequence[str] | None, after: Sequence[str] | None) -> bool:
    """Return whether ``after`` lacks addresses that ``before`` has; None is every address.

    >>> excludes_addresses(None, ["10.0.0.0/8"]), excludes_addresses(["10.0.0.0/8"], None)
    (True, False)
    >>> excludes_addresses(["10.1.0.0/16"], ["10.0.0.0/8"])
    False
    """
    if before is None or after is None:
        return before is None and after is not None
    remaining = [ipaddress.ip_network(text) for text in after]
    return any(
        not any(_is_subnet(ipaddress.ip_network(text), network) for network in remaining)
        for text in before
    )


def _is_subnet(inner: Network, outer: Network) -> bool:
    if isinstance(inner, ipaddress.IPv4Network) and isinstance(outer, ipaddress.IPv4Network):
        return inner.subnet_of(outer)
    if isinstance(inner, ipaddress.IPv6Network) and isinstance(outer, ipaddress.IPv6Network):
        return inner.subnet_of(outer)
    return False


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
