"""State folder of an installation: secrets and ports that persist across restarts."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import platform
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bai_services.system.ports import free_port, is_free

# A reservation keeps the user's other installations from taking the same ports for this time.
RESERVED_SECONDS = 300
# Preferred port of each component, as the difference from the public port.
PORT_OFFSETS = {"proxy_api": 1, "hub": 81, "manager": 91, "gateway": 92}


class Home:
    """Files of the state folder, which is created with mode 0700 if it is missing."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._secrets = self.path / "secrets"
        self._secrets.mkdir(mode=0o700, exist_ok=True)

    def secret(self, name: str) -> Path:
        """Return the file of a secret: 32 random bytes in URL-safe base64, like a Fernet key."""
        path = self._secrets / name
        text = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
        _write_once(path, text)
        return path

    def database(self, name: str) -> Path:
        """Return the file of an SQLite database, created empty if missing."""
        path = self.path / name
        _write_once(path, "")
        return path

    def ports(self, public: int) -> dict[str, int]:
        """Return the port of each component behind the public port ``public``.

        Sessions store the Hub's address, so a port that was assigned before is reused unless
        another process listens on it. Ports assigned to another installation of this user in the
        last 300 s count as in use, because its servers may not listen yet.
        """
        with _port_lock():
            return self._ports(public)

    def _ports(self, public: int) -> dict[str, int]:
        path = self.path / f"ports-{public}.json"
        in_use = {public} | _reserved(path)
        assigned: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
        ports: dict[str, int] = {}
        for component, offset in PORT_OFFSETS.items():
            preferred = assigned.get(component, public + offset)
            is_available = is_free(preferred) and preferred not in in_use
            ports[component] = (
                preferred if is_available else _free_port_outside({*ports.values(), *in_use})
            )
        if self.has_proxy() and "proxy_api" in assigned:
            # The port is in use by the proxy of the previous run, which the Hub stops and replaces.
            ports["proxy_api"] = assigned["proxy_api"]
        if ports != assigned:
            temporary = path.with_suffix(f".{os.getpid()}")
            temporary.write_text(json.dumps(ports))
            temporary.replace(path)
        _reserve(path, ports)
        return ports

    def agent_id(self) -> str:
        """Return the id of this machine's agent of this installation.

        An agent removes containers and processes that carry its id but belong to no session of its
        manager. Two installations on one machine therefore need two ids.
        """
        path_hash = hashlib.sha256(str(self.path).encode()).hexdigest()[:6]
        return f"{platform.node().split('.')[0][:40]}-{path_hash}"

    @property
    def proxy_pid_file(self) -> Path:
        return self.path / "proxy.pid"

    def has_proxy(self) -> bool:
        """Return whether the proxy of a previous run is still running."""
        try:
            os.kill(int(self.proxy_pid_file.read_text()), 0)
        except (OSError, ValueError):
            return False
        return True


def _reservations_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"bai-ports-{os.getuid()}"


@contextmanager
def _port_lock() -> Iterator[None]:
    folder = _reservations_folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user; remove it")
    with open(folder / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _reserved(ports_file: Path) -> set[int]:
    """Return the ports reserved by other installations; delete expired reservations.

    ``ports_file`` identifies the installation's own reservation.
    """
    found: set[int] = set()
    for file in _reservations_folder().glob("*.json"):
        if time.time() - file.stat().st_mtime > RESERVED_SECONDS:
            file.unlink()
            continue
        facts = json.loads(file.read_text())
        if facts["home"] != str(ports_file):
            found |= set(facts["ports"])
    return found


def _reserve(ports_file: Path, ports: Mapping[str, int]) -> None:
    name = hashlib.sha256(str(ports_file).encode()).hexdigest()[:16]
    facts = {"home": str(ports_file), "ports": sorted(ports.values())}
    (_reservations_folder() / f"{name}.json").write_text(json.dumps(facts))


def _free_port_outside(in_use: set[int]) -> int:
    while (port := free_port()) in in_use:
        pass
    return port


def _write_once(path: Path, text: str) -> None:
    """Create a file with mode 0600, unless it exists; of concurrent writers only one succeeds."""
    if path.exists():
        return
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=".new")
    temporary = Path(name)
    with open(descriptor, "w") as file:
        file.write(text)
    try:
        # Create it by a link, which fails if the name exists and never exposes a partial file.
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()
