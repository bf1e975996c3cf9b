"""Unpack one archive in a separate process, with resource limits.

    python -m bai_services.storage.transfers.unpack_worker

Reads the job as a line of JSON from standard input and writes the result as a line of JSON to
standard output. Before it moves files into the folder, it writes ``{"total_bytes": …}`` and waits
for a line. SIGTERM ends the process, unless it has begun to move files into the folder: then
SIGTERM is ignored.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bai_services.core.errors import BaiError
from bai_services.core.folders.entries import Unpacked
from bai_services.system.confinement import drop_privileges, limit_resources, outlive_parent

from .. import safe_paths
from ..folder import OpenFolder, Owner
from ..trees import descriptor
from ..workers import translate_errors
from .unpacking import Unpacking

MEMORY_BYTES = 512 * 2**20
OPEN_FILES = 256
# Niceness added to that of the manager, so that this process has a lower CPU priority.
NICENESS = 5


@dataclass(frozen=True, slots=True)
class Job:
    """An archive to unpack. ``folder``, ``staging`` and ``archive`` are absolute paths.

    ``above`` is the path of the target directory inside the folder, as a list of names.
    ``owner`` is the uid and gid of new files; None means the uid and gid of this process.
    ``has_kernel_opener`` is true if openat2 is available. ``cpu_seconds`` is the limit of CPU time.
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
    job = Job(**json.loads(sys.stdin.buffer.readline()))
    limit_resources(
        {
            resource.RLIMIT_AS: MEMORY_BYTES,
            resource.RLIMIT_CPU: job.cpu_seconds,
            resource.RLIMIT_NOFILE: OPEN_FILES,
        }
    )
    drop_privileges(NICENESS)
    try:
        result: dict[str, Any] = asdict(translate_errors(_unpack, job))
    except BaiError as error:
        result = {"error": error.code, "message": error.message, "details": error.details}
    _write(result)


def _unpack(job: Job) -> Unpacked:
    opener = safe_paths.open_with_kernel if job.has_kernel_opener else safe_paths.open_walking
    owner = None if job.owner is None else Owner(*job.owner)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with descriptor(os.open(job.folder, flags)) as root:
        folder = OpenFolder(root, opener, owner)
        return Unpacking(
            folder, tuple(job.above), Path(job.staging), job.max_bytes, _before_commit
        ).run(Path(job.archive))


def _before_commit(total_bytes: int) -> None:
    _write({"total_bytes": total_bytes})
    if not sys.stdin.buffer.readline():
        sys.exit(1)  # the manager has ended
    # Ignore SIGTERM and the end of the parent from now on: a partly unpacked archive must not
    # remain in the folder.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    outlive_parent()


def _write(content: Mapping[str, Any]) -> None:
    print(json.dumps(content), flush=True)


if __name__ == "__main__":
    main()
