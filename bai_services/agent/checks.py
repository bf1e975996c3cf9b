"""Checks of this machine: before it joins, and when `bai admin cluster doctor` requests them.

Each check is a function that returns findings, with a remedy for each problem.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import docker
from cryptography import x509

from bai_services.client import is_local, is_loopback
from bai_services.core.cluster.joining import StoragePath
from bai_services.core.cluster.storage_checks import StorageProblem
from bai_services.core.installation.findings import Finding, error, ok, validity, warning
from bai_services.docker_clients import DockerClients, EngineUnavailable
from bai_services.system.bounded_calls import BoundedCalls

from .folders.storage_watch import storage_problem

CHECK = "check"  # kind of the work item
# Time limit for all checks together; a check that takes longer is reported and abandoned.
TIMEOUT_SECONDS = 6.0
CALL_TIMEOUT_SECONDS = 4.0
MIN_DOCKER = (20, 10)
MIN_FREE_BYTES = 5 * 2**30
# The Date header has a resolution of 1 s. Signed requests tolerate a skew of minutes. These limits
# are stricter, because times in logs and the validity of Swarm certificates are compared across
# machines.
WARN_SKEW_SECONDS = 3.0
MAX_SKEW_SECONDS = 30.0
# Port of the gossip between the nodes of a Swarm.
SWARM_PORT = 7946
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
CLEAR_PROXY: Mapping[str, str] = {}

Check = Callable[[], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What to check in addition to this machine; empty before the machine joins.

    ``peers``: addresses of the nodes of the Swarm. ``marker``: name and content of a file
    that the manager has written to each storage host.
    """

    storage: Sequence[StoragePath] = ()
    peers: Sequence[str] = ()
    marker: str = ""

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> CheckRequest:
        return cls(
            [StoragePath(str(one["name"]), str(one["path"])) for one in item.get("storage") or ()],
            [str(address) for address in item.get("peers") or ()],
            str(item.get("marker") or ""),
        )


@dataclass(frozen=True, slots=True)
class EngineState:
    """Version and information that a Docker engine reports."""

    version: Mapping[str, Any]
    info: Mapping[str, Any]

    @property
    def swarm(self) -> Mapping[str, Any]:
        return self.info.get("Swarm") or {}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """``engine_id`` and ``node_id`` identify the engine and its Swarm node; "" if there is none."""

    findings: Sequence[Finding]
    engine_id: str = ""
    node_id: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "findings": [finding.as_dict() for finding in self.findings],
            "engine_id": self.engine_id,
            "node_id": self.node_id,
        }


@dataclass
class MachineChecks:
    """Checks one machine; ``docker_host`` is "" with the process engine.

    A check that hangs, for example on a dead file system, is reported as an error.
    """

    manager_url: str
    docker_host: str
    home: Path
    _calls: BoundedCalls[list[Finding]] = field(default_factory=BoundedCalls)

    def run(self, request: CheckRequest, timeout_seconds: float = TIMEOUT_SECONDS) -> CheckResult:
        """Run all checks concurrently, in at most ``timeout_seconds``; blocking."""
        deadline = time.monotonic() + timeout_seconds
        state = self._engine_state(deadline) if self.docker_host else None
        engine = state if isinstance(state, EngineState) else None
        checks: dict[str, Check] = {
            "manager": lambda: check_manager(self.manager_url),
            "certificate": lambda: check_certificates(self.manager_url, engine),
            "disk": lambda: check_disk(self._disk_paths(engine)),
            "cgroups": lambda: check_cgroups(engine),
            "gpu": lambda: check_gpus(engine, Path("/")),
            "clock": check_clock,
        }
        for host in request.storage:
            checks[f"storage {host.name}"] = _storage_check(host, request.marker)
        swarm = {} if engine is None else engine.swarm
        for address in {*request.peers} - {str(swarm.get("NodeAddr"))}:
            checks[f"network to {address}"] = _peer_check(address)
        findings = [state] if isinstance(state, Finding) else []
        if engine is not None:
            findings += [*check_docker(engine), *check_swarm(engine)]
        findings += self._bounded(checks, deadline)
        engine_id = "" if engine is None else str(engine.info.get("ID") or "")
        return CheckResult(findings, engine_id, str(swarm.get("NodeID") or ""))

    def _engine_state(self, deadline: float) -> EngineState | Finding:
        found: list[EngineState] = []

        def read() -> Iterable[Finding]:
            try:
                found.append(read_engine(self.docker_host))
            except EngineUnavailable:
                yield error(
                    "docker",
                    f"the engine at {self.docker_host} does not respond",
                    "start Docker (systemctl start docker), and check BAI_AGENT_DOCKER_HOST (of "
                    "bai-agent join: --docker-host)",
                )
            except docker.errors.DockerException as problem:
                yield error("docker", f"the engine rejects calls: {problem}", "upgrade Docker")

        seconds = min(CALL_TIMEOUT_SECONDS + 0.5, deadline - time.monotonic())
        problems = self._bounded({"docker": read}, time.monotonic() + seconds)
        return problems[0] if problems else found[0]

    def _disk_paths(self, engine: EngineState | None) -> dict[str, Path]:
        paths = {"state folder": self.home}
        root = Path(str(engine.info.get("DockerRootDir") or "")) if engine else None
        # Omit the engine's root folder if it is not visible here: the engine may be in another
        # mount namespace.
        if root is not None and root.is_absolute() and root.is_dir():
            paths["Docker"] = root
        return paths

    def _bounded(self, checks: Mapping[str, Check], deadline: float) -> list[Finding]:
        calls = {name: _listed(check) for name, check in checks.items()}
        results = self._calls.run(calls, max(0.0, deadline - time.monotonic()))
        findings = []
        for name in checks:
            result = results.get(name)
            if result is None:
                findings.append(_timed_out(name))
            elif isinstance(result, Exception):
                findings.append(error(name, f"the check failed: {result}", "see the agent's log"))
            else:
                findings += result
        return findings


def _listed(check: Check) -> Callable[[], list[Finding]]:
    return lambda: list(check())


def _timed_out(name: str) -> Finding:
    return error(
        name,
        "the check did not end in time",
        "look for a file system, an engine or a network that hangs",
    )


def _storage_check(host: StoragePath, marker: str) -> Check:
    return lambda: check_storage(host, marker)


def _peer_check(address: str) -> Check:
    return lambda: check_peer(address, SWARM_PORT)


def read_engine(host: str) -> EngineState:
    """Return the state of a Docker engine.

    Raises
    ------
    EngineUnavailable
        If the engine does not respond.
    """
    if host.startswith("unix://"):
        # Try the connection first, because docker-py leaks the socket of a failed connection.
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(CALL_TIMEOUT_SECONDS)
            try:
                probe.connect(host.removeprefix("unix://"))
            except OSError as problem:
                raise EngineUnavailable(host) from problem
    clients = DockerClients(CALL_TIMEOUT_SECONDS)
    try:
        return clients.call(host, lambda client: EngineState(client.version(), client.info()))
    finally:
        clients.close()


def check_docker(engine: EngineState) -> Iterable[Finding]:
    version = str(engine.version.get("Version") or "")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers < MIN_DOCKER:
        oldest = ".".join(map(str, MIN_DOCKER))
        yield error("docker", f"version {version} is too old", f"upgrade Docker to {oldest}")
    else:
        yield ok("docker", f"version {version} responds")


def check_cgroups(engine: EngineState | None) -> Iterable[Finding]:
    """Check that limits of memory, CPU and processes can be enforced."""
    if engine is None:
        return
    names = {"MemoryLimit": "memory", "CpuCfsQuota": "cpu", "PidsLimit": "pids"}
    missing = [name for key, name in names.items() if not engine.info.get(key)]
    version = engine.info.get("CgroupVersion") or "?"
    if missing:
        yield error(
            "cgroups",
            f"the engine cannot limit: {', '.join(missing)}",
            "enable these controllers (kernel parameters cgroup_enable=memory swapaccount=1)",
        )
    else:
        yield ok("cgroups", f"version {version}, with limits of memory, CPU and processes")


def check_gpus(engine: EngineState | None, root: Path) -> Iterable[Finding]:
    """Check that NVIDIA GPUs have a driver, and that containers can use them."""
    vendor = "0x10de"
    gpus = 0
    for device in (root / "sys/bus/pci/devices").glob("*"):
        texts = [_text(device / "vendor"), _text(device / "class")]
        # Classes of display controllers: VGA, 3D.
        gpus += texts[0] == vendor and texts[1].startswith(("0x0300", "0x0302"))
    has_driver = (root / "proc/driver/nvidia/version").exists()
    if not gpus and not has_driver:
        yield ok("gpu", "no NVIDIA GPU")
        return
    if not has_driver:
        yield error(
            "gpu", f"{gpus} NVIDIA GPUs, but no driver is loaded", "install NVIDIA's driver"
        )
        return
    if engine is None:
        yield ok("gpu", "NVIDIA's driver is loaded")
        return
    runtimes = engine.info.get("Runtimes") or {}
    has_cdi = any(any((root / folder.lstrip("/")).glob("nvidia*")) for folder in CDI_FOLDERS)
    if "nvidia" in runtimes or has_cdi or shutil.which("nvidia-container-runtime-hook"):
        yield ok("gpu", "NVIDIA's driver and container toolkit are installed")
    else:
        yield error(
            "gpu",
            "containers cannot use the GPUs: the NVIDIA container toolkit is missing",
            "install nvidia-container-toolkit, run nvidia-ctk runtime configure, restart Docker",
        )


def check_swarm(engine: EngineState) -> Iterable[Finding]:
    state = str(engine.swarm.get("LocalNodeState") or "inactive")
    if state == "active":
        yield ok("swarm", f"node {engine.swarm.get('NodeID')} is active")
    elif state == "inactive":
        yield ok("swarm", "this engine is in no Swarm")
    else:
        problem = str(engine.swarm.get("Error") or "")
        yield error(
            "swarm",
            f"the node is {state}: {problem}" if problem else f"the node is {state}",
            "run bai-agent leave and join again",
        )


def check_manager(url: str) -> Iterable[Finding]:
    """Check that the manager responds, the connection is encrypted, and the clocks agree."""
    began = time.time()
    # Connect to a private address without a proxy, because the proxies in the environment are for
    # external hosts.
    handlers = (
        [urllib.request.ProxyHandler(dict(CLEAR_PROXY))]
        if is_local(urlsplit(url).hostname or "")
        else []
    )
    try:
        with urllib.request.build_opener(*handlers).open(
            f"{url}/api/v1/health", timeout=CALL_TIMEOUT_SECONDS
        ) as response:
            content, date = response.read(65536), response.headers.get("Date", "")
        json.loads(content)["version"]
    except urllib.error.HTTPError as problem:
        yield error("manager", f"{url} responds with status {problem.code}", _URL_REMEDY)
        return
    except (ValueError, KeyError, TypeError):
        yield error("manager", f"{url} does not respond like a manager", _URL_REMEDY)
        return
    except OSError as problem:
        reason = getattr(problem, "reason", problem)
        if isinstance(reason, ssl.SSLCertVerificationError):
            return  # check_certificates reports this problem
        yield error("manager", f"{url} cannot be reached: {reason}", _URL_REMEDY)
        return
    ended = time.time()
    yield ok("manager", f"{url} responds in {1000 * (ended - began):.0f} ms")
    if not url.startswith("https:") and not is_loopback(urlsplit(url).hostname or ""):
        yield warning(
            "manager",
            "the connection is not encrypted",
            "use the https URL of the hub, except in a trusted network",
        )
    yield from clock_skew(date, began, ended)


_URL_REMEDY = "use the URL of the hub; check its spelling, DNS and the firewall"


def clock_skew(date: str, began: float, ended: float) -> Iterable[Finding]:
    """Compare the clocks.

    ``date``: the manager's Date header. ``began`` and ``ended``: this machine's time before and
    after the request.
    """
    try:
        theirs = parsedate_to_datetime(date).timestamp()
    except ValueError:
        return
    # The header is truncated to seconds.
    skew = max(0.0, theirs - ended, began - (theirs + 1))
    sign = "ahead of" if began > theirs else "behind"
    remedy = "synchronize the clocks of both machines (timedatectl set-ntp true)"
    if skew > WARN_SKEW_SECONDS:
        level = error if skew > MAX_SKEW_SECONDS else warning
        yield level("clock skew", f"this clock is {skew:.0f} s {sign} the manager's", remedy)
    else:
        yield ok("clock skew", "the clocks agree")


def check_clock() -> Iterable[Finding]:
    """Check that the clock is synchronized, on machines with systemd."""
    words = ["timedatectl", "show", "--property=NTPSynchronized", "--value"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=CALL_TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return
    if done.returncode == 0 and done.stdout.strip() == "no":
        yield warning("clock", "it is not synchronized", "enable NTP: timedatectl set-ntp true")


def check_certificates(url: str, engine: EngineState | None) -> Iterable[Finding]:
    """Check the end dates of the hub's certificate, and of the node's certificate in the Swarm."""
    now = datetime.now(UTC)
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        try:
            address = (parts.hostname, parts.port or 443)
            with (
                socket.create_connection(address, CALL_TIMEOUT_SECONDS) as plain,
                ssl.create_default_context().wrap_socket(
                    plain, server_hostname=parts.hostname
                ) as connection,
            ):
                content = connection.getpeercert(binary_form=True) or b""
        except ssl.SSLCertVerificationError as problem:
            reason = problem.verify_message
            yield error(
                "certificate",
                f"the hub's certificate is not accepted: {reason}",
                "renew it, or name its certificate authority with --ca-file",
            )
        except OSError:
            return  # check_manager reports this problem
        else:
            yield _validity(
                "certificate", x509.load_der_x509_certificate(content), now, "the hub's"
            )
    if engine is not None and engine.swarm.get("NodeID"):
        folder = Path(str(engine.info.get("DockerRootDir") or "/")) / "swarm/certificates"
        try:
            content = (folder / "swarm-node.crt").read_bytes()
            certificate = x509.load_pem_x509_certificate(content)
        except (OSError, ValueError):
            return
        # The node renews its certificate automatically, so report only an expired one.
        if certificate.not_valid_after_utc <= now:
            yield _validity("swarm certificate", certificate, now, "the node's")
        else:
            end = certificate.not_valid_after_utc
            yield ok("swarm certificate", f"the node's is valid until {end:%Y-%m-%d}")


def _validity(check: str, certificate: x509.Certificate, now: datetime, what: str) -> Finding:
    return validity(
        check, certificate.not_valid_before_utc, certificate.not_valid_after_utc, now, what
    )


def check_disk(paths: Mapping[str, Path]) -> Iterable[Finding]:
    for name, path in paths.items():
        existing = next(each for each in (path, *path.absolute().parents) if each.exists())
        free = shutil.disk_usage(existing).free
        if free < MIN_FREE_BYTES:
            yield warning(
                "disk", f"{name}: {path} has {free // 2**20} MiB free", "free or add space"
            )
        else:
            yield ok("disk", f"{name}: {free // 2**30} GiB free")


def check_storage(host: StoragePath, marker: str = "") -> Iterable[Finding]:
    """Check that a storage host is mounted and writable, and is the same as on the manager."""
    name, path = f"storage {host.name}", Path(host.path)
    if not path.is_dir():
        yield error(name, f"{path} does not exist", "mount the file system at this path")
        return
    # If the file system is read-only on the manager's machine too, the manager could not write the
    # marker.
    if storage_problem(path, "", "") is StorageProblem.READ_ONLY:
        yield error(name, f"{path} is mounted read-only", "mount it read-write")
        return
    if storage_problem(path, marker, marker) is StorageProblem.NOT_MOUNTED:
        yield error(
            name,
            f"{path} is not the file system of the manager",
            "mount the same file system here and on the manager's machine",
        )
        return
    if not os.access(path, os.W_OK):
        yield error(name, f"{path} is not writable", "check the owner and the mount options")
        return
    yield ok(name, f"{path} is mounted")


def check_peer(address: str, port: int) -> Iterable[Finding]:
    """Check that another node of the Swarm accepts connections."""
    name = f"network to {address}"
    try:
        socket.create_connection((address, port), CALL_TIMEOUT_SECONDS).close()
    except OSError as problem:
        yield error(
            name,
            f"port {port} cannot be reached: {problem}",
            "open the ports 7946/tcp, 7946/udp and 4789/udp between the nodes",
        )
    else:
        yield ok(name, f"port {port} accepts connections")


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
