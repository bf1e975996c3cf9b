"""This machine's side of SSH to sessions: our own key pair, pinned host keys, OpenSSH's options."""

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
from pathlib import Path
from typing import Any

from bai_services.core.accounts.ssh_keys import parse_public_key
from bai_services.core.errors import AlreadyExists, BaiError

from .. import output, profile
from ..command import Connection
from ..sessions.remote import Remote

# Sessions are no hosts of any network: their names need an ending that says so.
SUFFIX = ".bai"


class SshFiles:
    """Key pair and known hosts in the command's own folder."""

    def __init__(self) -> None:
        self.folder = profile.folder() / "ssh"
        self.key = self.folder / "id_ed25519"
        self.known_hosts = self.folder / "known_hosts"

    async def ensure_key(self, connection: Connection) -> None:
        """Make a pair where there is none, and have the hub know its public half."""
        public = self.key.with_suffix(".pub")
        if not (self.key.exists() and public.exists()):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            make_pair(self.key, _key_name())
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
            return  # another command of this machine did it meanwhile
        output.note(f"added the SSH key {name} of this machine to your settings")

    def pin(self, host: str, host_key: str) -> None:
        """Let ``host`` be known by the key that the session told through the hub, and no other."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        host = host.lower()  # as OpenSSH looks it up
        line = f"{host} {host_key}\n"
        try:
            lines = self.known_hosts.read_text(encoding="utf-8").splitlines(keepends=True)
        except FileNotFoundError:
            lines = []
        if line in lines:
            return
        kept = [one for one in lines if one.partition(" ")[0] != host]
        handle, name = tempfile.mkstemp(dir=self.folder)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.writelines([*kept, line])
        os.replace(name, self.known_hosts)

    def options(self, user: str) -> dict[str, str]:
        """Return what OpenSSH is told, by the names of ssh_config."""
        return {
            "User": user,
            "ProxyCommand": proxy_command(),
            "IdentityFile": _quoted(str(self.key)),
            "UserKnownHostsFile": _quoted(str(self.known_hosts)),
            "StrictHostKeyChecking": "yes",
            "CheckHostIP": "no",
            "ServerAliveInterval": "0",
        }


async def prepare(connection: Connection, remote: Remote) -> dict[str, Any]:
    """Return host and user of a session's SSH server, its key pinned and ours known there."""
    files = SshFiles()
    await files.ensure_key(connection)
    told = await remote.ask("GET", "bai/api/ssh")
    host = host_of(remote.session["name"])
    files.pin(host, told["host_key"])
    return {"host": host, "user": told["user"], "host_key": told["host_key"]}


def host_of(name: str) -> str:
    return f"{name}{SUFFIX}"


def session_of(host: str) -> str:
    """Return the session that a host name means."""
    return host.removesuffix(SUFFIX)


def proxy_command() -> str:
    """Return the command that joins its standard input and output with a session's SSH server."""
    words = [sys.executable, "-m", "bai_services.cli.main", "ssh-proxy"]
    # OpenSSH replaces % words itself; the shell comes after it.
    return " ".join(shlex.quote(word).replace("%", "%%") for word in words) + " %n"


def words_of(options: dict[str, str]) -> list[str]:
    return [word for name, value in options.items() for word in ("-o", f"{name}={value}")]


def run(program: str, words: Sequence[str]) -> None:
    """Become ``program``: signals, terminal and exit code are its own from here.

    Raises
    ------
    BaiError
        If this machine does not have it.
    """
    found = shutil.which(program)
    if found is None:
        raise BaiError(f"{program} is not on this machine; install OpenSSH's client")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(found, [program, *words])


def make_pair(path: Path, comment: str) -> None:
    """Write a key pair, the private half for this user only.

    Raises
    ------
    BaiError
        If ssh-keygen is missing or fails.
    """
    if shutil.which("ssh-keygen") is None:
        raise BaiError("ssh-keygen is not on this machine; install OpenSSH's client")
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise BaiError(f"no key pair could be made: {done.stderr.strip()}")


def _key_name() -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "-", platform.node()).strip("-._")[:40]
    return f"bai-{name or 'cli'}"


def _quoted(path: str) -> str:
    # OpenSSH takes blanks apart and replaces % words in paths.
    return '"' + path.replace("%", "%%") + '"'
