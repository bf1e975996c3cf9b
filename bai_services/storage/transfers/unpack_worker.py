"""Unpack one archive in a process that can be limited and killed.

    python -m bai_services.storage.transfers.unpack_worker

The job comes as JSON on standard input and the result goes as JSON to standard output. SIGTERM
ends it at any time before the first file appears in the folder; from then on it finishes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bai_services.core.errors import BaiError

from .. import safe_paths
from ..folder import OpenFolder, Owner
from ..trees import descriptor
from ..workers import translated
from .unpacking import Unpacked, Unpacking

MEMORY_BYTES = 512 * 2**20
OPEN_FILES = 256
# Lower priority than the manager and the sessions' requests.
NICENESS = 5
_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True, slots=True)
class Job:
    """Absolute paths, and ``above``: the directory in the folder to unpack at.

    ``owner`` is uid and gid of new files, None for the manager's own; ``cpu_seconds`` is the limit
    of processor time.
    """

    folder: str
    staging: str
    archive: str
    above: list[str]
    max_bytes: int
    owner: tuple[int, int] | None
    has_kernel_opener: bool
    cpu_seconds: int


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    job = Job(**json.load(sys.stdin.buffer))
    _confine(job.cpu_seconds)
    try:
        answer: dict[str, Any] = asdict(translated(_unpack, job))
    except BaiError as error:
        answer = {"error": error.code, "message": error.message, "details": error.details}
    json.dump(answer, sys.stdout)


def _confine(cpu_seconds: int) -> None:
    """Drop privileges that unpacking does not need; resource limits apply even where that fails."""
    for kind, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.unshare(_CLONE_NEWNET)
    with contextlib.suppress(OSError):
        os.nice(NICENESS)


def _unpack(job: Job) -> Unpacked:
    opener = safe_paths.open_with_kernel if job.has_kernel_opener else safe_paths.open_walking
    owner = None if job.owner is None else Owner(*job.owner)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with descriptor(os.open(job.folder, flags)) as root:
        folder = OpenFolder(root, opener, owner)
        return Unpacking(
            folder, tuple(job.above), Path(job.staging), job.max_bytes, _before_placing
        ).run(Path(job.archive))


def _before_placing() -> None:
    # Half of an archive's files must not appear: from here on only a crash stops it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


if __name__ == "__main__":
    main()
