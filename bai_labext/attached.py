"""Server in the container of a batch session: its log, and ``python -m bai_labext.attached``.

The command stops the server of a kernel and all processes that the server has started; the kernel's
own command continues. It is run in the container, where these processes have the same user.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

VARIABLE = "BAI_ATTACHED_SERVER"
LOG = ".local/state/bai/server.log"
POLL_SECONDS = 0.05
KILL_ROUNDS = 100


def redirect_output(environ: Mapping[str, str]) -> None:
    """Write the output of an attached server to a file: it does not belong to the session's log."""
    if VARIABLE not in environ:
        return
    path = Path(environ.get("HOME") or ".") / LOG
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError:
        descriptor = os.open(os.devnull, os.O_WRONLY)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)


def stop(kernel_id: str, grace_seconds: float) -> None:
    """Send SIGTERM to the server, and SIGKILL to all its processes after the grace period."""
    deadline = time.monotonic() + grace_seconds
    if grace_seconds:
        found = processes(kernel_id)
        _signal([pid for pid, parent in found.items() if parent not in found], signal.SIGTERM)
    while time.monotonic() < deadline and processes(kernel_id):
        time.sleep(POLL_SECONDS)
    for _ in range(KILL_ROUNDS):  # processes can fork in the meantime
        if not (found := processes(kernel_id)):
            return
        _signal(list(found), signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def processes(kernel_id: str) -> dict[int, int]:
    """Return the parent of each process of the server, by process id."""
    entry = f"{VARIABLE}={kernel_id}".encode()
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with suppress(OSError):
            if entry in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                state, parent = (
                    Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[:2]
                )
                if state not in "ZX":
                    found[int(name)] = int(parent)
    return found


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


if __name__ == "__main__":
    stop(sys.argv[1], float(sys.argv[2]))
