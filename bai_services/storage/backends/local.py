"""Any mounted file system: this machine's disk, NFS, SMB, EFS, GlusterFS, a gateway's mount."""

from __future__ import annotations

from ..base import Capability
from ..trees import can_share_blocks
from .backend import Backend


class LocalBackend(Backend):
    """Knows nothing of the file system but what every one can do.

    Quotas are held by refusing further writes through us; what a session writes
    by itself is only counted.
    """

    def capabilities(self) -> frozenset[Capability]:
        return frozenset({Capability.FAST_CLONE} if can_share_blocks(self.root) else ())
