"""One control daemon of NVIDIA's Multi-Process Service (MPS), for one GPU.

It has a folder, and so a pipe, of its own: a daemon for several GPUs stops all of
them when one fails, and the default folder is handed to every container by NVIDIA's
toolkit. It outlives the agent, because the sessions' programs compute in its server.
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
# How the names of the daemon and of its server begin, as far as the kernel keeps them.
OURS = "nvidia-cuda-mps"
PIPE, LOG, SHM = "pipe", "log", "shm"
COMMAND_SECONDS = 5.0
START_SECONDS = 15.0
END_SECONDS = 3.0
# A unix socket's address holds 108 bytes, and the daemon adds names to the folder's.
LONGEST_PIPE = 88
MIB = 2**20
# Of the GPU's memory the server and its contexts take some themselves.
RESERVE_BYTES = 2**30
# The daemon's own view of the machine's shared memory, so that containers can have the same.
OWN_SHM = 'mount --bind "$OWN_SHM" /dev/shm && exec "$0" "$@"'


class MpsFailed(Exception):
    """The daemon cannot be started, does not answer, or answers what it should not."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What every program of the GPU may take at most, unless it asks for less.

    ``share``, in thousandths, is what they were worked out of.
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
        """Return the same limits as a client is told them; it can only make them tighter."""
        return {
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(self.percent),
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={self.memory_mib}M",
        }


class MpsControl:
    """Starts, asks and ends the daemon of one GPU. Every call blocks, for seconds at most."""

    def __init__(self, folder: Path, uuid: str, *, has_own_shm: bool) -> None:
        """``has_own_shm`` gives it a shared memory of its own to pass on; that takes root."""
        self.folder = folder
        self.uuid = uuid
        self.pipe = folder / PIPE
        self.shm = folder / SHM if has_own_shm else None
        self._limits_file = folder / "limits.json"

    def start(self, limits: Limits) -> None:
        """Start the daemon and set its limits; whatever was left of an earlier one ends first.

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
                # Not through a pipe: the daemon would hold it open for ever.
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
        # Last of all: a daemon without this file was never ready for anybody.
        written = self._limits_file.with_name(f".{self._limits_file.name}")
        written.write_text(json.dumps(asdict(limits)))
        written.replace(self._limits_file)

    def limits(self) -> Limits | None:
        """Return the limits that a daemon of this folder was started with; None: there is none."""
        try:
            return Limits(**json.loads(self._limits_file.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def percent(self) -> int:
        """Return the limit that the daemon has in force now.

        Raises
        ------
        MpsFailed
            If it does not tell.
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
        """End a client's work in order: killed in the middle of it, it may harm the others."""
        self.tell(f"terminate_client {server} {client}")

    def quit(self) -> None:
        """Let the daemon end, and remove its folder.

        Raises
        ------
        MpsFailed
            If it does not take the order.
        """
        self.tell("quit")
        gone = _wait(self._processes())
        _signal(gone, is_kill=True)
        self._clear()

    def kill(self) -> None:
        """End whatever of this folder still runs, and remove the folder."""
        left = self._processes()
        _signal(left, is_kill=False)
        _signal(_wait(left), is_kill=True)
        self._clear()

    def tell(self, command: str) -> str:
        """Give the daemon an order and return its answer.

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
        # -M: users of several uids in one server; without it the second one waits for ever.
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
        # Sessions reach their own pipe and can list nothing on the way to it.
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
        """Return the daemon and the servers of this folder, also those of an agent before us."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                # Sessions carry the same variable; they are not ours to end.
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
    """Give processes a moment to end and return those that did not."""
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
