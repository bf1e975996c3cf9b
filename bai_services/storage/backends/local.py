"""Backend for any mounted file system: a local disk, NFS, SMB, EFS, GlusterFS or a gateway."""

from __future__ import annotations

from ..base import Capability
from ..trees import can_share_blocks
from .backend import Backend


class LocalBackend(Backend):
    """Uses only operations that every file system supports.

    The manager enforces quotas on its own writes by rejecting them. Writes by sessions are counted,
    but not limited.
    """

    def capabilities(self) -> frozenset[Capability]:
        return frozenset({Capability.FAST_CLONE} if can_share_blocks(self.root) else ())
