"""GlusterFS: limits and usage counters of the directories of a volume."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree

from bai_services.core.errors import Unavailable

from ..base import Capability
from .backend import Backend
from .filesystem import mount_of, require_filesystem, run_tool


class GlusterfsBackend(Backend):
    """Runs ``gluster``, so the manager's machine must belong to the trusted storage pool.

    The bricks enforce a limit for the writes of all clients. They check the usage at intervals
    (options ``features.soft-timeout`` and ``features.hard-timeout`` of the volume), so usage may
    exceed a limit by what is written within an interval.
    """

    def capabilities(self) -> frozenset[Capability]:
        require_filesystem(self.root, ("fuse.glusterfs",), "glusterfs")
        try:
            self._limit(self.root)
        except Unavailable:
            # The command fails while quotas are disabled; `gluster volume quota VOLUME enable`
            # enables them.
            return frozenset()
        return frozenset({Capability.QUOTA, Capability.FAST_USAGE})

    def delete(self, scope: Path) -> None:
        if scope.exists():
            self.set_quota(scope, None)
        super().delete(scope)

    def usage(self, scope: Path) -> int | None:
        return _number(self._limit(scope), "used_space")

    def quota(self, scope: Path) -> int | None:
        return _number(self._limit(scope), "hard_limit")

    def set_quota(self, scope: Path, limit_bytes: int | None) -> None:
        if limit_bytes is not None:
            # A limit of 1 byte rejects every write, as a quota of 0 must.
            self._quota("limit-usage", scope, str(max(limit_bytes, 1)))
        elif self.quota(scope) is not None:
            self._quota("remove", scope)

    def _limit(self, scope: Path) -> ElementTree.Element:
        """Return limit and usage of a directory.

        Raises
        ------
        Unavailable
            If the volume has no quotas, or its server does not respond.
        """
        answer = ElementTree.fromstring(self._quota("list", scope, "--xml"))
        limit = answer.find("volQuota/limit")
        if limit is None:
            reason = answer.findtext("opErrstr") or "no quota is listed"
            raise Unavailable(f"gluster volume quota failed: {reason}")
        return limit

    def _quota(self, action: str, scope: Path, *words: str) -> str:
        volume, path = self._place(scope)
        return run_tool("gluster", "--mode=script", "volume", "quota", volume, action, path, *words)

    @staticmethod
    def _place(scope: Path) -> tuple[str, str]:
        """Return the volume that contains a directory, and the directory's path in the volume."""
        mount = mount_of(scope)
        if mount is None:
            raise Unavailable(f"{scope} is not on a GlusterFS volume")
        # SERVER:VOLUME, SERVER:/VOLUME or SERVER:/VOLUME/SUBDIRECTORY; an IPv6 address has colons.
        volume, _, subdirectory = mount.source.rpartition(":")[2].lstrip("/").partition("/")
        below = os.path.relpath(scope.absolute(), mount.point)
        return volume, os.path.normpath(f"/{subdirectory}/{below}")


def _number(limit: ElementTree.Element, name: str) -> int | None:
    text = limit.findtext(name) or ""
    return int(text) if text.isdecimal() else None
