"""XFS and ext4 with project quotas: one project id of the file system for each quota scope."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import struct
from pathlib import Path

from bai_services.core.errors import Unavailable

from ..base import Capability
from ..trees import can_share_blocks, descriptor
from .backend import Backend
from .filesystem import require_filesystem

# linux/fs.h: struct fsxattr {u32 xflags, extsize, nextents, projid, cowextsize; u8 pad[8]}
_FSXATTR = struct.Struct("=5I8x")
_FSGETXATTR = 0x801C581F
_FSSETXATTR = 0x401C5820
_XFLAG_PROJINHERIT = 0x200
# linux/quota.h: struct if_dqblk, limits in blocks of 1024 bytes, space in bytes
_DQBLK = struct.Struct("=8QI4x")
_BLOCK_BYTES = 1024
_PRJQUOTA = 2
_Q_GETQUOTA = 0x800007
_Q_SETQUOTA = 0x800008
_QIF_BLIMITS = 1
_SYS_QUOTACTL_FD = 443  # since Linux 5.14, the same on x86, ARM and RISC-V

_NUMBERS = ".projects"
_FIRST_NUMBER = 2**20  # lower project ids are reserved for administrators
_libc = ctypes.CDLL(None, use_errno=True)


class ProjectQuotaBackend(Backend):
    """Common code of XFS and ext4, which share the kernel's quota interface; needs root.

    The project id of a scope is set on its directory and inherited by new entries. For each id in
    use, a file in ``ROOT/.projects`` contains the path of the scope.
    """

    filesystem = ""
    remedy = ""

    def capabilities(self) -> frozenset[Capability]:
        require_filesystem(self.root, (self.filesystem,), self.filesystem)
        capabilities = {Capability.FAST_CLONE} if can_share_blocks(self.root) else set()
        try:
            self._read(self.root, 0)
        except OSError as error:
            if error.errno in (errno.ESRCH, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL):
                return frozenset(capabilities)  # not mounted with project quotas; see ``remedy``
            raise
        return frozenset(capabilities | {Capability.QUOTA, Capability.FAST_USAGE})

    def create(self, scope: Path) -> None:
        super().create(scope)
        try:
            set_project(scope, self._number(scope))
        except OSError as error:
            if error.errno not in (errno.ENOTTY, errno.EOPNOTSUPP, errno.ENOTSUP):
                raise
            raise Unavailable(f"{self.root} does not store project ids: {self.remedy}") from error

    def usage(self, scope: Path) -> int | None:
        return self._read(scope, project_of(scope))[2]

    def quota(self, scope: Path) -> int | None:
        return self._read(scope, project_of(scope))[0] * _BLOCK_BYTES or None

    def set_quota(self, scope: Path, limit_bytes: int | None) -> None:
        # 0 would mean "no limit"; a limit of one block is the smallest possible.
        blocks = 0 if limit_bytes is None else max(-(-limit_bytes // _BLOCK_BYTES), 1)
        wanted = _DQBLK.pack(blocks, 0, 0, 0, 0, 0, 0, 0, _QIF_BLIMITS)
        _quotactl(scope, _Q_SETQUOTA, project_of(scope), wanted)

    def _read(self, path: Path, number: int) -> tuple[int, ...]:
        return _DQBLK.unpack(_quotactl(path, _Q_GETQUOTA, number, bytes(_DQBLK.size)))

    def _number(self, scope: Path) -> int:
        numbers = self.root / _NUMBERS
        numbers.mkdir(mode=0o700, exist_ok=True)
        name = str(scope.relative_to(self.root))
        spread = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
        number = _FIRST_NUMBER + spread % 2**30
        while True:
            mark = numbers / str(number)
            try:
                with descriptor(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)) as file:
                    os.write(file, name.encode())
                return number
            except FileExistsError:
                # The id already belongs to this scope or, after a hash collision, to another scope.
                if mark.read_text() in (name, ""):
                    mark.write_text(name)
                    return number
                number += 1


class XfsBackend(ProjectQuotaBackend):
    """XFS, mounted with ``prjquota``."""

    filesystem = "xfs"
    remedy = "mount it with the option prjquota"


class Ext4Backend(ProjectQuotaBackend):
    """ext4, formatted with ``-O project,quota`` and mounted with ``prjquota``."""

    filesystem = "ext4"
    remedy = (
        "format it with mkfs.ext4 -O project,quota (or enable them with tune2fs) and mount it "
        "with prjquota"
    )


def project_of(path: Path) -> int:
    """Return the project id of a file or directory."""
    with descriptor(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as file:
        return int(_FSXATTR.unpack(fcntl.ioctl(file, _FSGETXATTR, bytes(_FSXATTR.size)))[3])


def set_project(directory: Path, number: int) -> None:
    """Set a directory's project id, which new entries in it inherit."""
    with descriptor(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as file:
        known = list(_FSXATTR.unpack(fcntl.ioctl(file, _FSGETXATTR, bytes(_FSXATTR.size))))
        known[0] |= _XFLAG_PROJINHERIT
        known[3] = number
        fcntl.ioctl(file, _FSSETXATTR, _FSXATTR.pack(*known))


def _quotactl(path: Path, command: int, number: int, block: bytes) -> bytes:
    buffer = ctypes.create_string_buffer(block, len(block))
    with descriptor(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as file:
        result = _libc.syscall(
            ctypes.c_long(_SYS_QUOTACTL_FD),
            ctypes.c_uint(file),
            ctypes.c_uint(command << 8 | _PRJQUOTA),
            ctypes.c_uint(number),
            ctypes.byref(buffer),
        )
    if result:
        failed = ctypes.get_errno()
        raise OSError(failed, os.strerror(failed), str(path))
    return buffer.raw
