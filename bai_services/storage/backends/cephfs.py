"""CephFS: quotas and usage counters in extended attributes of a scope's directory."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from ..base import Capability
from .backend import Backend
from .filesystem import require_filesystem

_ABSENT = (errno.ENODATA, errno.ENOTSUP, errno.EOPNOTSUPP)


class CephfsBackend(Backend):
    """CephFS, mounted by the kernel (``ceph``) or by FUSE (``fuse.ceph-fuse``).

    The client's key needs the capability ``p`` to set quotas. Ceph clients enforce a quota with a
    delay of some seconds, so usage may exceed the limit slightly.
    """

    filesystems: tuple[str, ...] = ("ceph", "fuse.ceph-fuse", "fuse.ceph")
    limit_attribute = "ceph.quota.max_bytes"
    usage_attribute = "ceph.dir.rbytes"

    def capabilities(self) -> frozenset[Capability]:
        require_filesystem(self.root, self.filesystems, "cephfs")
        if self._read(self.root, self.usage_attribute) is None:
            return frozenset()
        return frozenset({Capability.QUOTA, Capability.FAST_USAGE})

    def usage(self, scope: Path) -> int | None:
        return self._read(scope, self.usage_attribute)

    def quota(self, scope: Path) -> int | None:
        return self._read(scope, self.limit_attribute) or None

    def set_quota(self, scope: Path, limit_bytes: int | None) -> None:
        # CephFS reads 0 as "no limit". A quota of 0 is therefore set as 1 byte, the smallest limit.
        value = 0 if limit_bytes is None else max(limit_bytes, 1)
        os.setxattr(scope, self.limit_attribute, str(value).encode())

    @staticmethod
    def _read(path: Path, attribute: str) -> int | None:
        try:
            return int(os.getxattr(path, attribute))
        except OSError as error:
            if error.errno not in _ABSENT:
                raise
            return None
