"""Client side of SSH to sessions: key pair, pinned host keys and options of OpenSSH."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bai_services.core.accounts.ssh_keys import parse_public_key
from bai_services.core.errors import AlreadyExists, BaiError

from .. import output, profile
from ..command import Connection
from ..sessions.remote import Remote

# Suffix that distinguishes the host names of sessions in ssh_config from real hosts.
SUFFIX = ".bai"


@dataclass(frozen=True, slots=True)
class SshServer:
    """Host name and user of a session's SSH server."""

    host: str
    user: str


class SshFiles:
    """Key pair and known hosts in the configuration folder of `bai`."""

    def __init__(self) -> None:
        self.folder = profile.folder() / "ssh"
        self.key = self.folder / "id_ed25519"
        self.known_hosts = self.folder / "known_hosts"

    async def ensure_key(self, connection: Connection) -> None:
        """Generate a key pair if it is missing, and register its public key with the hub."""
        public = self.key.with_suffix(".pub")
        if not (self.key.exists() and public.exists()):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            generate_key_pair(self.key, _key_name())
        text = public.read_text(encoding="utf-8").strip()
        mine = parse_public_key(text)
        known = (await connection.client.get("/me/ssh-keys"))["items"]
        if any(key["fingerprint"] == mine.fingerprint for key in known):
            return
        taken = {key["name"] for key in known}
        names = [_key_name(), *(f"{_key_name()}-{number}" for number in range(2, 30))]
        name = next(name for name in names if name not in taken)
        try:
            await connection.client.post("/me/ssh-keys", {"name": name, "public_key": text})
        except AlreadyExists:
            return  # a concurrent command on this machine registered it
        output.note(f"registered the SSH key {name} of this machine with the hub")

    def pin(self, host: str, host_key: str) -> None:
        """Accept only ``host_key`` for ``host``; the session has sent the key through the hub."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        host = host.lower()  # OpenSSH looks up names in lower case
        line = f"{host} {host_key}\n"
        try:
            lines = self.known_hosts.read_text(encoding="utf-8").splitlines(keepends=True)
        except FileNotFoundError:
            lines = []
        if line in lines:
            return
        others = [other for other in lines if other.partition(" ")[0] != host]
        handle, name = tempfile.mkstemp(dir=self.folder)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.writelines([*others, line])
        os.replace(name, self.known_hosts)

    def options(self, user: str) -> dict[str, str]:
        """Return the options of OpenSSH for sessions, by their names in ssh_config."""
        return {
            "User": user,
            "ProxyCommand": proxy_command(),
            "IdentityFile": _quoted(str(self.key)),
            "UserKnownHostsFile": _quoted(str(self.known_hosts)),
            "StrictHostKeyChecking": "yes",
            "CheckHostIP": "no",
            "ServerAliveInterval": "0",
        }


async def prepare(connection: Connection, remote: Remote) -> SshServer:
    """Register the public key of `bai`, pin the session's host key, and return its SSH server."""
    files = SshFiles()
    await files.ensure_key(connection)
    server = await remote.request("GET", "bai/api/ssh")
    host = host_of(remote.session["name"])
    files.pin(host, server["host_key"])
    return SshServer(host, server["user"])


def host_of(name: str) -> str:
    return f"{name}{SUFFIX}"


def session_of(host: str) -> str:
    """Return the session name in a host name of ssh_config."""
    return host.removesuffix(SUFFIX)


def proxy_command() -> str:
    """Return the value of ``ProxyCommand``: `bai ssh-proxy` of this Python environment."""
    words = [sys.executable, "-m", "bai_services.cli.main", "ssh-proxy"]
    # OpenSSH expands % sequences before it runs the command in a shell.
    return " ".join(shlex.quote(word).replace("%", "%%") for word in words) + " %n"


def option_words(options: dict[str, str]) -> list[str]:
    """Return options as arguments of ssh and scp."""
    return [word for name, value in options.items() for word in ("-o", f"{name}={value}")]


def run(program: str, words: Sequence[str]) -> None:
    """Replace this process with ``program``, which then has the terminal and receives signals.

    Raises
    ------
    BaiError
        If ``program`` is not installed.
    """
    path = shutil.which(program)
    if path is None:
        raise BaiError(f"{program} is not installed; install the OpenSSH client")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(path, [program, *words])


def generate_key_pair(path: Path, comment: str) -> None:
    """Generate an ed25519 key pair in ``path`` (mode 0600) and ``path.pub``.

    Raises
    ------
    BaiError
        If ssh-keygen is missing or fails.
    """
    if shutil.which("ssh-keygen") is None:
        raise BaiError("ssh-keygen is not installed; install the OpenSSH client")
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise BaiError(f"the key pair could not be generated: {done.stderr.strip()}")


def _key_name() -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "-", platform.node()).strip("-._")[:40]
    return f"bai-{name or 'cli'}"


def _quoted(path: str) -> str:
    # OpenSSH splits options at spaces and expands % sequences in paths.
    return '"' + path.replace("%", "%%") + '"'
