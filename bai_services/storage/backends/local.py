"""Any mounted file system: this machine's disk, NFS, SMB, EFS, GlusterFS, a gateway's mount."""

from __future__ import annotations

from ..base import Capability
from ..trees import can_share_blocks
from .backend import Backend


class LocalBackend(Backend):
    """Uses only what every file system supports.

    Quotas are enforced by refusing further writes through the manager; what a session writes
    directly is only counted.
    """

    def capabilities(self) -> frozenset[Capability]:
        return frozenset({Capability.FAST_CLONE} if can_share_blocks(self.root) else ())
