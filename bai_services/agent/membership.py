"""`bai-agent join` and `bai-agent leave`: make this machine a node of an installation."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import docker

from bai_services.client import Token
from bai_services.core.cluster.joining import CREDENTIAL_PREFIX
from bai_services.core.cluster.model import AgentStatus
from bai_services.core.counts import counted
from bai_services.core.errors import BaiError, Conflict, InvalidRequest, NotSignedIn, Unavailable
from bai_services.core.installation.findings import Finding, Level, worst
from bai_services.core.installation.settings import EngineKind
from bai_services.core.installation.systemd import AGENT_UNIT, JoinedAgent, agent_unit
from bai_services.core.ip_addresses import parse_address
from bai_services.docker_clients import DockerClients, EngineUnavailable
from bai_services.service_client import ServiceClient

from .checks import CheckRequest, EngineState, MachineChecks, read_engine

DEFAULT_STATE = "/var/lib/bai-agent"
DEFAULT_UNITS = "/etc/systemd/system"
DEFAULT_DOCKER = "unix:///var/run/docker.sock"
PREFIX = "/services/bai"
ENVIRONMENT = "agent.env"
REGISTER_TIMEOUT_SECONDS = 20.0
SYSTEMCTL_TIMEOUT_SECONDS = 90.0
SWARM_TIMEOUT_SECONDS = 25.0
POLL_SECONDS = 0.5
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
# Characters with a special meaning in systemd units.
_UNSAFE = re.compile(r"[\s:%$\"'\\]")

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """Options of `bai-agent join`; other machines reach this machine at ``advertise``."""

    url: str
    agent_id: str
    engine: EngineKind
    docker_host: str
    token: str = ""
    resource_group: str = ""
    advertise: str = ""
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class Places:
    """``state``: credential and settings of the agent. ``units``: folder of systemd's units."""

    state: Path
    units: Path

    @property
    def credential(self) -> Path:
        return self.state / "credential"

    @property
    def record(self) -> Path:
        """The file in which ``join`` records its changes for ``leave``."""
        return self.state / "joined.json"

    @property
    def environment(self) -> Path:
        return self.state / ENVIRONMENT

    @property
    def unit(self) -> Path:
        return self.units / AGENT_UNIT


@dataclass(frozen=True, slots=True)
class Joined:
    """The changes of ``join`` on this machine."""

    url: str
    agent_id: str
    engine: str
    docker_host: str
    has_joined_swarm: bool = False


def manager_url(text: str) -> str:
    """Return the manager's URL for the URL of a hub or of a manager.

    Raises
    ------
    InvalidRequest
        If the text is not a URL.
    """
    url = text.rstrip("/")
    if not re.fullmatch(r"https?://[^\s/@?#]+(/[^\s?#]*)?", url):
        raise InvalidRequest(f"{text[:80]!r} is not a URL such as https://hub.example.org")
    return url if url.endswith(PREFIX) else f"{url}{PREFIX}"


async def join(options: JoinOptions, places: Places, tell: Tell) -> None:
    """Join an installation, or complete and repair an earlier join.

    Raises
    ------
    Conflict
        If a check of this machine has found an error (nothing is changed), or if it has joined
        another installation.
    BaiError
        If the manager or the Swarm refuses this machine.
    """
    if _UNSAFE.search(str(places.state)):
        raise InvalidRequest("--state must not contain spaces, quotes or any of : % $ \\")
    if options.ca_file:
        os.environ["SSL_CERT_FILE"] = options.ca_file
    host = options.docker_host if options.engine is EngineKind.DOCKER else ""
    checks = MachineChecks(options.url, host, places.state)
    result = await asyncio.to_thread(checks.run, CheckRequest())
    _report(result.findings, tell)
    places.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    known = read_record(places)
    if known is not None and (known.url, known.agent_id) != (options.url, options.agent_id):
        raise Conflict(
            f"this machine has joined {known.url} as {known.agent_id}; run bai-agent leave first"
        )
    credential = _credential(places)
    answer = await _admission(options, credential, has_joined=known is not None)
    tell(f"joined as {options.agent_id} in the resource group {answer['resource_group']}")
    record = Joined(
        options.url,
        options.agent_id,
        options.engine,
        options.docker_host,
        known is not None and known.has_joined_swarm,
    )
    _write_record(places, record)
    if answer["swarm"] and host:
        if await asyncio.to_thread(join_swarm, host, answer["swarm"], options.advertise):
            tell("joined the Swarm")
            _write_record(places, Joined(**{**asdict(record), "has_joined_swarm": True}))
        else:
            tell("this engine is already a node of the Swarm")
    storage = [str(one["path"]) for one in answer["storage"]]
    _write_environment(places, options, str(answer["resource_group"]))
    agent = JoinedAgent(
        str(Path(sys.prefix) / "bin" / "bai-agent"),
        str(places.state),
        options.engine,
        getpass.getuser(),
        [path for path in storage if not _UNSAFE.search(path)],
    )
    is_new = _write(places.unit, agent_unit(agent), 0o644)
    tell(f"{'wrote' if is_new else 'unchanged:'} {places.unit}")
    if has_systemd(places):
        await _start(places, options, credential, restarts=is_new, tell=tell)
    else:
        tell(f"systemd does not run here; start the agent: bai-agent run --state {places.state}")


async def leave(places: Places, timeout_seconds: float, *, forces: bool, tell: Tell) -> None:
    """Undo ``join``: wait for the sessions, leave the Swarm, remove unit and credential.

    With ``forces``, leave although the manager does not respond or sessions run.

    Raises
    ------
    Conflict
        If sessions still run after ``timeout_seconds``; the machine stays drained.
    """
    record = read_record(places)
    if record is None:
        tell("this machine has not joined")
        return
    credential = _credential(places)
    if places.environment.exists() and (
        ca_file := read_environment(places.state).get("SSL_CERT_FILE")
    ):
        os.environ["SSL_CERT_FILE"] = ca_file
    async with ServiceClient(record.url, Token(credential)) as client:
        path = f"/agents/{record.agent_id}"
        try:
            await _drain(client, path, timeout_seconds, forces=forces, tell=tell)
        except NotSignedIn:
            tell("the manager no longer knows this machine")
        except Unavailable:
            if not forces:
                raise
        if has_systemd(places) and places.unit.exists():
            _systemctl("disable", "--now", AGENT_UNIT)
        if record.has_joined_swarm and await asyncio.to_thread(leave_swarm, record.docker_host):
            tell("left the Swarm")
        try:
            await client.delete(f"{path}/membership")
        except NotSignedIn:
            pass
        except BaiError as problem:
            if not forces:
                raise
            tell(f"the manager keeps the agent: {problem}")
    places.unit.unlink(missing_ok=True)
    if has_systemd(places):
        _systemctl("daemon-reload")
    # Remove the record last, so that the call can be repeated if it is interrupted.
    for file in (places.environment, places.credential, places.record):
        file.unlink(missing_ok=True)
    tell(f"{record.agent_id} has left {record.url}")


def read_record(places: Places) -> Joined | None:
    """Return the record of ``join``; None if this machine has not joined."""
    try:
        return Joined(**json.loads(places.record.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as problem:
        raise InvalidRequest(f"{places.record} cannot be read: {problem}") from None


def read_environment(state: Path) -> dict[str, str]:
    """Return the variables in the settings file of a state folder.

    Raises
    ------
    InvalidRequest
        If the machine has not joined, or a line is malformed.
    """
    path = state / ENVIRONMENT
    try:
        lines = path.read_text().splitlines()
    except OSError as problem:
        raise InvalidRequest(
            f"{path} cannot be read ({problem.strerror}); join first: bai-agent join URL"
        ) from None
    variables = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise InvalidRequest(f"{path}, line {number}: not NAME=VALUE")
        variables[name] = value
    return variables


def join_swarm(host: str, swarm: Mapping[str, Any], advertise: str) -> bool:
    """Make the engine a worker of the Swarm; return False if it is one already.

    Raises
    ------
    Conflict
        If the engine is a node of another Swarm.
    Unavailable
        If the engine does not respond or cannot join.
    """
    state = _engine(host)
    if state.swarm.get("LocalNodeState") == "active":
        managers = {str(one["Addr"]) for one in state.swarm.get("RemoteManagers") or ()}
        if managers.isdisjoint(swarm["addresses"]):
            raise Conflict(
                "this engine is a node of another Swarm; leave it first (docker swarm leave)"
            )
        return False
    _call(
        host,
        lambda client: client.join_swarm(
            list(swarm["addresses"]), str(swarm["token"]), advertise_addr=advertise or None
        ),
        "the engine cannot join the Swarm",
    )
    return True


def leave_swarm(host: str) -> bool:
    """Leave the Swarm; return False if the engine is in no Swarm or does not respond."""
    try:
        if _engine(host).swarm.get("LocalNodeState") == "inactive":
            return False
        _call(host, lambda client: client.leave_swarm(force=True), "the engine cannot leave")
    except Unavailable:
        return False
    return True


def has_systemd(places: Places) -> bool:
    return places.units == Path(DEFAULT_UNITS) and Path("/run/systemd/system").is_dir()


async def _admission(
    options: JoinOptions, credential: str, *, has_joined: bool
) -> Mapping[str, Any]:
    """Return the manager's answer; the token is used unless this machine has joined before."""
    async with ServiceClient(options.url, Token(credential)) as client:
        if has_joined:
            try:
                answer: Mapping[str, Any] = await client.get(f"/agent-joins/{options.agent_id}")
                return answer
            except NotSignedIn:
                if not options.token:
                    raise
    if not options.token:
        raise InvalidRequest("--token or --token-file is missing; see bai admin agent invite")
    body = {
        "token": options.token,
        "agent_id": options.agent_id,
        "credential": credential,
        "resource_group": options.resource_group,
        "engine": options.engine.value,
    }
    # Send no credential: the route needs none, and an unregistered one would be refused.
    async with ServiceClient(options.url, Token("")) as client:
        answer = await client.post("/agent-joins", body)
        return answer


async def _drain(
    client: ServiceClient, path: str, timeout_seconds: float, *, forces: bool, tell: Tell
) -> None:
    state = await client.post(f"{path}/drain")
    deadline = time.monotonic() + timeout_seconds
    if state["kernels"] and not forces:
        tell(f"waiting for {counted(state['kernels'], 'kernels')} to end")
    while state["kernels"] and not forces:
        if time.monotonic() > deadline:
            raise Conflict(
                f"{counted(state['kernels'], 'kernels')} on this machine did not end in time; the "
                "machine is drained. Wait longer (--timeout), stop the sessions, or leave without "
                "waiting (--force)"
            )
        await asyncio.sleep(POLL_SECONDS)
        state = await client.get(f"{path}/membership")


async def _start(
    places: Places, options: JoinOptions, credential: str, *, restarts: bool, tell: Tell
) -> None:
    """Start the unit, and wait until the agent has registered."""
    _systemctl("daemon-reload")
    _systemctl("enable", "--now", AGENT_UNIT)
    if restarts:
        _systemctl("restart", AGENT_UNIT)
    deadline = time.monotonic() + REGISTER_TIMEOUT_SECONDS
    async with ServiceClient(options.url, Token(credential)) as client:
        while time.monotonic() < deadline:
            state = await client.get(f"/agents/{options.agent_id}/membership")
            if state["status"] == AgentStatus.ALIVE:
                tell("the agent is registered")
                return
            await asyncio.sleep(POLL_SECONDS)
    raise Unavailable(f"the agent has not registered; see journalctl --unit {AGENT_UNIT}")


def _report(findings: Any, tell: Tell) -> None:
    """Print the findings.

    Raises
    ------
    Conflict
        If a finding is an error.
    """
    for finding in findings:
        tell(_line(finding))
        if finding.remedy:
            tell(f"{'':<9}remedy: {finding.remedy}")
    if worst(findings) is Level.ERROR:
        raise Conflict("correct the errors, then join again; nothing was changed")


def _line(finding: Finding) -> str:
    return f"{finding.level:<8} {finding.check}: {finding.message}"


def _credential(places: Places) -> str:
    """Return this machine's credential; generate it at the first call.

    It is stored before the manager receives it, so that an interrupted join can be repeated.
    """
    if not places.credential.exists():
        text = f"{CREDENTIAL_PREFIX}{secrets.token_urlsafe(32)}"
        _write(places.credential, f"{text}\n", 0o600)
    return places.credential.read_text().strip()


def _write_record(places: Places, record: Joined) -> None:
    _write(places.record, json.dumps(asdict(record), indent=1) + "\n", 0o600)


def _write_environment(places: Places, options: JoinOptions, group: str) -> None:
    """Write the agent's settings; further variables that an administrator has added are kept."""
    computed = {
        "BAI_MANAGER_URL": options.url,
        "BAI_AGENT_TOKEN_FILE": str(places.credential),
        "BAI_AGENT_ID": options.agent_id,
        "BAI_AGENT_RESOURCE_GROUP": group,
        "BAI_AGENT_ENGINE": options.engine.value,
        "BAI_HOME": str(places.state),
    }
    if options.engine is EngineKind.DOCKER:
        computed["BAI_AGENT_DOCKER_HOST"] = options.docker_host
    if options.ca_file:
        computed["SSL_CERT_FILE"] = options.ca_file
    kept = read_environment(places.state) if places.environment.exists() else {}
    # Simulated devices are only for trying out bai-hub.
    defaults = {"BAI_AGENT_SIMULATED_GPUS": "0"}
    if options.engine is EngineKind.DOCKER and (address := _address(options)):
        (computed if options.advertise else defaults)["BAI_AGENT_ADDRESS"] = address
    variables = {**defaults, **kept, **computed}
    lines = ["# Settings of the agent, written by bai-agent join. You may add further variables."]
    lines += [f"{name}={value}" for name, value in variables.items()]
    _write(places.environment, "\n".join([*lines, ""]), 0o600)


def _address(options: JoinOptions) -> str:
    """Return the address at which the Hub's machine reaches this machine.

    It is empty if both are the same machine. `--advertise` may also be a network interface, which
    only the Swarm understands.
    """
    advertised = parse_address(options.advertise)
    if advertised is not None and advertised.version == 4:
        return str(advertised)
    return local_address(options.url)


def local_address(url: str) -> str:
    """Return the IPv4 address from which this machine connects to a URL's host.

    It is empty if the host is this machine, has no IPv4 address or cannot be resolved.
    """
    parts = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # connect() on a UDP socket selects a route, but sends nothing.
            probe.connect((parts.hostname, parts.port or 443))
        except OSError:
            return ""
        own, peer = str(probe.getsockname()[0]), str(probe.getpeername()[0])
    return "" if own == peer else own


def _write(path: Path, text: str, mode: int) -> bool:
    """Write a file unless it has that content; return whether it was written."""
    if path.exists() and path.read_text() == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as file:
        file.write(text)
    temporary.replace(path)
    return True


def _systemctl(*words: str) -> None:
    program = shutil.which("systemctl") or "systemctl"
    try:
        done = subprocess.run(
            [program, *words], capture_output=True, text=True, timeout=SYSTEMCTL_TIMEOUT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise Unavailable(f"systemctl {' '.join(words)}: {problem}") from None
    if done.returncode:
        raise Unavailable(f"systemctl {' '.join(words)}: {done.stderr.strip()[:300]}")


def _engine(host: str) -> EngineState:
    try:
        return read_engine(host)
    except (EngineUnavailable, docker.errors.DockerException):
        raise Unavailable(f"the Docker engine at {host} does not respond") from None


def _call(host: str, call: Callable[[docker.APIClient], Any], problem: str) -> None:
    clients = DockerClients(SWARM_TIMEOUT_SECONDS)
    try:
        clients.call(host, call)
    except EngineUnavailable:
        raise Unavailable(f"{problem}: it does not respond") from None
    except docker.errors.APIError as error:
        raise Unavailable(f"{problem}: {error.explanation}") from None
    finally:
        clients.close()
