"""Names of endpoints; they are part of URLs and of host names."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import InvalidRequest
from ..user_input import shown

MAX_NAME = 48
# The name is also a DNS label, because an endpoint may have its own host name.
_NAME = re.compile(r"[a-z](?:[a-z0-9-]*[a-z0-9])?")


def check_endpoint_name(name: str) -> str:
    """Return ``name`` if it is a valid name of an endpoint.

    A valid name has 2 to 48 lower-case letters, digits and single hyphens, begins with a letter and
    does not end with a hyphen.

    Raises
    ------
    InvalidRequest
        If the name is not valid.
    """
    is_long = 2 <= len(name) <= MAX_NAME
    if not (is_long and _NAME.fullmatch(name)) or "--" in name:
        raise InvalidRequest(
            f"{shown(name)!r} cannot be the name of an endpoint: use 2 to {MAX_NAME} lower-case "
            "letters, digits and single hyphens; begin with a letter, end with a letter or digit",
            field="name",
        )
    return name


@dataclass(frozen=True, slots=True)
class EndpointAddresses:
    """Addresses of endpoints; ``domain``: parent domain of their host names, "": no host names."""

    prefix: str
    domain: str = ""
    scheme: str = "https"

    def of(self, name: str) -> str:
        """Return the URL of an endpoint; without a domain, its path.

        >>> EndpointAddresses("/services/bai-serve", "serve.example.org").of("chat")
        'https://chat.serve.example.org/'
        """
        if self.domain:
            return f"{self.scheme}://{name}.{self.domain}/"
        return self.path_of(name)

    def path_of(self, name: str) -> str:
        """Return the path of an endpoint at the Hub's host, even if it has its own host name."""
        return f"{self.prefix}/{name}/"
