"""Network policy: sets iptables rules for the networks of this agent's sessions."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bai_services.core.cluster.egress import DNS_PORT, TCP, Chains, Policy, Source, Target, ruleset
from bai_services.core.ip_addresses import parse_address

log = logging.getLogger(__name__)

COMMAND_TIMEOUT_SECONDS = 20
LOCK_TIMEOUT_SECONDS = 10  # maximum wait for the xtables lock, which each iptables call needs
# Files with the name servers that Docker can pass to containers.
RESOLVERS = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))
DOCKER_SETTINGS = Path("/etc/docker/daemon.json")
DEFAULT_PORTS = {"http": 80, "https": 443}
# Docker may use another variant of iptables than the machine's default.
VARIANTS = ("", "-legacy", "-nft")


class RulesError(Exception):
    """Rules cannot be set on this machine; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Firewall:
    """The iptables program of one IP version, and the chain that filters forwarded packets."""

    version: int
    program: str
    forward: str

    @classmethod
    def find(cls, version: int) -> Firewall:
        """Return the iptables variant that Docker uses on this machine, else the first usable one.

        ``version`` is the IP version, 4 or 6.

        Raises
        ------
        RulesError
            If iptables is not installed, or this process may not use it.
        """
        name = "iptables" if version == 4 else "ip6tables"
        usable, problem = "", f"{name} is not installed"
        for program in filter(shutil.which, (name + variant for variant in VARIANTS)):
            try:
                _run([program, "-w", str(LOCK_TIMEOUT_SECONDS), "-S", "FORWARD"])
            except RulesError as error:
                problem = str(error)
                continue
            usable = usable or program
            if _succeeds([program, "-w", str(LOCK_TIMEOUT_SECONDS), "-S", "DOCKER-USER"]):
                return cls(version, program, "DOCKER-USER")
        if not usable:
            raise RulesError(problem)
        return cls(version, usable, "FORWARD")

    def apply(self, chains: Chains, rules: str) -> None:
        """Set the agent's chains atomically and insert the jumps to them."""
        _run([f"{self.program}-restore", "--noflush", "-w", str(LOCK_TIMEOUT_SECONDS)], rules)
        for parent, chain in ((self.forward, chains.forwarded), ("INPUT", chains.local)):
            if not self._has_jump(parent, chain):
                self._run_iptables("-I", parent, "1", "-j", chain)

    def remove(self, chains: Chains) -> None:
        """Remove the agent's chains and the jumps to them; idempotent."""
        for parent, chain in (
            (self.forward, chains.forwarded),
            ("FORWARD", chains.forwarded),
            ("INPUT", chains.local),
        ):
            while self._has_jump(parent, chain):
                self._run_iptables("-D", parent, "-j", chain)
        for chain in chains.all():
            if _succeeds([*self._command, "-F", chain]):
                self._run_iptables("-X", chain)

    @property
    def _command(self) -> list[str]:
        return [self.program, "-w", str(LOCK_TIMEOUT_SECONDS)]

    def _has_jump(self, parent: str, chain: str) -> bool:
        return _succeeds([*self._command, "-C", parent, "-j", chain])

    def _run_iptables(self, *args: str) -> None:
        _run([*self._command, *args])


class Egress:
    """Applies the network policy to one agent's networks.

    If the rules cannot be set, sessions can still start, and ``facts`` reports the problem.
    """

    def __init__(
        self,
        agent_id: str,
        policy: Policy,
        allowed: Sequence[Target],
        urls: Iterable[str],
        clients: Sequence[str] | None = None,
    ) -> None:
        """``urls`` are URLs that sessions must reach, such as the manager's.

        ``clients`` are the networks that may connect to published ports of sessions; (): the
        machines of ``urls``; None: no port is published.
        """
        self._chains = Chains.of(agent_id)
        self._policy = policy
        self._allowed = tuple(allowed)
        self._urls = {url for url in urls if url}
        self._clients = clients
        self._resolved: dict[str, tuple[Target, ...]] = {}
        self._problem = ""
        self._applying = asyncio.Lock()

    def allow_url(self, url: str) -> bool:
        """Add a URL that sessions must reach; return whether it is new."""
        if not url or url in self._urls:
            return False
        self._urls.add(url)
        return True

    async def apply(self, sources: Iterable[Source]) -> None:
        """Set the rules for exactly these sources.

        Without sources, or if the policy is ``OPEN`` and no port is published, remove all rules.
        """
        async with self._applying:
            try:
                await asyncio.to_thread(self._apply, frozenset(sources))
                problem = ""
            except RulesError as error:
                problem = str(error)
            if problem and problem != self._problem:
                log.warning("the network of sessions is not restricted: %s", problem)
            self._problem = problem

    async def remove_rules(self) -> None:
        """Remove all rules."""
        await self.apply(())

    def facts(self) -> dict[str, Any]:
        """Return the policy, whether it is enforced, and a notice if it cannot be enforced."""
        is_enforced = self._policy is not Policy.OPEN and not self._problem
        facts: dict[str, Any] = {
            "egress": {
                "policy": self._policy.value,
                "is_enforced": is_enforced,
                "problem": self._problem,
            }
        }
        if self._problem:
            facts["notices"] = [
                "Sessions on this machine can reach its ports and private networks: "
                f"the egress policy cannot be enforced ({self._problem})."
            ]
        if self._problem and self._clients is not None:
            facts["notices"].append(
                "Every machine of the network can connect to the ports of sessions on this "
                f"machine: the rules cannot be set ({self._problem})."
            )
        return facts

    def _apply(self, sources: frozenset[Source]) -> None:
        if not sources or (self._policy is Policy.OPEN and self._clients is None):
            self._remove()
            return
        if missing := sorted(s.interface for s in sources if not _has_interface(s.interface)):
            raise RulesError(
                f"the Docker engine's network {missing[0]} is not in the agent's network namespace"
            )
        services = self._services()
        targets = self._targets(services)
        clients = self._clients
        if clients == ():
            clients = tuple(service.network for service in services)
        for version in (4, 6):
            try:
                firewall = Firewall.find(version)
            except RulesError:
                # Without IPv6 on the machine, containers have no IPv6 either.
                if version == 6 and not Path("/proc/net/if_inet6").exists():
                    continue
                raise
            rules = ruleset(version, self._policy, self._chains, sources, targets, clients)
            firewall.apply(self._chains, rules)

    def _remove(self) -> None:
        for version in (4, 6):
            try:
                firewall = Firewall.find(version)
            except RulesError:
                continue  # a process that cannot use iptables has set no rules
            firewall.remove(self._chains)

    def _services(self) -> list[Target]:
        """Return the addresses of the URLs that sessions must reach."""
        services: list[Target] = []
        for url in sorted(self._urls):
            # Use the last known addresses if the name cannot be resolved now.
            if addresses := targets_of(url):
                self._resolved[url] = addresses
            services += self._resolved.get(url, ())
        return services

    def _targets(self, services: Sequence[Target]) -> list[Target]:
        targets = [*self._allowed, *services]
        if self._policy is not Policy.CLOSED:
            targets += [Target(address, DNS_PORT) for address in name_servers()]
        return targets


def targets_of(url: str) -> tuple[Target, ...]:
    """Return a target for each address of a URL's host; () if its name cannot be resolved."""
    parts = urlsplit(url)
    port = parts.port or DEFAULT_PORTS.get(parts.scheme, 80)
    try:
        entries = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    addresses = {parse_address(str(entry[4][0])) for entry in entries}
    return tuple(sorted(Target(_network(str(a)), port, (TCP,)) for a in addresses if a))


def name_servers(
    resolvers: Sequence[Path] = RESOLVERS, docker_settings: Path = DOCKER_SETTINGS
) -> list[str]:
    """Return the name servers that containers may get, as networks of one address (CIDR)."""
    texts: list[str] = []
    for path in resolvers:
        lines = [line.split() for line in _read(path).splitlines()]
        texts += [line[1] for line in lines if len(line) > 1 and line[0] == "nameserver"]
    try:
        settings: Mapping[str, Any] = json.loads(_read(docker_settings) or "{}")
        texts += [str(text) for text in settings.get("dns") or ()]
    except (ValueError, AttributeError):
        log.warning("%s cannot be parsed", docker_settings)
    addresses = {parse_address(text) for text in texts}
    return sorted(_network(str(a)) for a in addresses if a is not None and not a.is_loopback)


def _network(address: str) -> str:
    return f"{address}/{128 if ':' in address else 32}"


def _has_interface(name: str) -> bool:
    return os.path.exists(f"/sys/class/net/{name}")


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _succeeds(command: Sequence[str]) -> bool:
    try:
        _run(command)
    except RulesError:
        return False
    return True


def _run(command: Sequence[str], text: str = "") -> None:
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RulesError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RulesError(f"{command[0]}: {lines[-1][:200]}")
