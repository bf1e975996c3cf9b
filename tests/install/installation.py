"""A test installation: the ``ExecStart`` lines of its units run as child processes."""

from __future__ import annotations

import os
import re
import secrets
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psutil
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bai_services.system.ports import free_port, is_free
from tests.install.debian_root import DebianRoot
from tests.testbed.wait import wait_until

HOST = "localhost"
START_SECONDS = 120
START_ORDER = ("proxy", "hub", "manager", "gateway", "agent")


def write_certificate(folder: Path, host: str = HOST, days: int = 30) -> tuple[Path, Path]:
    """Write a self-signed certificate and its key; return the files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=365))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "hub.pem", folder / "hub.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].touch(mode=0o600)
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths


def free_port_range(count: int) -> int:
    """Return the first of ``count`` consecutive free ports."""
    while True:
        first = free_port()
        if first < 60000 and all(is_free(first + offset) for offset in range(count)):
            return first


def run_bai_hub(
    program: Path,
    *arguments: str | Path,
    code: int = 0,
    text: str = "",
    machine: DebianRoot | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `bai-hub` on this machine or on another one; check its exit code."""
    enter = [*machine.enter(), "--"] if machine else []
    done = subprocess.run(
        [*enter, str(program), *map(str, arguments)],
        env=clean_environment(),
        input=text,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def clean_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("BAI_", "JUPYTERHUB_"))
    }


def _sandbox_command(unit: str, machine: DebianRoot | None) -> list[str]:
    """Return a command prefix for a process on a machine that hides what the unit hides."""
    words = machine.enter() if machine else []
    hidden = re.search(r"^TemporaryFileSystem=(.*):ro$", unit, re.MULTILINE)
    if hidden is None:
        return [*words, "--"] if words else []
    readable = re.search(r"^BindReadOnlyPaths=(.*)$", unit, re.MULTILINE)
    assert readable is not None
    if not words:
        words = ["bwrap", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev"]
    words += ["--tmpfs", hidden[1]]
    for path in readable[1].split():
        words += ["--ro-bind", path, path]
    return [*words, "--remount-ro", hidden[1], "--"]


@dataclass
class RunningInstallation:
    """Runs the ``ExecStart`` lines of the units in ``folder``."""

    folder: Path
    state: Path
    port: int
    certificate: Path
    password: str
    # None: this machine.
    machine: DebianRoot | None = None
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self.port}"

    @property
    def api(self) -> str:
        return f"{self.url}/services/bai/api/v1"

    def exec_start(self, component: str) -> list[str]:
        name = "bai-hub" if component == "hub" else f"bai-hub-{component}"
        text = (self.folder / "systemd" / f"{name}.service").read_text()
        found = re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)
        assert found is not None
        return [*_sandbox_command(text, self.machine), *found[1].split()]

    def start(self, *components: str) -> None:
        """Start components (default: all), and wait until the installation responds."""
        for component in components or START_ORDER:
            self.launch(component)
        wait_until(self._is_up_or_failed, START_SECONDS, "the installation to respond")
        assert self._ended() == [], self.logs()

    def launch(self, component: str) -> subprocess.Popen[bytes]:
        with open(self.state / f"{component}.log", "ab") as log:
            process = subprocess.Popen(
                self.exec_start(component),
                env={**clean_environment(), "BAI_HOME": ""},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes[component] = process
        return process

    def process_of(self, component: str) -> subprocess.Popen[bytes]:
        return self._processes[component]

    def _ended(self) -> list[str]:
        return [name for name, process in self._processes.items() if process.poll() is not None]

    def _is_up_or_failed(self) -> bool:
        if self._ended():
            return True
        try:
            with self.client() as client:
                return (
                    client.get("/hub/login").status_code == 200
                    and client.get(f"{self.api}/health").status_code == 200
                )
        except httpx.HTTPError:
            return False

    def logs(self) -> str:
        texts = []
        for component in START_ORDER:
            lines = (self.state / f"{component}.log").read_text(errors="replace").splitlines()
            texts.append("\n".join([f"--- {component}", *lines[-30:]]))
        return "\n".join(texts)

    def stop(self) -> None:
        """Stop all components, then the sessions that they leave running."""
        self.stop_components(*reversed(START_ORDER))
        for process in self.remaining():
            process.kill()

    def stop_components(self, *components: str) -> None:
        """Stop components as systemd does."""
        for component in components:
            if process := self._processes.pop(component, None):
                process.terminate()
                try:
                    process.wait(40)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def remaining(self) -> list[psutil.Process]:
        """Return the processes of this installation, sessions included."""
        found = []
        for process in psutil.process_iter():
            try:
                words = " ".join([*process.environ().values(), *process.cmdline()])
                if str(self.state) in words and process.pid != os.getpid():
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def client(self, **headers: str) -> httpx.Client:
        context = ssl.create_default_context(cafile=str(self.certificate))
        return httpx.Client(base_url=self.url, verify=context, timeout=60, headers=headers)

    @contextmanager
    def rest(self, name: str = "root-user") -> Iterator[httpx.Client]:
        """Yield a REST client that is signed in as a user."""
        with self.client() as client:
            body = {"name": name, "password": self.password}
            response = client.post(f"{self.api}/auth/token", json=body)
            assert response.status_code in (200, 201), response.text
        token = response.json()["token"]
        with self.client(Authorization=f"Bearer {token}") as client:
            client.base_url = httpx.URL(self.api)
            yield client


def start_session(installation: RunningInstallation, rest: httpx.Client, **spec: Any) -> Any:
    """Create a session and return it when it is RUNNING."""
    body = {
        "name": f"run-{secrets.token_hex(4)}",
        "project": "default",
        "resources": {"cpu": "1", "mem": "512m"},
        **spec,
    }
    made = rest.post("/sessions", json=body)
    assert made.status_code == 201, made.text

    def running() -> Any:
        response = rest.get(f"/sessions/{made.json()['id']}")
        if response.status_code in (502, 503, 504):
            return None  # another manager is taking over
        assert response.status_code == 200, response.text
        session = response.json()
        assert session["status"] not in ("ERROR", "CANCELLED", "TERMINATED"), (
            session,
            installation.logs(),
        )
        return session if session["status"] == "RUNNING" else None

    return wait_until(running, START_SECONDS, "the session to be RUNNING")


def read_file(
    installation: RunningInstallation, rest: httpx.Client, session: Any, path: str
) -> str:
    """Return the text of a file in a session, through the session's Jupyter server."""
    with installation.client(Authorization=rest.headers["Authorization"]) as client:
        response = client.get(f"{session['url']}api/contents/{path}?type=file&format=text")
        assert response.status_code == 200, response.text
        return str(response.json()["content"])


PROGRAM = Path(sys.prefix) / "bin" / "bai-hub"
