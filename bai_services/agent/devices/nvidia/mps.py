"""Control of one daemon of NVIDIA's Multi-Process Service (MPS), for one GPU.

Each GPU has its own daemon, because a fault on one GPU stops a daemon for all its GPUs. Each daemon
has its own folder and pipe, because NVIDIA's toolkit passes the default folder to every container.
A daemon with clients survives the agent, because the clients use its server.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from bai_services.core.resources import SHARE_UNIT

from ...folders.kernel_folders import write_atomically
from ...processes import is_running
from ..host_access import describe_exit

PROGRAM = "nvidia-cuda-mps-control"
# Beginning of the process names of the daemon and its server (Linux stores only 15 characters).
PROCESS_NAME_PREFIX = "nvidia-cuda-mps"
PIPE, LOG, SHM = "pipe", "log", "shm"
COMMAND_SECONDS = 5.0
START_TIMEOUT_SECONDS = 15.0
EXIT_TIMEOUT_SECONDS = 3.0
# The address of a Unix socket has at most 108 bytes, and the daemon creates sockets in the pipe
# folder.
MAX_PIPE_PATH_BYTES = 88
MIB = 2**20
# GPU memory that the MPS server and its contexts use.
RESERVE_BYTES = 2**30
# Shell command that runs the daemon with its own /dev/shm, which containers can mount.
MOUNT_OWN_SHM = 'mount --bind "$OWN_SHM" /dev/shm && exec "$0" "$@"'


class MpsFailed(Exception):
    """The daemon cannot be started, does not respond, or sends an unexpected response."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for every program on a GPU.

    ``percent``: maximum percentage of the GPU's threads. ``memory_mib``: maximum GPU memory in MiB.
    Both are computed from ``share``, in thousandths of the GPU.
    """

    percent: int
    memory_mib: int
    share: int

    @classmethod
    def of(cls, share: int, memory_bytes: int) -> Limits:
        """Return the limits for a share, in thousandths, of a GPU with ``memory_bytes``."""
        usable = max(0, memory_bytes - RESERVE_BYTES)
        percent = (share * 100 + SHARE_UNIT // 2) // SHARE_UNIT
        return cls(max(1, percent), max(1, usable * share // SHARE_UNIT // MIB), share)

    def environ(self) -> dict[str, str]:
        """Return these limits as environment variables; a client can only lower the limits."""
        return {
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(self.percent),
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={self.memory_mib}M",
        }


class MpsControl:
    """Starts, queries and stops the daemon of one GPU. Calls may block for some seconds."""

    def __init__(self, folder: Path, uuid: str, *, has_own_shm: bool) -> None:
        """``has_own_shm``: run the daemon with its own ``/dev/shm``, which isolated sessions can
        mount; this requires root.
        """
        self.folder = folder
        self.uuid = uuid
        self.pipe = folder / PIPE
        self.shm = folder / SHM if has_own_shm else None
        self._limits_file = folder / "limits.json"

    def start(self, limits: Limits) -> None:
        """Start the daemon with these limits; an existing daemon of the folder is killed first.

        Raises
        ------
        MpsFailed
            If its ``/dev/shm`` cannot be mounted, or it does not start, rejects a limit, or does
            not confirm the percentage of GPU threads.
        """
        self.kill()
        self._create_folders()
        log = self.folder / LOG / "start.log"
        try:
            with open(log, "wb") as output:
                # Use a file instead of a pipe, because the daemon does not close its output.
                done = subprocess.run(
                    self._start_command(),
                    env=self._environ(is_daemon=True),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=START_TIMEOUT_SECONDS,
                    start_new_session=True,
                )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MpsFailed(f"{PROGRAM} does not start: {error}") from error
        if done.returncode:
            failed = subprocess.CompletedProcess(
                done.args, done.returncode, log.read_text(errors="replace"), ""
            )
            raise MpsFailed(f"{PROGRAM} {describe_exit(failed)}")
        self.send(f"set_default_device_pinned_mem_limit 0 {limits.memory_mib}M")
        self.send(f"set_default_active_thread_percentage {limits.percent}")
        if self.percent() != limits.percent:
            raise MpsFailed(
                f"{PROGRAM} does not confirm the limit of {limits.percent}% of GPU threads"
            )
        # Write the file last, so that it exists only if the start of the daemon was completed.
        write_atomically(self._limits_file, json.dumps(asdict(limits)))

    def limits(self) -> Limits | None:
        """Return the stored limits of the folder's daemon; None if its start was not completed."""
        try:
            return Limits(**json.loads(self._limits_file.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def percent(self) -> int:
        """Return the percentage of GPU threads to which the daemon now limits each program.

        Raises
        ------
        MpsFailed
            If ``send`` fails, or the response is not a number.
        """
        response = self.send("get_default_active_thread_percentage")
        try:
            return round(float(response))
        except ValueError:
            raise MpsFailed(f"{PROGRAM} reports an invalid limit {response[:80]!r}") from None

    def servers(self) -> list[int]:
        return _numbers(self.send("get_server_list"))

    def has_fault(self, server: int) -> bool:
        return "FAULT" in self.send(f"get_server_status {server}").upper()

    def clients(self, server: int) -> list[int]:
        return _numbers(self.send(f"get_client_list {server}"))

    def terminate(self, server: int, client: int) -> None:
        """Disconnect a client gracefully; killing its process can disturb other clients."""
        self.send(f"terminate_client {server} {client}")

    def quit(self) -> None:
        """Stop the daemon, and remove its folder.

        Raises
        ------
        MpsFailed
            If ``send`` fails.
        """
        self.send("quit")
        remaining = _wait_for_exit(self._processes())
        _signal(remaining, is_kill=True)
        self._remove_folder()

    def kill(self) -> None:
        """Kill the daemon and the servers of this folder, and remove the folder."""
        processes = self._processes()
        _signal(processes, is_kill=False)
        _signal(_wait_for_exit(processes), is_kill=True)
        self._remove_folder()

    def send(self, command: str) -> str:
        """Send a command to the daemon and return its response.

        Raises
        ------
        MpsFailed
            If the program cannot be run, or the daemon does not respond in time or rejects the
            command.
        """
        try:
            done = subprocess.run(
                [_program()],
                env=self._environ(),
                input=f"{command}\n",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=COMMAND_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise MpsFailed(f"no response to {command!r} within {COMMAND_SECONDS:g} s") from None
        except OSError as error:
            raise MpsFailed(f"{PROGRAM} cannot be run: {error}") from error
        if done.returncode:
            output = (done.stderr or done.stdout).strip()[:200]
            raise MpsFailed(f"the response to {command!r} was {output!r}")
        return done.stdout.strip()

    def _start_command(self) -> list[str]:
        # -M: one server for clients of all uids. Without this option, clients of a second uid wait
        # forever.
        command = [_program(), "-d", *(["-M"] if os.geteuid() == 0 else [])]
        if self.shm is None:
            return command
        unshare = ["unshare", "--mount", "--propagation", "private"]
        return [*unshare, "sh", "-c", MOUNT_OWN_SHM, *command]

    def _environ(self, is_daemon: bool = False) -> dict[str, str]:
        environ = {
            "PATH": os.environ.get("PATH", os.defpath),
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self.folder / LOG),
        }
        if is_daemon:
            environ["CUDA_VISIBLE_DEVICES"] = self.uuid
            environ["OWN_SHM"] = str(self.shm or "")
        return environ

    def _create_folders(self) -> None:
        # Sessions can open the pipe, but cannot list its parent folder.
        for folder, mode in ((self.folder, 0o711), (self.pipe, 0o755), (self.folder / LOG, 0o700)):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(mode)
        if self.shm is not None and not self.shm.is_mount():
            self.shm.mkdir(exist_ok=True)
            command = ["mount", "-t", "tmpfs", "-o", "nosuid,nodev,noexec,mode=1777", "bai-mps"]
            done = subprocess.run([*command, str(self.shm)], capture_output=True, text=True)
            if done.returncode:
                raise MpsFailed(
                    f"the shared memory of {PROGRAM} cannot be mounted: {done.stderr.strip()}"
                )

    def _remove_folder(self) -> None:
        if self.shm is not None and self.shm.is_mount():
            subprocess.run(["umount", "--lazy", str(self.shm)], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _processes(self) -> list[psutil.Process]:
        """Return the daemon and the servers of this folder, including those that an earlier agent
        process started.
        """
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                # Programs of sessions also have CUDA_MPS_PIPE_DIRECTORY, so check the name as well.
                if process.name().startswith(PROCESS_NAME_PREFIX):
                    pipe = process.environ().get("CUDA_MPS_PIPE_DIRECTORY")
                    found += [process] if pipe == str(self.pipe) else []
        return found


def program_problem() -> str:
    """Return why the MPS program cannot be used; empty if it is installed."""
    return "" if shutil.which(PROGRAM) else f"{PROGRAM} is not installed"


def _program() -> str:
    return shutil.which(PROGRAM) or PROGRAM


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split() if word.isdigit()]


def _wait_for_exit(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Wait up to ``EXIT_TIMEOUT_SECONDS`` for processes to exit; return those that still run."""
    deadline = time.monotonic() + EXIT_TIMEOUT_SECONDS
    remaining = list(processes)
    while remaining and time.monotonic() < deadline:
        remaining = [p for p in remaining if is_running(p)]
        if remaining:
            time.sleep(0.05)
    return remaining


def _signal(processes: Sequence[psutil.Process], *, is_kill: bool) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.kill() if is_kill else process.terminate()
