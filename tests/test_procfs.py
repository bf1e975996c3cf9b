"""Reading processes and mounts from ``/proc``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bai_services.system import procfs


def test_process_with_parentheses_in_its_name_is_read(tmp_path: Path) -> None:
    program = tmp_path / "a) S (b"
    program.symlink_to(sys.executable)
    with subprocess.Popen([program, "-c", "input()"], stdin=subprocess.PIPE) as process:
        stat = procfs.process_stat(process.pid)
        assert process.stdin is not None
        process.stdin.close()
    assert stat is not None
    assert stat.parent == os.getpid()
    assert int(stat.start_tick) > 0


def test_stat_of_a_missing_process_is_none() -> None:
    assert procfs.process_stat(2**22 + 1) is None


def test_mounts_include_all_mounts_of_psutil() -> None:
    points = {(mount.point, mount.filesystem) for mount in procfs.mounts()}
    for part in psutil.disk_partitions(all=True):
        assert (part.mountpoint, part.fstype) in points


@pytest.mark.parametrize(
    ("line", "point"),
    [
        (rb"36 35 98:0 / /mnt/a\040b rw shared:1 - ext4 /dev/sda1 rw", "/mnt/a b"),
        ("36 35 98:0 / /mnt/가 rw - btrfs /dev/sda1 rw".encode(), "/mnt/가"),
        (rb"36 35 98:0 / /mnt/a\134040b rw - ext4 none rw", r"/mnt/a\040b"),
    ],
)
def test_mount_point_is_decoded(line: bytes, point: str) -> None:
    assert procfs.mount_of(line).point == point
