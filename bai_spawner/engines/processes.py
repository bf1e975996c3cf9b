"""Processes of this machine: find, watch and kill those of a session."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import psutil

KILL_ROUNDS = 20
KILL_WAIT_SECONDS = 0.5
STEP_SECONDS = 0.002


def is_alive(pid: int, started: str) -> bool:
    """Return whether process ``pid`` is still the one with that start time; a zombie is not
    alive.
    """
    reap(pid)
    now = _stat(pid)
    return now is not None and now.started == started and now.state not in "ZX"


def reap(pid: int) -> None:
    """Reap an ended child process, so that it does not remain a zombie."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def started_at(pid: int) -> str:
    """Return the boot id and clock tick at which a process started; empty without such a process.

    Not the time of day: setting the clock must not make a process look like another one.
    """
    found = _stat(pid)
    return found.started if found else ""


def children(pid: int) -> list[psutil.Process]:
    return _those(lambda one: (found := _stat(one)) is not None and found.parent == pid)


class _Stat(NamedTuple):
    state: str
    parent: int
    started: str


def _stat(pid: int) -> _Stat | None:
    """Return the kernel's record of a process (proc_pid_stat(5), fields 3, 4 and 22)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return _Stat(fields[0], int(fields[1]), f"{_boot()} {fields[19]}")


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def of_kernel(kernel_id: str) -> list[psutil.Process]:
    """Return every process with the kernel's mark, even if it was reparented."""
    return _marked(f"BAI_KERNEL_ID={kernel_id}".encode())


def of_session(session_id: str) -> list[psutil.Process]:
    """Return every process with the session's mark, even if it was reparented."""
    return _marked(f"BAI_SESSION_ID={session_id}".encode())


def _marked(mark: bytes) -> list[psutil.Process]:
    def is_marked(pid: int) -> bool:
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return pid != os.getpid() and mark in environ.split(b"\0")

    return _those(is_marked)


def _those(is_meant: Callable[[int], bool]) -> list[psutil.Process]:
    """Return the matching processes of this machine."""
    found = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with suppress(psutil.Error):
            if is_meant(pid):
                found.append(psutil.Process(pid))
    return found


def signal_all(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.Error:
            continue


def kill_kernel(kernel_id: str) -> None:
    """Kill every process of a kernel; repeat until no newly forked one is left."""
    _kill(lambda: of_kernel(kernel_id))


def kill_session(session_id: str) -> None:
    """Kill every process of a session; repeat until no newly forked one is left."""
    _kill(lambda: of_session(session_id))


def _kill(find: Callable[[], list[psutil.Process]]) -> None:
    for _ in range(KILL_ROUNDS):
        left = [p for p in find() if _lives(p)]
        if not left:
            return
        signal_all(left, signal.SIGKILL)
        deadline = time.monotonic() + KILL_WAIT_SECONDS
        while any(_lives(p) for p in left) and time.monotonic() < deadline:
            for process in left:
                reap(process.pid)
            time.sleep(0.01)


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def outlast(pid: int, started: str, seconds: float) -> None:
    """Wait for a process that is about to end, and kill it if it does not."""
    deadline = time.monotonic() + seconds
    while is_alive(pid, started) and time.monotonic() < deadline:
        time.sleep(STEP_SECONDS)
    if is_alive(pid, started):
        os.kill(pid, signal.SIGKILL)


def read_status(path: Path) -> dict[str, int]:
    """Read the status file of a sandbox: ``child-pid``, later ``exit-code``."""
    found: dict[str, int] = {}
    try:
        text = path.read_text()
    except OSError:
        return found
    decoder, position = json.JSONDecoder(), 0
    while (position := text.find("{", position)) >= 0:
        try:
            values, position = decoder.raw_decode(text, position)
        except ValueError:  # partially written
            break
        found.update(values)
    return found


def read_tail(path: Path, max_bytes: int) -> str:
    """Return the end of a file, empty if it does not exist."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - max_bytes))
            return file.read(max_bytes).decode(errors="replace")
    except OSError:
        return ""
