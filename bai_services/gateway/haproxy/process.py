"""The process of HAProxy, which is restarted when it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from bai_services.core.errors import InvalidRequest, Unavailable

from ..server import BACKLOG
from .configuration import MAPS, Settings, configuration, control_socket, map_file
from .runtime import Runtime

log = logging.getLogger("bai_services.gateway")

START_SECONDS = 10.0
PAUSE_SECONDS = 0.2
# If the process ends within this time after its start, its configuration is invalid.
STABLE_SECONDS = 2.0
# HAProxy frees large buffers after each request. By default, the allocator then returns their
# memory to the kernel, and the next request needs it again.
_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(64 * 2**20), "MALLOC_TOP_PAD_": str(16 * 2**20)}
# HAProxy refuses file descriptors above a limit that depends on the number of its connections.
# Bash moves the listening socket to the lowest free descriptor, and becomes HAProxy.
_LISTENING = 3
_MOVE_SOCKET = f'exec "${{@:2}}" {_LISTENING}<&"$1"-'


def find_program() -> str:
    """Return the path of HAProxy.

    Raises
    ------
    InvalidRequest
        If HAProxy is not installed.
    """
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise InvalidRequest("HAProxy is not installed (on Debian: the package haproxy)")
    return program


class HaproxyProcess:
    """Runs HAProxy with a listening socket of this process.

    The socket stays open during a restart of HAProxy, so that clients can connect.
    """

    def __init__(self, settings: Settings, host: str, port: int) -> None:
        self._program = find_program()
        # Only this user may read the folder: its sockets accept commands and requests.
        self._folder = tempfile.TemporaryDirectory(prefix="bai-gateway-")
        self.folder = Path(self._folder.name)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self.port = int(self._listening.getsockname()[1])
        self.runtime = Runtime(control_socket(self.folder))
        # Number of starts. When it changes, the routes must be sent again: a new process has empty
        # maps.
        self.starts = 0
        self._process: asyncio.subprocess.Process | None = None
        for name in MAPS:
            map_file(self.folder, name).touch()
        self._file = self.folder / "haproxy.cfg"
        self._file.write_text(configuration(settings, self.folder, _LISTENING))

    async def start(self) -> None:
        """Start HAProxy and wait until it responds.

        Raises
        ------
        Unavailable
            If HAProxy does not start.
        """
        number = self._listening.fileno()
        # If this process is killed, the kernel must kill HAProxy, which would serve outdated
        # routes.
        self._process = process = await asyncio.create_subprocess_exec(
            "bash", "-c", _MOVE_SOCKET, "bash", str(number),
            "setpriv", "--pdeathsig=KILL", self._program, "-db", "-q", "-f", str(self._file),
            pass_fds=(number,), stdin=asyncio.subprocess.DEVNULL, env={**os.environ, **_MEMORY},
        )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while True:
            with suppress(Unavailable):
                await self.runtime.ask("show version")
                break
            if process.returncode is not None or time.monotonic() >= deadline:
                await self.kill()
                raise Unavailable("HAProxy does not start; it has logged the reason")
            await asyncio.sleep(0.02)
        self.starts += 1

    async def run(self) -> None:
        """Restart HAProxy whenever it ends."""
        while True:
            assert self._process is not None
            began = time.monotonic()
            code = await self._process.wait()
            log.error("HAProxy has ended with code %d; it is restarted", code)
            if time.monotonic() - began < STABLE_SECONDS:
                await asyncio.sleep(PAUSE_SECONDS)
            await self.start()

    async def stop(self, grace_seconds: float) -> None:
        """Close the listening socket; wait up to ``grace_seconds`` for running requests."""
        self._listening.close()
        process = self._process
        if process is not None and process.returncode is None and grace_seconds > 0:
            process.send_signal(signal.SIGUSR1)
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_seconds):
                    await process.wait()
        await self.kill()
        self._folder.cleanup()

    def send_signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    async def kill(self) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
