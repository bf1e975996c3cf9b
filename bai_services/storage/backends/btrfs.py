"""btrfs: a subvolume for each quota scope, limited by its quota group."""

from __future__ import annotations

import os
from pathlib import Path

from bai_services.core.errors import Unavailable
from bai_services.system.descent import remove_tree

from ..base import Capability
from .backend import PRIVATE_MODE, Backend
from .filesystem import require_filesystem, run_tool

# Inode number of the root directory of every subvolume.
_SUBVOLUME_INODE = 256


class BtrfsBackend(Backend):
    """Runs the ``btrfs`` tool (btrfs-progs), which needs root."""

    def capabilities(self) -> frozenset[Capability]:
        require_filesystem(self.root, ("btrfs",), "btrfs")
        capabilities = {Capability.FAST_CLONE}
        try:
            run_tool("btrfs", "qgroup", "show", str(self.root))
        except Unavailable:
            # The command fails while quotas are disabled; `btrfs quota enable PATH` enables them.
            return frozenset(capabilities)
        return frozenset(capabilities | {Capability.QUOTA, Capability.FAST_USAGE})

    def create(self, scope: Path) -> None:
        scope.parent.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
        if scope.exists():
            return
        run_tool("btrfs", "subvolume", "create", str(scope))
        os.chmod(scope, PRIVATE_MODE)

    def delete(self, scope: Path) -> None:
        if not scope.exists():
            return
        if os.stat(scope).st_ino != _SUBVOLUME_INODE:
            remove_tree(scope)
            return
        group = self._group(scope)
        run_tool("btrfs", "subvolume", "delete", "--commit-after", str(scope))
        try:
            run_tool("btrfs", "qgroup", "destroy", group, str(self.root))
        except Unavailable:
            return  # newer kernels remove the quota group with its subvolume

    def usage(self, scope: Path) -> int | None:
        return int(self._row(scope)[1])

    def quota(self, scope: Path) -> int | None:
        limit = self._row(scope)[3]
        return int(limit) if limit.isdecimal() else None

    def set_quota(self, scope: Path, limit_bytes: int | None) -> None:
        # btrfs reads 0 as "no limit". A quota of 0 is therefore set as 1 byte, which also rejects
        # every write.
        text = "none" if limit_bytes is None else str(max(limit_bytes, 1))
        run_tool("btrfs", "qgroup", "limit", text, str(scope))

    def _row(self, scope: Path) -> list[str]:
        group = self._group(scope)
        shown = run_tool("btrfs", "qgroup", "show", "--raw", "--sync", "-r", str(scope))
        for line in shown.splitlines():
            words = line.split()
            if words and words[0] == group:
                return words
        raise Unavailable(f"btrfs has no quota group {group}; run btrfs quota rescan {self.root}")

    @staticmethod
    def _group(scope: Path) -> str:
        return "0/" + run_tool("btrfs", "inspect-internal", "rootid", str(scope)).strip()
