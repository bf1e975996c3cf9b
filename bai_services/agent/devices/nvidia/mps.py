"""One control daemon of NVIDIA's Multi-Process Service (MPS), for one GPU.

It has a folder, and so a pipe, of its own: a daemon for several GPUs stops all of them when one
fails, and NVIDIA's toolkit passes the default folder to every container. It outlives the agent,
because the sessions' programs run in its server.
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

PROGRAM = "nvidia-cuda-mps-control"
# Prefix of the names of the daemon and its server, as far as the kernel stores them.
OURS = "nvidia-cuda-mps"
PIPE, LOG, SHM = "pipe", "log", "shm"
COMMAND_SECONDS = 5.0
START_SECONDS = 15.0
END_SECONDS = 3.0
# A unix socket's address has at most 108 bytes, and the daemon appends names to the folder's.
LONGEST_PIPE = 88
MIB = 2**20
# GPU memory used by the server and its contexts themselves.
RESERVE_BYTES = 2**30
# A separate /dev/shm for the daemon, which can be shared with containers.
OWN_SHM = 'mount --bind "$OWN_SHM" /dev/shm && exec "$0" "$@"'


class MpsFailed(Exception):
    """The daemon cannot be started, does not answer, or gives an unexpected answer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Maximum that every program of the GPU may use, unless it requests less.

    ``share``, in thousandths, is what they were computed from.
    """

    percent: int
    memory_mib: int
    share: int

    @classmethod
    def of(cls, share: int, memory_bytes: int) -> Limits:
        """Return the limits of a share, in thousandths, of a GPU with that much memory."""
        usable = max(0, memory_bytes - RESERVE_BYTES)
        percent = (share * 100 + SHARE_UNIT // 2) // SHARE_UNIT
        return cls(max(1, percent), max(1, usable * share // SHARE_UNIT // MIB), share)

    def environ(self) -> dict[str, str]:
        """Return the same limits as environment variables for a client, which can only lower
        them.
        """
        return {
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(self.percent),
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={self.memory_mib}M",
        }


class MpsControl:
    """Starts, queries and stops the daemon of one GPU. Every call blocks, for seconds at most."""

    def __init__(self, folder: Path, uuid: str, *, has_own_shm: bool) -> None:
        """``has_own_shm`` gives it a separate shared memory that can be passed on; requires
        root.
        """
        self.folder = folder
        self.uuid = uuid
        self.pipe = folder / PIPE
        self.shm = folder / SHM if has_own_shm else None
        self._limits_file = folder / "limits.json"

    def start(self, limits: Limits) -> None:
        """Start the daemon and set its limits; the rest of an earlier daemon is stopped first.

        Raises
        ------
        MpsFailed
            If it does not start, or does not confirm its limits.
        """
        self.kill()
        self._make_folders()
        log = self.folder / LOG / "start.log"
        try:
            with open(log, "wb") as output:
                # Not through a pipe, which the daemon would hold open for ever.
                done = subprocess.run(
                    self._start_words(),
                    env=self._environ(is_daemon=True),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=START_SECONDS,
                    start_new_session=True,
                )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MpsFailed(f"{PROGRAM} does not start: {error}") from error
        if done.returncode:
            said = log.read_text(errors="replace").strip().splitlines()[-1:] or ["nothing"]
            raise MpsFailed(f"{PROGRAM} ended with {done.returncode} and said {said[0]!r}")
        self.tell(f"set_default_device_pinned_mem_limit 0 {limits.memory_mib}M")
        self.tell(f"set_default_active_thread_percentage {limits.percent}")
        if self.percent() != limits.percent:
            raise MpsFailed(f"{PROGRAM} does not confirm the limit of {limits.percent} percent")
        # Written last: a daemon without this file was never ready.
        written = self._limits_file.with_name(f".{self._limits_file.name}")
        written.write_text(json.dumps(asdict(limits)))
        written.replace(self._limits_file)

    def limits(self) -> Limits | None:
        """Return the limits with which the daemon of this folder was started; None if there is
        none.
        """
        try:
            return Limits(**json.loads(self._limits_file.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def percent(self) -> int:
        """Return the daemon's current limit.

        Raises
        ------
        MpsFailed
            If it does not answer.
        """
        said = self.tell("get_default_active_thread_percentage")
        try:
            return round(float(said))
        except ValueError:
            raise MpsFailed(f"{PROGRAM} gives its limit as {said[:80]!r}") from None

    def servers(self) -> list[int]:
        return _numbers(self.tell("get_server_list"))

    def has_fault(self, server: int) -> bool:
        return "FAULT" in self.tell(f"get_server_status {server}").upper()

    def clients(self, server: int) -> list[int]:
        return _numbers(self.tell(f"get_client_list {server}"))

    def terminate(self, server: int, client: int) -> None:
        """End a client's work in order; killing it in the middle may harm other clients."""
        self.tell(f"terminate_client {server} {client}")

    def quit(self) -> None:
        """Stop the daemon, and remove its folder.

        Raises
        ------
        MpsFailed
            If it refuses.
        """
        self.tell("quit")
        gone = _wait(self._processes())
        _signal(gone, is_kill=True)
        self._clear()

    def kill(self) -> None:
        """Kill all remaining processes of this folder, and remove the folder."""
        left = self._processes()
        _signal(left, is_kill=False)
        _signal(_wait(left), is_kill=True)
        self._clear()

    def tell(self, command: str) -> str:
        """Send a command to the daemon and return its answer.

        Raises
        ------
        MpsFailed
            If it does not answer in time, or refuses.
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
            raise MpsFailed(f"{command!r} got no answer in {COMMAND_SECONDS:g} s") from None
        except OSError as error:
            raise MpsFailed(f"{PROGRAM} cannot be run: {error}") from error
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[:200]
            raise MpsFailed(f"{command!r} was answered with {said!r}")
        return done.stdout.strip()

    def _start_words(self) -> list[str]:
        # -M: clients with different uids in one server; without it the second uid waits for ever.
        words = [_program(), "-d", *(["-M"] if os.geteuid() == 0 else [])]
        if self.shm is None:
            return words
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", OWN_SHM, *words]

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

    def _make_folders(self) -> None:
        # Sessions can open their own pipe, but cannot list the folders above it.
        for folder, mode in ((self.folder, 0o711), (self.pipe, 0o755), (self.folder / LOG, 0o700)):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(mode)
        if self.shm is not None and not self.shm.is_mount():
            self.shm.mkdir(exist_ok=True)
            words = ["mount", "-t", "tmpfs", "-o", "nosuid,nodev,noexec,mode=1777", "bai-mps"]
            done = subprocess.run([*words, str(self.shm)], capture_output=True, text=True)
            if done.returncode:
                raise MpsFailed(f"no shared memory for {PROGRAM}: {done.stderr.strip()}")

    def _clear(self) -> None:
        if self.shm is not None and self.shm.is_mount():
            subprocess.run(["umount", "--lazy", str(self.shm)], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _processes(self) -> list[psutil.Process]:
        """Return the daemon and the servers of this folder, also those of an earlier agent
        process.
        """
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                # Sessions have the same variable; their processes must not be ended here.
                if process.name().startswith(OURS):
                    pipe = process.environ().get("CUDA_MPS_PIPE_DIRECTORY")
                    found += [process] if pipe == str(self.pipe) else []
        return found


def why_no_program() -> str:
    """Return why MPS cannot be used here, or an empty text."""
    return "" if shutil.which(PROGRAM) else f"{PROGRAM} is not installed"


def _program() -> str:
    return shutil.which(PROGRAM) or PROGRAM


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split() if word.isdigit()]


def _wait(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Wait a moment for processes to end; return those that remain."""
    deadline = time.monotonic() + END_SECONDS
    left = list(processes)
    while left and time.monotonic() < deadline:
        left = [p for p in left if _lives(p)]
        if left:
            time.sleep(0.05)
    return left


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _signal(processes: Sequence[psutil.Process], *, is_kill: bool) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.kill() if is_kill else process.terminate()
