"""Facts from ``/proc`` about this boot, its processes and its mounts (proc(5))."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

_OCTAL_ESCAPE = re.compile(rb"\\([0-7]{3})")


@cache
def boot_id() -> str:
    """Return the id of the running boot of this machine.

    Raises
    ------
    OSError
        If ``/proc`` cannot be read.
    """
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class ProcessStat(NamedTuple):
    """State (a letter; ``Z``: zombie), pid of the parent, and start in clock ticks since boot."""

    state: str
    parent: int
    start_tick: str


def process_stat(pid: int) -> ProcessStat | None:
    """Return the facts about a process, None if it does not exist."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The name in parentheses may contain spaces and parentheses; the fields 3, 4 and 22 come after
    # it.
    fields = text.rpartition(")")[2].split()
    return ProcessStat(fields[0], int(fields[1]), fields[19])


class Mount(NamedTuple):
    """A mounted file system: device as ``major:minor``, mount point, type, and source."""

    device: str
    point: str
    filesystem: str
    source: str = ""


def mounts() -> list[Mount]:
    """Return the mounts that this process sees, in the order in which they were made.

    Raises
    ------
    OSError
        If ``/proc`` is not mounted.
    """
    return [mount_of(line) for line in Path("/proc/self/mountinfo").read_bytes().splitlines()]


def mount_of(line: bytes) -> Mount:
    """Return the mount that a line of ``mountinfo`` describes."""
    words, _, rest = line.partition(b" - ")
    fields = words.split()
    point = _OCTAL_ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), fields[4])
    filesystem, source = (rest.split() + [b""])[:2]
    return Mount(fields[2].decode(), os.fsdecode(point), filesystem.decode(), os.fsdecode(source))
