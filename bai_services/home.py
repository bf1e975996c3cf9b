"""The state folder of one machine: secrets and ports that stay the same over restarts."""

from __future__ import annotations

import base64
import json
import os
import secrets
import tempfile
from pathlib import Path

from bai_services.ports import free_port, is_free

# Where each part listens, counted from the public port.
PORT_OFFSETS = {"proxy_api": 1, "hub": 81, "manager": 91}


class Home:
    """Makes what is missing and leaves what is there; nobody but the owner can read it."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._secrets = self.path / "secrets"
        self._secrets.mkdir(mode=0o700, exist_ok=True)

    def secret(self, name: str) -> Path:
        """Return the file of a secret of 32 random bytes, as URL-safe base64 text.

        That is also the form of a Fernet key.
        """
        path = self._secrets / name
        text = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
        _write_once(path, text)
        return path

    def database(self, name: str) -> Path:
        """Return the file of an SQLite database, made empty where it is missing."""
        path = self.path / name
        _write_once(path, "")
        return path

    def ports(self, public: int) -> dict[str, int]:
        """Return the port of each part behind ``public``.

        Sessions hold the Hub's address, so a port that was handed out once stays
        for as long as nobody else takes it.
        """
        path = self.path / f"ports-{public}.json"
        kept: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
        ports: dict[str, int] = {}
        for part, offset in PORT_OFFSETS.items():
            wish = kept.get(part, public + offset)
            ports[part] = wish if is_free(wish) else _any_port(set(ports.values()) | {public})
        if self.has_proxy() and "proxy_api" in kept:
            # Ours from before: the Hub ends it and takes its port over.
            ports["proxy_api"] = kept["proxy_api"]
        if ports != kept:
            written = path.with_suffix(f".{os.getpid()}")
            written.write_text(json.dumps(ports))
            written.replace(path)
        return ports

    @property
    def proxy_pid_file(self) -> Path:
        return self.path / "proxy.pid"

    def has_proxy(self) -> bool:
        try:
            os.kill(int(self.proxy_pid_file.read_text()), 0)
        except (OSError, ValueError):
            return False
        return True


def _any_port(taken: set[int]) -> int:
    while (port := free_port()) in taken:
        pass
    return port


def _write_once(path: Path, text: str) -> None:
    """Make a file with mode 0600, unless it exists; of several writers only one can win."""
    if path.exists():
        return
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=".new")
    written = Path(name)
    with open(descriptor, "w") as file:
        file.write(text)
    try:
        # A link fails where the name is taken, and never shows half a file.
        os.link(written, path)
    except FileExistsError:
        pass
    finally:
        written.unlink()
