"""Find, poll and kill the processes of a session on this host."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from bai_services.system.procfs import ProcessStat, boot_id, process_stat

KILL_ROUNDS = 20
KILL_WAIT_SECONDS = 0.5
POLL_INTERVAL_SECONDS = 0.002


def is_alive(pid: int, started: str) -> bool:
    """Return whether the process still runs and is not a zombie.

    ``started`` is the result of ``started_at``. Another process may have got the same pid in the
    meantime, but not the same start time.
    """
    now = process_stat(pid)
    return now is not None and _started(now) == started and now.state not in "ZX"


def reap(pid: int) -> None:
    """Collect the exit status of a child process that has ended, so that no zombie remains."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def started_at(pid: int) -> str:
    """Return the boot id and clock tick at which a process started; empty if it does not exist.

    The tick is used instead of a time of day, because it does not change when the clock is set.
    """
    stat = process_stat(pid)
    return _started(stat) if stat else ""


def _started(stat: ProcessStat) -> str:
    return f"{boot_id()} {stat.start_tick}"


def children(pid: int) -> list[psutil.Process]:
    return _matching(lambda one: (stat := process_stat(one)) is not None and stat.parent == pid)


def kernel_processes(kernel_id: str) -> list[psutil.Process]:
    """Return the processes with `BAI_KERNEL_ID` of the kernel in their environment.

    Unlike a walk of the process tree, this search also finds reparented processes.
    """
    return _with_environment_entry(f"BAI_KERNEL_ID={kernel_id}".encode())


def root_of_kernel(kernel_id: str) -> int:
    """Return the pid of the process of a kernel that started the others; 0 if none runs."""
    parents: dict[int, tuple[int, int]] = {}
    for process in kernel_processes(kernel_id):
        if (stat := process_stat(process.pid)) is not None and stat.state not in "ZX":
            parents[process.pid] = (int(stat.start_tick), stat.parent)
    roots = [(tick, pid) for pid, (tick, parent) in parents.items() if parent not in parents]
    return min(roots)[1] if roots else 0


def session_processes(session_id: str) -> list[psutil.Process]:
    """Return the processes with `BAI_SESSION_ID` of the session in their environment."""
    return _with_environment_entry(f"BAI_SESSION_ID={session_id}".encode())


def attached_processes(kernel_id: str) -> list[psutil.Process]:
    """Return the processes of the server that is attached to a kernel (`Engine.attach`)."""
    return _with_environment_entry(f"BAI_ATTACHED_SERVER={kernel_id}".encode())


def kill_attached(kernel_id: str, grace_seconds: float = 0.0) -> None:
    """Stop the server that is attached to a kernel, with all processes that it has started.

    With a grace period, first send SIGTERM to the server itself, so that it stops its apps.
    """
    deadline = time.monotonic() + grace_seconds
    if grace_seconds and (found := attached_processes(kernel_id)):
        pids = {one.pid for one in found}
        signal_all([one for one in found if one.ppid() not in pids], signal.SIGTERM)
    while time.monotonic() < deadline and any(
        _is_running(one) for one in attached_processes(kernel_id)
    ):
        time.sleep(0.05)
    _kill(lambda: attached_processes(kernel_id))


def working_directory(pid: int) -> str:
    """Return the working directory of a process; empty if it has ended."""
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def _with_environment_entry(entry: bytes) -> list[psutil.Process]:
    def has_entry(pid: int) -> bool:
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return pid != os.getpid() and entry in environ.split(b"\0")

    return _matching(has_entry)


def _matching(matches: Callable[[int], bool]) -> list[psutil.Process]:
    """Return the processes of this host whose pid matches."""
    processes = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with suppress(psutil.Error):
            if matches(pid):
                processes.append(psutil.Process(pid))
    return processes


def signal_all(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.Error:
            continue


def kill_kernel(kernel_id: str) -> None:
    """Kill the processes of a kernel; repeat, because they can fork in the meantime."""
    _kill(lambda: kernel_processes(kernel_id))


def kill_session(session_id: str) -> None:
    """Kill the processes of a session; repeat, because they can fork in the meantime."""
    _kill(lambda: session_processes(session_id))


def _kill(find: Callable[[], list[psutil.Process]]) -> None:
    for _ in range(KILL_ROUNDS):
        left = [p for p in find() if _is_running(p)]
        if not left:
            return
        signal_all(left, signal.SIGKILL)
        deadline = time.monotonic() + KILL_WAIT_SECONDS
        while any(_is_running(p) for p in left) and time.monotonic() < deadline:
            for process in left:
                reap(process.pid)
            time.sleep(0.01)


def _is_running(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def wait_or_kill(pid: int, started: str, seconds: float) -> None:
    """Wait at most ``seconds`` for a process that is about to end, then kill it."""
    deadline = time.monotonic() + seconds
    while is_alive(pid, started) and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL_SECONDS)
    kill(pid, started)
    reap(pid)


def kill(pid: int, started: str) -> None:
    """Kill a process; do nothing if it has ended."""
    if is_alive(pid, started):
        # Ignore this error, because the process can end after the check.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def read_status(path: Path) -> dict[str, int]:
    """Return the values in the status file of a kernel; empty if the file cannot be read.

    In a sandbox, ``child-pid`` is the pid of its first process. ``exit-code`` is stored after the
    kernel has ended. It is missing if the process that stores it was killed.
    """
    status: dict[str, int] = {}
    try:
        text = path.read_text()
    except OSError:
        return status
    decoder, position = json.JSONDecoder(), 0
    while (position := text.find("{", position)) >= 0:
        try:
            values, position = decoder.raw_decode(text, position)
        except ValueError:  # the file is being written
            break
        status.update(values)
    return status


def read_tail(path: Path, max_bytes: int) -> str:
    """Return the last ``max_bytes`` of a file; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - max_bytes))
            return file.read(max_bytes).decode(errors="replace")
    except OSError:
        return ""
