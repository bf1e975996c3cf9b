"""Settings of an agent that uses Docker."""

from __future__ import annotations

from traitlets import Enum, Float, Integer, Unicode
from traitlets.config import Configurable

from bai_services.core.cluster.egress import Policy, Target, parse_targets
from bai_services.core.errors import InvalidRequest
from bai_services.core.ip_addresses import parse_address
from bai_services.core.user_input import shown


class DockerSettings(Configurable):
    """Connection to the machine's Docker engine, networks and egress policy."""

    host = Unicode(
        "unix:///var/run/docker.sock",
        help="""
        URL of the Docker engine for this agent. No effect with the process engine.
        Environment: `BAI_AGENT_DOCKER_HOST` or `DOCKER_HOST`.
        """,
    ).tag(config=True)

    endpoint = Unicode(
        help="""
        URL at which the Hub reaches the same engine (unix, ssh or tcp with TLS). Empty: the value
        of `host`, which is correct if the Hub runs on this machine. Environment:
        `BAI_AGENT_DOCKER_ENDPOINT`.
        """
    ).tag(config=True)

    address = Unicode(
        help="""
        IPv4 address of this machine at which the Hub, the proxy, the managers and the gateways
        reach the sessions: each session's server is published on a free port of this address.
        Empty: they run on this machine, and connect to the containers directly. Environment:
        `BAI_AGENT_ADDRESS`.
        """
    ).tag(config=True)

    clients = Unicode(
        help="""
        Networks that may connect to the published ports, comma separated: `10.0.0.5, 10.0.1.0/24`.
        Empty: the addresses of the manager and of the Hub. Set it if the proxy, further managers
        or gateways run on other machines. Environment: `BAI_AGENT_CLIENTS`.
        """
    ).tag(config=True)

    network_pool = Unicode(
        "10.213.0.0/16",
        help="""
        IPv4 range from which each user's network gets its subnet. Choose a range that is not used
        on this machine or its networks. Environment: `BAI_AGENT_NETWORK_POOL`.
        """,
    ).tag(config=True)

    network_prefix = Integer(
        26,
        min=16,
        max=29,
        help="Prefix length of one user's network on this machine; 26 allows about 60 concurrent "
        "sessions of the user.",
    ).tag(config=True)

    egress = Enum(
        [policy.value for policy in Policy],
        Policy.DEFAULT.value,
        help="""
        Networks that sessions may reach besides the Hub, the manager and `egress_allowed`.
        `default`: the internet and name servers, but no port of this machine and no private or
        link-local network. `closed`: nothing else. `open`: everything; no rules are set.
        Rules require root and iptables; an agent without them reports that the policy is not
        enforced. Environment: `BAI_AGENT_EGRESS`.
        """,
    ).tag(config=True)

    egress_allowed = Unicode(
        help="""
        Additional networks that sessions may reach, comma separated, each with an optional port:
        `10.1.0.0/16, 10.2.0.3:443, [fd00::3]:443`. Environment: `BAI_AGENT_EGRESS_ALLOWED`.
        """
    ).tag(config=True)

    image_limit = Unicode(
        "0",
        help="""
        Maximum size of all images on this machine, such as `500g`; 0: no limit. When the images
        exceed it, the agent removes the least recently used ones that bai-hub has used, that have
        no container and that were not used for an hour. Environment: `BAI_AGENT_IMAGE_LIMIT`.
        """,
    ).tag(config=True)

    runtime_image = Unicode(
        "bai-runtime:latest",
        help="""
        Image with the platform's parts (`images/runtime/build`), which are mounted in sessions of
        images that lack them. Empty, or not on this machine: such images start with their own
        command. Environment: `BAI_AGENT_RUNTIME_IMAGE`.
        """,
    ).tag(config=True)

    build_variables = Unicode(
        help="""
        Variables for the commands of builds of recipes, separated by spaces, such as
        `PIP_INDEX_URL=https://mirror.example.org/simple HTTPS_PROXY=http://proxy:3128`. Users can
        read them, and they are not part of the images. Environment: `BAI_AGENT_BUILD_VARIABLES`.
        """
    ).tag(config=True)

    timeout_seconds = Float(
        30, min=1, help="Timeout of a call to the Docker engine, in seconds."
    ).tag(config=True)

    def parsed_build_variables(self) -> dict[str, str]:
        """Return the parsed ``build_variables``.

        Raises
        ------
        InvalidRequest
            If a word is not NAME=VALUE.
        """
        found: dict[str, str] = {}
        for word in self.build_variables.split():
            name, sign, value = word.partition("=")
            if not sign or not name.isidentifier() or not name.isascii():
                raise InvalidRequest(
                    f"BAI_AGENT_BUILD_VARIABLES: {shown(word)!r} is not NAME=VALUE"
                )
            found[name] = value
        return found

    def hub_endpoint(self) -> str:
        return self.endpoint or self.host

    def published_address(self) -> str:
        """Return ``address``.

        Raises
        ------
        InvalidRequest
            If it is not an IPv4 address of a machine.
        """
        if not self.address:
            return ""
        ip = parse_address(self.address)
        if ip is None or ip.version != 4 or ip.is_unspecified:
            raise InvalidRequest(
                f"BAI_AGENT_ADDRESS={shown(self.address)!r} is not an IPv4 address of this machine"
            )
        return str(ip)

    def client_networks(self) -> tuple[str, ...] | None:
        """Return the parsed ``clients``; None if no ports are published.

        Raises
        ------
        InvalidRequest
            If an entry is malformed.
        """
        if not self.published_address():
            return None
        try:
            targets = parse_targets(self.clients)
            if any(target.port for target in targets):
                raise ValueError("a port is not allowed")
        except ValueError as error:
            raise InvalidRequest(
                f"BAI_AGENT_CLIENTS: {error}; for example 10.0.0.5,10.0.1.0/24"
            ) from None
        return tuple(target.network for target in targets)

    def allowed_targets(self) -> tuple[Target, ...]:
        """Return the parsed ``egress_allowed``.

        Raises
        ------
        InvalidRequest
            If an entry is malformed.
        """
        try:
            return parse_targets(self.egress_allowed)
        except ValueError as error:
            raise InvalidRequest(
                f"BAI_AGENT_EGRESS_ALLOWED: {error}; for example 10.1.0.0/16,10.2.0.3:443"
            ) from None
