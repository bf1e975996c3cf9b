"""The session's SSH server: one OpenSSH process per stream, for the session's owner only.

It listens on no port; its standard input and output are a stream of the tunnel. It runs as the
session's user and needs no capabilities.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tornado import web

from bai_labext.handlers import PanelHandler
from bai_labext.manager_link import ManagerLink
from bai_services.core.errors import Conflict, Unavailable
from bai_services.tunnel.endpoint import Stream

# Variables of this process that must not be passed to logins.
EXCLUDED_VARIABLES = frozenset({"_", "LOGNAME", "OLDPWD", "PWD", "SHLVL", "TERM", "USER"})
PRIVILEGE_SEPARATION_FOLDER = "/run/sshd"
MOUNTED_PROGRAMS = "/opt/bai/rt/bin"


class SshServer:
    """Starts sshd; its keys and configuration are created in a private folder at the first use."""

    def __init__(self, environ: Mapping[str, str], link: ManagerLink) -> None:
        self._environ = environ
        self._link = link
        self._folder: Path | None = None
        self._preparing = asyncio.Lock()
        self._ends: set[asyncio.Task[None]] = set()

    async def describe(self) -> dict[str, Any]:
        """Return the login name and the public host key, which a client pins.

        Raises
        ------
        Conflict
            If this session cannot run an SSH server.
        Unavailable
            If ``ssh-keygen`` fails.
        """
        folder = await self._ensure_prepared()
        host_key = (folder / "host_key.pub").read_text(encoding="utf-8").split()[:2]
        return {"user": _user(), "host_key": " ".join(host_key)}

    async def serve(self, stream: Stream, _: str) -> None:
        """Start sshd, which accepts the owner's registered keys, and connect it to ``stream``."""
        folder = await self._ensure_prepared()
        await self._update_keys(folder / "authorized_keys")
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                *(_program(self._environ), "-i", "-E", str(folder / "log")),
                *("-f", str(folder / "config")),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        # Wait for the process, so that it does not remain as a zombie.
        ending = asyncio.ensure_future(_wait(process))
        self._ends.add(ending)
        ending.add_done_callback(self._ends.discard)
        ours.setblocking(False)
        await asyncio.get_running_loop().create_connection(lambda: stream, sock=ours)

    async def _ensure_prepared(self) -> Path:
        async with self._preparing:
            if self._folder is None:
                self._folder = await self._prepare()
            return self._folder

    async def _prepare(self) -> Path:
        program = _program(self._environ)
        if os.geteuid() == 0:
            # sshd that runs as root confines itself to this empty folder before authentication.
            os.makedirs(PRIVILEGE_SEPARATION_FOLDER, mode=0o755, exist_ok=True)
        # Not in the home folder, because it can be a mount that other users can read. Not in the
        # layer of the container, because that becomes part of a commit.
        folder = Path(tempfile.mkdtemp(prefix="bai-ssh-", dir=_memory_folder()))
        keygen = await asyncio.create_subprocess_exec(
            *(
                _keygen(self._environ) or "ssh-keygen",
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-C",
                "",
                "-f",
                folder / "host_key",
            ),
            stdin=asyncio.subprocess.DEVNULL,
        )
        if await keygen.wait():
            raise Unavailable(f"ssh-keygen could not create a host key for {program}")
        settings = config(folder, _user(), self._environ) + helpers(Path(program).parent)
        _write(folder / "config", settings)
        return folder

    async def _update_keys(self, file: Path) -> None:
        try:
            keys = await self._link.ssh_keys()
        except Unavailable:
            # If the manager is unavailable, use the keys that were stored before.
            if not os.access(file, os.R_OK):
                raise
            return
        _write(file, "".join(f"{key}\n" for key in keys))


class SshHandler(PanelHandler):
    """GET returns what an SSH client needs: login name and host key."""

    def initialize(self, server: SshServer) -> None:  # type: ignore[override]
        self.server = server

    @web.authenticated
    async def get(self) -> None:
        self.write_json(await self.server.describe())


def config(folder: Path, user: str, environ: Mapping[str, str]) -> str:
    """Return the sshd_config of the server."""
    settings = {
        "HostKey": str(folder / "host_key"),
        "AuthorizedKeysFile": str(folder / "authorized_keys"),
        "AllowUsers": user,
        "AuthenticationMethods": "publickey",
        "PermitRootLogin": "prohibit-password",
        "UsePAM": "no",
        # Without this, sshd would refuse a home folder that is writable by its group; the file with
        # the keys is private.
        "StrictModes": "no",
        "PidFile": "none",
        "X11Forwarding": "no",
        "PrintMotd": "no",
        "UseDNS": "no",
        "AcceptEnv": "LANG LC_*",
        "Subsystem": "sftp internal-sftp",
        # sshd does not pass the session's environment to logins by itself.
        "SetEnv": " ".join(_variables(environ)),
    }
    return "".join(f"{name} {value}\n" for name, value in settings.items() if value)


def helpers(programs: Path) -> str:
    """Return the settings with the helper programs beside a mounted sshd of OpenSSH 9.8 or later.

    An installed sshd contains the paths of its helper programs.
    """
    names = {"SshdSessionPath": "sshd-session", "SshdAuthPath": "sshd-auth"}
    found = {setting: programs / name for setting, name in names.items()}
    return "".join(f"{name} {path}\n" for name, path in found.items() if path.is_file())


def _variables(environ: Mapping[str, str]) -> list[str]:
    def quoted(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"')

    return [
        f'"{name}={quoted(value)}"'
        for name, value in sorted(environ.items())
        # sshd_config cannot express line breaks.
        if name not in EXCLUDED_VARIABLES and name.isidentifier() and not set(value) & set("\n\r\0")
    ]


def _program(environ: Mapping[str, str]) -> str:
    program = shutil.which("sshd", path=_search_path(environ))
    if program is None or _keygen(environ) is None:
        raise Conflict(
            "this session's image has no SSH server (package openssh-server); "
            "`bai session attach` and `bai app` work without it"
        )
    return os.path.abspath(program)


def _memory_folder() -> str | None:
    """Return a folder in memory; None if this machine has no such folder."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _keygen(environ: Mapping[str, str]) -> str | None:
    return shutil.which("ssh-keygen", path=_search_path(environ))


def _search_path(environ: Mapping[str, str]) -> str:
    """Return the path of the SSH programs; in images without them, they are mounted."""
    return f"{MOUNTED_PROGRAMS}:{environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"


def _user() -> str:
    number = os.getuid()
    try:
        name = pwd.getpwuid(number).pw_name
        is_found = pwd.getpwnam(name).pw_uid == number
    except KeyError:
        is_found = False
    if not is_found:
        raise Conflict(f"the session's user id {number} has no user name, which SSH needs")
    return name


def _write(path: Path, text: str) -> None:
    """Replace a file atomically; only this user can read it."""
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(name, path)


async def _wait(process: asyncio.subprocess.Process) -> None:
    await process.wait()
